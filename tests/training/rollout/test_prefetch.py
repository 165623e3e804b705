"""Prefetched instances are ready when they are played."""

from __future__ import annotations

from concurrent.futures import wait
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import agentgym
from agentgym.training.rollout import Collector
from agentgym.training.rollout.engines.prefetch import Prefetcher
from agentgym.world import reset_cache
from agentgym.world.reset_cache import VARIABLE
from tests.helpers import PATIENCE


def test_prefetched_instances_are_not_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reset_cache, "MIN_SECONDS", 0.0)

    def make() -> gymnasium.Env[Any, Any]:
        reset_cache.MIN_SECONDS = 0.0  # in the drawing process, however fast it is
        return agentgym.make("GridWorld")

    expected = [make().reset(seed=seed) for seed in (1, 2)]
    monkeypatch.setenv(VARIABLE, str(tmp_path / "resets"))
    prefetcher = Prefetcher(make)
    prefetcher.prefetch([1, 2, 1])
    prefetcher.prefetch([2])
    wait(prefetcher.pending.values(), PATIENCE)
    prefetcher.close()
    assert len(list((tmp_path / "resets").iterdir())) == 2
    monkeypatch.setattr(reset_cache, "draw", None)  # fails if it is called
    env = make()
    assert [env.reset(seed=seed) for seed in (1, 2)] == expected


def test_without_a_cache_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with Collector("GridWorld", 2) as collector:
        collector.prefetch(range(5))
        assert collector._prefetcher._pool is None


def test_a_failure_is_left_to_the_reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "resets"))
    prefetcher = Prefetcher(partial(agentgym.make, "NoWorldOfThisName"))
    prefetcher.prefetch([1])
    wait(prefetcher.pending.values(), PATIENCE)
    prefetcher.close()
