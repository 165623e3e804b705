"""The papers' benchmarks, one module per paper: presets, metrics, tables, figures and commands.

Modules are imported in alphabetical order and register themselves, so adding a paper requires only
a new file.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

__all__ = [module.name for module in pkgutil.iter_modules(__path__)]

for _name in __all__:
    import_module(f"{__name__}.{_name}")
