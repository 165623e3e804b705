"""Host requirements of worlds, toolsets and wrappers, checked when an env is created."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType

# The import names of each extra's packages.
PACKAGES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "code": ("pydantic_monty",),
        "embed": ("wordllama",),
        "images": ("PIL",),
        "office": (
            *("PIL", "duckdb", "openpyxl", "pandas", "pypdf"),
            *("reportlab", "sqlglot", "tzdata"),
        ),
    }
)


# On PyPI, `agentgym` is a different project.
DISTRIBUTION = "agentgym-suite"


def install_command(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


class MissingRequirement(ImportError, RuntimeError, ValueError):
    """Error for missing packages (`ImportError`) or programs (`RuntimeError`)."""


def check_requirements(owner: str, requirements: Mapping[str, str]) -> None:
    """Check that this host meets requirements; raise MissingRequirement otherwise.

    Keys are `programs` (bash and CPython in a sandbox), `bubblewrap` (the code sandbox), or extras
    in `PACKAGES`. Each value is the alternative that the error message suggests, or empty.
    """
    for name, alternative in requirements.items():
        suffix = f"; or {alternative}" if alternative else ""
        if name in PACKAGES:
            if missing := [package for package in PACKAGES[name] if find_spec(package) is None]:
                raise MissingRequirement(
                    f"{owner} needs {', '.join(missing)}: {install_command(name)}{suffix}"
                )
        else:
            try:
                import_module(_CHECKING_MODULES[name]).check()
            except (ImportError, RuntimeError) as error:
                raise MissingRequirement(
                    f"{owner} cannot be created on this host: {error}{suffix}"
                ) from error


# Modules with a function `check`, imported on demand because they need Unix-only modules.
_CHECKING_MODULES: Mapping[str, str] = {
    "programs": "agentgym.sandboxes.workbench",
    "bubblewrap": "agentgym.sandboxes.bubblewrap",
}
