"""Viewer of logged episodes as a web page, which is served on this machine or exported as one file.

The page has no external references, and inserts model text as text, never as markup.
"""

from agentgym.training.viewer.episode_view import build_view
from agentgym.training.viewer.page import ViewerServer, write_page
from agentgym.training.viewer.run_index import RunIndex

__all__ = ["RunIndex", "ViewerServer", "build_view", "write_page"]
