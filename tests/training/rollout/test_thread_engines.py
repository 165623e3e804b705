"""Threads shared by all slots: their cost per step, and no forgotten slot."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import pytest

from agentgym import Chat, make
from agentgym.training.rollout.engines.base import Answers
from agentgym.training.rollout.engines.threads import ThreadPool, ThreadSlot
from tests.helpers import PATIENCE


class CountedLock:
    def __init__(self) -> None:
        self._lock, self.taken = threading.Lock(), 0

    def __enter__(self) -> Self:
        self._lock.acquire()
        self.taken += 1
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class WaitingEnv:
    spec = None

    def __init__(self, told: threading.Event) -> None:
        self._told = told

    def reset(self, seed: int) -> tuple[Chat, dict[str, Any]]:
        self._told.wait(60)
        return Chat(), {}

    def close(self) -> None:
        pass


def answers_of(answers: Answers, number: int) -> int:
    """Wait for answers; return how many arrived in time."""
    got, until = 0, time.monotonic() + PATIENCE
    while got < number and (left := until - time.monotonic()) > 0:
        got += len(answers.get(left))  # empty after a late notification about an earlier answer
    return got


@pytest.mark.parametrize("threads", [1, 4])
def test_steps_take_no_lock(threads: int) -> None:
    pool, answers, told, slots = ThreadPool(threads), Answers(), threading.Event(), 400
    lock: Any = CountedLock()
    pool._lock = lock
    opened = [
        ThreadSlot(lambda: WaitingEnv(told), number, answers, pool)  # type: ignore[arg-type,return-value]
        for number in range(slots)
    ]
    for slot in opened:
        slot.reset(0, "")
    before = lock.taken
    told.set()
    assert answers_of(answers, slots) == slots
    assert lock.taken == before
    pool.close()


@pytest.fixture
def restless() -> Iterator[None]:
    """Switch threads as often as possible."""
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
            slot.reset(round_, "")
        assert answers_of(answers, len(some)) == len(some)
    for slot in slots:
        slot.close()
    pool.close()
    assert all(slot._player is None for slot in slots)
    assert not any(thread.is_alive() for thread in pool._threads)
