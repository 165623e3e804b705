"""Run ablations: play the episodes that are missing from a study's folder."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import filterfalse
from pathlib import Path
from typing import Any
from zlib import crc32

from agentgym.play.policy import Policy
from agentgym.training.evaluation.ablation import Ablation, Cell, finish
from agentgym.training.evaluation.cell_pool import Lost, play_cells, play_in_threads
from agentgym.training.evaluation.missing import Results
from agentgym.training.evaluation.provenance import named_after, provenance
from agentgym.training.evaluation.study_folder import (
    SETTINGS,
    Study,
    load_results,
    load_study,
    log_of,
    read_results,
    result_cell,
)
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
from agentgym.training.rollout.seat_policies import adapt
from agentgym.training.rollout.storage import write_text

# If a cell's worker dies three times, the cell probably causes the deaths.
RETRIES = 2


def prepare_ablation(ablation: Ablation, out: Path, player: Policy | None = None) -> TrajectoryLog:
    """Create a study's folder, or add a run to an existing one. Raises like `run_ablation`."""
    log, ablation = log_of(out), _naming(ablation, player)
    played_by = played_by_of(ablation, player)
    with RunLock(out):
        study = load_study(out)
        grown = (study or Study()).grown(ablation, played_by, out)
        if study is None and (stray := next(filterfalse(grown.holds, log), None)):
            raise ValueError(
                f"{log.path} contains an episode of another ablation ({stray.labels}, seed "
                f"{stray.seed}); choose another folder, or delete this one"
            )
        if grown != study:
            write_text(out / SETTINGS, json.dumps(asdict(grown), indent=1) + "\n")
    return log


def _naming(ablation: Ablation, player: Policy | None) -> Ablation:
    config = named_after(ablation.policy, player)
    return ablation if config == ablation.policy else replace(ablation, policy=config)


def played_by_of(ablation: Ablation, player: Policy | None = None) -> dict[str, Any]:
    """Return the provenance of a run's policy."""
    config = ablation.policy
    if player is None and config.module:
        player = config.make(ablation.worlds[0])
    return provenance(config, ablation.worlds, player)


def run_ablation(
    ablation: Ablation,
    out: Path | str,
    workers: int,
    on_progress: Callable[[int], None] = lambda episodes: None,
    on_loss: Callable[[Cell, str], None] | None = None,
    player: Policy | None = None,
) -> Results:
    """Play the missing episodes of a run, and score all episodes in its folder.

    A killed run resumes. A cell is lost if its worker is killed more than `RETRIES` times or the
    policy does not reply. Resuming the run retries lost cells.

    Args:
        ablation: The settings.
        out: The folder for settings and trajectories.
        workers: The number of processes. A trained model, or a policy that supports
            concurrent episodes (`UserPolicy.parallel_episodes`), always runs in this process.
        on_progress: Called with the number of existing episodes, then with 1 for each new episode.
        on_loss: Called with each lost cell and the cause. By default, a warning
            reports the number of lost cells.
        player: A policy object or loaded model that replaces `ablation.policy`.

    Raises:
        CollectionError: Many consecutive cells were lost, or the policy failed in three in a row.
        DamagedFileError: A file in the folder cannot be read.
        RunLockedError: Another process is writing to the folder.
        ValueError: The run is not comparable with the runs in the folder.
    """
    out = Path(out)
    if workers > 1:
        exit_while_importing()
    ablation = _naming(ablation, player)
    log = prepare_ablation(ablation, out, player)
    model = None if player is None else adapt(player)
    with RunLock(out), log.writing():
        done = set(map(result_cell, load_results(out)))
        cells = ablation.cells()
        missing = [cell for cell in cells if cell not in done]
        on_progress(len(cells) - len(missing))
        threads = _cells_at_once(ablation, model)
        # A temporary outage may make all concurrent cells fail, so tolerate two failed rounds.
        losses = _Losses(missing, 2 * max(workers, threads))
        for ended in _play_all(ablation, missing, workers, threads, model):
            log.append(ended.line)
            if not ended.failure:
                on_progress(1)
            elif on_loss:
                on_loss(ended.cell, ended.failure)
            losses.count(ended)
        results = read_results(out)[0]
    if losses.first and not on_loss:
        warnings.warn(
            f"{losses.total} episodes were lost and are missing from all figures, such as "
            f"{losses.first}; run it again to play them",
            stacklevel=2,
        )
    return results


class _Losses:
    def __init__(self, cells: Sequence[Cell], most: int) -> None:
        self.total, self.first = 0, ""
        self._numbers = {cell: number for number, cell in enumerate(cells)}
        self._most, self._in_a_row, self._faults = most, 0, FaultStreak()

    def count(self, ended: _Ended) -> None:
        if not ended.failure:
            self._in_a_row = 0
            return
        self.total += 1
        self._in_a_row += 1
        self.first = self.first or f"{ended.cell}: {ended.failure}"
        if ended.fault is not None:
            self._faults.add(self._numbers[ended.cell], ended.fault)
        if self._in_a_row > self._most:
            raise CollectionError(
                f"{self._in_a_row} consecutive cells failed; the last one: {ended.failure}"
            )


def _cells_at_once(ablation: Ablation, player: UserPolicy | None) -> int:
    if player is not None:
        return 1 if player.serial else player.parallel_episodes
    if not ablation.policy.module:
        return 1
    own = adapt(ablation.policy.make(ablation.worlds[0]))
    # A policy object that cannot play episodes concurrently plays one at a time.
    if own.serial and own.policy is adapt(ablation.policy.make(ablation.worlds[0])).policy:
        return 1
    return own.parallel_episodes


@dataclass(frozen=True, slots=True)
class _Ended:
    """A cell that was played or lost; `fault` is the policy's exception or wrong return value."""

    cell: Cell
    line: str
    failure: str
    fault: PolicyFault | None

    @classmethod
    def of(cls, cell: Cell, trajectory: Trajectory, player: UserPolicy | None = None) -> _Ended:
        fault = player.last_fault if player is not None else None
        if fault is not None and fault.cause != trajectory.failure:
            fault = None
        return cls(cell, trajectory.to_json(), trajectory.failure, fault)


def _play_all(
    ablation: Ablation, cells: list[Cell], workers: int, threads: int, player: UserPolicy | None
) -> Iterator[_Ended]:
    played_by = played_by_of(ablation, player)
    if ablation.policy.is_model or (player is not None and threads == 1):
        yield from _play_together(ablation, cells, player, played_by)
        return
    play = functools.partial(_play, ablation, played_by, player)
    if workers == 1 or threads > 1 or player is not None:
        yield from play_in_threads(play, iter(cells), min(threads, len(cells)))
        return
    for ended in play_cells(play, cells, workers, RETRIES):
        if isinstance(ended, Lost):
            yield _Ended.of(ended.cell, ablation.lost(ended.cell, ended.cause))
        else:
            yield ended


def _play_together(
    ablation: Ablation,
    cells: Iterable[Cell],
    player: UserPolicy | None,
    played_by: Mapping[str, Any],
) -> Iterator[_Ended]:
    alike: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        alike.setdefault((*cell[:4], cell.sample), []).append(cell)
    for some in alike.values():
        first = some[0]
        policy = player or adapt(ablation.policy.make(first.world, first.sample))
        if player is None:  # random choices must not depend on earlier episodes
            policy.reseed(crc32(repr(first[:-1]).encode()))
        labels = ablation.labels(first, played_by)
        batch = min(len(some), ablation.policy.model.batch_size)
        with Collector(ablation.spec(*first[:4]), batch) as collector:
            for trajectory in collector.collect(policy, [c.seed for c in some], labels=labels):
                cell = first._replace(seed=trajectory.seed)
                yield _Ended.of(cell, finish(trajectory), policy)


def _play(
    ablation: Ablation, played_by: Mapping[str, Any], player: UserPolicy | None, cell: Cell
) -> _Ended:
    policy = player or adapt(ablation.policy.make(cell.world, cell.sample, cell.seed))
    trajectory = ablation.play(cell, played_by, policy, shared=player is not None)
    return _Ended.of(cell, trajectory, policy)
