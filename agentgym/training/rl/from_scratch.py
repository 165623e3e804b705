"""Training from scratch: a small transformer clones a teacher, then improves by RL."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, cast

from gymnasium.envs.registration import EnvSpec
from pydantic import Field
from transformers import PreTrainedTokenizerFast

from agentgym.play.policy import Policy
from agentgym.training.evaluation import evaluate
from agentgym.training.evaluation.leagues import mean_points
from agentgym.training.rl.cloning import Cloning, CloningConfig
from agentgym.training.rl.episodes import TRAIN_SEED
from agentgym.training.rl.grpo import GRPO
from agentgym.training.rl.learning_curve import OnProgress, PhasedRun, Point
from agentgym.training.rl.self_play import SelfPlay, with_pool
from agentgym.training.rl.trainer_config import MOST, GRPOConfig, TaskConfig
from agentgym.training.rollout import (
    LocalPolicy,
    PolicyConfig,
    collect,
    make_model,
    make_tokenizer,
    save_policy,
)
from agentgym.training.rollout.mixture import mixture
from agentgym.training.rollout.models.creation import mimic
from agentgym.training.rollout.models.pretrained import TOKENIZER, load_tokenizer, save_tokenizer
from agentgym.world.config import TokenCount

# Number of demonstrations for the tokenizer, on the seeds just below the training seeds.
_TEXTS = 300
# Episodes per cloning step; episodes per instance in a GRPO step.
_CLONED, _GROUP = 18, 8


@dataclass(frozen=True, kw_only=True)
class LearnConfig(TaskConfig):
    """Options of `Learning`. The defaults reproduce the run in docs/training.md.

    Evaluations use the first arm.

    Attributes:
        cloning_steps: Steps of behaviour cloning in the first arm.
        hint_steps: Further cloning steps, which rotate through all arms and contexts; skipped if
            there is only one arm and one context.
        rl_steps: GRPO steps, which rotate through all arms and contexts.
        groups: Instances per GRPO step, each with eight episodes.
        evaluations: The number of evaluations, with checkpoints, in each of the three phases.
        episodes: Held-out episodes per evaluation.
        context: The maximum length of a prompt and its reply in tokens.
    """

    teacher: str = "thinking:p=0.2"
    cloning_steps: Annotated[int, Field(ge=1, le=MOST)] = 600
    hint_steps: Annotated[int, Field(ge=1, le=MOST)] = 300
    rl_steps: Annotated[int, Field(ge=1, le=MOST)] = 120
    groups: Annotated[int, Field(ge=1, le=MOST)] = 16
    evaluations: Annotated[int, Field(ge=1, le=MOST)] = 10
    episodes: Annotated[int, Field(ge=1, le=MOST)] = 100
    width: Annotated[int, Field(ge=1, le=MOST)] = 64
    layers: Annotated[int, Field(ge=1, le=MOST)] = 2
    heads: Annotated[int, Field(ge=1, le=MOST)] = 8
    context: Annotated[int, Field(ge=2, le=MOST), TokenCount()] = 4_096
    max_new_tokens: Annotated[int, Field(ge=1, le=MOST), TokenCount()] = 96

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise ValueError(
                f"width must be a multiple of heads, got {self.width} and {self.heads}"
            )
        self.make_teacher()
        with_pool(GRPOConfig(), self)  # checks the pool


class Learning(PhasedRun[LearnConfig]):
    """A training run in a folder; an interrupted run resumes from its last checkpoint.

    The folder contains settings, `curve.jsonl`, metrics and checkpoints of each phase, and finally
    the model.

    Raises:
        ValueError: The folder contains another run.
        DamagedFileError: The settings or the learning curve are unreadable.
    """

    settings = "train.json"
    config_type = LearnConfig

    def _run(self, on_progress: OnProgress) -> None:
        config = self.config
        cells = config.cells()
        env = mixture(config.specs(cells))
        alone = mixture(config.specs(cells[:1]))
        tokenizer = self._tokenizer(env)
        model = make_model(
            tokenizer, config.width, config.layers, config.heads, config.context, config.seed
        )
        mimic(model)
        self._policy = partial(
            LocalPolicy, model, tokenizer, max_new_tokens=config.max_new_tokens, seed=config.seed
        )
        teacher, first = config.make_teacher(), self._cloning(config.cloning_steps, 0)
        rivals = config.make_opponents()
        cloning = Cloning(
            teacher, model, tokenizer, alone, first, self.out / "cloning", opponents=rivals
        )
        self._begin()
        self._train("cloning", cloning, _CLONED, self._both, on_progress)
        if len(cells) > 1:
            teacher, second = config.make_teacher(), self._cloning(config.hint_steps, 1)
            hints = Cloning(
                teacher, model, tokenizer, env, second, self.out / "hints", opponents=rivals
            )
            self._train("hints", hints, _CLONED, self._both, on_progress)
        kind = SelfPlay if config.pool else GRPO
        grpo = kind(model, tokenizer, env, self._grpo(), self.out / "rl", opponents=rivals)
        self._train("rl", grpo, config.groups * _GROUP, self._both, on_progress)
        save_policy(self._policy(), self.out)

    def _tokenizer(self, env: EnvSpec) -> PreTrainedTokenizerFast:
        if not (self.out / TOKENIZER).exists():
            seeds = range(TRAIN_SEED - _TEXTS, TRAIN_SEED)
            texts = []
            for trajectory in collect(self.config.make_teacher(), env, seeds):
                for message in trajectory.last.messages:
                    if message.role != "system":
                        texts.append(message.raw or message.text)
            save_tokenizer(make_tokenizer(texts, 2_000), self.out)
        # Load the tokenizer even in a new run: loading changes its settings, and a resumed run
        # must write the same files.
        return cast(PreTrainedTokenizerFast, load_tokenizer(self.out))

    def _cloning(self, steps: int, phase: int) -> CloningConfig:
        return CloningConfig(
            steps=steps,
            learning_rate=6e-3,
            warmup=50,
            episodes=_CLONED,
            num_envs=_CLONED,
            micro_batch=16,
            seed=3 * self.config.seed + phase,
            save_every=max(1, steps // self.config.evaluations),
        )

    def _grpo(self) -> GRPOConfig:
        config = self.config
        options = GRPOConfig(
            steps=config.rl_steps,
            learning_rate=1e-3,
            warmup=5,
            groups=config.groups,
            group_size=_GROUP,
            epochs=2,
            num_envs=config.groups * _GROUP,
            batch_size=config.groups * _GROUP,
            micro_batch=64,
            max_new_tokens=config.max_new_tokens,
            seed=3 * config.seed + 2,
            save_every=max(1, config.rl_steps // config.evaluations),
        )
        return with_pool(options, config)

    def _begin(self) -> None:
        if self.curve.last("cloning"):
            return
        self.curve.truncate_after("chance", -1)
        for name, policy in (
            ("chance", PolicyConfig("random", self.config.seed).make(self.config.world)),
            ("teacher", self.config.make_teacher()),
        ):
            share = self._evaluate(policy)
            self.curve.add(Point(name, 0, 0, 0.0, share, share))
        self.curve.add(Point("cloning", 0, 0, 0.0, *self._both()))

    def _both(self) -> tuple[float, float, int]:
        greedy = self._evaluate(self._policy(temperature=0.0))
        sampled = self._evaluate(self._policy(temperature=1.0))
        return greedy, sampled, 0

    def _evaluate(self, policy: Policy) -> float:
        config = self.config
        env = mixture(config.specs(config.cells()[:1]))
        if config.pool:
            return mean_points(policy, config.make_teacher(), env, range(config.episodes))
        count, opponents = config.episodes, config.make_opponents()
        return evaluate(policy, env, count, count, opponents)
