"""The papers' benchmarks: presets of the ablation, metrics, tables, figures and commands, one
module per paper.

A module registers itself with `agentgym.training.evaluation.register_paper`. All modules of this
folder are imported here in alphabetical order, so a new file needs no other change.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

__all__ = [module.name for module in pkgutil.iter_modules(__path__)]

for _name in __all__:
    import_module(f"{__name__}.{_name}")
