"""Options of training tasks, of all trainers and of GRPO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import gymnasium
from gymnasium.envs.registration import EnvSpec
from pydantic import Field

from agentgym.assemble.registry import resolve, spec
from agentgym.assemble.wrapper_stack import check_arm
from agentgym.play.policy import Policy
from agentgym.training.rollout import ENGINES, PolicyConfig
from agentgym.training.rollout.seat_policies import adapt, against, agents_of
from agentgym.training.rollout.user_policy import UserPolicy
from agentgym.world.config import Choice, Config, Seed, Share, TokenCount
from agentgym.world.world import load_world

# Upper bound for steps, rows and similar options, which catches typos.
MOST = 10**9
# Upper bound for the episodes or groups of one step, which are all in memory at once.
EpisodeCount = Annotated[int, Field(ge=1, le=1_000_000)]
LossWeight = Annotated[float, Field(ge=0.0, le=1e6)]
ClipDistance = Annotated[float, Field(ge=0.0, le=100.0)]


@dataclass(frozen=True, kw_only=True)
class TaskConfig(Config):
    """The training tasks.

    Attributes:
        horizons: Optimal episode lengths in turns (`World.config_for_horizon`), used in rotation.
        arms: Oracle arms; only the first is combined with all contexts.
        contexts: Context strategies; `+` combines several strategies.
        window: The context window in tokens. If None, tasks with a context strategy use the window
            of LOCA-bench, and other tasks have no limit.
        teacher: The policy to clone, with its options, named as in `PolicyConfig`.
        opponents: Names of policies (see `PolicyConfig`) for the seats that are not trained.
        pool: The opponents in the GRPO steps of a team, as in `SelfPlayConfig`; the learning curve
            then shows scores against the teacher, where a draw counts half.
        evaluations: The number of evaluations in each phase.

    Raises:
        ValueError: An id, arm, horizon, policy or option is invalid.
    """

    world: str = "ListWorld"
    options: Mapping[str, Any] = field(default_factory=dict)
    horizons: Sequence[int] = (3,)
    arms: Sequence[str] = ("",)
    contexts: Sequence[str] = ("none",)
    window: Annotated[int, TokenCount()] | None = None
    teacher: str = "oracle"
    opponents: Mapping[str, str] = field(default_factory=dict)
    pool: Sequence[str] = ()
    evaluations: Annotated[int, Field(ge=1, le=MOST)] = 2
    seed: Annotated[int, Field(ge=0, le=10**6)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("horizons", "arms", "contexts"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(
                    f"{name} must list one or more distinct values, got {list(values)}"
                )
        PolicyConfig(self.teacher)
        self.specs(self.cells())
        if self.opponents:
            against(self.make_teacher(), self.make_opponents(), self.agents())
        if self.pool and not self.agents():
            raise ValueError(
                f"{self.world} has one agent; a pool needs a team, such as PursuitWorld-match"
            )
        if self.pool and self.opponents:
            raise ValueError("a pool already fills all seats; omit opponents")

    def make_teacher(self) -> Policy:
        """Return the policy to clone."""
        return PolicyConfig(self.teacher, self.seed).make(self.world)

    def agents(self) -> tuple[str, ...]:
        """Return the names of the team's agents; empty if the world has only one agent."""
        with closing(gymnasium.make(self.specs(self.cells())[0])) as env:
            return agents_of(env)

    def make_opponents(self) -> dict[str, UserPolicy]:
        """Return the policies that play the untrained seats."""
        made = {}
        for text in self.opponents.values():
            made[text] = adapt(PolicyConfig(text, self.seed).make(self.world))
        return {seat: made[text] for seat, text in self.opponents.items()}

    def cells(self) -> list[tuple[str, str]]:
        """Pair all arms with the first context, and the first arm with the other contexts."""
        arms = list(map(check_arm, self.arms))
        first, *others = self.contexts
        return [(arm, first) for arm in arms] + [(arms[0], context) for context in others]

    def specs(self, cells: Sequence[tuple[str, str]], **more: Any) -> list[EnvSpec]:
        """Return the specs of the cells' envs; `more` are keyword arguments of the world."""
        # An unreadable reply ends the episode, which would otherwise fill up with errors.
        env_id = resolve(self.world)
        world = load_world(gymnasium.spec(env_id).kwargs["world"])
        sizes = [{**world.config_for_horizon(horizon), **self.options} for horizon in self.horizons]
        return [
            spec(
                env_id,
                oracles=arm,
                context=context,
                window=self.window,
                max_failed_rounds=1,
                **more,
                **size,
            )
            for size in sizes
            for arm, context in cells
        ]


@dataclass(frozen=True, kw_only=True)
class TrainerConfig(Config):
    """Options common to all trainers.

    Attributes:
        steps: The number of rounds, each of which collects episodes and updates the model.
        learning_rate: AdamW's peak learning rate, reached after `warmup` steps; the rate then falls
            linearly to a tenth.
        warmup: Steps over which the learning rate rises.
        engine: See `agentgym.training.rollout.Collector`. Only with `lockstep` does a resumed run
            give the same results as an uninterrupted run.
        timeout: Seconds until a hanging env is abandoned; `lockstep` rejects this option.
        micro_batch: Maximum number of rows per forward pass; 0 for no limit. The number does not
            affect the updates.
        precision: `fp32`, or `bf16` for autocast, which leaves the weights unchanged.
        save_every: Steps between checkpoints.
        tensorboard: Whether to log to TensorBoard (requires the extra `tensorboard`).
        wandb: Whether to log to Weights & Biases (requires the package `wandb`).
        batch_size: The maximum number of prompts per sampling batch.
        template: Chat template variables, such as `enable_thinking`.
    """

    steps: Annotated[int, Field(ge=1, le=MOST)] = 500
    learning_rate: Annotated[float, Field(ge=0.0, le=10.0)] = 1e-3
    warmup: Annotated[int, Field(ge=0, le=MOST)] = 20
    weight_decay: LossWeight = 0.01
    max_grad_norm: Annotated[float, Field(gt=0.0, le=1e9)] = 1.0
    num_envs: Annotated[int, Field(ge=1, le=100_000)] = 64
    engine: Annotated[str, Choice(ENGINES)] = "lockstep"
    timeout: Annotated[float, Field(ge=0.001, le=1e9)] | None = None
    micro_batch: Annotated[int, Field(ge=0, le=MOST)] = 0
    precision: Literal["fp32", "bf16"] = "fp32"
    seed: Seed = 0
    save_every: Annotated[int, Field(ge=1, le=MOST)] = 50
    tensorboard: bool = False
    wandb: bool = False
    batch_size: Annotated[int, Field(ge=1, le=100_000)] = 64
    template: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GRPOConfig(TrainerConfig):
    """Options of `GRPO`.

    Attributes:
        groups: Instances per step.
        group_size: Episodes per instance.
        resample: The maximum number of rounds that replace instances whose episodes all have the
            same reward, as in DAPO (Yu et al. 2025, section 3.2).
        baseline: The value subtracted from a reward. `grpo` subtracts the group's mean and divides
            by the group's population standard deviation. `mean` only subtracts the group's mean
            (Liu et al. 2025). `rloo` subtracts the mean of the group's other episodes, and
            `reinforce` the mean of all episodes.
        level: The unit to which advantages apply, `episode` or `turn`; see `advantages`.
        label_reward: The additional reward of each step labelled optimal, for envs with
            `labels=True`.
        gamma: The discount per turn, used only at the turn level.
        clip: The distance from 1 at which the probability ratio is clipped.
        clip_high: The clipping distance above 1, if not `clip` (DAPO, section 3.1).
        ratio: The unit of clipping: each `token`, or each `reply`, with the geometric mean over the
            reply's tokens (GSPO, Zheng et al. 2025).
        weight: How tokens are weighted. With `episode`, all episodes have equal weight; with
            `token`, all tokens have equal weight (DAPO, section 3.3). With `constant`, a token's
            weight does not depend on the samples (Liu et al. 2025).
        kl: The weight of the divergence from the initial model, estimated as in DeepSeekMath
            (equation 4).
        entropy: The weight of the entropy bonus.
        epochs: Passes over the same episodes.
        minibatches: Maximum number of updates per pass. Each pass splits the rows at random into
            equal parts.
        importance_cap: Weight each token by the ratio of its training and sampling probabilities,
            capped at this value, for samplers that round differently. None disables the weights.
        max_new_tokens: The maximum reply length in tokens.
    """

    groups: EpisodeCount = 8
    group_size: Annotated[int, Field(ge=2, le=1_000_000)] = 8  # a single episode has no baseline
    resample: Annotated[int, Field(ge=0, le=1_000)] = 0
    baseline: Literal["grpo", "mean", "rloo", "reinforce"] = "grpo"
    level: Literal["episode", "turn"] = "episode"
    label_reward: Annotated[float, Field(ge=0.0, le=1e6)] = 0.0
    gamma: Share = 1.0
    clip: ClipDistance = 0.2
    clip_high: ClipDistance | None = None
    ratio: Literal["token", "reply"] = "token"
    weight: Literal["episode", "token", "constant"] = "episode"
    kl: LossWeight = 0.0
    entropy: LossWeight = 0.0
    # More than 1,000 passes over the same rows are pointless.
    epochs: Annotated[int, Field(ge=1, le=1_000)] = 1
    minibatches: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    importance_cap: Annotated[float, Field(ge=1.0, le=1e6)] | None = None
    temperature: Annotated[float, Field(ge=1e-3, le=100.0)] = 1.0  # 0 would explore nothing
    max_new_tokens: Annotated[int, Field(ge=1, le=1_000_000), TokenCount()] = 32
