"""Self-play: GRPO against the current policy, its past snapshots and scripted policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from agentgym.play.policy import Policy
from agentgym.training.evaluation.leagues import seats_of
from agentgym.training.rl.episodes import EpisodeBatch
from agentgym.training.rl.grpo import GRPO
from agentgym.training.rl.trainer_config import MOST, GRPOConfig, TaskConfig
from agentgym.training.rollout import ModelOptions, PolicyConfig, load_policy
from agentgym.training.rollout.models.pretrained import save_model

CURRENT, PAST = "current", "past"


@dataclass(frozen=True, kw_only=True)
class SelfPlayConfig(GRPOConfig):
    """Options of `SelfPlay`.

    Attributes:
        pool: The opponents, used in rotation: `current` (the model plays all
            seats), `past` (a random snapshot), or a policy named as in `PolicyConfig`.
        world: The id of the team, for scripted opponents.
        snapshot_every: Steps between snapshots.
    """

    world: str = "PursuitWorld-match"
    pool: Sequence[str] = (CURRENT, PAST, "random")
    snapshot_every: Annotated[int, Field(ge=1, le=MOST)] = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pool:
            raise ValueError("pool must list at least one opponent, such as current")
        for name in self.pool:
            if name not in (CURRENT, PAST):
                PolicyConfig(name).make(self.world)


def with_pool(options: GRPOConfig, task: TaskConfig) -> GRPOConfig:
    """Return the options of GRPO, or of self-play if there is a pool."""
    if not task.pool:
        return options
    return SelfPlayConfig(
        **vars(options), pool=task.pool, world=task.world, snapshot_every=options.save_every
    )


class SelfPlay(GRPO):
    """GRPO for teams whose members compete.

    Against `past` or a named policy, the model plays each seat in turn, and training uses
    only its replies. Rewards are compared among a seat's episodes on the same instance against the
    same opponent. Snapshots are models in the folder `past`, each in a subfolder named by its step.

    Raises:
        ValueError: There is no folder for the snapshots, or the env has only one seat.
    """

    config: SelfPlayConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.out is None:
            raise ValueError("self-play stores snapshots in a folder; set `out`")
        self.past = self.out / "past"
        self._seats = seats_of(self.source.env)

    def play(self, policy: Policy, seeds: Sequence[int], size: int, step: int) -> EpisodeBatch:
        if step % self.config.snapshot_every == 0:
            save_model(self.model, self.tokenizer, self.past / f"{step:06}")
        opponent, seat = self._line_up(step)
        self.source.opponents = {}
        if opponent != CURRENT:
            other = self._opponent(opponent, step)
            self.source.opponents = {name: other for name in self._seats if name != seat}
        return super().play(policy, seeds, size, step)

    def _line_up(self, step: int) -> tuple[str, str]:
        names = self.config.pool
        # Each seat meets each opponent equally often.
        rounds, turn = divmod(step, len(names))
        return names[turn], self._seats[rounds % len(self._seats)]

    def _opponent(self, name: str, step: int) -> Policy:
        seed = self.config.seed * 10**6 + step
        if name != PAST:
            return PolicyConfig(name, seed).make(self.config.world)
        every = self.config.snapshot_every
        number = every * int(np.random.default_rng(seed).integers(step // every + 1))
        options = ModelOptions(
            device=str(self.model.device),
            temperature=self.config.temperature,
            max_new_tokens=self.config.max_new_tokens,
            batch_size=self.config.batch_size,
            template=self.config.template,
        )
        return load_policy(self.past / f"{number:06}", options, seed)
