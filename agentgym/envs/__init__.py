"""The worlds.

Every module in this package is imported here, and each registers what it holds: a new world is one
new file.
"""

import pkgutil as _pkgutil
from importlib import import_module as _import_module

for _module in _pkgutil.walk_packages(__path__, __name__ + "."):
    if (
        ".servers." not in _module.name
    ):  # they register nothing, and some need libraries that take long to load
        _import_module(_module.name)
