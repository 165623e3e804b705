"""Options of trainings: the tasks, what is common to all trainers, and GRPO with its relatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import gymnasium
from gymnasium.envs.registration import EnvSpec
from pydantic import Field

from agentgym.assemble.registry import resolve, spec
from agentgym.assemble.wrapper_stack import check_arm
from agentgym.play.policy import Policy
from agentgym.training.rollout import ENGINES, PolicyConfig
from agentgym.world.config import Choice, Config, Seed, Share, TokenCount
from agentgym.world.world import load_world

MOST = 10**9
"""Steps, rows and the like beyond this are slips of the pen."""
EpisodeCount = Annotated[int, Field(ge=1, le=1_000_000)]
"""The episodes, or groups of them, of one step; all are in memory at once."""
LossWeight = Annotated[float, Field(ge=0.0, le=1e6)]
"""The weight of a term of the loss."""
ClipDistance = Annotated[float, Field(ge=0.0, le=100.0)]
IN_PROCESS = ("lockstep", "threads", "asyncio")
"""Engines whose envs are in this process."""


@dataclass(frozen=True, kw_only=True)
class TaskConfig(Config):
    """The tasks that a model is trained on.

    Attributes:
        world: The id of a world.
        options: Keyword arguments of the world.
        horizons: Turns that an optimal policy needs, as `World.config_for_horizon` reads them;
            episodes are of all of them in turn.
        arms: Oracle arms, of which the first is the main one.
        contexts: Context strategies, each several joined by `+`.
        window: The tokens of the context window; None for no limit, or that of the paper if a
            strategy is asked for.
        teacher: The policy that is cloned, with its options, as `PolicyConfig` names it.
        seed: Seeds all draws.

    Raises:
        ValueError: An id, arm, horizon, policy or option is not right.
    """

    world: str = "ListWorld"
    options: Mapping[str, Any] = field(default_factory=dict)
    horizons: Sequence[int] = (3,)
    arms: Sequence[str] = ("",)
    contexts: Sequence[str] = ("none",)
    window: Annotated[int, TokenCount()] | None = None
    teacher: str = "oracle"
    seed: Annotated[int, Field(ge=0, le=10**6)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("horizons", "arms", "contexts"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} must be given, each once, got {list(values)}")
        PolicyConfig(self.teacher)
        self.specs(self.cells())

    def make_teacher(self) -> Policy:
        """Return the policy that is cloned."""
        return PolicyConfig(self.teacher, self.seed).make(self.world)

    def cells(self) -> list[tuple[str, str]]:
        """Return arms with context strategies: each arm in the first context, and each context in
        the first arm.
        """
        arms, contexts = [check_arm(arm) for arm in self.arms], list(self.contexts)
        return [(arm, contexts[0]) for arm in arms] + [
            (arms[0], context) for context in contexts[1:]
        ]

    def specs(self, cells: Sequence[tuple[str, str]], **more: Any) -> list[EnvSpec]:
        """Return the specs of envs, in which a reply that cannot be read ends an episode: it would
        else fill up with errors.

        Args:
            cells: Arms with context strategies.
            **more: Further keyword arguments of the world.
        """
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
        steps: Rounds of collect and update.
        learning_rate: Of AdamW, after `warmup` steps; it falls linearly to a tenth at the end.
        warmup: Steps over which the learning rate rises.
        weight_decay: Of AdamW.
        max_grad_norm: Gradients are clipped to this norm.
        num_envs: Episodes played at once.
        engine: The engine that plays them; see `agentgym.training.rollout.Collector`. With
            `lockstep` a run that was stopped goes on as it would have; with the others, episodes
            end in an order of their own.
        timeout: Seconds until an episode whose env hangs is given up, if the engine can do that.
        micro_batch: Rows that go through the model at a time; their gradients are added up, so this
            bounds the memory and changes no update. 0 for all rows at once.
        precision: `fp32`, or `bf16` for autocast: the model computes in bfloat16, from weights that
            stay as they are.
        seed: Seeds all draws.
        save_every: Steps between checkpoints.
        tensorboard: Log for TensorBoard too, which is the extra `tensorboard`.
        batch_size: The most prompts that go through the model together when it samples.
        template: Variables of the chat template, such as `enable_thinking`.
    """

    steps: Annotated[int, Field(ge=1, le=MOST)] = 500
    learning_rate: Annotated[float, Field(ge=0.0, le=10.0)] = 1e-3
    warmup: Annotated[int, Field(ge=0, le=MOST)] = 20
    weight_decay: LossWeight = 0.01
    max_grad_norm: Annotated[float, Field(ge=0.0, le=1e9)] = 1.0
    num_envs: Annotated[int, Field(ge=1, le=100_000)] = 64
    engine: Annotated[str, Choice(ENGINES)] = "lockstep"
    timeout: Annotated[float, Field(ge=0.001, le=1e9)] | None = None
    micro_batch: Annotated[int, Field(ge=0, le=MOST)] = 0
    precision: Literal["fp32", "bf16"] = "fp32"
    seed: Seed = 0
    save_every: Annotated[int, Field(ge=1, le=MOST)] = 50
    tensorboard: bool = False
    batch_size: Annotated[int, Field(ge=1, le=100_000)] = 64
    template: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GRPOConfig(TrainerConfig):
    """Options of `GRPO`.

    Attributes:
        groups: Instances in each step.
        group_size: Episodes of each instance.
        branch: Begin the episodes of a group in the middle of one that was played before them, at a
            step of it that is drawn, with all that it was shown and wrote until there; only what
            comes after is compared and trained.
        resample: Rounds in which more instances are played in place of those whose episodes all
            had the same reward, which teach nothing (dynamic sampling: DAPO, section 3.2).
        baseline: The value that a reward is compared with: `grpo`, the mean of its group, over its
            standard deviation; `mean`, without the deviation (Dr. GRPO); `rloo`, the mean of the
            others in its group; `reinforce`, the mean of all.
        level: The unit that has an advantage: an `episode`, or each `turn`, as `advantages` says.
        label_reward: The reward of each step that an oracle calls optimal, beside those of the
            env, which has to be made with `labels=True`. At the level of the turn with `gamma` 0 it
            is a process reward: each turn is compared by its own label.
        gamma: The discount of rewards, for each turn that they are away; for `turn` only.
        clip: The distance that the ratio of probabilities may move from 1 before its gradient is
            cut off.
        clip_high: The distance upwards, if it is another one: more of it lets improbable tokens
            rise (DAPO, Yu et al. 2025, section 3.1).
        ratio: The unit whose ratio is clipped: each `token`, or each `reply`, by the geometric mean
            over its tokens (GSPO, Zheng et al. 2025).
        weight: The unit that weighs the same as any other: `episode`, however many tokens it has;
            `token`, of whichever episode (DAPO, section 3.3); or `constant`, a token too, with a
            weight that does not depend on what was sampled (Dr. GRPO, Liu et al. 2025).
        kl: The weight of the divergence from the model as it was at the start.
        entropy: The weight of the entropy bonus.
        epochs: Passes over the same episodes.
        minibatches: Updates in a pass, at most; each is on as many rows, which are drawn again in
            each pass.
        ahead: Play the episodes of the next step, with the weights as they are before this one,
            while this one is trained on.
        importance_cap: Weigh each token by the ratio of its probability when training begins to
            that when it was sampled, this much at most: for a sampler that lags behind, or rounds
            otherwise. None leaves the difference to the clipped ratio.
        temperature: Of the sampling.
        max_new_tokens: The most tokens of a reply.
    """

    groups: EpisodeCount = 8
    group_size: Annotated[int, Field(ge=2, le=1_000_000)] = 8  # one alone has no baseline
    branch: bool = False
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
    epochs: Annotated[int, Field(ge=1, le=1_000)] = 1  # after more, the same rows say nothing new
    minibatches: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    ahead: bool = False
    importance_cap: Annotated[float, Field(ge=1.0, le=1e6)] | None = None
    temperature: Annotated[float, Field(ge=1e-3, le=100.0)] = 1.0  # 0 explores nothing
    max_new_tokens: Annotated[int, Field(ge=1, le=1_000_000), TokenCount()] = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.branch and self.engine not in IN_PROCESS:
            raise ValueError(
                f"branch=True copies envs of this process, and engine {self.engine!r} has them "
                f"elsewhere; take one of {', '.join(IN_PROCESS)}"
            )
