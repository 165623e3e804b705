"""Python programs on the files of the workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from agentgym.office.files.shell import run_on
from agentgym.office.files.workspace import ROOT
from agentgym.office.server import Server
from agentgym.sandboxes.namespaces import PYTHON
from agentgym.text.tools import ToolError, echo, tool

if TYPE_CHECKING:
    from agentgym.sandboxes.program_run import ProgramResult

MAX_SECONDS = 120
"""Time of one program: a step of an episode must end."""
FOLDER = ".python_tmp"
"""The directory of the programs in the workspace."""


class PythonExecute(Server):
    """Runs full CPython in a sandbox (see `agentgym.sandboxes.workbench`), in which there is the
    workspace and no network.

    What a program did to files stays done if it then fails or is stopped, as on a real machine.
    """

    name: ClassVar[str] = "python_execute"

    def close(self) -> None:
        """End the sandbox."""
        self.context.close()

    @tool
    def python_execute(
        self, code: str, filename: str | None = None, timeout: int | None = 30
    ) -> str:
        """Run Python code in the workspace, with `/workspace` as the current directory, and show what it prints.

        Beside the standard library it can import numpy, pandas, openpyxl, pypdf, reportlab and Pillow. There is no network. The
        clock is that of the office; while a program runs, it goes on only by what is slept.

        Args:
            code: The program.
            filename: The name to keep it under, in `.python_tmp`; one is made up by default.
            timeout: Seconds that it may run; more than 120 counts as 120.
        """
        seconds = 30 if timeout is None else min(timeout, MAX_SECONDS)
        if seconds < 1:
            raise ToolError(
                f"invalid argument: timeout must be 1 to {MAX_SECONDS} seconds, got {echo(seconds)}"
            )
        name = filename or f"{self.context.new_id('program', 32)}.py"
        path = self.context.files.write(
            f"{FOLDER}/{name}{'' if name.endswith('.py') else '.py'}", code
        )
        outcome, lost = run_on(self.context, [PYTHON, path], ROOT, seconds)
        return "\n".join([*_printed(outcome), *_info(outcome, seconds), *filter(None, [lost])])


def _printed(outcome: ProgramResult) -> list[str]:
    """Return what a program printed, in sections."""
    texts = {"STDOUT": outcome.stdout.rstrip(), "STDERR": outcome.stderr.rstrip()}
    sections = [f"=== {title} ===\n{text}" for title, text in texts.items() if text]
    return sections or ["No console output produced."]


def _info(outcome: ProgramResult, seconds: int) -> list[str]:
    """Return how a program ended, and how far the clock went on while it ran."""
    limit = f"Timeout limit: {seconds} seconds"
    if outcome.timed_out:
        return ["=== EXECUTION TIMEOUT ===", limit, f"Execution time: {seconds:.3f} seconds"]
    end = (
        f"The program was {outcome.stopped}." if outcome.stopped else f"Return code: {outcome.code}"
    )
    return ["=== EXECUTION INFO ===", end, f"Execution time: {outcome.seconds:.3f} seconds", limit]
