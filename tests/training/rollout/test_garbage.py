"""Garbage collection during episodes."""

from __future__ import annotations

import gc
from collections.abc import Sequence

from agentgym import Chat, Reply
from agentgym.training.rollout import collect
from agentgym.training.rollout.engines.base import YOUNG, RareGarbageCollection
from tests.training.rollout.faulty_world import Worker, make_env


def test_a_collection_raises_the_threshold() -> None:
    seen = set()

    def policy(chats: Sequence[Chat]) -> list[Reply]:
        seen.add(gc.get_threshold()[0])
        return Worker()(chats)

    list(collect(policy, make_env, range(3), 2))
    assert seen == {YOUNG}


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
