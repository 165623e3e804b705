"""Studies: folders of episodes that grow by worlds, arms, contexts, horizons, seeds, samples and
policies.

Each run is an `Ablation`. Existing episodes are not replayed, and incomparable runs are refused.
"""

from __future__ import annotations

import functools
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
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
from agentgym.training.evaluation.budget import Budget, SpendingLimits
from agentgym.training.evaluation.cell_pool import Lost, play_cells
from agentgym.training.evaluation.missing import (
    INVALID,
    LOST,
    NOT_PLAYED,
    Results,
    as_results,
    placeholder,
)
from agentgym.training.evaluation.provenance import SOURCES, difference, named_after, provenance
from agentgym.training.evaluation.scoring import Result, is_over_window, score
from agentgym.training.rollout import (
    CollectionError,
    Collector,
    RunLock,
    Trajectory,
    TrajectoryLog,
)
from agentgym.training.rollout.storage import check_settings, read_json, write_text

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


class Reseedable(Protocol):
    """A policy over a sampler, such as `LocalPolicy`."""

    def reseed(self, number: int) -> None:
        """Draw differently from copies with other numbers."""


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
        return list(dict.fromkeys(map(column_of, self.runs)))

    def cells(self) -> list[Cell]:
        """Return the cells of all runs, each once."""
        cells = (cell for run in self.runs for cell in cells_of(run, column_of(run)))
        return list(dict.fromkeys(cells))

    def holds(self, trajectory: Trajectory) -> bool:
        """Report whether a trajectory belongs to a cell of the study."""
        labels = trajectory.labels
        counts = {"seeds": trajectory.seed, "samples": labels.get("sample", 0)}
        return any(
            all(labels.get(axis[:-1]) in run[axis] for axis in _AXES)
            and all(0 <= counts[name] < run[name] for name in _COUNTS)
            and labels.get("axis") == run["axis"]
            and labels.get("policy") == column_of(run)
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
        sources = {name: played_by[name] for name in SOURCES if name in played_by}
        for facts in self.policies.values():
            shared = {name: facts[name] for name in SOURCES if name in facts}
            if found := difference(shared, sources):
                raise ValueError(
                    f"{out} was played by other code: {found}; go on with the code that played it, "
                    "or choose another folder"
                )
        kept = self.policies.get(column) or dict(played_by)
        if found := difference(kept, played_by):
            raise ValueError(
                f"{out} contains episodes of {column!r} from another player: {found}; give this "
                f"one another name (NAME={ablation.policy.name}), or choose another folder"
            )
        runs = self.runs
        if not any(_covers(run, new) for run in runs):
            runs = [*(run for run in runs if not _covers(new, run)), new]
        worlds = {**kept.get("worlds", {}), **played_by.get("worlds", {})}
        return Study(runs, {**self.policies, column: {**played_by, "worlds": worlds}})

    def spelled(self, ablation: Ablation) -> Ablation:
        """Return a run with the study's spelling of context strategies that are the same."""
        known = {ablation.stack(name): name for run in self.runs for name in run["contexts"]}
        contexts = tuple(known.get(ablation.stack(name), name) for name in ablation.contexts)
        return ablation if contexts == ablation.contexts else replace(ablation, contexts=contexts)

    def order(self, cell: Cell) -> tuple[Any, ...]:
        """Return the sort key of a cell: policies in the order of addition, then the other fields."""
        columns = self.columns()
        place = columns.index(cell.policy) if cell.policy in columns else len(columns)
        return place, cell


@functools.cache  # making an ablation validates each of its cells
def _default_settings() -> Mapping[str, Any]:
    return Ablation().settings()


def column_of(run: Mapping[str, Any]) -> str:
    """Return the column of a run's policy."""
    return str(run["policy"]["label"] or run["policy"]["name"])


def _covers(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    """Report whether a run contains all cells of another."""
    return (
        column_of(one) == column_of(two)
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
    if column_of(one) == column_of(two):
        pairs.append((f"its policy {column_of(one)}", one["policy"], two["policy"]))
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
        player: A policy in memory, as in `run_ablation`.

    Raises:
        DamagedFileError: A file of the folder cannot be read.
        RunLockedError: Another process writes to the folder.
        ValueError: The run is not comparable with the folder's.
        OSError: The folder cannot be written.
    """
    log, ablation = log_of(out), _naming(ablation, player)
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


def _naming(ablation: Ablation, player: Policy | None) -> Ablation:
    """Return a run whose policy is named after the object that plays it."""
    config = named_after(ablation.policy, player)
    return ablation if config == ablation.policy else replace(ablation, policy=config)


def played_by_of(ablation: Ablation, player: Policy | None = None) -> dict[str, Any]:
    """Return the provenance of a run's policy; a policy behind an endpoint provides its own."""
    config = ablation.policy
    if player is None and config.module:
        player = config.make(ablation.worlds[0])
    return provenance(config, ablation.worlds, player)


def run_ablation(
    ablation: Ablation,
    out: Path,
    workers: int,
    on_progress: Callable[[int], None] = lambda episodes: None,
    on_loss: Callable[[Cell, str], None] | None = None,
    player: Policy | None = None,
    budget: Budget | None = None,
) -> Results:
    """Play the episodes of a run that a folder lacks, and score everything in it.

    Trajectories are written as they finish, so a killed run resumes. A killed worker costs only its
    cell, which is retried up to `RETRIES` times and then lost. Cells without a reply from the
    policy are lost too. Lost cells are logged as failures and retried when the run resumes.

    Args:
        ablation: The settings.
        out: The folder for settings and trajectories, created if missing and locked during the run.
        workers: The number of processes; 1 uses only this one. A trained model plays in this one.
        on_progress: Called with the number of newly available episodes; existing ones come first.
        on_loss: Called with a lost cell and the cause; without it, a warning counts them.
        player: A policy to play instead of `ablation.policy`, of which only the label counts; or
            its loaded model.
        budget: Limits that hold cells back. Earlier episodes of the policy in the folder count.

    Raises:
        CollectionError: Many consecutive cells were lost.
        DamagedFileError: A file of the folder cannot be read.
        RunLockedError: Another process writes to the folder.
        ValueError: The run is not comparable with the folder's.
        OSError: The folder cannot be written.
    """
    study = load_study(out) if out.is_dir() else None
    ablation = _naming(ablation, player)
    ablation = study.spelled(ablation) if study else ablation
    log, budget = prepare_ablation(ablation, out, player), budget or Budget(SpendingLimits())
    lost: list[str] = []
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
            if not ended.failure:
                on_progress(1)
            elif on_loss:
                on_loss(ended.cell, ended.failure)
            else:
                lost.append(f"{ended.cell}: {ended.failure}")
            if losses > 2 * workers:  # twice over, because all workers may fail together
                raise CollectionError(
                    f"{losses} consecutive cells failed; the last one: {ended.failure}"
                )
        results = _read_results(out)[0]
    if lost:
        warnings.warn(
            f"{len(lost)} episodes were lost and are missing from all figures, such as {lost[0]}; "
            "run it again to play them",
            stacklevel=2,
        )
    return results


def load_results(out: Path) -> Results:
    """Return the scores of all trajectories in a folder, in cell order, and what is missing.

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


def _read_results(out: Path) -> tuple[Results, int, int]:
    """Return the results of a folder, and the numbers of duplicates and strays."""
    study = load_study(out)
    results: dict[Cell, Result] = {}
    failures: dict[Cell, str] = {}
    differing: Counter[tuple[str, str]] = Counter()
    doubles = strays = contradictions = 0
    for trajectory in log_of(out):
        if study is not None and not study.holds(trajectory):
            strays += 1
            continue
        if trajectory.failure and not is_over_window(trajectory):
            if study is not None:
                failures[cell_of(trajectory)] = INVALID if is_invalid(trajectory) else LOST
            continue
        result = score(trajectory)
        cell = result_cell(result)
        if cell in results:
            doubles += 1
            contradictions += results[cell] != result
            continue
        results[cell] = result
        kept = study.policies.get(cell.policy) if study is not None else None
        if kept and (found := difference(kept, trajectory.labels.get("provenance") or kept)):
            differing[cell.policy, found] += 1
    doubts = []
    for (policy, found), count in differing.items():
        doubts.append(
            f"{count} episodes of {policy} were played by another player or code: {found}"
        )
    if contradictions:
        doubts.append(f"{contradictions} of {doubles} duplicates have other results than the first")
    missing = missing_rows(study, results, failures) if study is not None else None
    ordered = [results[cell] for cell in sorted(results, key=(study or Study()).order)]
    if missing is None:
        missing = as_results(ordered).missing
    return Results(ordered, missing, doubts), doubles, strays


def missing_rows(
    study: Study, results: Mapping[Cell, Result], failures: Mapping[Cell, str]
) -> list[Result]:
    """Return the records of the cells that a study lacks.

    Args:
        study: The settings.
        results: The played cells.
        failures: The causes of those that failed.
    """
    axes = {column_of(run): run["axis"] for run in study.runs}
    known: dict[tuple[Any, ...], Result] = {}
    for cell, result in results.items():
        known[cell.world, cell.horizon, cell.seed] = result
    rows = []
    for cell in study.cells():
        if cell not in results:
            same = known.get((cell.world, cell.horizon, cell.seed))
            like = Result(
                *(cell.world, cell.arm, cell.horizon, cell.seed, 0.0, 0, 0, 0, 0, cell.context),
                axis=axes[cell.policy],
                policy=cell.policy,
                sample=cell.sample,
                instance=same.instance if same else "",
            )
            rows.append(placeholder(like, failures.get(cell, NOT_PLAYED)))
    return rows


def is_invalid(trajectory: Trajectory) -> bool:
    """Report whether an env declared the failed episode invalid."""
    return any((step.info.get("detail") or {}).get("invalid") for step in trajectory.steps)


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
    played = set()
    for _, each in log_of(out).readable():
        if each is None or (each.failure and not is_over_window(each)):
            continue
        if study.holds(each):
            played.add(cell_of(each))
    return [cell for cell in study.cells() if cell not in played]


@dataclass(frozen=True, slots=True)
class _Ended:
    """A cell that was played or lost.

    Attributes:
        cell: The cell.
        line: The line of its trajectory.
        failure: The cause, if it was lost.
        tokens: Its prompt and reply tokens, if counted.
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
    """Yield cells played by one model, in batches of equal env and sample."""
    alike: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        alike.setdefault((*cell[:4], cell.sample), []).append(cell)
    for some in alike.values():
        first = some[0]
        policy = player or ablation.policy.make(first.world)
        if player is None:  # so that random choices do not depend on earlier episodes
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
