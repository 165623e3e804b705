"""Studies: folders of episodes, to which runs may add worlds, arms, contexts, horizons, seeds,
samples and policies.

Each run is an `Ablation`. What of it a folder holds already is not played again, and what would not
be comparable with what is there is refused.
"""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, cast
from zlib import crc32

from agentgym.play.policy import Policy
from agentgym.training.evaluation.ablation import (
    Ablation,
    Cell,
    cell_of,
    cells_of,
    finish,
    window_of,
)
from agentgym.training.evaluation.budget import Budget, Limits
from agentgym.training.evaluation.cell_pool import Lost, play_cells
from agentgym.training.evaluation.scoring import Result, score
from agentgym.training.rollout import (
    CollectionError,
    Collector,
    RunLock,
    Trajectory,
    TrajectoryLog,
)
from agentgym.training.rollout.policies import other, provenance
from agentgym.training.rollout.storage import check_settings, read_json, write_text

SETTINGS = "ablation.json"
TRAJECTORIES = "trajectories.jsonl.zst"
_PLAIN = "trajectories.jsonl"
"""The log of folders from before logs were compressed, which goes on as it is."""
RETRIES = 2
"""The most times that a cell whose worker was killed is played again: a third death of one cell is
no accident.
"""
_AXES = ("worlds", "arms", "contexts", "horizons")
_COUNTS = ("seeds", "samples")
_ALIKE = ("axis", "hint_scope", "oracle_options", "shots")
"""Settings that all runs in a folder share."""


class Reseedable(Protocol):
    """A policy over a sampler, such as `LocalPolicy`."""

    def reseed(self, number: int) -> None:
        """Draw differently from copies with other numbers."""


@dataclass(frozen=True)
class Study:
    """Settings of a folder.

    Attributes:
        runs: The settings of each run (`Ablation.settings`).
        policies: What played under the name of each policy (`provenance`); empty where an older
            version did not write it down.
    """

    runs: list[dict[str, Any]] = field(default_factory=list)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Any) -> Study:
        """Return the study that a file holds; before there were several runs, it was one's settings.

        Raises:
            ValueError: It holds something else.
        """
        if not isinstance(data, dict):
            raise ValueError("it is no JSON object")
        if "runs" not in data:
            data = {"runs": [{"samples": 1, **data}], "policies": {}}
        data = check_settings(data, {"runs": [], "policies": {}})
        if not data["runs"]:
            raise ValueError("it names no run")
        defaults = _default_settings()
        runs = [check_settings(run, defaults) for run in data["runs"]]
        for run in runs:
            run["policy"] = {**defaults["policy"], **run["policy"]}
        return cls(runs, data["policies"])

    def columns(self) -> list[str]:
        """Return the policies in the order in which they were added."""
        return list(dict.fromkeys(map(_column, self.runs)))

    def cells(self) -> list[Cell]:
        """Return the cells of all runs, each once."""
        cells = (cell for run in self.runs for cell in cells_of(run, _column(run)))
        return list(dict.fromkeys(cells))

    def holds(self, trajectory: Trajectory) -> bool:
        """Return whether a trajectory is one of a cell of the study."""
        labels = trajectory.labels
        counts = {"seeds": trajectory.seed, "samples": labels.get("sample", 0)}
        return any(
            all(labels.get(axis[:-1]) in run[axis] for axis in _AXES)
            and all(0 <= counts[name] < run[name] for name in _COUNTS)
            and labels.get("axis") == run["axis"]
            and labels.get("policy") == _column(run)
            for run in self.runs
        )

    def grown(self, ablation: Ablation, played_by: Mapping[str, Any], out: Path) -> Study:
        """Return the study with another run.

        Raises:
            ValueError: What it would add cannot be compared with what is there.
        """
        new, column = ablation.settings(), ablation.policy.column
        if name := next((n for run in self.runs for n in conflicts(run, new)), ""):
            raise ValueError(
                f"{out} holds a run with other settings: {name}; choose another folder "
                f"(`agentgym compare` puts folders together; see {SETTINGS})"
            )
        kept = self.policies.get(column) or dict(played_by)
        if name := other(kept, played_by):
            raise ValueError(
                f"{out} holds episodes of {column!r} that something else played: its {name} was "
                f"{json.dumps(kept.get(name))} and is {json.dumps(played_by.get(name))}; give this "
                f"one a name of its own (NAME={ablation.policy.name}), or choose another folder"
            )
        runs = self.runs
        if not any(_covers(run, new) for run in runs):
            runs = [*(run for run in runs if not _covers(new, run)), new]
        return Study(runs, {**self.policies, column: dict(played_by)})

    def order(self, cell: Cell) -> tuple[Any, ...]:
        """Return the place of a cell: policies as they were added, then by its parts."""
        columns = self.columns()
        place = columns.index(cell.policy) if cell.policy in columns else len(columns)
        return place, cell


@functools.cache  # making an ablation checks each of its cells
def _default_settings() -> Mapping[str, Any]:
    return Ablation().settings()


def _column(run: Mapping[str, Any]) -> str:
    return str(run["policy"]["label"] or run["policy"]["name"])


def _covers(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    """Return whether a run has all cells of another one."""
    return (
        _column(one) == _column(two)
        and all(set(two[axis]) <= set(one[axis]) for axis in _AXES)
        and all(two[name] <= one[name] for name in _COUNTS)
    )


def conflicts(one: Mapping[str, Any], two: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings that two runs would have to share to be one study, in words."""
    pairs = [(f"its {name}", one[name], two[name]) for name in _ALIKE]
    shared = [world for world in one["worlds"] if world in two["worlds"]]
    pairs += [(f"its options of {w}", _options(one, w), _options(two, w)) for w in shared]
    if shared and set(one["contexts"]) & set(two["contexts"]):
        pairs.append(("its window", window_of(one), window_of(two)))
    if _column(one) == _column(two):
        pairs.append((f"its policy {_column(one)}", one["policy"], two["policy"]))
    for name, old, new in pairs:
        if old != new:
            yield f"{name} is {json.dumps(old)} and not {json.dumps(new)}"


def _options(run: Mapping[str, Any], world: str) -> dict[str, Any]:
    return {**run["options"].get("", {}), **run["options"].get(world, {})}


def log_of(out: Path) -> TrajectoryLog:
    """Return the log of a study; one that is there and not compressed goes on as it is."""
    plain = out / _PLAIN
    return TrajectoryLog(plain if plain.exists() else out / TRAJECTORIES)


def load_study(out: Path) -> Study | None:
    """Return the settings of a folder; None if there are none.

    Raises:
        DamagedFileError: They cannot be read.
    """
    return read_json(out / SETTINGS, Study.of)


def prepare_ablation(ablation: Ablation, out: Path, player: Policy | None = None) -> TrajectoryLog:
    """Make the folder of a study, or add a run to the one that is there.

    Args:
        ablation: The run.
        out: The folder.
        player: The model that `ablation.policy` names, if it is in memory already.

    Raises:
        DamagedFileError: A file of the folder cannot be read.
        RunLockedError: Somebody else writes to the folder.
        ValueError: The folder holds what cannot be compared with this run.
        OSError: The folder cannot be written.
    """
    log = log_of(out)
    played_by = played_by_of(ablation, player)
    with RunLock(out):
        study = load_study(out)
        grown = (study or Study()).grown(ablation, played_by, out)
        if study is None:
            strays = (trajectory for trajectory in log if not grown.holds(trajectory))
            if (stray := next(strays, None)) is not None:
                raise ValueError(
                    f"{log.path} holds an episode of another ablation ({stray.labels}, seed "
                    f"{stray.seed}); choose another folder or delete it"
                )
        if grown != study:
            write_text(out / SETTINGS, json.dumps(asdict(grown), indent=1) + "\n")
    return log


def played_by_of(ablation: Ablation, player: Policy | None = None) -> dict[str, Any]:
    """Return the provenance of the policy of a run; what is behind an endpoint is asked of it."""
    config = ablation.policy
    if player is None and config.module:
        player = config.make(ablation.worlds[0])
    return provenance(config, player)


def run_ablation(
    ablation: Ablation,
    out: Path,
    workers: int,
    on_progress: Callable[[int], None] = lambda episodes: None,
    on_loss: Callable[[Cell, str], None] = lambda cell, cause: None,
    player: Policy | None = None,
    budget: Budget | None = None,
) -> list[Result]:
    """Play the episodes of a run that a folder does not hold yet, and score all that it holds.

    Trajectories are written as they finish, so a run that was killed goes on where it stopped. A
    worker that is killed costs the cell that it was playing: that is played again, at most
    `RETRIES` times, and then lost. So is a cell for which the policy had no reply. Lost cells are
    in the log as failures and are played when the run is started again.

    Args:
        ablation: The settings.
        out: The folder for settings and trajectories; created if missing. Nobody else can write to
            it meanwhile.
        workers: Number of processes; 1 for this one. A trained model plays in this one.
        on_progress: Called with how many more episodes are there; earlier runs' come first.
        on_loss: Called with a cell that was lost and the cause.
        player: The model that `ablation.policy` names, if it is in memory already.
        budget: Holds cells back when it is used up. What the policy has played in the folder before
            counts.

    Raises:
        CollectionError: Cell after cell was lost.
        DamagedFileError: A file of the folder cannot be read.
        RunLockedError: Somebody else writes to the folder.
        ValueError: The folder holds what cannot be compared with this run.
        OSError: The folder cannot be written.
    """
    log, budget = prepare_ablation(ablation, out, player), budget or Budget(Limits())
    with RunLock(out), log.writing():
        done = {}
        for row in load_results(out):
            done[result_cell(row)] = row
            if row.policy == ablation.policy.column:
                budget.spend(result_cell(row), row.tokens)
        cells = ablation.cells()
        on_progress(sum(cell in done for cell in cells))
        missing = [cell for cell in cells if cell not in done]
        losses = 0
        for ended in _play_all(ablation, missing, workers, player, budget):
            log.append(ended.line)
            losses = losses + 1 if ended.failure else 0
            budget.spend(ended.cell, ended.tokens)
            if ended.failure:
                on_loss(ended.cell, ended.failure)
            else:
                on_progress(1)
            if losses > 2 * workers:  # twice over, since all workers may fail together
                raise CollectionError(
                    f"{losses} cells were lost one after the other; the last one: {ended.failure}"
                )
        return _read_results(out)[0]


def load_results(out: Path) -> list[Result]:
    """Return the scores of all trajectories in a folder, in the order of their cells.

    Each cell counts once, the first if an older version wrote it twice; what does not belong to the
    settings of the folder is left out. A warning says so.

    Raises:
        DamagedFileError: A file of the folder cannot be read.
    """
    results, doubles, strays = _read_results(out)
    for count, what in ((doubles, "doubles"), (strays, f"not cells of {SETTINGS}")):
        if count:
            warnings.warn(
                f"{count} trajectories in {log_of(out).path} are {what} and do not count; to "
                f"move them out: agentgym doctor {out} --repair",
                stacklevel=2,
            )
    return results


def _read_results(out: Path) -> tuple[list[Result], int, int]:
    """Return the results of a folder, and the numbers of doubles and of strays among them."""
    study = load_study(out)
    results: dict[Cell, Result] = {}
    doubles = strays = 0
    for trajectory in log_of(out):
        if trajectory.failure:
            continue
        result = score(trajectory)
        if study is not None and not study.holds(trajectory):
            strays += 1
        elif result_cell(result) in results:
            doubles += 1
        else:
            results[result_cell(result)] = result
    ordered = [results[cell] for cell in sorted(results, key=(study or Study()).order)]
    return ordered, doubles, strays


def result_cell(result: Result) -> Cell:
    """Return the cell of a result."""
    return Cell(*(getattr(result, name) for name in Cell._fields))


def missing_cells(out: Path) -> list[Cell]:
    """Return the cells of a study that are still to be played, those of damaged lines among them;
    none if a folder holds no study.
    """
    study = load_study(out) if out.is_dir() else None
    if study is None:
        return []
    there = (trajectory for _, trajectory in log_of(out).readable() if trajectory is not None)
    played = {cell_of(each) for each in there if not each.failure and study.holds(each)}
    return [cell for cell in study.cells() if cell not in played]


@dataclass(frozen=True, slots=True)
class _Ended:
    """A cell that was played or lost.

    Attributes:
        cell: The cell.
        line: The line of its trajectory.
        failure: The cause, if it was lost.
        tokens: The tokens of its prompts and replies, if they were counted.
    """

    cell: Cell
    line: str
    failure: str
    tokens: tuple[float, float] | None

    @classmethod
    def of(cls, cell: Cell, trajectory: Trajectory) -> _Ended:
        tokens = trajectory.labels.get("tokens")
        return cls(
            cell,
            trajectory.to_json(),
            trajectory.failure,
            (tokens[0], tokens[1]) if tokens else None,
        )


def _play_all(
    ablation: Ablation, cells: list[Cell], workers: int, player: Policy | None, budget: Budget
) -> Iterator[_Ended]:
    """Yield cells as they end."""
    played_by = played_by_of(ablation, player)
    if ablation.policy.is_model or player is not None:
        yield from _play_together(ablation, cells, player, played_by, budget)
        return
    play = functools.partial(_play, ablation, played_by, budget.limits.counts_tokens)
    admitted = budget.admit(cells)
    if workers == 1:
        yield from map(play, admitted)
        return
    size = len(ablation.arms) * len(ablation.contexts)
    batches = iter(lambda: list(islice(admitted, size)), [])
    for ended in play_cells(play, batches, workers, RETRIES):
        if isinstance(ended, Lost):
            yield _Ended.of(ended.cell, ablation.lost(ended.cell, ended.cause))
        else:
            yield ended


def _play_together(
    ablation: Ablation,
    cells: Iterable[Cell],
    player: Policy | None,
    played_by: Mapping[str, Any],
    budget: Budget,
) -> Iterator[_Ended]:
    """Yield cells that one model plays, those of one env and sample in batches."""
    alike: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        alike.setdefault((*cell[:4], cell.sample), []).append(cell)
    for some in alike.values():
        first = some[0]
        policy = player or ablation.policy.make(first.world)
        if player is None:  # the draws do not depend on what the model has played before
            cast("Reseedable", policy).reseed(crc32(repr(first[:-1]).encode()))
        labels = ablation.labels(first, played_by)
        batch = min(len(some), ablation.policy.model.batch_size)
        seeds = (cell.seed for cell in budget.admit(some))
        with Collector(ablation.spec(*first[:4]), batch) as collector:
            for trajectory in collector.collect(policy, seeds, labels=labels):
                played = finish(trajectory, count=budget.limits.counts_tokens)
                yield _Ended.of(first._replace(seed=trajectory.seed), played)


def _play(ablation: Ablation, played_by: Mapping[str, Any], count: bool, cell: Cell) -> _Ended:
    return _Ended.of(cell, ablation.play(cell, played_by, count=count))
