"""Sandboxes for code that a model wrote: interpreters whose code calls functions of the host, and a
workbench for programs.

The code is hostile by assumption. It reaches the host through the functions it is given and through
nothing else; a call blocks until the host has answered it, runs exactly once, and no code is ever
run again to get back to where it was.

`make_sandbox` chooses an interpreter: `monty` (a subset of Python, quick) or `bubblewrap` (full
CPython in Linux namespaces). The workbench (`agentgym.sandboxes.workbench`) runs bash, the usual
tools and CPython on files. It and `bubblewrap` start their processes by
`agentgym.sandboxes.namespaces`.
"""

from agentgym.sandboxes.base import (
    DEFAULT_LIMITS,
    Functions,
    Limits,
    RunResult,
    Sandbox,
    SandboxUnavailable,
)
from agentgym.sandboxes.bubblewrap import BubblewrapSandbox
from agentgym.sandboxes.monty import MontySandbox
from agentgym.text.requirements import check_requirements
from agentgym.text.validation import check_choice

__all__ = [
    "DEFAULT_LIMITS",
    "SANDBOXES",
    "BubblewrapSandbox",
    "Functions",
    "Limits",
    "MontySandbox",
    "RunResult",
    "Sandbox",
    "SandboxUnavailable",
    "make_sandbox",
]

SANDBOXES: dict[str, type[Sandbox]] = {"monty": MontySandbox, "bubblewrap": BubblewrapSandbox}
"""The interpreters by name, the default first."""


def make_sandbox(name: str) -> Sandbox:
    """Make the sandbox of a name.

    Args:
        name: `monty` (a subset of Python, quick) or `bubblewrap` (full CPython in Linux
            namespaces).

    Raises:
        ValueError: There is no such sandbox.
        MissingRequirement: Its package is not installed, or it cannot run on this host.
    """
    check_choice("sandbox", name, tuple(SANDBOXES))
    check_requirements(f"the sandbox {name!r}", {SANDBOXES[name].requirement: ""})
    return SANDBOXES[name]()
