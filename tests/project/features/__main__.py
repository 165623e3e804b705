"""Run the program of an extra, and let it import only the extra's packages.

`python -m tests.project.features lora`
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterable
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, ClassVar

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def closure(extra: str) -> set[str]:
    found, queue = {"pip", "setuptools"}, [("agentgym-suite", frozenset({extra}))]
    asked: set[tuple[str, frozenset[str]]] = set()
    while queue:
        name, extras = queue.pop()
        if (name, extras) in asked:
            continue
        asked.add((name, extras))
        try:
            required = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:  # for another system
            continue
        found.add(name)
        for requirement in map(Requirement, required):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": each}) for each in (*extras, "")):
                queue.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return found


def hidden_modules(seen: set[str]) -> set[str]:
    return {
        module
        for module, owners in metadata.packages_distributions().items()
        if not {canonicalize_name(owner) for owner in owners} & seen
    }


class Narrow(PathFinder):
    seen: ClassVar[set[str]] = set()
    hidden: ClassVar[set[str]] = set()

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname in cls.hidden:  # a package may contain a module of the same name
            path = [place for place in path or sys.path if Path(place).name != "site-packages"]
        return super().find_spec(fullname, path, target)

    @staticmethod
    def find_distributions(*args: Any, **kwargs: Any) -> Iterable[Any]:
        found = PathFinder.find_distributions(*args, **kwargs)
        return (each for each in found if canonicalize_name(each.name or "") in Narrow.seen)


def main(extra: str) -> None:
    Narrow.seen = closure("" if extra == "core" else extra)
    Narrow.hidden = hidden_modules(Narrow.seen)
    sys.meta_path[:] = [Narrow if finder is PathFinder else finder for finder in sys.meta_path]
    for name in [name for name in sys.modules if name.partition(".")[0] in Narrow.hidden]:
        del sys.modules[name]  # already imported by a .pth file
    runpy.run_module(f"tests.project.features.{extra}", run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1])
