"""What all trainers share: the loop (collect, loss, update, log), checkpoints that go on exactly where they stopped, evaluation."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import gymnasium
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from agentgym.policy import Policy
from agentgym.training.rollouts import collect
from agentgym.world import check_float, check_int

CHECKPOINT = "checkpoint.pt"
METRICS = "metrics.jsonl"
TRAIN_SEED = 10_000_000
"""Training takes seeds from here on; evaluation takes those from 0."""

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]
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
        seed: Seeds what is drawn.
        save_every: Steps between checkpoints.
    """

    steps: int = 500
    learning_rate: float = 1e-3
    warmup: int = 20
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    num_envs: int = 64
    seed: int = 0
    save_every: int = 50

    def __post_init__(self) -> None:
        check_int("steps", self.steps, 1, 10**9)
        check_float("learning_rate", self.learning_rate, 0.0, 10.0)
        check_int("warmup", self.warmup, 0, 10**9)
        check_float("max_grad_norm", self.max_grad_norm, 0.0, 1e9)
        check_int("num_envs", self.num_envs, 1, 100_000)
        check_int("seed", self.seed, 0, 2**32 - 1)
        check_int("save_every", self.save_every, 1, 10**9)


class Trainer(Generic[ConfigT]):
    """Trains a model on episodes. A subclass fills `updates`.

    Args:
        model: A causal language model; its device is where it is trained.
        tokenizer: Its tokenizer, with a chat template.
        make_env: Makes an env with a spec.
        config: What to do.
        out: A folder for metrics and checkpoints; if it holds a checkpoint, training goes on from there.

    Attributes:
        step: Steps done.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        make_env: MakeEnv,
        config: ConfigT,
        out: Path | None = None,
    ) -> None:
        self.model, self.tokenizer, self.make_env, self.config, self.out = model, tokenizer, make_env, config, out
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, betas=(0.9, 0.95)
        )
        self.step = 0
        self._next_seed = TRAIN_SEED + config.seed * 10**9
        if out is not None and (out / CHECKPOINT).exists():
            self.load(torch.load(out / CHECKPOINT, map_location=model.device, weights_only=False))

    def updates(self) -> Iterator[tuple[torch.Tensor, Mapping[str, float]]]:
        """Collect, then yield the losses to take steps on, each with what is to be logged."""
        raise NotImplementedError

    def seeds(self, count: int) -> range:
        """Seeds that no step before has had."""
        start = self._next_seed
        self._next_seed += count
        return range(start, start + count)

    def train(self, advance: Callable[[int, Mapping[str, float]], None] = lambda step, metrics: None) -> None:
        """Train to the end.

        Args:
            advance: Told the step and its metrics.
        """
        while self.step < self.config.steps:
            metrics: dict[str, float] = {}
            for loss, found in self.updates():
                metrics = {**found, "loss": loss.item(), "grad_norm": self._update(loss)}
            self.step += 1
            self._log(metrics)
            advance(self.step, metrics)
            if self.step % self.config.save_every == 0 or self.step == self.config.steps:
                self.save()

    def _update(self, loss: torch.Tensor) -> float:
        config = self.config
        left = 1 - self.step / config.steps
        rate = config.learning_rate * min(1.0, (self.step + 1) / max(1, config.warmup)) * max(0.1, left)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.max_grad_norm)
        self.optimizer.step()
        return norm.item()

    def _log(self, metrics: Mapping[str, float]) -> None:
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
            with (self.out / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": self.step, **metrics}) + "\n")

    def state(self) -> dict[str, Any]:
        """All that the rest of the training depends on."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "next_seed": self._next_seed,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Return to a state."""
        self.model.load_state_dict(state["model"])
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


def evaluate(policy: Policy, make_env: MakeEnv, episodes: int, num_envs: int = 64) -> float:
    """The share of episodes that a policy solves, on the seeds from 0 on, which training does not use."""
    played = list(collect(policy, make_env, range(episodes), num_envs))
    return sum(float(trajectory.steps[-1].info["success"]) for trajectory in played) / len(played)
