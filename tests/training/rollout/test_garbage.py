"""Garbage collection during episodes."""

from __future__ import annotations

import gc
from collections.abc import Sequence

from agentgym import Chat, Reply
from agentgym.training.rollout import collect
from agentgym.training.rollout.engines.base import YOUNG, YOUNG_PER_SLOT
from tests.training.rollout.faulty_world import Worker, make_env


def thresholds(slots: int = 2) -> set[int]:
    """Return the thresholds during a small collection."""
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
