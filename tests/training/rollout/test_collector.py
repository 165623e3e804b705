from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym import Chat, Reply
from agentgym.oracles import NoisyPolicy
from agentgym.training.rollout import (
    CollectionError,
    Collector,
    OtherRunError,
    TrajectoryLog,
    collect,
    replay,
)
from agentgym.training.rollout.engines.base import YOUNG, YOUNG_PER_SLOT, Lockstep
from agentgym.training.rollout.engines.processes import Processes
from agentgym.training.rollout.engines.threads import Asyncio, Threads
from tests.training.rollout import faulty_world
from tests.training.rollout.disk import full_disk
from tests.training.rollout.faulty_world import Awaiting, Mortal, Worker, check_fault, make_env

APART = ("threads", "asyncio", "processes")


@pytest.fixture(scope="module", autouse=True)
def no_process_stays() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


def by_seed(trajectories: Any) -> list[str]:
    return [t.to_json() for t in sorted(trajectories, key=lambda t: t.seed)]


SPECS = [
    agentgym.spec("ListWorld", oracles="SPH", labels=True),
    agentgym.spec(
        "TreeWorld", nodes=12, oracles="S", context="compaction+awareness", window=3_000, shots=1
    ),
]


@pytest.mark.parametrize("engine", APART)
@pytest.mark.parametrize("spec", SPECS, ids=["hints", "edits"])
def test_every_engine_records_what_lockstep_records(spec: Any, engine: str) -> None:
    world = re.search(r"\w+World", spec.id)[0]  # type: ignore[index]
    policy = Awaiting(NoisyPolicy(world, 0.2))
    expected = by_seed(collect(policy, spec, range(7), 3))
    assert len(expected) == 7
    assert by_seed(collect(policy, spec, range(7), 3, engine=engine)) == expected


FAULTS = [*((engine, how) for engine in APART for how in ("raise", "hang")), ("processes", "die")]


@pytest.mark.rotation(fault=FAULTS)
def test_what_breaks_costs_its_episode_alone(fault: tuple[str, str]) -> None:
    check_fault(*fault)


def test_lockstep_raises_what_breaks() -> None:
    with pytest.raises(OSError, match="disk is full"):
        list(collect(Worker("raise"), make_env, range(8), 2))


@pytest.mark.parametrize("engine", APART)
def test_when_everything_breaks_the_collection_says_why(engine: str) -> None:
    with pytest.raises(
        CollectionError, match=r"5 consecutive episodes failed; the last cause: .*no disk"
    ):
        list(collect(Worker(), lambda: make_env(broken=True), range(20), 2, engine=engine))


def test_tools_that_wait_run_at_the_same_time_in_threads() -> None:
    faulty_world.BARRIERS["all"] = threading.Barrier(4)  # each tool waits for three other tools

    def meeting(chats: Sequence[Chat]) -> list[Reply]:
        return [Reply(agentgym.render(agentgym.ToolCall("work", {"how": "meet"}))) for _ in chats]

    played = list(collect(meeting, make_env, range(8), 4, engine="threads"))
    assert [t.reward for t in played] == [1.0] * 8
    assert not any(t.failure for t in played)


def test_slots_stay_open_between_collections_and_take_the_new_policy() -> None:
    with Collector(make_env, 2, engine="processes") as collector:
        first = list(collector.collect(Worker("who"), range(6)))
        second = list(collector.collect(Worker("raise"), range(6)))
        third = list(collector.collect(Worker("who"), range(6)))
    assert [t.failure for t in first + third] == [""] * 12
    assert {bool(t.failure) for t in second} == {False, True}


@pytest.mark.parametrize("make", [Lockstep, Threads, Asyncio, partial(Processes, workers=1)])
def test_an_engine_serves_one_collector_after_another(make: Any) -> None:
    engine, policy = make(), Awaiting(NoisyPolicy("ListWorld", 0.2))
    for items in (4, 6):  # the second collector has another env
        spec = agentgym.spec("ListWorld", items=items)
        with Collector(spec, 2, engine=engine) as collector:
            assert by_seed(collector.collect(policy, range(3))) == by_seed(
                collect(policy, spec, range(3))
            )
            with pytest.raises(ValueError, match="make an engine for each collector"):
                Collector(spec, 2, engine=engine)


def test_a_collection_that_is_left_early_leaves_nothing_running() -> None:
    with Collector(make_env, 2, engine="processes") as collector:
        endless = collector.collect(Worker(), count())
        assert not next(endless).failure
        endless.close()
        assert (
            multiprocessing.active_children() == [] or len(multiprocessing.active_children()) <= 2
        )
        assert [
            t.seed for t in sorted(collector.collect(Worker(), range(3)), key=lambda t: t.seed)
        ] == [0, 1, 2]


@pytest.mark.parametrize("engine", APART)
def test_closing_does_not_wait_for_what_hangs(engine: str) -> None:
    collector = Collector(make_env, 4, engine=engine)
    playing = collector.collect(Worker("hang"), count())
    for trajectory in playing:
        if trajectory.seed > 8:
            break
    collector.close()


def test_a_log_is_written_before_the_trajectory_is_yielded_and_read_back(tmp_path: Path) -> None:
    log = tmp_path / "runs" / "log.jsonl"
    seeds = [0, 0, 1, 2, 2, 3, 4]
    first = collect(Worker(), make_env, seeds, 2, log=log, labels={"arm": "S"})
    for number, _ in enumerate(first, 1):
        assert len(list(TrajectoryLog(log))) == number
        if number == 3:
            break
    first.close()
    with log.open("a") as file:
        file.write('{"torn')
    found = list(collect(Worker(), make_env, seeds, 2, log=log, labels={"arm": "S"}))
    assert Counter(t.seed for t in found) == Counter(seeds)
    assert by_seed(found) == by_seed(TrajectoryLog(log))
    assert by_seed(found) == by_seed(collect(Worker(), make_env, seeds, 2, labels={"arm": "S"}))
    others = list(collect(Worker(), make_env, [0, 1], 2, log=log, labels={"arm": "P"}))
    assert len(others) == 2
    assert len(list(TrajectoryLog(log))) == len(seeds) + 2
    with pytest.raises(OtherRunError, match="contains an episode of another run"):
        list(collect(Worker(), lambda: make_env(turns=5), [0, 1], log=log, labels={"arm": "P"}))
    asked = [9, 4, 2, 2, 2]
    assert [
        t.seed
        for t in sorted(
            collect(Worker(), make_env, asked, 2, log=log, labels={"arm": "S"}),
            key=lambda t: t.seed,
        )
    ] == sorted(asked)
    assert len(list(TrajectoryLog(log))) == len(seeds) + 4, "9 and a third 2 were new"


SCRIPT = """
import sys
from pathlib import Path
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import collect

if __name__ == "__main__":
    for number, trajectory in enumerate(collect(
        OraclePolicy("ListWorld"), "ListWorld", range(300), 2, engine="processes", log=Path(sys.argv[1])
    )):
        print(number, flush=True)
"""


@pytest.mark.rotation
def test_a_run_that_was_killed_goes_on_and_its_workers_end_with_it(tmp_path: Path) -> None:
    script, log = tmp_path / "run.py", tmp_path / "log.jsonl"
    script.write_text(SCRIPT)
    line = [sys.executable, str(script), str(log)]
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        for text in process.stdout:
            if int(text) == 20:
                break
        process.send_signal(signal.SIGKILL)
    _wait_until_group_is_empty(process.pid)
    assert 20 <= len(log.read_text().splitlines()) < 300, "it was killed too late"
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    trajectories = list(TrajectoryLog(log))
    assert sorted(t.seed for t in trajectories) == list(range(300))
    assert all(t.reward == 1.0 for t in trajectories)
    assert replay(trajectories[-1]).to_json() == trajectories[-1].to_json()


def _wait_until_group_is_empty(group: int) -> None:
    for _ in range(300):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError("workers outlived their parent")


def lengths(trajectories: Any) -> dict[int, int]:
    return {t.seed: len(t.steps) for t in trajectories}


def test_workers_that_die_the_more_the_longer_they_play_do_not_make_episodes_short() -> None:
    uneven = partial(make_env, uneven=True)
    planned = lengths(collect(Mortal("well"), uneven, range(24)))
    assert set(planned.values()) == {1, 5, 9, 13}
    with Collector(uneven, 2, engine="processes", retries=40) as collector:
        played = list(collector.collect(Mortal(), range(24)))
    assert lengths(played) == planned
    assert len(played) == 24
    assert not any(t.failure for t in played)
    assert collector.retried > 0


def test_episodes_in_order_are_a_fair_sample_and_recorded_ones_keep_their_place(
    tmp_path: Path,
) -> None:
    uneven = partial(make_env, uneven=True)
    endless = collect(Mortal("well"), uneven, count(), 8, ordered=True)
    fair = list(itertools.islice(endless, 12))
    hasty = list(itertools.islice(collect(Mortal("well"), uneven, count(), 8), 12))
    assert [t.seed for t in fair] == list(range(12))
    assert sum(lengths(hasty).values()) < sum(lengths(fair).values()), "short ones come first"
    log = tmp_path / "log.jsonl"
    list(collect(Worker(), make_env, [4, 2], log=log))
    played = list(collect(Worker(), make_env, [1, 2, 3, 4, 2], 2, log=log, ordered=True))
    assert [t.seed for t in played] == [1, 2, 3, 4, 2]
    assert len(list(TrajectoryLog(log))) == 5


def test_a_run_on_a_full_disk_goes_on_when_there_is_room(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with full_disk(15_000), pytest.raises(OSError, match="too large"):
        list(collect(Worker(), make_env, range(12), 2, log=log))
    assert 0 < len(list(TrajectoryLog(log))) < 12
    played = list(collect(Worker(), make_env, range(12), 2, log=log))
    assert sorted(t.seed for t in played) == sorted(t.seed for t in TrajectoryLog(log))
    assert sorted(t.seed for t in played) == list(range(12))


def thresholds(slots: int = 2) -> set[int]:
    seen = set()

    def policy(chats: Sequence[Chat]) -> list[Reply]:
        seen.add(gc.get_threshold()[0])
        return Worker()(chats)

    list(collect(policy, make_env, range(3), slots))
    return seen


def test_the_threshold_follows_the_slots_and_comes_back() -> None:
    before = gc.get_threshold()
    assert thresholds(10_000) == {YOUNG_PER_SLOT * 10_000}
    assert thresholds() == {YOUNG}
    assert gc.get_threshold() == before


def test_disabled_collection_stays_disabled() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        assert thresholds() == {gc.get_threshold()[0]} == {0}
    finally:
        gc.set_threshold(*before)
