"""Garbage collection during episodes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import count, islice

import pytest

from agentgym import Chat, Message, Reply
from agentgym.training.rollout import Collector, Engine
from agentgym.training.rollout.engines.base import (
    YOUNG,
    Answers,
    MakeEnv,
    RareGarbageCollection,
    Slot,
)
from agentgym.training.rollout.episode import StepOutcome
from tests.training.rollout.faulty_world import make_env

TURNS = 6


class GrowingSlot(Slot):
    def __init__(self, number: int, answers: Answers) -> None:
        super().__init__(number)
        self._answers, self._turn, self._chat = answers, 0, Chat()

    def reset(self, seed: int, episode_id: str) -> None:
        self._turn, self._chat = 0, Chat().add(Message("user", "go"))
        self._answers.put((self, self._chat))

    def step(self, reply: Reply | None) -> None:
        assert reply is not None
        self._turn += 1
        self._chat = self._chat.add(Message("assistant", raw=reply.text), Message("tool", "done"))
        over = self._turn == TURNS
        info = {"detail": {"calls": 1, "nested": []}}
        outcome = StepOutcome(self._chat, 0.0, terminated=over, truncated=False, info=info)
        self._answers.put((self, (reply, outcome)))

    def close(self) -> None:
        self.dead = True


class Growing(Engine):
    isolates = False

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        return GrowingSlot(number, answers)


@pytest.fixture
def visits() -> Iterator[list[int]]:
    """Yield the number of objects that each collection visits."""
    sizes: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations = range(info["generation"] + 1)
            sizes.append(sum(len(gc.get_objects(generation)) for generation in generations))

    gc.callbacks.append(note)
    yield sizes
    gc.callbacks.remove(note)


@pytest.mark.rotation
def test_what_is_recorded_goes_without_having_been_visited(visits: list[int]) -> None:
    slots, rounds = 4_000, 3
    with Collector(make_env, slots, engine=Growing()) as collector:
        played = collector.collect(lambda chats: [Reply("x")] * len(chats), count())
        for _ in islice(played, slots):
            pass
        gc.collect()  # the slots and their envs now count as old
        visits.clear()
        steps = sum(len(trajectory.steps) for trajectory in islice(played, rounds * slots))
    assert steps == rounds * slots * TURNS
    assert sum(visits) < steps, "objects visited a step; a step records seven"


def test_the_threshold_follows_the_slots_and_comes_back() -> None:
    before = gc.get_threshold()
    RareGarbageCollection.begin(10)
    assert gc.get_threshold()[0] == YOUNG
    RareGarbageCollection.begin(10_000)
    assert gc.get_threshold()[0] > 20 * YOUNG
    RareGarbageCollection.end(10)
    assert gc.get_threshold()[0] > 20 * YOUNG
    RareGarbageCollection.end(10_000)
    assert gc.get_threshold() == before


def test_who_wants_no_search_gets_none() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        RareGarbageCollection.begin(1_000)
        assert gc.get_threshold()[0] == 0
        RareGarbageCollection.end(1_000)
        assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
