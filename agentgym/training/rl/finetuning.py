"""Fine-tuning a language model: cloning of a scripted teacher, then GRPO, with evaluations before,
within and after.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch

from agentgym.training.evaluation import (
    Result,
    evaluate,
    prepare_ablation,
    run_ablation,
    write_report,
)
from agentgym.training.rl.batches import checkpoint_activations
from agentgym.training.rl.cloning import Cloning, CloningConfig
from agentgym.training.rl.finetuning_config import FineTuneConfig
from agentgym.training.rl.grpo import GRPO
from agentgym.training.rl.grpo_config import GRPOConfig
from agentgym.training.rl.learning_curve import Curve, Point
from agentgym.training.rl.other_samplers import make_sampler
from agentgym.training.rl.trainer import Trainer
from agentgym.training.rollout import LocalPolicy, PolicyConfig, RunLock, save_policy
from agentgym.training.rollout.mixture import mixture
from agentgym.training.rollout.pretrained import (
    MODEL,
    ModelSource,
    add_lora,
    choose_device,
    choose_dtype,
    find_model,
    load_model,
    save_model,
)
from agentgym.training.rollout.storage import keep_settings, read_settings

SETTINGS, CURVE, BASE, HANDOVER = "finetune.json", "curve.jsonl", "base", "handover"
_RATES = {"clone": (5e-5, 5e-4), "rl": (1e-6, 2e-5)}
"""Learning rates of all weights and of adapters, as they are usual for models of this size."""
_DEMONSTRATIONS = 24
"""Demonstrations that the teacher is tried with: one that fails them all teaches failing."""

OnProgress = Callable[[str, int, int], None]
"""Called with a phase, its step and how many it has."""


def load_settings(out: Path) -> dict[str, Any] | None:
    """Return the settings of a run as JSON-able data; None if there are none.

    Raises:
        DamagedFileError: They cannot be read.
    """
    return read_settings(out / SETTINGS, json.loads(json.dumps(asdict(FineTuneConfig()))))


class FineTuning:
    """One run, in a folder. Started again in the same folder, it goes on from its last checkpoint
    and episode.

    Args:
        config: The options.
        out: The folder: settings, the learning curve, a folder of metrics and checkpoints for each
            phase, the evaluations `before` and `after`, at last the model or its adapter. The
            weights of a GGUF file are written to `base` as a folder of transformers.

    Attributes:
        device: Where the model is.
        curve: The learning curve.

    Raises:
        ValueError: The folder holds another run, or there is no such model or device.
        DamagedFileError: Its settings or its curve cannot be read.
        RunLockedError: Somebody else writes to the folder.
        OSError: The folder cannot be written.
    """

    def __init__(self, config: FineTuneConfig, out: Path) -> None:
        self.config, self.out = config, out
        self.source, self.device = find_model(config.model), choose_device(config.device)
        self.dtype = choose_dtype(config.dtype, self.device, master=not config.lora)
        expected = json.loads(json.dumps(asdict(config)))
        with RunLock(out):
            keep_settings(out / SETTINGS, expected, load_settings(out))
            self.curve = Curve(out / CURVE)

    def describe(self) -> str:
        """Return a line on where and how the model is trained."""
        config = self.config
        trained = f"adapters of rank {config.lora}" if config.lora else "all weights"
        dequantised = "; weights dequantised from GGUF" if self.source.file else ""
        dtype = str(self.dtype).removeprefix("torch.")
        return (
            f"{config.model} on {self.device}, weights "
            f"{'of their own type' if dtype == 'auto' else dtype}, computing in "
            f"{self._precision()}; trains {trained}{dequantised}"
        )

    def run(self, on_progress: OnProgress = lambda phase, step, steps: None) -> list[Point]:
        """Fine-tune to the end, and save the model. Nobody else can write to the folder meanwhile.

        Args:
            on_progress: Called with the phase, its step and how many it has.

        Returns:
            The learning curve.

        Raises:
            RunLockedError: Somebody else writes to the folder.
            DamagedFileError: A checkpoint or a log cannot be read.
            ValueError: The teacher solves no task, or an extra is missing.
            OSError: The folder cannot be written.
        """
        with RunLock(self.out):
            self._try_teacher()
            model, tokenizer, base = self._load()
            policy = self._policy(model, tokenizer)
            self._evaluate("before", policy, base, on_progress)
            if self.config.lora:
                with torch.random.fork_rng():
                    torch.manual_seed(self.config.seed)
                    model = add_lora(model, self.config.lora, str(base))
                policy = self._policy(model, tokenizer)
            if self.config.gradient_checkpointing:
                checkpoint_activations(model)
            for phase, trainer, each in self._trainers(model, tokenizer, base):
                self._train(phase, trainer, each, policy, on_progress)
            save_policy(policy, self.out)
            self._evaluate("after", policy, self.out, on_progress)
        return self.curve.points

    def _load(self) -> tuple[Any, Any, Path]:
        """Return the model as it was before, its tokenizer and its folder."""
        source, base = self.source, self.out / BASE
        if source.file and (base / MODEL).is_file():
            source = ModelSource(base)
        model, tokenizer = load_model(source, self.device, self.dtype)
        if not source.file:
            return model, tokenizer, source.folder
        save_model(model, tokenizer, base)
        return model, tokenizer, base

    def _policy(self, model: Any, tokenizer: Any) -> LocalPolicy:
        config = self.config
        return LocalPolicy(
            model,
            tokenizer,
            0.0,
            config.max_new_tokens,
            config.seed,
            batch_size=config.batch_size,
            template=config.template,
        )

    def _try_teacher(self) -> None:
        """Write the point of the teacher, if it has to teach and the curve has none."""
        config = self.config
        if config.method == "grpo" or self.curve.last("teacher"):
            return
        env = mixture(config.training_specs(config.cells()))
        share = evaluate(self.config.make_teacher(), env, _DEMONSTRATIONS)
        if not share:
            raise ValueError(
                f"the teacher {config.teacher!r} solves none of {_DEMONSTRATIONS} tasks of these "
                "settings, so there is nothing to clone; change the world's options or the context"
            )
        self.curve.add(Point("teacher", 0, 0, 0.0, share, None, _DEMONSTRATIONS))

    def _trainers(
        self, model: Any, tokenizer: Any, base: Path
    ) -> Iterator[tuple[str, Trainer[Any], int]]:
        """Yield the phases with their trainers and the episodes of a step, each when the one before
        has ended: its checkpoint is what the next begins with.
        """
        config = self.config
        env = mixture(config.training_specs(config.cells()))
        if config.method != "grpo" and config.clone_steps:
            yield (
                "cloning",
                Cloning(
                    self.config.make_teacher(),
                    model,
                    tokenizer,
                    env,
                    self._cloning(),
                    self.out / "cloning",
                ),
                config.demonstrations,
            )
        if config.method != "clone" and config.rl_steps:
            curriculum = config.make_curriculum()
            sampler = make_sampler(
                config.sampler,
                config.sampler_options,
                base,
                self.out / HANDOVER,
                lora=config.lora,
                seed=config.seed,
            )
            rl = GRPO(
                model, tokenizer, env, self._grpo(), self.out / "rl", curriculum, sampler=sampler
            )
            yield "rl", rl, config.groups * config.group_size

    def _cloning(self) -> CloningConfig:
        config = self.config
        return CloningConfig(
            steps=config.clone_steps,
            learning_rate=config.clone_rate or _RATES["clone"][bool(config.lora)],
            warmup=min(5, config.clone_steps),
            episodes=config.demonstrations,
            num_envs=config.demonstrations,
            **self._common(config.clone_steps, 2 * config.seed),
        )

    def _grpo(self) -> GRPOConfig:
        config = self.config
        return GRPOConfig(
            steps=config.rl_steps,
            learning_rate=config.rl_rate or _RATES["rl"][bool(config.lora)],
            warmup=min(5, config.rl_steps),
            groups=config.groups,
            group_size=config.group_size,
            branch=config.branch,
            ahead=config.ahead,
            importance_cap=config.importance_cap,
            resample=config.resample,
            label_reward=config.label_reward,
            level=config.level,
            num_envs=config.groups * config.group_size,
            max_new_tokens=config.max_new_tokens,
            batch_size=config.batch_size,
            **self._common(config.rl_steps, 2 * config.seed + 1),
        )

    def _common(self, steps: int, seed: int) -> dict[str, Any]:
        config = self.config
        return {
            "micro_batch": config.micro_batch,
            "precision": self._precision(),
            "seed": seed,
            "save_every": max(1, steps // config.evaluations),
            "tensorboard": config.tensorboard,
            "template": config.template,
        }

    def _precision(self) -> Literal["fp32", "bf16"]:
        return "bf16" if self.device.type == "cuda" else "fp32"

    def _train(
        self,
        phase: str,
        trainer: Trainer[Any],
        each: int,
        policy: LocalPolicy,
        on_progress: OnProgress,
    ) -> None:
        """Train, with a point of the curve wherever there is a checkpoint; `each` is the episodes
        of a step.
        """
        steps, every = trainer.config.steps, trainer.config.save_every
        if trainer.step >= steps:
            return
        self.curve.truncate_after(phase, trainer.step)
        if not self.curve.last("cloning") and not self.curve.last("rl"):
            self.curve.add(Point(phase, 0, 0, 0.0, *self._success(policy)))
        start = self.curve.points[-1]
        begun, first = time.process_time() - start.seconds, start.episodes - each * trainer.step

        def after(step: int, metrics: Mapping[str, float]) -> None:
            nonlocal begun
            if step % every == 0 or step == steps:
                now = time.process_time()
                point = (phase, step, first + each * step, now - begun)
                self.curve.add(Point(*point, *self._success(policy)))
                begun += time.process_time() - now  # evaluations are not counted
            on_progress(phase, step, steps)

        trainer.train(after)

    def _success(self, policy: LocalPolicy) -> tuple[float, None, int]:
        config = self.config
        env = mixture(config.specs(config.cells()[:1], split="test"))
        share = evaluate(policy, env, config.curve_episodes, config.batch_size)
        return share, None, config.curve_episodes

    def _evaluate(
        self, name: str, policy: LocalPolicy, folder: Path, on_progress: OnProgress
    ) -> list[Result]:
        """Play all cells of an evaluation and write its report."""
        if not self.config.episodes:
            return []
        model = PolicyConfig(str(folder), model=self.config.options_of_model())
        ablation, out = self.config.ablation(model), self.out / name
        prepare_ablation(ablation, out, policy)
        total, done = len(ablation.cells()), 0

        def advance(episodes: int) -> None:
            nonlocal done
            done += episodes
            on_progress(name, done, total)

        results = run_ablation(ablation, out, 1, advance, player=policy)
        write_report(results, out)
        return results
