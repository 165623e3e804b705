"""The command `check`: the laws of worlds."""

from __future__ import annotations

from typing import Annotated

import typer

from agentgym.training.audit import check_laws
from agentgym.training.cli.common import exit_on_user_error, show_table


def check(
    world: Annotated[
        str,
        typer.Argument(metavar="ID", help="A world, a preset, or package.module:MyWorld."),
    ],
    seeds: Annotated[int, typer.Option(min=1, help="Instances for each law.")] = 5,
    only: Annotated[str, typer.Option(help="Only laws whose names hold this text.")] = "",
) -> None:
    """Check a world by the laws that the package's own obey; exit code 1 if it breaks one."""
    with exit_on_user_error():
        results = list(check_laws(world, seeds, only))
    rows = [[result.name, result.verdict, result.reason] for result in results]
    show_table((f"{world}: laws", ["law", "", "why"], rows))
    broken = [result for result in results if result.verdict == "broken"]
    for result in broken:
        typer.echo(f"\nbroken: {result.name}\n{result.reason}\nto see it: {result.line}")
    missing = {error.hook: error for result in results for error in result.missing}
    if missing:
        typer.echo("\nhooks that the world lacks:")
    for error in missing.values():
        typer.echo(f"  {error}")
    count = len(results) - len(broken)
    skipped = sum(result.verdict == "skipped" for result in results)
    typer.echo(f"{count - skipped} laws hold, {len(broken)} are broken, {skipped} were skipped")
    raise typer.Exit(int(bool(broken)))
