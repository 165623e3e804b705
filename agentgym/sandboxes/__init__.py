"""Sandboxes for model-written code: interpreters that call host functions, and a workbench.

The code is assumed to be hostile. The code reaches the host only through the given functions. A
call to a host function blocks until the host answers, and runs exactly once.

`make_sandbox` selects an interpreter: `monty` (a fast subset of Python) or `bubblewrap` (full
CPython in Linux namespaces). The workbench (`agentgym.sandboxes.workbench`) runs bash, common tools
and CPython on files.
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

# interpreters by name, with the default first
SANDBOXES: dict[str, type[Sandbox]] = {"monty": MontySandbox, "bubblewrap": BubblewrapSandbox}


def make_sandbox(name: str) -> Sandbox:
    """Make a sandbox, `monty` or `bubblewrap`; raise MissingRequirement if it cannot run here."""
    check_choice("sandbox", name, tuple(SANDBOXES))
    check_requirements(f"the sandbox {name!r}", {SANDBOXES[name].requirement: ""})
    return SANDBOXES[name]()
