"""Viewer of runs: the episodes of logs as a page in a browser, served on this machine or written
as one file.

The page has no outside reference, and whatever a model wrote is text in it, never markup.
"""

from agentgym.training.viewer.episode_view import build_view
from agentgym.training.viewer.page import ViewerServer, write_page
from agentgym.training.viewer.run_index import RunIndex

__all__ = ["RunIndex", "ViewerServer", "build_view", "write_page"]
