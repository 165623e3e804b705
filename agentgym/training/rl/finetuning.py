"""Fine-tuning: cloning, then GRPO, with evaluations before, during and after."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from agentgym.training.evaluation import evaluate, prepare_ablation, run_ablation, write_report
from agentgym.training.evaluation.leagues import mean_points
from agentgym.training.rl.batches import checkpoint_activations
from agentgym.training.rl.cloning import Cloning, CloningConfig
from agentgym.training.rl.finetuning_config import FineTuneConfig
from agentgym.training.rl.grpo import GRPO
from agentgym.training.rl.learning_curve import OnProgress, PhasedRun, Point
from agentgym.training.rl.self_play import SelfPlay, with_pool
from agentgym.training.rl.trainer import Trainer
from agentgym.training.rl.trainer_config import GRPOConfig
from agentgym.training.rollout import LocalPolicy, PolicyConfig, save_policy
from agentgym.training.rollout.mixture import mixture
from agentgym.training.rollout.models.pretrained import (
    MODEL,
    ModelSource,
    add_lora,
    choose_device,
    choose_dtype,
    find_model,
    load_model,
    save_model,
)
from agentgym.training.rollout.seat_policies import adapt, against

BASE, HANDOVER = "base", "handover"
# Default learning rates for training all weights and for training adapters.
_RATES = {"clone": (5e-5, 5e-4), "rl": (1e-6, 2e-5)}
# Options that fine-tuning passes to GRPO under the same names.
_SHARED = (
    "groups",
    "group_size",
    "importance_cap",
    "resample",
    "label_reward",
    "level",
    "max_new_tokens",
    "batch_size",
)
# Number of trial episodes, of which the teacher must solve at least one.
_DEMONSTRATIONS = 24


class FineTuning(PhasedRun[FineTuneConfig]):
    """A training run in a folder; an interrupted run resumes from its last checkpoint and episode.

    The folder contains settings, the learning curve, metrics and checkpoints of each phase, the
    evaluations `before` and `after`, and finally the model or its adapter. GGUF weights are
    converted to a transformers folder named `base`.

    Raises:
        ValueError: The folder contains another run, or the model or device does not exist.
        DamagedFileError: The settings or the learning curve are unreadable.
    """

    settings = "finetune.json"
    config_type = FineTuneConfig

    def __init__(self, config: FineTuneConfig, out: Path) -> None:
        self.source, self.device = find_model(config.model), choose_device(config.device)
        self.dtype = choose_dtype(config.dtype, self.device, master=not config.lora)
        super().__init__(config, out)

    def describe(self) -> str:
        """Describe the device, precision and trained weights in one line."""
        config = self.config
        trained = f"adapters of rank {config.lora}" if config.lora else "all weights"
        dequantised = "; weights dequantised from GGUF" if self.source.file else ""
        dtype = str(self.dtype).removeprefix("torch.")
        return (
            f"{config.model} on {self.device}, weights "
            f"{'of their own type' if dtype == 'auto' else dtype}, computing in "
            f"{self._precision()}; trains {trained}{dequantised}"
        )

    def _run(self, on_progress: OnProgress) -> None:
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
            self._train(phase, trainer, each, partial(self._success, policy), on_progress)
        save_policy(policy, self.out)
        self._evaluate("after", policy, self.out, on_progress)

    def _load(self) -> tuple[Any, Any, Path]:
        source, base = self.source, self.out / BASE
        if source.file and (base / MODEL).is_file():
            source = ModelSource(base)
        model, tokenizer = load_model(source, self.device, self.dtype)
        if source.file:
            save_model(model, tokenizer, base)
        return model, tokenizer, base if source.file else source.folder

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
        config = self.config
        if config.method == "grpo" or self.curve.last("teacher"):
            return
        share = evaluate(
            config.make_teacher(),
            mixture(config.training_specs(config.cells())),
            _DEMONSTRATIONS,
            opponents=config.make_opponents(),
        )
        if not share:
            raise ValueError(
                f"the teacher {config.teacher!r} solves none of {_DEMONSTRATIONS} tasks of these "
                "settings, so cloning it is pointless; change the world's options or the context"
            )
        self.curve.add(Point("teacher", 0, 0, 0.0, share, None, _DEMONSTRATIONS))

    def _trainers(
        self, model: Any, tokenizer: Any, base: Path
    ) -> Iterator[tuple[str, Trainer[Any], int]]:
        # Build each trainer on demand, because it starts from the previous phase's checkpoint.
        config = self.config
        env = mixture(config.training_specs(config.cells()))
        rivals = config.make_opponents()
        if config.method != "grpo" and config.clone_steps:
            teacher, out = config.make_teacher(), self.out / "cloning"
            cloning = Cloning(
                teacher, model, tokenizer, env, self._cloning(), out, opponents=rivals
            )
            yield "cloning", cloning, config.demonstrations
        if config.method != "clone" and config.rl_steps:
            curriculum, out = config.make_curriculum(), self.out / "rl"
            sampler = config.make_sampler(base, self.out / HANDOVER)
            kind = SelfPlay if config.pool else GRPO
            grpo = kind(
                model, tokenizer, env, self._grpo(), out, curriculum, rivals, sampler=sampler
            )
            yield "rl", grpo, config.groups * config.group_size

    def _cloning(self) -> CloningConfig:
        config = self.config
        return CloningConfig(
            steps=config.clone_steps,
            learning_rate=config.clone_rate or _RATES["clone"][bool(config.lora)],
            warmup=min(5, config.clone_steps),
            episodes=config.demonstrations,
            min_reward=config.min_reward,
            num_envs=config.demonstrations,
            **self._common(2 * config.seed),
        )

    def _grpo(self) -> GRPOConfig:
        config = self.config
        options = GRPOConfig(
            steps=config.rl_steps,
            learning_rate=config.rl_rate or _RATES["rl"][bool(config.lora)],
            warmup=min(5, config.rl_steps),
            num_envs=config.groups * config.group_size,
            **{name: getattr(config, name) for name in _SHARED},
            **self._common(2 * config.seed + 1),
        )
        return with_pool(options, config)

    def _common(self, seed: int) -> dict[str, Any]:
        config = self.config
        return {
            "micro_batch": config.micro_batch,
            "precision": self._precision(),
            "seed": seed,
            "save_every": config.save_every,
            "tensorboard": config.tensorboard,
            "wandb": config.wandb,
            "template": config.template,
        }

    def _precision(self) -> Literal["fp32", "bf16"]:
        return "bf16" if self.device.type == "cuda" else "fp32"

    def _success(self, policy: LocalPolicy) -> tuple[float, None, int]:
        config = self.config
        env = mixture(config.specs(config.cells()[:1], split="test"))
        trials = config.curve_episodes
        if config.pool:
            return mean_points(policy, config.make_teacher(), env, range(trials)), None, trials
        rivals = config.make_opponents()
        return evaluate(policy, env, trials, config.batch_size, rivals), None, trials

    def _evaluate(
        self, name: str, policy: LocalPolicy, folder: Path, on_progress: OnProgress
    ) -> None:
        if not self.config.episodes:
            return
        config, out = self.config, self.out / name
        ablation = config.ablation(PolicyConfig(str(folder), model=config.options_of_model()))
        prepare_ablation(ablation, out, policy)
        total, done = len(ablation.cells()), 0

        def advance(episodes: int) -> None:
            nonlocal done
            done += episodes
            on_progress(name, done, total)

        rivals = config.make_opponents()
        if config.pool:  # self-play would always draw
            rivals = dict.fromkeys(config.agents()[1:], adapt(config.make_teacher()))
        player = against(policy, rivals, config.agents())
        write_report(run_ablation(ablation, out, 1, advance, player=player), out)
