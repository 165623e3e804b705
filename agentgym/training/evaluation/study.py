"""Studies: folders of episodes that grow by worlds, arms, contexts, horizons, seeds, samples and
policies.

Each run is an `Ablation`. Existing episodes are not replayed, and incomparable runs are refused.
"""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any
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
from agentgym.training.evaluation.budget import Budget, SpendingLimits
from agentgym.training.evaluation.cell_pool import Lost, play_cells, play_in_threads
from agentgym.training.evaluation.scoring import Result, score
from agentgym.training.rollout import (
    CollectionError,
    Collector,
    PolicyFault,
    RunLock,
    Trajectory,
    TrajectoryLog,
    UserPolicy,
)
from agentgym.training.rollout.engines.processes import exit_while_importing
from agentgym.training.rollout.faults import FaultStreak
from agentgym.training.rollout.policies import other, provenance
from agentgym.training.rollout.storage import check_settings, read_json, write_text
from agentgym.training.rollout.user_policy import adapt

SETTINGS = "ablation.json"
TRAJECTORIES = "trajectories.jsonl.zst"
# The log of folders from before logs were compressed; it stays plain.
_PLAIN = "trajectories.jsonl"
RETRIES = 2
"""The maximum number of retries after a worker was killed: a third death is not an accident."""
_AXES = ("worlds", "arms", "contexts", "horizons")
_COUNTS = ("seeds", "samples")
# Settings that all runs in a folder share.
_ALIKE = ("axis", "hint_scope", "oracle_options", "shots")


@dataclass(frozen=True)
class Study:
    """Settings of a folder.

    Attributes:
        runs: The settings of each run (`Ablation.settings`).
        policies: The provenance of each policy (`provenance`), by name; empty if an older version
            did not record it.
    """

    runs: list[dict[str, Any]] = field(default_factory=list)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Any) -> Study:
        """Read the settings of a study; older files contain a single run.

        Raises:
            ValueError: The data has another form.
        """
        if not isinstance(data, dict):
            raise ValueError("it is not a JSON object")
        if "runs" not in data:
            data = {"runs": [{"samples": 1, **data}], "policies": {}}
        data = check_settings(data, {"runs": [], "policies": {}})
        if not data["runs"]:
            raise ValueError("it describes no run")
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
        """Report whether a trajectory belongs to a cell of the study."""
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
            ValueError: The run is not comparable with the study.
        """
        new, column = ablation.settings(), ablation.policy.column
        if name := next((n for run in self.runs for n in conflicts(run, new)), ""):
            raise ValueError(
                f"{out} contains a run with other settings: {name}; choose another folder "
                f"(`agentgym compare` merges folders; see {SETTINGS})"
            )
        kept = self.policies.get(column) or dict(played_by)
        if name := other(kept, played_by):
            raise ValueError(
                f"{out} contains episodes of {column!r} from another player: its {name} was "
                f"{json.dumps(kept.get(name))} and is {json.dumps(played_by.get(name))}; give this "
                f"one another name (NAME={ablation.policy.name}), or choose another folder"
            )
        runs = self.runs
        if not any(_covers(run, new) for run in runs):
            runs = [*(run for run in runs if not _covers(new, run)), new]
        return Study(runs, {**self.policies, column: dict(played_by)})

    def order(self, cell: Cell) -> tuple[Any, ...]:
        """Return the sort key of a cell: policies in the order of addition, then the other fields."""
        columns = self.columns()
        place = columns.index(cell.policy) if cell.policy in columns else len(columns)
        return place, cell


@functools.cache  # making an ablation validates each of its cells
def _default_settings() -> Mapping[str, Any]:
    return Ablation().settings()


def _column(run: Mapping[str, Any]) -> str:
    return str(run["policy"]["label"] or run["policy"]["name"])


def _covers(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    """Report whether a run contains all cells of another."""
    return (
        _column(one) == _column(two)
        and all(set(two[axis]) <= set(one[axis]) for axis in _AXES)
        and all(two[name] <= one[name] for name in _COUNTS)
    )


def conflicts(one: Mapping[str, Any], two: Mapping[str, Any]) -> Iterator[str]:
    """Yield, in words, the settings that two runs must share but do not."""
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
    """Return the log of a study; an existing uncompressed one is kept."""
    plain = out / _PLAIN
    return TrajectoryLog(plain if plain.exists() else out / TRAJECTORIES)


def load_study(out: Path) -> Study | None:
    """Return the settings of a folder; None if there are none.

    Raises:
        DamagedFileError: The settings cannot be read.
    """
    return read_json(out / SETTINGS, Study.of)


def prepare_ablation(ablation: Ablation, out: Path, player: Policy | None = None) -> TrajectoryLog:
    """Create the folder of a study, or add a run to an existing one.

    Args:
        ablation: The run.
        out: The folder.
        player: The model of `ablation.policy`, if it is already loaded.

    Raises:
        DamagedFileError: A file of the folder cannot be read.
        RunLockedError: Another process writes to the folder.
        ValueError: The run is not comparable with the folder's.
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
                    f"{log.path} contains an episode of another ablation ({stray.labels}, seed "
                    f"{stray.seed}); choose another folder or delete it"
                )
        if grown != study:
            write_text(out / SETTINGS, json.dumps(asdict(grown), indent=1) + "\n")
    return log


def played_by_of(ablation: Ablation, player: Policy | None = None) -> dict[str, Any]:
    """Return the provenance of a run's policy; a policy behind an endpoint provides its own."""
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
    """Play the episodes of a run that a folder lacks, and score everything in it.

    Trajectories are written as they finish, so a killed run resumes. A killed worker costs only its
    cell, which is retried up to `RETRIES` times and then lost. Cells without a reply from the
    policy are lost too. Lost cells are logged as failures and retried when the run resumes.

    Args:
        ablation: The settings.
        out: The folder for settings and trajectories, created if missing and locked during the run.
        workers: The number of processes; 1 uses only this one. A trained model plays in this one.
            Together they play as many cells at once as the policy can work on
            (`UserPolicy.parallel_episodes`), at least one each.
        on_progress: Called with the number of newly available episodes; existing ones come first.
        on_loss: Called with a lost cell and the cause.
        player: The model of `ablation.policy`, if it is already loaded.
        budget: Limits that hold cells back. Earlier episodes of the policy in the folder count.

    Raises:
        CollectionError: Many consecutive cells were lost, or three because the policy failed.
        DamagedFileError: A file of the folder cannot be read.
        RunLockedError: Another process writes to the folder.
        ValueError: The run is not comparable with the folder's.
        OSError: The folder cannot be written.
    """
    if workers > 1:
        exit_while_importing()
    log, budget = prepare_ablation(ablation, out, player), budget or Budget(SpendingLimits())
    model = None if player is None else adapt(player)
    with RunLock(out), log.writing():
        done = {}
        for row in load_results(out):
            done[result_cell(row)] = row
            if row.policy == ablation.policy.column:
                budget.spend(result_cell(row), row.tokens)
        cells = ablation.cells()
        on_progress(sum(cell in done for cell in cells))
        missing = [cell for cell in cells if cell not in done]
        at_once = _cells_at_once(ablation, model, workers) if budget.foresees(missing) else 1
        losses, faults = 0, FaultStreak()
        numbers = {cell: number for number, cell in enumerate(missing)}
        for ended in _play_all(ablation, missing, workers, at_once, model, budget):
            log.append(ended.line)
            losses = losses + 1 if ended.failure else 0
            budget.spend(ended.cell, ended.tokens)
            if ended.failure:
                on_loss(ended.cell, ended.failure)
            else:
                on_progress(1)
            if ended.fault is not None:
                faults.add(numbers[ended.cell], ended.fault)
            if losses > 2 * workers * at_once:  # twice over, as all may fail for a passing cause
                raise CollectionError(
                    f"{losses} consecutive cells failed; the last one: {ended.failure}"
                )
        return _read_results(out)[0]


def _cells_at_once(ablation: Ablation, player: UserPolicy | None, workers: int) -> int:
    """Return how many cells a process plays at once."""
    if player is not None:
        return 1 if player.serial else player.parallel_episodes
    if not ablation.policy.module:
        return 1
    own = adapt(ablation.policy.make(ablation.worlds[0]))
    # A policy that is not made anew for each episode must not mix its episodes' states.
    if own.serial and own.policy is adapt(ablation.policy.make(ablation.worlds[0])).policy:
        return 1
    # The limit is one for all processes, since they ask the same server.
    return ceil(own.parallel_episodes / workers)


def load_results(out: Path) -> list[Result]:
    """Return the scores of all trajectories in a folder, in cell order.

    Each cell counts once; duplicates and trajectories outside the settings are omitted with a
    warning.

    Raises:
        DamagedFileError: A file of the folder cannot be read.
    """
    results, doubles, strays = _read_results(out)
    for count, what in ((doubles, "doubles"), (strays, f"not cells of {SETTINGS}")):
        if count:
            warnings.warn(
                f"{count} trajectories in {log_of(out).path} are {what} and do not count; to "
                f"remove them: agentgym doctor {out} --repair",
                stacklevel=2,
            )
    return results


def _read_results(out: Path) -> tuple[list[Result], int, int]:
    """Return the results of a folder, and the numbers of duplicates and strays."""
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
    """Return the cells of a study still to be played, including those of damaged lines; none if the
    folder contains no study.
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
        tokens: Its prompt and reply tokens, if counted.
        fault: The policy's exception or wrong return value, if that was the cause.
    """

    cell: Cell
    line: str
    failure: str
    tokens: tuple[float, float] | None
    fault: PolicyFault | None

    @classmethod
    def of(cls, cell: Cell, trajectory: Trajectory, player: UserPolicy | None = None) -> _Ended:
        tokens = trajectory.labels.get("tokens")
        fault = player.last_fault if player is not None else None
        return cls(
            cell,
            trajectory.to_json(),
            trajectory.failure,
            (tokens[0], tokens[1]) if tokens else None,
            fault if fault is not None and fault.cause == trajectory.failure else None,
        )


def _play_all(
    ablation: Ablation,
    cells: list[Cell],
    workers: int,
    at_once: int,
    player: UserPolicy | None,
    budget: Budget,
) -> Iterator[_Ended]:
    """Yield cells as they end."""
    played_by = played_by_of(ablation, player)
    if ablation.policy.is_model or (player is not None and at_once == 1):
        yield from _play_together(ablation, cells, player, played_by, budget)
        return
    play = functools.partial(_play, ablation, played_by, budget.limits.counts_tokens, player)
    admitted = budget.admit(cells)
    if workers == 1 or player is not None:
        yield from play_in_threads(play, admitted, at_once)
        return
    size = len(ablation.arms) * len(ablation.contexts)
    batches = iter(lambda: list(islice(admitted, size)), [])
    for ended in play_cells(play, batches, workers, RETRIES, at_once):
        if isinstance(ended, Lost):
            yield _Ended.of(ended.cell, ablation.lost(ended.cell, ended.cause))
        else:
            yield ended


def _play_together(
    ablation: Ablation,
    cells: Iterable[Cell],
    player: UserPolicy | None,
    played_by: Mapping[str, Any],
    budget: Budget,
) -> Iterator[_Ended]:
    """Yield cells played by one model, in batches of equal env and sample."""
    alike: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        alike.setdefault((*cell[:4], cell.sample), []).append(cell)
    for some in alike.values():
        first = some[0]
        policy = player or adapt(ablation.policy.make(first.world))
        if player is None:  # so that random choices do not depend on earlier episodes
            policy.reseed(crc32(repr(first[:-1]).encode()))
        labels = ablation.labels(first, played_by)
        batch = min(len(some), ablation.policy.model.batch_size)
        seeds = (cell.seed for cell in budget.admit(some))
        with Collector(ablation.spec(*first[:4]), batch) as collector:
            for trajectory in collector.collect(policy, seeds, labels=labels):
                played = finish(trajectory, count=budget.limits.counts_tokens)
                yield _Ended.of(first._replace(seed=trajectory.seed), played, policy)


def _play(
    ablation: Ablation,
    played_by: Mapping[str, Any],
    count: bool,
    player: UserPolicy | None,
    cell: Cell,
) -> _Ended:
    policy = player or adapt(ablation.policy.make(cell.world, cell.sample))
    trajectory = ablation.play(cell, played_by, policy, count=count, shared=player is not None)
    return _Ended.of(cell, trajectory, policy)
