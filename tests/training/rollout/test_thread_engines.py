"""Threads shared by all slots forget no slot."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from queue import Empty

import pytest

from agentgym import make
from agentgym.training.rollout.engines.base import Answers
from agentgym.training.rollout.engines.threads import ThreadPool, ThreadSlot
from tests.helpers import PATIENCE


def answers_of(answers: Answers, number: int) -> int:
    """Wait for answers; return how many arrived in time."""
    until = time.monotonic() + PATIENCE
    for got in range(number):
        try:
            answers.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            return got
    return number


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
