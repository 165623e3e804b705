"""The commands of papers (`longbench`, `gsm`), made of what the papers have registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from agentgym.training.cli.command import AppCommand
from agentgym.training.cli.common import exit_on_user_error, resume_hint, show_table
from agentgym.training.evaluation import Command, papers


def add_paper_commands(app: typer.Typer) -> None:
    """Add the commands of all papers to an app."""
    groups: dict[str, typer.Typer] = {}
    for command in (command for paper in papers() for command in paper.commands):
        if command.group and command.group not in groups:
            groups[command.group] = typer.Typer(help=command.group_help, no_args_is_help=True)
            app.add_typer(groups[command.group], name=command.group)
        groups.get(command.group, app).command(command.name, cls=AppCommand)(_as_function(command))


def _place(options: Mapping[str, Any]) -> Path | None:
    """Return the folder that a command writes to."""
    place = options.get("out", options.get("folder"))
    return place if isinstance(place, Path) else None


def _as_function(command: Command) -> Callable[..., None]:
    """Return the function of a command as Typer wants it: with its help in options and arguments,
    and printing its results.
    """

    @wraps(command.run)
    def function(**options: Any) -> None:
        with (
            exit_on_user_error(),
            resume_hint(_place(options)) if command.resumable else nullcontext(),
        ):
            for item in command.run(**options):
                if isinstance(item, str):
                    typer.echo(item)
                else:
                    show_table(item)

    hints = get_type_hints(command.run, include_extras=True)
    parameters = []
    for parameter in inspect.signature(command.run).parameters.values():
        kind, help_text = hints[parameter.name].__origin__, hints[parameter.name].__metadata__[0]
        required = (
            parameter.default is parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY
        )
        info = typer.Argument(help=help_text) if required else typer.Option(help=help_text)
        parameters.append(
            parameter.replace(annotation=Annotated[kind, info], kind=parameter.KEYWORD_ONLY)
        )
    vars(function)["__signature__"] = inspect.Signature(parameters)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function
