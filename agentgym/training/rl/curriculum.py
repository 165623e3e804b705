"""Curricula, which select a training step's tasks by progress and success."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium.envs.registration import EnvSpec
from typing_extensions import override

from agentgym.text.validation import check_float
from agentgym.training.rollout.mixture import mixture


class Curriculum:
    """Selects the env of each training step. Subclasses implement `env`."""

    def env(self, progress: float) -> EnvSpec:
        """Return a step's env; `progress` is the completed share of all steps."""
        raise NotImplementedError

    def record(self, success: float) -> None:
        """Record the step's share of solved episodes."""

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore a state."""


class HorizonCurriculum(Curriculum):
    """Moves on to longer tasks once a step's share of solved episodes reaches a threshold."""

    def __init__(self, stages: Sequence[Sequence[EnvSpec]], threshold: float = 0.8) -> None:
        check_float("threshold", threshold, 0.0, 1.0)
        if not stages:
            raise ValueError("a curriculum needs at least one stage, got none")
        self._envs = [mixture(specs) for specs in stages]
        self.threshold, self.stage = threshold, 0

    @override
    def env(self, progress: float) -> EnvSpec:
        return self._envs[self.stage]

    @override
    def record(self, success: float) -> None:
        if success >= self.threshold and self.stage + 1 < len(self._envs):
            self.stage += 1

    @override
    def state(self) -> dict[str, Any]:
        return {"stage": self.stage}

    @override
    def load(self, state: Mapping[str, Any]) -> None:
        self.stage = state["stage"]


class HintCurriculum(Curriculum):
    """Reduces the share of hinted tasks linearly, from 1 at the start to 0 at progress `until`."""

    # The share of hinted tasks changes in steps of 1%.
    parts = 100

    def __init__(
        self, hinted: Sequence[EnvSpec], bare: Sequence[EnvSpec], until: float = 0.5
    ) -> None:
        check_float("until", until, 0.0, 1.0)
        self._hinted, self._bare, self.until = list(hinted), list(bare), until

    @override
    def env(self, progress: float) -> EnvSpec:
        share = max(0.0, 1 - progress / self.until) if self.until else 0.0
        hinted = round(share * self.parts)
        cycle = math.lcm(len(self._hinted), len(self._bare))
        specs = []
        for k in range(self.parts):
            # Seeds are consecutive, so tasks with and without hints alternate evenly, and every
            # spec gets the same share of hints.
            with_hints = (k + 1) * hinted // self.parts > k * hinted // self.parts
            some = self._hinted if with_hints else self._bare
            specs += [some[j % len(some)] for j in range(cycle)]
        return mixture(specs)
