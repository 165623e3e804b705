"""The worlds.

A new world is one new file: what the modules in this package register is read from their sources,
and a module is imported when its world is first made or inspected.
"""

from agentgym.lazy_registration import register_worlds

# The servers of the office are no worlds, and some need libraries that take long to load.
register_worlds(__name__, skip=("servers",))
