from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Empty
from typing import Any

import cloudpickle
import gymnasium
import pytest

from agentgym import Chat, Reply, make
from agentgym.oracles import OraclePolicy
from agentgym.training.evaluation import cell_pool
from agentgym.training.rollout import CollectionError, Collector, Processes, Trajectory, collect
from agentgym.training.rollout.engines.base import Answers
from agentgym.training.rollout.engines.threads import ThreadPool, ThreadSlot
from tests.helpers import PATIENCE
from tests.training.rollout.faulty_world import Worker, check_fault, make_env


@pytest.mark.rotation(how=["die", "raise", "hang"])
def test_a_worker_that_breaks_costs_one_of_its_episodes(how: str) -> None:
    assert (check_fault(Processes(workers=1), how, 8) > 0) == (how != "raise")


class Killing:
    def __init__(self, how: str = "well") -> None:
        self.worker, self.killed = Worker(how, number=-1), False

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        # Kill the worker after a recorded step, so that this step must be replayed.
        under_way = any(m.role == "assistant" for chat in chats for m in chat.messages)
        if under_way and not self.killed:
            self.killed = True
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
        list(collect(Worker(), _Ending(), range(40), 2, engine=Processes(workers=2), retries=0))


class _Ending:
    """Env factory that ends every process except the process that created the factory."""

    def __init__(self) -> None:
        self.maker = os.getpid()

    def __call__(self) -> Any:
        if os.getpid() != self.maker:
            os._exit(9)
        return make_env()


def work(folder: str) -> str:
    Path(folder, "begun").touch()
    while not Path(folder, "go on").exists():
        time.sleep(0.01)
    return folder


class SlowReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Env whose `reset` waits for a file; `close` creates another file."""

    def __init__(self, folder: str) -> None:
        super().__init__(make("ListWorld"))
        self.folder = folder

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        work(self.folder)
        return super().reset(**options)

    def close(self) -> None:
        Path(self.folder, "closed").touch()
        super().close()


def part(connection: Any, process: Any, folder: Path) -> int:
    """Close the parent's end of a busy worker's connection; return the worker's exit code."""
    while not (folder / "begun").exists():
        time.sleep(0.01)
    connection.close()
    (folder / "go on").touch()
    process.join()
    return int(process.exitcode)


def test_a_worker_of_cells(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    worker = cell_pool._start(work)
    worker.send(str(tmp_path))
    worker.send(str(tmp_path))
    assert part(worker.connection, worker.process, tmp_path) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_worker_of_envs(tmp_path: Path, capfd: pytest.CaptureFixture[str], method: str) -> None:
    make_env = cloudpickle.dumps(lambda: SlowReset(str(tmp_path)))
    end: Any = Processes(method, workers=1).start(make_env)
    end._connection.send([(0, "reset", 0), (0, "reset", 1)])
    assert part(end._connection, end._process, tmp_path) == 0
    assert (tmp_path / "closed").exists()
    assert capfd.readouterr().err == ""


def answers_of(answers: Answers, number: int) -> int:
    until = time.monotonic() + PATIENCE
    for got in range(number):
        try:
            answers.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            return got
    return number


@pytest.fixture
def restless() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("threads", [1, 3, 16])
def test_no_slot_is_forgotten(threads: int, restless: None) -> None:
    pool, answers = ThreadPool(threads), Answers()
    slots = [
        ThreadSlot(lambda: make("ListWorld", items=4, removals=1), number, answers, pool)
        for number in range(6)
    ]
    for round_ in range(60):
        some = slots[: 1 + round_ % len(slots)]
        for slot in some:
            slot.reset(round_)
        assert answers_of(answers, len(some)) == len(some)
    for slot in slots:
        slot.close()
    pool.close()
    assert all(slot._env is None for slot in slots)
    assert not any(thread.is_alive() for thread in pool._threads)
