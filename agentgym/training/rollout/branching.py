"""Episodes that go on from the middle of another one: the copies of envs from which they do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from agentgym.env import clone
from agentgym.messages import Chat
from agentgym.training.rollout.engines import EnvLike, MakeEnv, factory_of
from agentgym.training.rollout.trajectory import Trajectory

_Env = gymnasium.Env[Any, Any]


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """An episode before one of its steps.

    Attributes:
        step: The number of the step.
        chat: The chat that the policy is shown there.
        env: A copy of the env at this point; None before the first step, where a reset leads.
    """

    step: int
    chat: Chat
    env: _Env | None


@dataclass
class Branches:
    """Points of the episodes that were played, one for each seed, and whether new episodes go on
    from there. Each step of an episode is as likely as any other; about log(steps) copies are made
    to draw one without knowing how many there are going to be.

    Attributes:
        points: The point of each seed.
        open: True while episodes go on from the points; else they begin at the beginning, and
            points are drawn from them.
    """

    points: dict[int, BranchPoint] = field(default_factory=dict)
    open: bool = False

    def factory(self, env: EnvLike) -> MakeEnv:
        """Return a function that makes envs which draw points, and go on from them."""
        make_env = factory_of(env)
        return lambda: _BranchingEnv(make_env(), self)

    def cut(self, trajectory: Trajectory) -> Trajectory:
        """Return an episode from the point of its seed on, as those that go on from there are
        recorded: the first prompt holds all that came before.
        """
        return replace(trajectory, steps=trajectory.steps[self.points[trajectory.seed].step :])


class _BranchingEnv(gymnasium.Env[Any, Any]):
    """Env that draws points of its episodes, or goes on from them.

    Args:
        env: The env that is played.
        branches: The points.
    """

    def __init__(self, env: _Env, branches: Branches) -> None:
        self._begun, self._env, self._branches = env, env, branches
        self.spec = env.spec
        self.observation_space, self.action_space = env.observation_space, env.action_space

    @property
    def unwrapped(self) -> _Env:
        """Return the innermost env."""
        return self._env.unwrapped

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, or go on from the point of its seed."""
        self._env, self._step = self._begun, 0
        self._seed = 0 if seed is None else seed
        point = self._branches.points.get(self._seed) if self._branches.open else None
        if point is not None and point.env is not None:
            self._env = clone(point.env)
            return point.chat, {}
        chat, info = self._env.reset(seed=seed, options=options)
        if not self._branches.open:
            self._draw = np.random.default_rng(self._seed)
            self._branches.points[self._seed] = BranchPoint(0, chat, None)
        return chat, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Play a reply."""
        chat, reward, terminated, truncated, info = self._env.step(action)
        self._step += 1
        may_branch = not (self._branches.open or terminated or truncated)
        # The n-th point takes the place of the one before with probability 1/n, so that each of
        # them stays with the same probability (reservoir sampling).
        if may_branch and self._draw.integers(self._step + 1) == 0:
            self._branches.points[self._seed] = BranchPoint(self._step, chat, clone(self._env))
        return chat, reward, terminated, truncated, info

    def close(self) -> None:
        """Close the env."""
        self._env.close()
        self._begun.close()
