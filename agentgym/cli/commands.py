"""The command-line app and its commands."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from agentgym.cli.ablate import ablate, compare, score
from agentgym.cli.audit import audit, check, fuzz
from agentgym.cli.common import exit_on_user_error, fail, resume_hint, show_table
from agentgym.cli.doctor import doctor
from agentgym.cli.episodes import list_worlds, rollout
from agentgym.cli.export import export
from agentgym.cli.league import league
from agentgym.cli.new_world import new_world
from agentgym.cli.package import package
from agentgym.cli.play import play
from agentgym.cli.serve import serve
from agentgym.cli.submit import review, submit
from agentgym.cli.terminal import plain_output
from agentgym.cli.train import train
from agentgym.cli.view import view
from agentgym.text.imports import trust_also, trust_only
from agentgym.text.requirements import DISTRIBUTION
from agentgym.training.evaluation import Command, papers

_MODULE = re.compile(r"(?<![\w.])([^\W\d]\w*(?:\.\w+)*):")


class AppCommand(TyperCommand):
    """Command that rejects repeated options."""

    def get_short_help_str(self, limit: int = 45) -> str:
        return super().get_short_help_str(1_000)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments."""
        given = Counter(self.make_parser(ctx).parse_args(list(args))[2])
        for parameter, count in given.items():
            if count > 1 and parameter.param_type_name == "option" and not parameter.multiple:
                ctx.fail(f"{parameter.opts[-1]} is given {count} times; give it once")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            fail("interrupted", 130)


def add_paper_commands(app: typer.Typer) -> None:
    """Add every paper's commands to an app."""
    groups: dict[str, typer.Typer] = {}
    for command in chain.from_iterable(paper.commands for paper in papers()):
        if command.group and command.group not in groups:
            groups[command.group] = typer.Typer(help=command.group_help, no_args_is_help=True)
            app.add_typer(groups[command.group], name=command.group)
        _add_command(groups.get(command.group, app), _as_function(command), command.name)


def _as_function(command: Command) -> Callable[..., None]:
    """Return a function that prints the lines and tables of a paper's command."""

    @wraps(command.run)
    def function(**options: Any) -> None:
        place = options.get("out", options.get("folder"))
        out = place if isinstance(place, Path) else None
        with exit_on_user_error(), resume_hint(out) if command.resumable else nullcontext():
            for item in command.run(**options):
                if isinstance(item, str):
                    typer.echo(item)
                else:
                    show_table(item)

    return function


def _add_command(app: typer.Typer, function: Callable[..., None], name: str | None = None) -> None:
    """Add a command to an app. A parameter such as `Annotated[int, "Help."]` becomes an argument,
    or an option if it is keyword-only or has a default.
    """
    parameters = []
    hints = get_type_hints(function, include_extras=True)
    for parameter in inspect.signature(function).parameters.values():
        hint = hints[parameter.name]
        is_option = parameter.kind is parameter.KEYWORD_ONLY
        help_text = getattr(hint, "__metadata__", [None])[0]
        if isinstance(help_text, str):
            required = parameter.default is parameter.empty and not is_option
            info = typer.Argument if required else typer.Option
            hint = Annotated[hint.__origin__, info(help=help_text)]
        parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hint))
    vars(function)["__signature__"] = inspect.Signature(parameters)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app.command(name, cls=AppCommand)(function)


app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"agentgym {importlib.metadata.version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
    imports: Annotated[
        list[str],
        typer.Option(
            "--import",
            metavar="MODULE",
            help="A module that the files of a run may name; may be repeated.",
        ),
    ] = [],  # noqa: B006
) -> None:
    """Long-horizon text worlds for training and examining LLM agents."""
    context.with_resource(plain_output())
    trust_also(imports)


_add_command(app, list_worlds, "list")
_PLAYING = (play, rollout, view, ablate, league, train)
for _command in (*_PLAYING, score, compare, doctor, submit, review, export):
    _add_command(app, _command)
add_paper_commands(app)
for _tool in (serve, package, audit, fuzz, check, new_world):
    _add_command(app, _tool)


def main() -> None:
    """Run the `agentgym` command.

    The working folder may contain somebody else's run, so only modules named on the command line
    may be imported from it.
    """
    # Prevent Python subprocesses from importing modules from the working folder.
    os.environ["PYTHONSAFEPATH"] = "1"
    trust_only(named_modules(sys.argv[1:]))
    with plain_output():
        try:
            app()
        except KeyboardInterrupt:  # typer handles later interrupts
            print("interrupted", file=sys.stderr)
            sys.exit(130)


def named_modules(arguments: Iterable[str]) -> list[str]:
    """Return the module names in arguments such as `package.module:factory`."""
    modules: list[str] = []
    for argument in arguments:
        # Ignore paths, because the name of a downloaded file could look like a module name.
        if not Path(argument).exists():
            modules += _MODULE.findall(argument)
    return modules
