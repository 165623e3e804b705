"""Python programs on the files of the workspace."""

from __future__ import annotations

from typing import ClassVar

from agentgym.envs.loca.servers.files.shell import check_seconds, run_on
from agentgym.envs.loca.servers.files.workspace import ROOT
from agentgym.envs.loca.servers.server import Server
from agentgym.sandboxes.namespaces import PYTHON
from agentgym.tools import tool

FOLDER = ".python_tmp"
"""The directory of the programs in the workspace."""


class PythonExecute(Server):
    """Runs full CPython in a sandbox (see `agentgym.sandboxes.workbench`), in which there is the
    workspace and no network.

    What a program did to files stays done if it then fails or is stopped, as on a real machine.
    """

    name: ClassVar[str] = "python_execute"

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
            timeout: Seconds that it may run: 30 by default, at most 120 (more counts as 120).
        """
        seconds = check_seconds(30 if timeout is None else min(timeout, 120))
        name = filename or f"{self.context.new_id('program', 32)}.py"
        path = self.context.files.write(
            f"{FOLDER}/{name}{'' if name.endswith('.py') else '.py'}", code
        )
        outcome, lost = run_on(self.context, [PYTHON, path], ROOT, seconds)
        printed = {"STDOUT": outcome.stdout.rstrip(), "STDERR": outcome.stderr.rstrip()}
        output = [f"=== {title} ===\n{text}\n" for title, text in printed.items() if text] or [
            "No console output produced.\n"
        ]
        end = (
            f"The program was {outcome.stopped}."
            if outcome.stopped
            else f"Return code: {outcome.code}"
        )
        info = [
            "=== EXECUTION INFO ===",
            end,
            f"Timeout limit: {seconds} seconds",
            *filter(None, [lost]),
        ]
        return "\n".join([*output, *info])
