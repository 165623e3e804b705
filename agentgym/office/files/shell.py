"""Runs of programs on the workspace, for the servers that offer them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from agentgym.office.context import OfficeContext
from agentgym.office.files.workspace import ROOT
from agentgym.sandboxes.base import SandboxUnavailable
from agentgym.sandboxes.determinism import RunSeed
from agentgym.sandboxes.namespaces import REMEDY
from agentgym.text.tools import echo

if TYPE_CHECKING:
    from agentgym.sandboxes.program_run import ProgramResult


def run_on(
    context: OfficeContext, arguments: Sequence[str], cwd: str, seconds: int
) -> tuple[ProgramResult, str]:
    """Run a program on the files of a context, which are afterwards what the program has left.

    Returns:
        What came of it, and in words for the policy what of its files could not be kept.

    Raises:
        SandboxUnavailable: Programs cannot run on this host any more; the preflight of the env has
            found that they could.
    """
    try:
        bench = import_module("agentgym.sandboxes.workbench")
    except ImportError as error:  # it needs modules that Python has on Unix only
        raise SandboxUnavailable(f"programs cannot run on this host: {error}; {REMEDY}") from error
    files, start = context.files, len(ROOT) + 1
    entries = {
        path[start:]: bench.File(
            files.read(path) if files.is_file(path) else None, files.modified(path).timestamp()
        )
        for path in (*files.folders(), *files.walk())
        if path != ROOT
    }
    limits = replace(bench.DEFAULT_LIMITS, seconds=float(seconds))
    if context.workbench is None:
        context.workbench = bench.Workbench()
    outcome: ProgramResult = context.workbench.run(
        arguments, entries, cwd, limits, RunSeed(context.clock.now(), context.seed)
    )
    context.clock.tick()
    if outcome.files is None:
        return outcome, "The files are as they were before."
    dropped = sorted({*outcome.left_out, *files.become(outcome.files)})
    return (
        outcome,
        f"Not kept, being no regular files or too big: {', '.join(map(echo, dropped[:5]))}"
        if dropped
        else "",
    )
