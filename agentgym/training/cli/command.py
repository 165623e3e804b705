"""The class of all commands: options under other names, and places that cannot be written."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from agentgym.loading import loaded
from agentgym.training.cli.common import exit_on_user_error

RENAMED = {
    "--arms": "--oracles",
    "--distraction": "--policy control:distraction=0.002",
    "--lengths": "--horizons",
    "--noise": "--policy noisy:p=0.1, or --teacher thinking:p=0.2",
    "--planning": "--policy control:planning=0.02",
    "--seeds": "--episodes",
    "--suite": "--preset",
    "--tracking": "--policy control:tracking=0.01",
}
"""Options under names that people try, with what they are called in all commands."""
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|.*\\", re.DOTALL)


class AppCommand(TyperCommand):
    """Command that knows `RENAMED`, and refuses an `--out` that cannot be written before it works."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, or say what an option is called."""
        own = {name for parameter in self.params for name in parameter.opts}
        for name in (arg.partition("=")[0] for arg in args):
            if name in RENAMED and name not in own:
                ctx.fail(f"there is no option {name}; write {RENAMED[name]}")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Check `--out`, and run the command; until then, an interrupt has nothing to undo."""
        loaded()
        try:
            if ctx.params.get("out") is not None:
                with exit_on_user_error():
                    check_out(Path(ctx.params["out"]))
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None


def check_out(out: Path) -> None:
    """Raise `ValueError` if a file or folder cannot be written, and write nothing.

    Raises:
        ValueError: It is a path of another system, or lies in a place that cannot be written.
    """
    if os.name != "nt" and _WINDOWS.match(str(out)):
        raise ValueError(
            f"--out {str(out)!r} is a path of Windows, of which this system would make one name; "
            "write it with /, such as runs/mine"
        )
    existing = next(place for place in (out, *out.absolute().parents) if place.exists())
    if existing != out and not existing.is_dir():
        raise ValueError(
            f"--out {out} cannot be written: {existing} is a file; choose another place"
        )
    if not (existing.is_dir() or existing.is_file()):
        raise ValueError(
            f"--out {out} cannot be written: {existing} is a device or a pipe; choose another place"
        )
    if not os.access(existing, os.W_OK):
        raise ValueError(
            f"--out {out} cannot be written: {existing} gives you no right to; choose another place"
        )
