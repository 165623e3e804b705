"""Curricula: which tasks a step of training takes, from how far the run is and how it went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gymnasium.envs.registration import EnvSpec

from agentgym.text.validation import check_float
from agentgym.training.rollout.mixture import mixture


class Curriculum(Protocol):
    """Chooses the env of each step of a training."""

    def env(self, progress: float) -> EnvSpec:
        """Return the env of a step; `progress` is the share of the steps that are done."""

    def record(self, success: float) -> None:
        """Take the share of episodes of the step that were solved."""

    def state(self) -> dict[str, Any]:
        """Return all that the choices to come depend on, as plain data."""

    def load(self, state: Mapping[str, Any]) -> None:
        """Return to a state."""


class HorizonCurriculum:
    """Goes on to the next, longer tasks when the present ones are solved often enough.

    Args:
        stages: The envs of each stage, short tasks first.
        threshold: The share of solved episodes of a step from which on the next stage begins.

    Attributes:
        stage: The number of the present stage.
    """

    def __init__(self, stages: Sequence[Sequence[EnvSpec]], threshold: float = 0.8) -> None:
        check_float("threshold", threshold, 0.0, 1.0)
        if not stages:
            raise ValueError("a curriculum needs at least one stage, got none")
        self._envs = [mixture(specs) for specs in stages]
        self.threshold, self.stage = threshold, 0

    def env(self, progress: float) -> EnvSpec:
        """Return the env of the present stage."""
        return self._envs[self.stage]

    def record(self, success: float) -> None:
        """Go on to the next stage if this one is solved often enough."""
        if success >= self.threshold and self.stage + 1 < len(self._envs):
            self.stage += 1

    def state(self) -> dict[str, Any]:
        """Return the stage."""
        return {"stage": self.stage}

    def load(self, state: Mapping[str, Any]) -> None:
        """Return to a stage."""
        self.stage = state["stage"]


class HintCurriculum:
    """Takes hints away: the share of episodes with them falls linearly from 1 at the beginning to 0
    at `until`. All episodes of an instance have them, or none.

    Args:
        hinted: The envs with hints.
        bare: The envs without.
        until: The share of the steps after which there are no hints.
    """

    parts = 100
    """The share of hints is rounded to this many parts: a mixture has a spec for each."""

    def __init__(
        self, hinted: Sequence[EnvSpec], bare: Sequence[EnvSpec], until: float = 0.5
    ) -> None:
        check_float("until", until, 0.0, 1.0)
        self._hinted, self._bare, self.until = mixture(hinted), mixture(bare), until

    def env(self, progress: float) -> EnvSpec:
        """Return the mixture of hinted and bare episodes at this moment."""
        share = max(0.0, 1 - progress / self.until) if self.until else 0.0
        hinted = round(share * self.parts)
        # Seeds count up, so the two kinds are spread evenly over them in place of in two blocks.
        kinds = [
            (k + 1) * hinted // self.parts > k * hinted // self.parts for k in range(self.parts)
        ]
        return mixture([self._hinted if with_hints else self._bare for with_hints in kinds])

    def record(self, success: float) -> None:
        """Do nothing: the hints go with time."""

    def state(self) -> dict[str, Any]:
        """Return nothing: it depends on the progress alone."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""
