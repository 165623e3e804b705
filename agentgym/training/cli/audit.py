"""The command `audit`: shortcuts against a world."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentgym.arguments import check_int
from agentgym.training.audit import AuditConfig, run_audit
from agentgym.training.cli.common import (
    Options,
    exit_on_user_error,
    parse_options,
    progress_bar,
    show_table,
)
from agentgym.training.cli.completion import complete_world
from agentgym.training.evaluation import to_markdown
from agentgym.training.rollout.storage import write_text


def audit(
    world: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="A world or one of its presets.", autocompletion=complete_world
        ),
    ],
    episodes: Annotated[
        int, typer.Option(help="Episodes of each policy; 60 show that one stays below 10 %.")
    ] = 200,
    demonstrations: Annotated[
        int, typer.Option(help="Successful episodes for the shortcuts to learn from.")
    ] = 100,
    splits: Annotated[
        bool, typer.Option(help="Learn on the split train and play on test; else on all instances.")
    ] = True,
    optimise: Annotated[
        int,
        typer.Option(
            help="Instances on which to train a small model that sees no result; 0 for none."
        ),
    ] = 0,
    options: Options = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Write the table to this Markdown file.")] = None,
) -> None:
    """Play shortcuts that do not do the task of a world; exit code 1 if one earns more than chance."""
    with exit_on_user_error():
        check_int("episodes", episodes, 1, 100_000)  # as `AuditConfig.seeds`
        check_int("optimise", optimise, 0, 1_000_000)
        config = AuditConfig(
            world, episodes, demonstrations, parse_options(options), splits, optimise
        )
        with progress_bar() as progress:
            bar = progress.add_task("seeds", total=episodes)
            result = run_audit(config, lambda played: progress.advance(bar, played))
        if out is not None:
            write_text(out, to_markdown(result.table()) + "\n")
    show_table(result.table())
    leaks = ", ".join(row.name for row in result.leaks)
    typer.echo(f"verdict: {result.verdict}{f' ({leaks})' if leaks else ''}")
    raise typer.Exit(int(bool(leaks)))
