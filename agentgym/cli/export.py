"""The command `export`: write a run as an Inspect log, or a program as runnable files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from agentgym.assemble.registry import make
from agentgym.cli.common import Options, WorldId, exit_on_user_error, parse_options
from agentgym.envs.lore.code_world import CodeWorld
from agentgym.envs.lore.programs import ROOT
from agentgym.play.env import tool_env
from agentgym.training.evaluation.study_folder import log_of
from agentgym.training.extras import needs_extra

HELPER = "each_once.py"

_LAUNCH = f"import {HELPER.removesuffix('.py')}  # added by the export\n"
_HELPER = (Path(__file__).parent / "export_files" / "each_once.py.template").read_text("utf-8")


def export(
    env_id: WorldId,
    folder: Annotated[Path, "A new or empty folder for the files; with --to inspect, a new log."],
    to: Annotated[
        Literal["files", "inspect"],
        "inspect writes the run in the folder ID as a log for `inspect view`.",
    ] = "files",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the instance.")] = 0,
    options: Options = [],  # noqa: B006
) -> None:
    """Write a run as an Inspect log, or the program of a CodeWorld task as runnable files."""
    if to == "inspect":
        with exit_on_user_error():
            count = _to_inspect(Path(env_id), folder)
        typer.echo(f"wrote {count} episodes; run: inspect view --log-dir {folder.parent}")
        return
    with exit_on_user_error():
        files = program(env_id, seed, **parse_options(options))
        write(files, folder)
    typer.echo(f"wrote {len(files)} files; run: python {folder / ROOT}")


def _to_inspect(run: Path, log: Path) -> int:
    with needs_extra("exporting Inspect logs", "inspect"):
        from agentgym.training.integrations.inspect_tasks import write_log  # noqa: PLC0415 - an extra
    if not run.is_dir():
        raise ValueError(f"--to inspect requires the folder of a run, got {str(run)!r}")
    if log.suffix not in (".eval", ".json") or log.exists():
        raise ValueError(f"the log must be a new .eval or .json file, got {str(log)!r}")
    episodes = list(log_of(run))
    if not episodes:
        raise ValueError(
            f"{log_of(run).path} contains no complete episode; see agentgym doctor {run}"
        )
    log.parent.mkdir(parents=True, exist_ok=True)
    return write_log(episodes, log, run.name)


def program(env_id: str, seed: int, **options: Any) -> dict[str, str]:
    """Return a task's program files and a helper module that caches calls to `main`."""
    env = make(env_id, **options)
    env.reset(seed=seed)
    world = tool_env(env).world
    if not isinstance(world, CodeWorld):
        raise ValueError(f"{env_id} has no program to export; choose a CodeWorld task")
    files = dict(world.files())
    modules, needed = _list_modules(list(files)), _list_modules(world.needed())
    helper = _HELPER.format(modules=modules, needed=needed)
    return {**files, ROOT: _LAUNCH + files[ROOT], HELPER: helper}


def write(files: Mapping[str, str], folder: Path) -> None:
    """Write files to a folder; raise ValueError if the folder has files."""
    folder.mkdir(parents=True, exist_ok=True)
    if next(folder.iterdir(), None):
        raise ValueError(f"the folder {str(folder)!r} is not empty; choose an empty folder")
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _list_modules(files: Sequence[str]) -> str:
    lines = ""
    for file in reversed(files):
        if file != ROOT:
            lines += f'    "{file.removesuffix(".py")}",\n'
    return lines
