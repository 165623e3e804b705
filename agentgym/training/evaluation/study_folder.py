"""Study folders, which contain the settings, episodes and results of one or more runs."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from agentgym.text.validation import check_shape
from agentgym.training.evaluation.ablation import Ablation, Cell, cell_of, cells_of, window_of
from agentgym.training.evaluation.missing import (
    INVALID,
    LOST,
    NOT_PLAYED,
    Results,
    as_results,
    missing_result,
)
from agentgym.training.evaluation.provenance import SOURCES, difference
from agentgym.training.evaluation.scoring import Result, is_over_window, score
from agentgym.training.rollout import DamagedFileError, Trajectory, TrajectoryLog
from agentgym.training.rollout.storage import check_settings, read_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SETTINGS = "ablation.json"
TRAJECTORIES = "trajectories.jsonl.zst"
_PLAIN = "trajectories.jsonl"
_AXES = ("worlds", "arms", "contexts", "horizons")
_COUNTS = ("seeds", "samples")
# More cells, such as in a forged file, would exhaust the memory.
_MAX_CELLS = 10_000_000
# Settings that all runs in a folder share.
_ALIKE = ("axis", "hint_scope", "oracle_options", "shots")


class _Policy(TypedDict):
    name: str
    label: str


class _Run(TypedDict):
    worlds: list[str]
    arms: list[str]
    contexts: list[str]
    horizons: list[int]
    seeds: int
    samples: int
    policy: _Policy


class _Facts(TypedDict, total=False):
    worlds: dict[str, str]
    modules: dict[str, str]


class _Settings(TypedDict):
    runs: list[_Run]
    policies: dict[str, _Facts]


@functools.cache
def _shape() -> TypeAdapter[_Settings]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - its schema builder is slow to import

    return TypeAdapter(_Settings)


@dataclass(frozen=True)
class Study:
    """Settings of a folder: its runs, and each policy's provenance."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Any) -> Study:
        """Read a study's settings."""
        data = check_settings(data, {"runs": [], "policies": {}})
        check_shape(_shape(), data)
        if not data["runs"]:
            raise ValueError("the list of runs is empty")
        for run in data["runs"]:
            axes = prod(len(run[axis]) for axis in _AXES)
            if axes * run["seeds"] * run["samples"] > _MAX_CELLS:
                raise ValueError(f"a run has more than {_MAX_CELLS:,} episodes")
        defaults = _default_settings()
        return cls([check_settings(run, defaults) for run in data["runs"]], data["policies"])

    def columns(self) -> list[str]:
        """Return the policies in the order they were added."""
        return list(dict.fromkeys(map(column_of, self.runs)))

    def cells(self) -> list[Cell]:
        """Return the distinct cells of all runs."""
        cells: dict[Cell, None] = {}
        for run in self.runs:
            cells.update(dict.fromkeys(cells_of(run, column_of(run))))
        return list(cells)

    def holds(self, trajectory: Trajectory) -> bool:
        """Report whether a trajectory belongs to the study; always True without runs."""
        labels = trajectory.labels
        counts = {"seeds": trajectory.seed, "samples": labels.get("sample", 0)}
        for run in self.runs:
            same = labels.get("axis") == run["axis"] and labels.get("policy") == column_of(run)
            inside = all(labels.get(axis[:-1]) in run[axis] for axis in _AXES)
            if same and inside and all(counts[name] in range(run[name]) for name in _COUNTS):
                return True
        return not self.runs

    def grown(self, ablation: Ablation, played_by: Mapping[str, Any], out: Path) -> Study:
        """Return the study with a run added; `ValueError` if the run is not comparable."""
        new, column = ablation.settings(), ablation.policy.column
        for run in self.runs:
            if name := next(conflicts(run, new), ""):
                raise ValueError(
                    f"{out} contains a run with other settings: {name}; choose another folder "
                    f"(`agentgym compare` merges folders; see {SETTINGS})"
                )
        for facts in self.policies.values():
            if found := difference(facts, played_by, SOURCES):
                raise ValueError(
                    f"{out} was played with different code: {found}; use the original code, "
                    "or choose another folder"
                )
        kept = self.policies.get(column) or dict(played_by)
        if found := difference(kept, played_by):
            raise ValueError(
                f"{out} contains episodes of {column!r} by a different policy: {found}; give the "
                f"new policy a name (NAME={ablation.policy.name}), or choose another folder"
            )
        runs = self.runs if new in self.runs else [*self.runs, new]
        worlds = {**kept.get("worlds", {}), **played_by.get("worlds", {})}
        return Study(runs, {**self.policies, column: {**played_by, "worlds": worlds}})


@functools.cache  # cached because `Ablation` validates all its cells
def _default_settings() -> Mapping[str, Any]:
    return Ablation().settings()


def column_of(run: Mapping[str, Any]) -> str:
    """Return the name of a run's policy in tables."""
    return str(run["policy"]["label"] or run["policy"]["name"])


def conflicts(one: Mapping[str, Any], two: Mapping[str, Any]) -> Iterator[str]:
    """Describe the settings that must agree but differ between two runs."""
    pairs = [(f"its {name}", one[name], two[name]) for name in _ALIKE]
    shared = [world for world in one["worlds"] if world in two["worlds"]]
    for world in shared:
        pairs.append((f"its options of {world}", _options(one, world), _options(two, world)))
    if shared and set(one["contexts"]) & set(two["contexts"]):
        pairs.append(("its window", window_of(one), window_of(two)))
    if column_of(one) == column_of(two):
        pairs.append((f"its policy {column_of(one)}", one["policy"], two["policy"]))
    for name, old, new in pairs:
        if old != new:
            yield f"{name} is {json.dumps(old)} and not {json.dumps(new)}"


def _options(run: Mapping[str, Any], world: str) -> dict[str, Any]:
    return {**run["options"].get("", {}), **run["options"].get(world, {})}


def log_of(out: Path) -> TrajectoryLog:
    """Return a study's log, which is compressed unless an uncompressed log exists."""
    plain = out / _PLAIN
    return TrajectoryLog(plain if plain.exists() else out / TRAJECTORIES)


def load_study(out: Path) -> Study | None:
    """Return a folder's settings; None if there are none."""
    return read_json(out / SETTINGS, Study.of)


def load_results(out: Path | str) -> Results:
    """Return the scores of all trajectories in a folder, in cell order, with the missing cells.

    Duplicates and trajectories outside the settings are omitted with a warning. An unreadable file
    raises `DamagedFileError`.
    """
    results, doubles, strays = read_results(Path(out))
    for count, what in ((doubles, "doubles"), (strays, f"not cells of {SETTINGS}")):
        if count:
            warnings.warn(
                f"{count} trajectories in {log_of(Path(out)).path} are {what} and do not count; to "
                f"remove them: agentgym doctor {out} --repair",
                stacklevel=2,
            )
    return results


def read_results(out: Path) -> tuple[Results, int, int]:
    """Return a folder's results, the duplicate count, and the number of episodes without a cell."""
    study = load_study(out) or Study()
    results: dict[Cell, Result] = {}
    failures: dict[Cell, str] = {}
    doubles = strays = 0
    for number, trajectory in enumerate(log_of(out), 1):
        if not study.holds(trajectory):
            strays += 1
            continue
        if trajectory.failure and not is_over_window(trajectory):
            if study.runs:  # without runs, a trajectory may lack cell labels
                failures[cell_of(trajectory)] = INVALID if _is_invalid(trajectory) else LOST
            continue
        try:
            result = score(trajectory)
        except ValueError as error:
            if not study.runs:  # the log may be of no ablation
                raise
            raise DamagedFileError(log_of(out).path, str(error), number) from None
        cell = result_cell(result)
        if cell in results:
            doubles += 1
            continue
        results[cell] = result
    if not study.runs:
        return as_results([results[cell] for cell in sorted(results)]), doubles, strays
    columns = study.columns()
    cells = sorted(results, key=lambda cell: (columns.index(cell.policy), cell))
    missing = _missing_rows(study, results, failures)
    return Results([results[cell] for cell in cells], missing), doubles, strays


def _missing_rows(
    study: Study, results: Mapping[Cell, Result], failures: Mapping[Cell, str]
) -> list[Result]:
    axes = {column_of(run): run["axis"] for run in study.runs}
    instances: dict[tuple[Any, ...], str] = {}
    for cell, result in results.items():
        instances[cell.world, cell.horizon, cell.seed] = result.instance
    rows = []
    for cell in study.cells():
        if cell not in results:
            instance = instances.get((cell.world, cell.horizon, cell.seed), "")
            cause = failures.get(cell, NOT_PLAYED)
            rows.append(missing_result(cell, axes[cell.policy], instance, cause))
    return rows


def _is_invalid(trajectory: Trajectory) -> bool:
    return any((step.info.get("detail") or {}).get("invalid") for step in trajectory.steps)


def result_cell(result: Result) -> Cell:
    """Return a result's cell."""
    return Cell(*(getattr(result, name) for name in Cell._fields))
