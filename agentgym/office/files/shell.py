"""Run programs in a sandbox on the workspace files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from agentgym.office.context import OfficeContext
from agentgym.office.files.workspace import ROOT
from agentgym.sandboxes.base import SandboxUnavailable
from agentgym.sandboxes.determinism import RunSeed
from agentgym.sandboxes.namespaces import REMEDY
from agentgym.text import reply_work
from agentgym.text.tools import echo

if TYPE_CHECKING:
    from agentgym.sandboxes.program_run import ProgramResult


def run_on(
    context: OfficeContext, arguments: Sequence[str], cwd: str, seconds: int
) -> tuple[ProgramResult, str]:
    """Run a program on a copy of the workspace, and keep the changes unless the program is stopped.

    Returns the result and a note about files that could not be kept.
    """
    try:
        bench = import_module("agentgym.sandboxes.workbench")
    except ImportError as error:  # some imported modules exist only on Unix
        raise SandboxUnavailable(f"programs cannot run on this host: {error}; {REMEDY}") from error
    files, start = context.files, len(ROOT) + 1
    entries = {}
    for path in (*files.folders(), *files.walk()):
        if path != ROOT:
            data = files.read(path) if files.is_file(path) else None
            entries[path[start:]] = bench.File(data, files.modified(path).timestamp())
    limits = replace(bench.DEFAULT_LIMITS, seconds=float(seconds))
    seed = RunSeed(context.clock.now(), context.seed)
    started = time.monotonic()
    outcome: ProgramResult = bench.run(arguments, entries, cwd, limits, seed)
    reply_work.spend_seconds(time.monotonic() - started)
    context.clock.tick()
    if outcome.files is None:
        return outcome, "The workspace is unchanged."
    dropped = sorted({*outcome.left_out, *files.become(outcome.files)})
    if not dropped:
        return outcome, ""
    names = ", ".join(echo(name) for name in dropped[:5])
    return outcome, f"Not kept (not regular files, or too large): {names}"
