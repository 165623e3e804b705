"""Requirements that an env has of the host: checked when it is made, never in mid-episode.

Worlds, toolsets and wrappers declare them as data, by the names below. An env is the same on every
host that can make it: a program or package that only some of its tools need is needed by all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType

PACKAGES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "code": ("pydantic_monty",),
        "embed": ("wordllama",),
        "images": ("PIL",),
        "office": (
            *("PIL", "duckdb", "icalendar", "openpyxl", "pandas", "pypdf"),
            *("re2", "regex", "reportlab", "sqlglot", "tzdata"),
        ),
    }
)
"""The packages of each extra that envs declare, by the names under which they are imported."""


class MissingRequirement(ImportError, RuntimeError, ValueError):
    """The host lacks what an env needs.

    It is an `ImportError`, as for any package, a `RuntimeError`, as for any program, and a
    `ValueError`, as it is the user who can fix it.
    """


def check_requirements(owner: str, requirements: Mapping[str, str]) -> None:
    """Check that this host has what a world, a toolset or a wrapper needs.

    Args:
        owner: Its name, for the error.
        requirements: By name, what a user can do without it, or an empty text. The names are
            `programs` (bash and CPython on files, in a sandbox), `bubblewrap` (the sandbox of code
            of that name), and the extras in `PACKAGES`.

    Raises:
        MissingRequirement: Something is missing; the text says how to get it.
        KeyError: There is no such requirement.
    """
    for name, alternative in requirements.items():
        suffix = f"; or {alternative}" if alternative else ""
        if name in PACKAGES:
            if missing := [package for package in PACKAGES[name] if find_spec(package) is None]:
                raise MissingRequirement(
                    f"{owner} needs {', '.join(missing)}: pip install 'agentgym[{name}]'{suffix}"
                )
        else:
            try:
                import_module(_CHECKING_MODULES[name]).check()
            except (ImportError, RuntimeError) as error:
                raise MissingRequirement(
                    f"{owner} cannot be made on this host: {error}{suffix}"
                ) from error


_CHECKING_MODULES: Mapping[str, str] = {
    "programs": "agentgym.sandboxes.workbench",
    "bubblewrap": "agentgym.sandboxes.bubblewrap",
}
"""Modules with a function `check`, which does its work once in a process. They need others that
Python has on Unix only, so they are imported when they are asked.
"""
