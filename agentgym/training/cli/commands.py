"""The app: all commands in the order in which `agentgym --help` lists them."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import Annotated

import typer

from agentgym.training.cli.ablate import ablate, compare, score
from agentgym.training.cli.audit import audit
from agentgym.training.cli.check import check
from agentgym.training.cli.command import AppCommand
from agentgym.training.cli.doctor import doctor
from agentgym.training.cli.episodes import list_worlds, rollout
from agentgym.training.cli.export import export
from agentgym.training.cli.fuzz import fuzz
from agentgym.training.cli.new_world import new_world
from agentgym.training.cli.papers import add_paper_commands
from agentgym.training.cli.play import play
from agentgym.training.cli.serve import serve
from agentgym.training.cli.train import train
from agentgym.training.cli.view import view

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"agentgym {importlib.metadata.version('agentgym')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    """Long-horizon text worlds for training and examining LLM agents."""


app.command("list", cls=AppCommand)(list_worlds)
for _command in (play, rollout, view, ablate, train, score, compare, doctor, export):
    app.command(cls=AppCommand)(_command)
add_paper_commands(app)
for _tool in (serve, audit, fuzz, check, new_world):
    app.command(cls=AppCommand)(_tool)


def main() -> None:
    """Run the `agentgym` command."""
    sys.path.insert(0, str(Path.cwd()))  # so that --policy finds a module of the user's
    app()
