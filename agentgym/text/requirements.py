"""Host requirements of envs, checked when an env is made and never mid-episode.

Worlds, toolsets and wrappers declare them as data by the names below. An env is identical on every
host that can make it, so a program needed by one of its tools is required for all.
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
"""The packages of each extra that envs declare, by import name."""


DISTRIBUTION = "agentgym-suite"
"""The name on PyPI, where `agentgym` is another project."""


class MissingRequirement(ImportError, RuntimeError, ValueError):
    """Error: the host lacks something that an env needs.

    It is an `ImportError` because of packages, a `RuntimeError` because of programs, and a
    `ValueError` because the user can fix it.
    """


def check_requirements(owner: str, requirements: Mapping[str, str]) -> None:
    """Check that this host meets the requirements of a world, a toolset or a wrapper.

    Args:
        owner: Its name, for the error.
        requirements: The alternative for the user (or an empty text), by requirement: `programs`
            (bash and CPython in a sandbox), `bubblewrap` (the code sandbox), or an extra in
            `PACKAGES`.

    Raises:
        MissingRequirement: A requirement is not met; the text says how to meet it.
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


# Modules with a function `check`, which runs once per process. They are imported on demand because
# they need Unix-only modules.
_CHECKING_MODULES: Mapping[str, str] = {
    "programs": "agentgym.sandboxes.workbench",
    "bubblewrap": "agentgym.sandboxes.bubblewrap",
}
