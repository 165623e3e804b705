"""The commands `audit`, `check` and `fuzz`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from agentgym.cli.common import (
    Options,
    console,
    exit_on_user_error,
    parse_options,
    progress_bar,
    show_table,
)
from agentgym.testing import AuditConfig, Campaign, Finding, check_laws, run_audit
from agentgym.text.validation import check_int
from agentgym.training.evaluation import to_markdown
from agentgym.training.rollout.storage import write_text

# Maximum number of traceback characters to show; the last lines name the error.
_SHOWN_CHARS = 1_500
_SHOWN_REPLY = 300


def audit(
    world: Annotated[str, typer.Argument(metavar="ID", help="A world or one of its presets.")],
    episodes: Annotated[int, "Episodes per policy; 60 suffice to show a score below 10%."] = 200,
    demonstrations: Annotated[int, "Successful episodes from which the shortcuts learn."] = 100,
    splits: Annotated[
        bool, "Learn on the train split and play on test; otherwise use all instances."
    ] = True,
    options: Options = [],  # noqa: B006
    out: Annotated[Path | None, "Write the table to this Markdown file."] = None,
) -> None:
    """Play policies that take shortcuts; exit with 1 if one exceeds the ceiling."""
    with exit_on_user_error():
        check_int("episodes", episodes, 1, 100_000)  # the bounds of `AuditConfig.seeds`
        config = AuditConfig(world, episodes, demonstrations, parse_options(options), splits)
        with progress_bar() as progress:
            bar = progress.add_task("seeds", total=episodes)
            result = run_audit(config, lambda played: progress.advance(bar, played))
        show_table(result.table())
        if out is not None:
            write_text(out, to_markdown(result.table()) + "\n")
    leaks = ", ".join(row.name for row in result.leaks)
    if not leaks:
        typer.echo(f"verdict: {result.verdict}")
        return
    typer.echo(f"verdict: {result.verdict} ({leaks})")
    raise typer.Exit(1)


def check(
    world: Annotated[
        str,
        typer.Argument(metavar="ID", help="A world, a preset, or package.module:MyWorld."),
    ],
    seeds: Annotated[int, typer.Option(min=1, help="Instances per law.")] = 5,
    only: Annotated[str, "Only laws whose names contain this text."] = "",
) -> None:
    """Check a world against the laws that agentgym's own worlds satisfy; exit with 1 on a
    violation.
    """
    with exit_on_user_error():
        results = list(check_laws(world, seeds, only))
    rows = [[result.name, result.verdict, result.reason] for result in results]
    show_table((f"{world}: laws", ["law", "", "why"], rows))
    broken = [result for result in results if result.verdict == "broken"]
    for result in broken:
        typer.echo(f"\nbroken: {result.name}\n{result.reason}\nto reproduce: {result.line}")
    missing: dict[str, str] = {}
    for result in results:
        for error in result.missing:
            missing[error.hook] = f"\n  {error}"
    if missing:
        typer.echo(f"\nmissing hooks: {''.join(missing.values())}")
    count = len(results) - len(broken)
    skipped = sum(result.verdict == "skipped" for result in results)
    typer.echo(f"{count - skipped} laws hold, {len(broken)} broken, {skipped} skipped")
    raise typer.Exit(int(bool(broken)))


def fuzz(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID]...",
            help="Worlds, presets and teams; by default all registered ones. For your own, use "
            "package.module:MyWorld.",
        ),
    ] = None,
    texts: Annotated[int, "Replies per id."] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the episodes.")] = 0,
) -> None:
    """Send hostile, mutated and random replies and check every step; exit with 1 on a violation."""
    with exit_on_user_error():
        campaign = Campaign(ids or (), texts=texts, seed=seed)
    with Progress(
        TextColumn("{task.completed} texts"), TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        task = progress.add_task("")
        with exit_on_user_error():
            campaign.run(lambda total: progress.update(task, completed=total))
    show_table(campaign.table())
    for finding in campaign.findings:
        _show(finding)
    played = sum(tally.texts for tally in campaign.tallies.values())
    typer.echo(f"{played} texts, {len(campaign.findings)} distinct faults")
    raise typer.Exit(int(bool(campaign.findings)))


def _show(finding: Finding) -> None:
    case = finding.case
    typer.echo(
        f"\n{finding.kind}: {case.id}, seed {case.env_seed}, "
        f"options {dict(case.options or {})}\n{finding.text[-_SHOWN_CHARS:].strip()}"
    )
    actions = list(case.actions or ())
    for action in actions[-3:]:
        typer.echo(f"  reply: {action[:_SHOWN_REPLY]!a}")
    if len(actions) > 3:
        typer.echo(f"  last three of {len(actions)} replies")
