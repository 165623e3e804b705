"""A dead or hung worker costs only the episode that it was stepping."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from typing import Any

import pytest

from agentgym import Chat, Reply
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import CollectionError, Collector, Processes, Trajectory, collect
from tests.training.rollout.faulty_world import Worker, check_fault, make_env


@pytest.mark.rotation(fault=[*((how, r) for how in ("die", "raise") for r in (0, 1)), ("hang", 0)])
def test_a_worker_that_breaks_costs_one_of_its_episodes(fault: tuple[str, bool]) -> None:
    how, replicate = fault
    recovered = check_fault(Processes(workers=1), how, 8, replicate=bool(replicate))
    assert (recovered > 0) == (how != "raise")


class Killing:
    def __init__(self, how: str = "well") -> None:
        self.worker, self.batches = Worker(how, number=-1), 0

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        self.batches += 1
        if self.batches == 3:
            (worker,) = multiprocessing.active_children()
            worker.kill()
            worker.join()
        return self.worker(chats)


def test_a_worker_that_is_killed_costs_at_most_the_step_it_was_playing() -> None:
    fine = {t.seed: t.to_json() for t in collect(Worker(), make_env, range(6))}
    with Collector(make_env, 6, engine=Processes(workers=1), retries=1) as collector:
        played = {t.seed: t for t in collector.collect(Killing(), range(6))}
    assert {seed: t.to_json() for seed, t in played.items()} == fine
    assert collector.recovered > 0
    assert collector.retried <= 1


class Telling(Killing):
    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        return [Reply(reply.text.replace("well", "who")) for reply in super().__call__(chats)]


def test_an_episode_that_goes_another_way_when_it_is_played_again_begins_anew() -> None:
    with Collector(make_env, 3, engine=Processes(workers=1), retries=1) as collector:
        played = list(collector.collect(Telling(), range(3)))
    assert [t.failure for t in played] == [""] * 3
    assert collector.retried > 0
    assert all(len({text.split()[-1] for text in _results(t)}) == 1 for t in played)


def _results(trajectory: Trajectory) -> list[str]:
    return [m.text for m in trajectory.last.messages if m.text.startswith("worked in process")]


def test_there_are_no_more_workers_than_asked_for() -> None:
    with Collector("ListWorld", 8, engine=Processes(workers=2)) as collector:
        played = list(collector.collect(OraclePolicy("ListWorld"), range(10)))
        assert len(multiprocessing.active_children()) == 2
    assert [t.reward for t in played] == [1.0] * 10
    assert multiprocessing.active_children() == []
    with pytest.raises(ValueError, match="workers must be an integer in"):
        Processes(workers=0)


def test_workers_that_cannot_start_end_the_collection() -> None:
    with pytest.raises(CollectionError, match="exit code 9"):
        list(collect(Worker(), _Ending(), range(40), 4, engine=Processes(workers=2)))


class _Ending:
    """Makes envs in its own process, and ends any other."""

    def __init__(self) -> None:
        self.maker = os.getpid()

    def __call__(self) -> Any:
        if os.getpid() != self.maker:
            os._exit(9)
        return make_env()
