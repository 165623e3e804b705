"""Learning a world from nothing: a small transformer clones a teacher that errs; reinforcement
learning fixes what it copied.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from gymnasium.envs.registration import EnvSpec
from pydantic import Field
from transformers import PreTrainedTokenizerFast

from agentgym.config import TokenCount
from agentgym.oracles import RandomPolicy
from agentgym.policy import Policy
from agentgym.training.evaluation import evaluate
from agentgym.training.rl.cloning import Cloning, CloningConfig
from agentgym.training.rl.episodes import TRAIN_SEED
from agentgym.training.rl.grpo import GRPO
from agentgym.training.rl.grpo_config import GRPOConfig
from agentgym.training.rl.learning_curve import Curve, Point
from agentgym.training.rl.tasks import TaskConfig
from agentgym.training.rl.trainer import Trainer
from agentgym.training.rl.trainer_config import MOST
from agentgym.training.rollout import (
    LocalPolicy,
    RunLock,
    collect,
    make_model,
    make_tokenizer,
    save_policy,
)
from agentgym.training.rollout.mixture import mixture
from agentgym.training.rollout.models import mimic
from agentgym.training.rollout.pretrained import TOKENIZER, load_tokenizer, save_tokenizer
from agentgym.training.rollout.storage import keep_settings, read_settings

SETTINGS = "train.json"
CURVE = "curve.jsonl"
_TEXTS = 300
"""Demonstrations that the tokenizer is made from.

Their seeds end where those of the training begin.
"""
_CLONED, _GROUP = 18, 8
"""Episodes of a step of cloning; of an instance in a step of GRPO."""

OnProgress = Callable[[str, int, int], None]
"""Called with a phase, its step and how many it has."""


@dataclass(frozen=True, kw_only=True)
class LearnConfig(TaskConfig):
    """Options of `Learning`. The defaults are the run whose figures docs/training.md shows.

    The model is evaluated in the first arm. It learns to read the hints of the others, and to live
    with all contexts but the first, once it can do without.

    Attributes:
        cloning_steps: Steps of behaviour cloning in the first arm.
        hint_steps: Steps of behaviour cloning after it, in all arms and contexts in turn; none if
            there is but one of each.
        rl_steps: Steps of GRPO after that, in all arms and contexts in turn.
        groups: Instances of a step of GRPO, each with eight episodes.
        evaluations: Evaluations of the model, each with a checkpoint, in each of the three phases.
        episodes: Held-out episodes of an evaluation.
        width: The width of the transformer.
        layers: Its layers.
        heads: Its attention heads.
        context: The most tokens of a prompt and its reply.
        max_new_tokens: The most tokens of a reply.
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


class Learning:
    """One run, in a folder. Started again in the same folder, it goes on from its last checkpoint.

    Args:
        config: The options.
        out: The folder: settings, `curve.jsonl`, a folder of metrics and checkpoints for each
            phase, at last the model.

    Raises:
        ValueError: The folder holds another run.
        DamagedFileError: Its settings or its curve cannot be read.
        RunLockedError: Somebody else writes to the folder.
        OSError: The folder cannot be written.
    """

    def __init__(self, config: LearnConfig, out: Path) -> None:
        self.config, self.out = config, out
        expected = json.loads(json.dumps(asdict(config)))
        with RunLock(out):
            keep_settings(out / SETTINGS, expected, load_settings(out))
            self.curve = Curve(out / CURVE)

    def run(self, on_progress: OnProgress = lambda phase, step, steps: None) -> list[Point]:
        """Learn to the end, and save the model. Nobody else can write to the folder meanwhile.

        Args:
            on_progress: Called with the phase, its step and how many it has.

        Returns:
            The learning curve.

        Raises:
            RunLockedError: Somebody else writes to the folder.
            DamagedFileError: A checkpoint or a log cannot be read.
            OSError: The folder cannot be written.
        """
        with RunLock(self.out):
            return self._run(on_progress)

    def _run(self, on_progress: OnProgress) -> list[Point]:
        config = self.config
        cells = config.cells()
        env, alone = mixture(config.specs(cells)), mixture(config.specs(cells[:1]))
        tokenizer = self._tokenizer(env)
        model = make_model(
            tokenizer, config.width, config.layers, config.heads, config.context, config.seed
        )
        mimic(model)
        self._policy = partial(
            LocalPolicy, model, tokenizer, max_new_tokens=config.max_new_tokens, seed=config.seed
        )
        cloning = Cloning(
            self.config.make_teacher(),
            model,
            tokenizer,
            alone,
            self._cloning(config.cloning_steps, 0),
            self.out / "cloning",
        )
        self._begin()
        self._phase("cloning", cloning, _CLONED, on_progress)
        if len(cells) > 1:
            hints = Cloning(
                self.config.make_teacher(),
                model,
                tokenizer,
                env,
                self._cloning(config.hint_steps, 1),
                self.out / "hints",
            )
            self._phase("hints", hints, _CLONED, on_progress)
        rl = GRPO(model, tokenizer, env, self._grpo(), self.out / "rl")
        self._phase("rl", rl, config.groups * _GROUP, on_progress)
        save_policy(self._policy(), self.out)
        return self.curve.points

    def _tokenizer(self, env: EnvSpec) -> PreTrainedTokenizerFast:
        if not (self.out / TOKENIZER).exists():
            save_tokenizer(self._make_tokenizer(env), self.out)
        # Read back even if it was just made: one that was read is written with other settings, and
        # a run that was stopped has to end as one that was not.
        saved: PreTrainedTokenizerFast = load_tokenizer(self.out)
        return saved

    def _make_tokenizer(self, env: EnvSpec) -> PreTrainedTokenizerFast:
        episodes = collect(self.config.make_teacher(), env, range(TRAIN_SEED - _TEXTS, TRAIN_SEED))
        return make_tokenizer(
            [m.raw or m.text for t in episodes for m in t.last.messages if m.role != "system"],
            2_000,
        )

    def _cloning(self, steps: int, phase: int) -> CloningConfig:
        config = self.config
        return CloningConfig(
            steps=steps,
            learning_rate=6e-3,
            warmup=50,
            episodes=_CLONED,
            num_envs=_CLONED,
            micro_batch=16,
            seed=3 * config.seed + phase,
            save_every=_part(steps, config.evaluations),
        )

    def _grpo(self) -> GRPOConfig:
        config = self.config
        return GRPOConfig(
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
            save_every=_part(config.rl_steps, config.evaluations),
        )

    def _begin(self) -> None:
        """Evaluate chance, the teacher and the untrained model, unless the curve has them
        already.
        """
        if self.curve.last("cloning"):
            return
        self.curve.truncate_after("chance", -1)
        for name, policy in (
            ("chance", RandomPolicy(self.config.world, self.config.seed)),
            ("teacher", self.config.make_teacher()),
        ):
            share = self._evaluate(policy)
            self.curve.add(Point(name, 0, 0, 0.0, share, share))
        self.curve.add(Point("cloning", 0, 0, 0.0, *self._both()))

    def _phase(self, phase: str, trainer: Trainer[Any], each: int, on_progress: OnProgress) -> None:
        """Train, with a point of the curve wherever there is a checkpoint; `each` is the episodes
        of a step.
        """
        steps, every = trainer.config.steps, trainer.config.save_every
        if trainer.step >= steps:
            return
        self.curve.truncate_after(phase, trainer.step)
        start = self.curve.points[-1]
        begun, first = time.process_time() - start.seconds, start.episodes - each * trainer.step

        def after(step: int, metrics: Mapping[str, float]) -> None:
            nonlocal begun
            if step % every == 0 or step == steps:
                now = time.process_time()
                self.curve.add(Point(phase, step, first + each * step, now - begun, *self._both()))
                begun += time.process_time() - now  # evaluations are not counted
            on_progress(phase, step, steps)

        trainer.train(after)

    def _both(self) -> tuple[float, float]:
        """Return the success of the model, greedy and as it samples."""
        return self._evaluate(self._policy(temperature=0.0)), self._evaluate(
            self._policy(temperature=1.0)
        )

    def _evaluate(self, policy: Policy) -> float:
        env = mixture(self.config.specs(self.config.cells()[:1]))
        return evaluate(policy, env, self.config.episodes, self.config.episodes)


def load_settings(out: Path) -> dict[str, Any] | None:
    """Return the settings of a run as JSON-able data; None if there are none.

    Raises:
        DamagedFileError: They cannot be read.
    """
    return read_settings(out / SETTINGS, json.loads(json.dumps(asdict(LearnConfig()))))


def _part(steps: int, parts: int) -> int:
    return max(1, steps // parts)
