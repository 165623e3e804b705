"""The command `doctor`: find damaged parts of a run's files and move them aside."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import gymnasium
import typer

from agentgym.cli.common import exit_on_user_error
from agentgym.training.evaluation.ablation import Cell, cell_of
from agentgym.training.evaluation.study_folder import SETTINGS, Study, load_study, log_of
from agentgym.training.evaluation.verification import choose_lines, contradiction
from agentgym.training.extras import needs_extra
from agentgym.training.rollout import DamagedFileError, RunLock, Trajectory, TrajectoryLog
from agentgym.training.rollout.lines import ENDING, encode_lines, read_chunks, torn_at
from agentgym.training.rollout.storage import LOCK, append_bytes, replacing, whole_lines
from agentgym.training.viewer.log_lines import is_trajectory

# Suffix of the files that receive damaged parts.
SIDE = ".damaged"
# Replays take seconds for small worlds, and a few minutes for office worlds.
REPLAYS = 30
TRAIN, FINETUNE = "train.json", "finetune.json"
# Copied from the trainer module, whose import takes seconds.
CHECKPOINT = "checkpoint.pt"


def doctor(
    run: Annotated[Path, "A run folder or a log."],
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help=f"Move damaged parts into neighbouring files that end in {SIDE}."
        ),
    ] = False,
    replay: Annotated[
        int, typer.Option(min=0, help="Maximum episodes per log to replay.")
    ] = REPLAYS,
) -> None:
    """Check the files of a run and replay a sample; exit with 1 if problems remain."""
    with exit_on_user_error():
        faults = inspect_run(run, replay)
        for fault in faults:
            typer.echo(str(fault))
        if faults and repair:
            repair_run(faults)
            typer.echo(f"moved {len(faults)} damaged parts into files that end in {SIDE}")
            faults = []
    if faults:
        typer.echo(f"to repair this: agentgym doctor {run} --repair")
        raise typer.Exit(1)
    typer.echo(f"{run} is undamaged")


@dataclass(frozen=True, slots=True)
class FileFault:
    """A problem in a file.

    Attributes:
        cost: The consequence of moving the damaged part aside.
        line: The number of the damaged line, from 1; None if the whole file is damaged.
    """

    path: Path
    problem: str
    cost: str
    line: int | None = None

    def __str__(self) -> str:
        where = str(self.path)
        if self.line:
            where += f", line {self.line}"
        return f"{where}: {self.problem}; {self.cost}"


def inspect_run(run: Path, replays: int = REPLAYS) -> list[FileFault]:
    """Return the problems in a run's files, replaying at most `replays` episodes per log.

    Raises ValueError if there is no run, and RunLockedError if the run is being written.
    """
    if not run.exists():
        raise ValueError(f"{run} does not exist; name a run folder or a log")
    files: list[Path] = []
    for path in sorted([run, *run.rglob("*")]):
        if path.is_file() and SIDE not in path.name and not path.name.endswith(LOCK):
            files.append(path)
    if not any(path.name in _WHOLE_FILES or _has_lines(path) for path in files):
        raise ValueError(f"{run} contains no run; name a run folder or a log")
    for target in {run, *(path.parent for path in files)}:
        RunLock(target, folder=target.is_dir()).check()
    for path in files:
        RunLock(path, folder=False).check()
    faults: list[FileFault] = []
    for path in files:
        faults += _faults(path, replays)
    return faults


def repair_run(faults: Sequence[FileFault]) -> None:
    """Move damaged parts into separate files; raise RunLockedError if the run is being written."""
    lines: dict[Path, set[int | None]] = {}
    for fault in faults:
        lines.setdefault(fault.path, set()).add(fault.line)
    with ExitStack() as stack:
        for folder in sorted({path.parent for path in lines}):
            stack.enter_context(RunLock(folder))
        for path, numbers in lines.items():
            stack.enter_context(RunLock(path, folder=False))
            if None in numbers:
                _move_file(path)
            else:
                _move_lines(path, numbers)


def _faults(path: Path, replays: int) -> Iterator[FileFault]:
    if path.name in _WHOLE_FILES:
        read, cost = _WHOLE_FILES[path.name]
        try:
            read(path)
        except DamagedFileError as error:
            yield FileFault(path, error.problem, cost)
    elif _has_lines(path):
        yield from _torn_line(path)
        yield from _line_faults(path, replays)


def _has_lines(path: Path) -> bool:
    return path.name.removesuffix(ENDING).endswith(".jsonl")


def _read_training(path: Path) -> None:
    with needs_extra("inspecting a training run", "train"):
        from agentgym.training.rl import FineTuning, Learning  # noqa: PLC0415 - slow to import, and an extra
    run = Learning if path.name == TRAIN else FineTuning
    run.load_settings(path.parent)


def _read_checkpoint(path: Path) -> None:
    with needs_extra("inspecting a checkpoint", "train"):
        from agentgym.training.rl.trainer import load_checkpoint  # noqa: PLC0415 - slow to import, and an extra
    load_checkpoint(path)


def _torn_line(path: Path) -> Iterator[FileFault]:
    if torn_at(path) != path.stat().st_size:
        number = sum(1 for _ in whole_lines(path)) + 1
        yield FileFault(path, "the last line is incomplete", "it will be produced again", number)


def _line_faults(path: Path, replays: int) -> Iterator[FileFault]:
    if path == log_of(path.parent).path or _is_log(path):
        yield from _log_faults(path, replays)
        return
    for number, line in whole_lines(path):
        try:
            if not isinstance(json.loads(line), dict):
                raise TypeError("no JSON object")
        except (RecursionError, TypeError, ValueError) as error:
            problem = f"it is unreadable ({error!r:.100})"
            yield FileFault(path, problem, "the command that wrote it may repeat it", number)


def _is_log(path: Path) -> bool:
    for _, line in whole_lines(path):
        with suppress(ValueError):  # the line is damaged
            return is_trajectory(line)
    return False


def _log_faults(path: Path, replays: int) -> Iterator[FileFault]:
    study = Study()
    with suppress(DamagedFileError):  # reported separately
        if path == log_of(path.parent).path:
            study = load_study(path.parent) or study
    log = TrajectoryLog(path)
    chosen = choose_lines(log, replays)
    firsts: dict[Cell, int] = {}
    for number, trajectory in log.readable():
        if trajectory is None:
            yield FileFault(path, "it is not a trajectory", "the episode is replayed", number)
        elif not study.holds(trajectory):
            problem = f"it is not a cell of {SETTINGS} ({dict(trajectory.labels)})"
            yield FileFault(path, problem, "it did not count", number)
        elif trajectory.failure:
            continue
        elif problem := _contradiction(study, trajectory, replay=number in chosen):
            yield FileFault(path, problem, "the episode is replayed", number)
        elif study.runs:
            cell = cell_of(trajectory)
            if (first := firsts.setdefault(cell, number)) != number:
                problem = f"it duplicates line {first} ({cell})"
                yield FileFault(path, problem, "it did not count", number)


def _contradiction(study: Study, trajectory: Trajectory, *, replay: bool) -> str:
    # Without `agentgym --import MODULE`, episodes of user-defined worlds are not checked.
    with suppress(ImportError, ValueError, gymnasium.error.Error):
        return contradiction(study, trajectory, replay=replay)
    return ""


def _move_lines(path: Path, numbers: set[int | None]) -> None:
    number = 0
    with replacing(path) as rest:
        for chunk in read_chunks(path):
            kept = []
            for line in chunk.lines:
                number += 1
                if number in numbers:
                    append_bytes(_side(path), line.rstrip(b"\n") + b"\n", sync=True)
                else:
                    kept.append(line)
            rest.write(encode_lines(path, kept))
        with path.open("rb") as file:
            file.seek(torn_at(path))
            if torn := file.read():
                append_bytes(_side(path), torn + b"\n", sync=True)


def _side(path: Path) -> Path:
    return path.with_name(path.name + SIDE)


def _move_file(path: Path) -> None:
    place, number = _side(path), 1
    while place.exists():
        number += 1
        place = path.with_name(f"{path.name}{SIDE}-{number}")
    path.rename(place)


# Maps a file name to a reader function and the consequence of moving the file aside.
_WHOLE_FILES: Mapping[str, tuple[Callable[[Path], object], str]] = {
    SETTINGS: (
        lambda path: load_study(path.parent),
        "agentgym ablate with the same options rewrites it",
    ),
    TRAIN: (_read_training, "agentgym train with the same options rewrites it"),
    FINETUNE: (_read_training, "agentgym train with the same options rewrites it"),
    CHECKPOINT: (_read_checkpoint, "training restarts this phase"),
}
