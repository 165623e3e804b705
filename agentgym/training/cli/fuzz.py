"""The command `fuzz`: hostile, mutated and random replies in any world, and replays of what they
found.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from agentgym.training.audit import Campaign, Finding, read_findings, replay_findings
from agentgym.training.cli.common import console, exit_on_user_error, show_table
from agentgym.training.cli.completion import complete_world

_SHOWN_CHARS = 1_500
"""Characters of a finding that are shown: the end of a traceback with its error."""
_SHOWN_REPLY = 300
"""Characters of a reply: those that matter are at its start once it is cut down."""


def fuzz(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID]...",
            help="Worlds, presets and teams; all that are registered by default. One of a module "
            "of your own is package.module:MyWorld.",
            autocompletion=complete_world,
        ),
    ] = None,
    texts: Annotated[
        int | None,
        typer.Option(help="Replies for each id; by default 200, or with --minutes no limit."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed: the same seed plays the same episodes.")
    ] = 0,
    minutes: Annotated[
        float | None, typer.Option(help="Time after which no episode begins any more.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Add each finding to this JSONL file, as small as it could be made."),
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes that play.")] = 1,
    replay: Annotated[
        Path | None, typer.Option(help="Play the findings of this file again, and nothing else.")
    ] = None,
) -> None:
    """Play hostile, mutated and random replies, and check every step; exit code 1 if a law was broken."""
    if replay is not None:
        with exit_on_user_error():
            results = replay_findings(read_findings(replay))
        for finding, again in results:
            _show(again or finding, "still" if again else "not any more")
        raise typer.Exit(int(any(again for _, again in results)))
    with exit_on_user_error():
        campaign = Campaign(
            ids or (),
            texts=200 if texts is None and minutes is None else texts,
            seed=seed,
            minutes=minutes,
            workers=workers,
            out=out,
        )
    columns = TextColumn("{task.completed} texts"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("")
        with exit_on_user_error():
            campaign.run(lambda total: progress.update(task, completed=total))
    show_table(campaign.table())
    for finding in campaign.findings:
        _show(finding, "" if finding.reproduced is not False else "seen once")
    played = sum(tally.texts for tally in campaign.tallies.values())
    typer.echo(f"{played} texts, {len(campaign.findings)} causes of faults")
    raise typer.Exit(int(bool(campaign.findings)))


def _show(finding: Finding, note: str) -> None:
    case = finding.case
    typer.echo(
        f"\n{finding.kind}{f' ({note})' if note else ''}: {case.id}, seed {case.env_seed}, "
        f"options {dict(case.options or {})}\n{finding.text[-_SHOWN_CHARS:].strip()}"
    )
    actions = list(case.actions or ())
    for action in actions[-3:]:
        typer.echo(f"  reply: {action[:_SHOWN_REPLY]!a}")
    if len(actions) > 3:
        typer.echo(f"  the last three of {len(actions)} replies")
