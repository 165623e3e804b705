"""Generate the command line reference from the commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from agentgym.cli import app
from generate.markup import cell, table

HEAD = """# Command line

`agentgym COMMAND --help` shows the same. `python -m agentgym` is `agentgym`.
"""


def cli_pages() -> Iterator[tuple[str, str]]:
    command: Any = typer.main.get_command(app)
    sections = [_section(names, each) for names, each in _commands("agentgym", command)]
    yield "api/cli.md", "\n\n".join([HEAD.strip(), *sections]) + "\n"


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name, command
        return
    for each, part in command.commands.items():
        yield from _commands(f"{name} {each}", part)


def _section(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    words = " ".join([name, *(each.name for each in arguments)])
    rows = [
        (", ".join(f"`{name}`" for name in _names(each)), _default(each), cell(each.help or ""))
        for each in command.params
    ]
    parts = [f"## {name}", " ".join((command.help or "").split()), f"`{words}`"]
    return "\n\n".join([*parts, table(("argument or option", "default", "meaning"), rows)])


def _names(parameter: Any) -> list[str]:
    if parameter.param_type_name == "argument":
        return [parameter.name]
    return [*parameter.opts, *parameter.secondary_opts]


def _default(parameter: Any) -> str:
    """Return a command line option's default as text that does not depend on this machine."""
    value = parameter.default
    if parameter.name == "workers":
        return "the number of processors"
    if value is None or value in ([], (), "") or callable(value) or isinstance(value, bool):
        return ""
    return f"`{value}`"
