"""The command `doctor`: finds damage in a run's files and moves it aside, to be replayed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count, islice, pairwise, zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer

from agentgym.cli.common import exit_on_user_error
from agentgym.training.evaluation.ablation import Cell, cell_of
from agentgym.training.evaluation.study_folder import (
    SETTINGS,
    Study,
    load_study,
    log_of,
    missing_cells,
)
from agentgym.training.evaluation.verification import REPLAYED, Verifier
from agentgym.training.extras import needs_extra
from agentgym.training.rl.learning_curve import PHASES
from agentgym.training.rollout import DamagedFileError, RunLock, TrajectoryLog
from agentgym.training.rollout.lines import ENDING, encode_lines, read_chunks, torn_at
from agentgym.training.rollout.storage import LOCK, append_bytes, replacing, whole_lines
from agentgym.training.viewer.log_lines import is_trajectory

# suffix of files that receive damaged parts
SIDE = ".damaged"
TRAIN, FINETUNE = "train.json", "finetune.json"
# Training files; their slow modules are imported on demand.
CURVE, METRICS, CHECKPOINT = "curve.jsonl", "metrics.jsonl", "checkpoint.pt"
# cells to list by name; more would fill the screen
_SHOWN = 20
# The weight files of transformers.
_WEIGHTS = ("*.safetensors", "*.bin")


def doctor(
    run: Annotated[Path, typer.Argument(help="A run folder or a log.")],
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help=f"Move damaged parts into neighbouring files that end in {SIDE}."
        ),
    ] = False,
    replay: Annotated[
        int, typer.Option(min=0, help="Maximum episodes per log to replay.")
    ] = REPLAYED,
) -> None:
    """Check the files of a run and replay a sample; exit with 1 if problems remain."""
    with exit_on_user_error():
        faults = inspect_run(run, replay)
        for fault in faults:
            typer.echo(str(fault))
        if faults and repair:
            repair_run(run, replay)
            typer.echo(f"moved {len(faults)} damaged parts into files that end in {SIDE}")
            faults = []
        can_count = not any(fault.path.name == SETTINGS for fault in faults)
        cells = missing_cells(run) if can_count else []
        for cell in cells[:_SHOWN]:
            typer.echo(f"not yet played: {cell}")
        if cells:
            rest = f"and {len(cells) - _SHOWN} more; " if len(cells) > _SHOWN else ""
            typer.echo(f"{rest}agentgym ablate --out {run}, with the run's options, plays them")
    if faults:
        typer.echo(f"to repair this: agentgym doctor {run} --repair")
        raise typer.Exit(1)
    typer.echo(f"{run} is undamaged")


@dataclass(frozen=True, slots=True)
class FileFault:
    """A problem in a file.

    Attributes:
        cost: The cost of moving the damaged part aside.
        line: The damaged line, from 1; None for the whole file.
    """

    path: Path
    problem: str
    cost: str
    line: int | None = None

    def __str__(self) -> str:
        where = f"{self.path}, line {self.line}" if self.line else str(self.path)
        return f"{where}: {self.problem}; {self.cost}"


def inspect_run(run: Path, replays: int = REPLAYED) -> list[FileFault]:
    """Return the problems in a run's files, replaying at most `replays` episodes.

    Raises:
        ValueError: The path does not exist or is not a run.
        RunLockedError: The run is being written.
    """
    if not run.exists():
        raise ValueError(f"{run} does not exist; name a run folder or a log")
    files = [run] if run.is_file() else sorted(path for path in run.rglob("*") if path.is_file())
    files = [path for path in files if SIDE not in path.name and not path.name.endswith(LOCK)]
    if not any(
        path.name in _WHOLE_FILES or path.name.removesuffix(ENDING).endswith(".jsonl")
        for path in files
    ):
        raise ValueError(f"{run} contains no run; name a run folder or a log")
    for target in {run, *(path.parent for path in files)}:
        RunLock(target, folder=target.is_dir()).check()
    for path in files:
        RunLock(path, folder=False).check()
    faults: list[FileFault] = []
    for path in files:
        faults += _faults(path, replays)
    return faults


def repair_run(run: Path, replays: int = REPLAYED) -> None:
    """Move damaged parts into separate files beside the damaged ones.

    Raises:
        RunLockedError: The run is being written.
    """
    # One repair may remove parts that other files refer to.
    while faults := inspect_run(run, replays):
        paths = list(dict.fromkeys(fault.path for fault in faults))
        with ExitStack() as stack:
            for folder in sorted({path.parent for path in paths}):
                stack.enter_context(RunLock(folder))
            for path in paths:
                stack.enter_context(RunLock(path, folder=False))
                lines = {fault.line for fault in faults if fault.path == path}
                _move_file(path) if None in lines else _move_lines(path, lines)


def _faults(path: Path, replays: int) -> Iterator[FileFault]:
    if path.name in _WHOLE_FILES:
        yield from _WHOLE_FILES[path.name](path)
    elif path.name.removesuffix(ENDING).endswith(".jsonl"):
        yield from _torn_line(path)
        yield from _line_faults(path, replays)


def _read_faults(path: Path, read: Callable[[Path], object], cost: str) -> Iterator[FileFault]:
    try:
        read(path)
    except DamagedFileError as error:
        yield FileFault(path, error.problem, cost)


def _ablation_faults(path: Path) -> Iterator[FileFault]:
    cost = "agentgym ablate with the same options rewrites it"
    return _read_faults(path, lambda file: load_study(file.parent), cost)


def _training_faults(path: Path) -> Iterator[FileFault]:
    with needs_extra("inspecting a training run", "train"):
        from agentgym.training.rl import FineTuning, Learning  # noqa: PLC0415 - slow to import, and an extra
    run = Learning if path.name == TRAIN else FineTuning
    cost = "agentgym train with the same options rewrites it"
    yield from _read_faults(path, lambda file: run.load_settings(file.parent), cost)
    folders = [folder for name in PHASES if (folder := path.parent / name).is_dir()]
    for before, after in pairwise(folders):
        if (after / CHECKPOINT).exists() and not (before / CHECKPOINT).exists():
            yield FileFault(
                after / CHECKPOINT,
                f"it continues {before / CHECKPOINT}, which is missing",
                f"training restarts at {before.name}",
            )
    tokenizer = path.parent / "tokenizer_config.json"
    if tokenizer.exists() and not (path.parent / "tokenizer.json").exists():
        yield FileFault(tokenizer, "tokenizer.json is missing", "agentgym train rewrites both")


def _checkpoint_faults(path: Path) -> Iterator[FileFault]:
    with needs_extra("inspecting a checkpoint", "train"):
        from agentgym.training.rl.trainer import load_checkpoint  # noqa: PLC0415 - slow to import, and an extra
    yield from _read_faults(path, load_checkpoint, "training restarts this phase")


def _model_faults(path: Path) -> Iterator[FileFault]:
    if not any(next(path.parent.glob(pattern), None) for pattern in _WEIGHTS):
        yield FileFault(path, "the weights are missing", "training writes both at its end")


def _torn_line(path: Path) -> Iterator[FileFault]:
    if torn_at(path) != path.stat().st_size:
        number = sum(1 for _ in whole_lines(path)) + 1
        yield FileFault(path, "the last line is incomplete", "it will be produced again", number)


def _line_faults(path: Path, replays: int) -> Iterator[FileFault]:
    if path == log_of(path.parent).path or _is_log(path):
        yield from _log_faults(path, replays)
        return
    cost = {
        CURVE: "the point is lost unless training restarts",
        METRICS: "the step's metrics are lost unless training restarts",
    }.get(path.name, "the command that wrote it produces it again")
    for number, line in whole_lines(path):
        try:
            _check_line(path.name, json.loads(line))
        except (LookupError, RecursionError, TypeError, ValueError) as error:
            yield FileFault(path, f"it is unreadable ({error!r:.100})", cost, number)


def _check_line(name: str, row: Any) -> None:
    if not isinstance(row, Mapping):
        raise TypeError("no JSON object")
    if name == METRICS:
        int(row["step"])
    if name == CURVE:
        PHASES.index(row["phase"])
        int(row["step"])
    if "raw_response" in row:
        str(row["id"])


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
    verifier = Verifier(study, replays)
    sample = _sample(path, replays)
    firsts: dict[Cell, int] = {}
    for number, trajectory in TrajectoryLog(path).readable():
        if trajectory is None:
            yield FileFault(path, "it is not a trajectory", "the episode is replayed", number)
            continue
        if not study.holds(trajectory):
            problem = f"it is not a cell of {SETTINGS} ({dict(trajectory.labels)})"
            yield FileFault(path, problem, "it did not count", number)
            continue
        if trajectory.failure:
            continue
        if study.runs:
            cell = cell_of(trajectory)
            if (first := firsts.setdefault(cell, number)) != number:
                problem = f"it duplicates line {first} ({cell})"
                yield FileFault(path, problem, "it did not count", number)
                continue
        if problem := verifier.contradiction(trajectory, replay=number in sample):
            yield FileFault(path, problem, "the episode is played again", number)


def _sample(path: Path, count: int) -> set[int]:
    """Return the lines of a log to replay, from as many cells as possible."""
    cells: dict[str, list[int]] = {}
    for number, trajectory in TrajectoryLog(path).readable() if count else ():
        if trajectory is not None and not trajectory.failure:
            cells.setdefault(trajectory.spec, []).append(number)
    rounds = zip_longest(*cells.values())
    numbers = (number for each in rounds for number in each if number is not None)
    return set(islice(numbers, count))


def _move_lines(path: Path, numbers: set[int | None]) -> None:
    number = 0
    with replacing(path) as rest:
        for chunk in read_chunks(path):
            numbered = list(enumerate(chunk.lines, number + 1))
            number += len(numbered)
            for line in (line for place, line in numbered if place in numbers):
                append_bytes(_side(path), line.rstrip(b"\n") + b"\n", sync=True)
            rest.write(
                encode_lines(path, [line for place, line in numbered if place not in numbers])
            )
        with path.open("rb") as file:
            file.seek(torn_at(path))
            if torn := file.read():
                append_bytes(_side(path), torn + b"\n", sync=True)


def _side(path: Path) -> Path:
    return path.with_name(path.name + SIDE)


def _move_file(path: Path) -> None:
    places = (_side(path) if k == 1 else path.with_name(f"{path.name}{SIDE}-{k}") for k in count(1))
    path.rename(next(place for place in places if not place.exists()))


# Inspectors by file name.
_WHOLE_FILES: Mapping[str, Callable[[Path], Iterator[FileFault]]] = {
    SETTINGS: _ablation_faults,
    TRAIN: _training_faults,
    FINETUNE: _training_faults,
    CHECKPOINT: _checkpoint_faults,
    "config.json": _model_faults,
}
