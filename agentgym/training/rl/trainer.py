"""What all trainers share: the loop (collect, loss, update, log), checkpoints that go on exactly where they stopped, evaluation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Generic, TypeVar

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from agentgym.policy import Policy
from agentgym.training.rl.metrics_log import MetricsLog, Recorder
from agentgym.training.rollout.collector import ENGINES, Collector
from agentgym.training.rollout.engines import EnvLike
from agentgym.training.rollout.rollouts import collect
from agentgym.training.rollout.trajectory import Trajectory
from agentgym.world import check_bool, check_choice, check_float, check_int

CHECKPOINT = "checkpoint.pt"
PRECISIONS = ("fp32", "bf16")
TRAIN_SEED = 10_000_000
"""Training takes seeds from here on; evaluation takes those from 0."""

ConfigT = TypeVar("ConfigT", bound="TrainerConfig")


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """What every trainer can be told.

    Attributes:
        steps: Rounds of collect and update.
        learning_rate: Of AdamW, after `warmup` steps; it falls linearly to a tenth at the end.
        warmup: Steps over which the learning rate rises.
        weight_decay: Of AdamW.
        max_grad_norm: Gradients are clipped to this norm.
        num_envs: Episodes played at once.
        engine: What plays them; see `agentgym.training.rollout.collector.Collector`. With `lockstep` a run that was stopped goes on as it
            would have; with the others, episodes end in an order of their own.
        timeout: Seconds until an episode whose env hangs is given up, if the engine can do that.
        micro_batch: Rows that go through the model at a time; their gradients are added up, so this bounds the memory and changes
            no update. 0 for all rows at once.
        precision: `fp32`, or `bf16` for autocast: the model computes in bfloat16, from weights that stay as they are.
        seed: Seeds what is drawn.
        save_every: Steps between checkpoints.
        tensorboard: Whether to log for TensorBoard too, which is the extra `tensorboard`.
    """

    steps: int = 500
    learning_rate: float = 1e-3
    warmup: int = 20
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    num_envs: int = 64
    engine: str = "lockstep"
    timeout: float | None = None
    micro_batch: int = 0
    precision: str = "fp32"
    seed: int = 0
    save_every: int = 50
    tensorboard: bool = False

    def __post_init__(self) -> None:
        check_int("steps", self.steps, 1, 10**9)
        check_float("learning_rate", self.learning_rate, 0.0, 10.0)
        check_int("warmup", self.warmup, 0, 10**9)
        check_float("weight_decay", self.weight_decay, 0.0, 1e6)
        check_float("max_grad_norm", self.max_grad_norm, 0.0, 1e9)
        check_int("num_envs", self.num_envs, 1, 100_000)
        check_choice("engine", self.engine, ENGINES)
        check_int("micro_batch", self.micro_batch, 0, 10**9)
        check_choice("precision", self.precision, PRECISIONS)
        check_int("seed", self.seed, 0, 2**32 - 1)
        check_int("save_every", self.save_every, 1, 10**9)
        check_bool("tensorboard", self.tensorboard)


class Trainer(Generic[ConfigT]):
    """Trains a model on episodes. A subclass fills `updates`, and `extras` if it has more than a model.

    Args:
        model: A causal language model; its device is where it is trained.
        tokenizer: Its tokenizer, with a chat template.
        env: An id, a spec or a function that makes an env with a spec.
        config: What to do.
        out: A folder for metrics and checkpoints; if it holds a checkpoint, training goes on from there.

    Attributes:
        modules: The model, called `model`, and the extras.
        records: Takes the figures of the step under way.
        step: Steps done.

    Raises:
        ValueError: The checkpoint is of another kind of run.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        env: EnvLike,
        config: ConfigT,
        out: Path | None = None,
    ) -> None:
        self.model, self.tokenizer, self.env, self.config, self.out = model, tokenizer, env, config, out
        self.modules: dict[str, torch.nn.Module] = {"model": model, **self.extras()}
        self._trained = [p for module in self.modules.values() for p in module.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self._trained, lr=config.learning_rate, weight_decay=config.weight_decay, betas=(0.9, 0.95)
        )
        self.records = Recorder()
        self._collector: Collector | None = None
        self.step = 0
        self._next_seed = TRAIN_SEED + config.seed * 10**9
        if out is not None and (out / CHECKPOINT).exists():
            # Read on the CPU: from there each tensor is copied to where it belongs, whatever device it was saved on.
            self.load(torch.load(out / CHECKPOINT, map_location="cpu", weights_only=True))

    def updates(self) -> Iterator[Iterable[torch.Tensor]]:
        """Collect, then yield the losses of each update: one for each micro-batch, which add up to the loss of the update."""
        raise NotImplementedError

    def extras(self) -> dict[str, torch.nn.Module]:
        """What the run has beside the model, by name. It is saved with the model; what of it wants a gradient is trained too."""
        return {}

    @property
    def pad(self) -> int:
        """The id to pad rows with."""
        return int(self.tokenizer.pad_token_id)

    def seeds(self, count: int) -> range:
        """Seeds of episodes that no step before has had."""
        start = self._next_seed
        self._next_seed += count
        return range(start, start + count)

    def draw_seed(self) -> int:
        """The seed of what is drawn in this step."""
        return self.config.seed * 10**9 + self.step

    def play(self, policy: Policy, seeds: Iterable[int]) -> list[Trajectory]:
        """Play episodes and record how they went; failures are dropped.

        Raises:
            RuntimeError: All have failed.
        """
        config = self.config
        if self._collector is None:
            self._collector = Collector(self.env, config.num_envs, engine=config.engine, replicate=False, timeout=config.timeout)
        played = list(self._collector.collect(policy, seeds))
        kept = without_failures(played)
        self.records.mean(
            reward=fmean(t.reward for t in kept),
            success=success_rate(kept),
            turns=fmean(len(t.steps) for t in kept),
            truncated=fmean(t.truncated for t in kept),
            tokens=sum(len(step.reply.ids) for t in kept for step in t.steps),
            failures=len(played) - len(kept),
        )
        return kept

    def train(self, advance: Callable[[int, Mapping[str, float]], None] = lambda step, metrics: None) -> None:
        """Train to the end.

        Args:
            advance: Told the step and its metrics.
        """
        with MetricsLog(self.out, self.step, tensorboard=self.config.tensorboard) as log, closing(self):
            while self.step < self.config.steps:
                self.records = Recorder()
                for losses in self.updates():
                    self._update(losses)
                self.step += 1
                metrics = self.records.figures()
                log.write(self.step, metrics)
                advance(self.step, metrics)
                if self.step % self.config.save_every == 0 or self.step == self.config.steps:
                    self.save()

    def close(self) -> None:
        """End what plays the episodes; it is opened again when it is needed."""
        if self._collector is not None:
            self._collector.close()
            self._collector = None

    def _update(self, losses: Iterable[torch.Tensor]) -> None:
        config = self.config
        left = 1 - self.step / config.steps
        rate = config.learning_rate * min(1.0, (self.step + 1) / max(1, config.warmup)) * max(0.1, left)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        total = torch.zeros((), device=self.model.device)
        for loss in losses:  # the graph of one micro-batch is gone before the next is made
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(self._trained, config.max_grad_norm)
        self.optimizer.step()
        self.records.mean(loss=total, grad_norm=norm, learning_rate=rate)

    def state(self) -> dict[str, Any]:
        """All that the rest of the training depends on."""
        return {
            **{name: module.state_dict() for name, module in self.modules.items()},
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "next_seed": self._next_seed,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Return to a state.

        Raises:
            ValueError: It is of another kind of run.
        """
        saved = sorted(state.keys() - {"optimizer", "step", "next_seed"})
        if saved != sorted(self.modules):
            raise ValueError(
                f"the checkpoint in {self.out} holds {', '.join(saved)} and this run has {', '.join(sorted(self.modules))}: "
                "go on with the trainer and the settings that wrote it, or choose another folder"
            )
        for name, module in self.modules.items():
            module.load_state_dict(state[name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self._next_seed = state["step"], state["next_seed"]

    def save(self) -> None:
        """Write a checkpoint; one that is cut short by a kill does not replace the last."""
        if self.out is None:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        fresh = self.out / f"{CHECKPOINT}.new"
        torch.save(self.state(), fresh)
        os.replace(fresh, self.out / CHECKPOINT)  # noqa: PTH105 - atomic on every system


def without_failures(played: Iterable[Trajectory]) -> list[Trajectory]:
    """The episodes that were played to their end. The others say nothing about the policy and are not to count as lost.

    Raises:
        RuntimeError: There is none.
    """
    played = list(played)
    kept = [trajectory for trajectory in played if not trajectory.failure]
    if not kept:
        cause = f": {played[0].failure}" if played else ""
        raise RuntimeError(f"none of {len(played)} episodes was played to its end{cause}; mend the workers or the endpoint first")
    return kept


def success_rate(played: Iterable[Trajectory]) -> float:
    """The share of episodes that were solved."""
    return fmean(float(trajectory.steps[-1].info["success"]) for trajectory in played)


def evaluate(policy: Policy, env: EnvLike, episodes: int, num_envs: int = 64) -> float:
    """The share of episodes that a policy solves, on the seeds from 0 on, which training does not use; failures do not count.

    Raises:
        RuntimeError: All have failed.
    """
    return success_rate(without_failures(collect(policy, env, range(episodes), num_envs)))
