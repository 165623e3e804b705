"""The command `doctor`: the files of a run, and their repair."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentgym.training.cli.common import exit_on_user_error
from agentgym.training.cli.inspection import SIDE, inspect_run, repair_run
from agentgym.training.evaluation.study import missing_cells

_SHOWN = 20
"""Cells that are listed by name; more fill the screen."""


def doctor(
    run: Annotated[Path, typer.Argument(help="A folder that a command writes to, or a log.")],
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help=f"Move what is damaged into files beside it that end in {SIDE}."
        ),
    ] = False,
) -> None:
    """Say what is wrong with the files of a run; exit with 1 if something is and stays so."""
    with exit_on_user_error():
        faults = inspect_run(run)
        for fault in faults:
            typer.echo(str(fault))
        if faults and repair:
            repair_run(run)
            typer.echo(f"moved {len(faults)} damaged parts into files that end in {SIDE}")
            faults = []
        if not any(fault.path.name == "ablation.json" for fault in faults):
            _list_missing(run)
    if faults:
        typer.echo(f"to repair this: agentgym doctor {run} --repair")
        raise typer.Exit(1)
    typer.echo(f"{run} is whole")


def _list_missing(run: Path) -> None:
    cells = missing_cells(run)
    for cell in cells[:_SHOWN]:
        typer.echo(f"to be played: {cell}")
    if cells:
        rest = f"and {len(cells) - _SHOWN} more; " if len(cells) > _SHOWN else ""
        typer.echo(f"{rest}agentgym ablate --out {run}, with the options of the run, plays them")
