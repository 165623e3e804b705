"""Options of fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from gymnasium.envs.registration import EnvSpec
from pydantic import Field

from agentgym.training.evaluation import Ablation
from agentgym.training.extras import needs_extra
from agentgym.training.rl.curriculum import Curriculum, HintCurriculum, HorizonCurriculum
from agentgym.training.rl.self_play import with_pool
from agentgym.training.rl.trainer_config import MOST, GRPOConfig, TaskConfig
from agentgym.training.rollout import ModelOptions, PolicyConfig, Sampler
from agentgym.training.rollout.models.sampling import DType
from agentgym.world.config import Share, TokenCount

ITSELF: Final = "transformers"
VLLM: Final = "vllm"
# vLLM options that are set by training options.
_OURS = {"model": "of the trained model", "seed": "--seed", "enable_lora": "--lora"}
# Options without effect, by method.
_UNUSED = {
    "clone": (
        "curriculum",
        "importance_cap",
        "label_reward",
        "level",
        "pool",
        "resample",
        "sampler",
    ),
    "grpo": ("min_reward",),
}

Count = Annotated[int, Field(ge=0, le=MOST)]
Rate = Annotated[float, Field(gt=0.0, le=10.0)]


@dataclass(frozen=True, kw_only=True)
class FineTuneConfig(TaskConfig):
    """Options of `FineTuning`. Training and evaluation use instances from different splits.

    Attributes:
        model: A transformers folder, a GGUF file, or `smollm2`.
        lora: The rank of the LoRA adapters to train; 0 to train all weights.
        method: `clone`, `grpo`, or `both` (cloning first).
        demonstrations: Episodes per cloning step.
        min_reward: See `CloningConfig`.
        groups: Instances per GRPO step.
        group_size: Episodes per instance.
        importance_cap: See `GRPOConfig`, which also describes `resample` and `label_reward`.
        level: The unit to which GRPO's advantages apply, `episode` or `turn`.
        curriculum: `none` rotates through all tasks. `horizons` moves to longer tasks once a
            step's success rate reaches `threshold`. `hints` gradually replaces the last arm with
            the first.
        clone_rate: The learning rate of cloning; None for a default that depends on `lora`.
        rl_rate: The learning rate of GRPO; None for a default that depends on `lora`.
        save_every: Steps between checkpoints.
        curve_episodes: Episodes per point of the learning curve, in the first arm and context.
        eval_arms: Arms evaluated before and after training; None for the training arms.
        eval_horizons: Horizons evaluated before and after training; None for the training horizons.
        episodes: Evaluation episodes per cell, before and after training; 0 skips the evaluations.
        dtype: See `ModelOptions`, which also describes `device`. If all weights are trained, the
            default is `float32`.
        batch_size: The maximum number of concurrent episodes.
        sampler: The GRPO sampler: `transformers` for the model itself, or `vllm`.
        sampler_options: Options of `vllm.LLM`.
    """

    model: str = "smollm2"
    lora: Annotated[int, Field(ge=0, le=4_096)] = 0
    method: Literal["clone", "grpo", "both"] = "clone"
    clone_steps: Count = 40
    demonstrations: Annotated[int, Field(ge=1, le=MOST)] = 8
    min_reward: float | None = None
    rl_steps: Count = 20
    groups: Annotated[int, Field(ge=1, le=MOST)] = 8
    group_size: Annotated[int, Field(ge=2, le=MOST)] = 8
    importance_cap: Annotated[float, Field(ge=1.0, le=1e6)] | None = None
    resample: Annotated[int, Field(ge=0, le=1_000)] = 0
    label_reward: Annotated[float, Field(ge=0.0, le=1e6)] = 0.0
    level: Literal["episode", "turn"] = "episode"
    curriculum: Literal["none", "horizons", "hints"] = "none"
    threshold: Share = 0.8
    clone_rate: Rate | None = None
    rl_rate: Rate | None = None
    micro_batch: Annotated[int, Field(ge=1, le=MOST)] = 8
    gradient_checkpointing: bool = False
    save_every: Annotated[int, Field(ge=1, le=MOST)] = 10
    curve_episodes: Annotated[int, Field(ge=1, le=MOST)] = 16
    eval_arms: Sequence[str] | None = None
    eval_horizons: Sequence[int] | None = None
    episodes: Count = 24
    device: str = "auto"
    dtype: DType = "auto"
    max_new_tokens: Annotated[int, Field(ge=1, le=1_000_000), TokenCount()] = 48
    batch_size: Annotated[int, Field(ge=1, le=100_000)] = 32
    template: Mapping[str, Any] = field(default_factory=dict)
    sampler: Literal["transformers", "vllm"] = ITSELF
    sampler_options: Mapping[str, Any] = field(default_factory=dict)
    tensorboard: bool = False
    wandb: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ablation(PolicyConfig())  # validates arms and horizons
        self.training_specs(self.cells())
        if self.method != "grpo":
            self.make_teacher()
        self._check_method()
        self._check_sampler()
        with_pool(GRPOConfig(), self)  # checks the pool
        if self.curriculum == "hints" and len(self.arms) < 2:
            raise ValueError(
                f"curriculum 'hints' requires at least two arms, got {list(self.arms)}; "
                "give arms such as none,P"
            )

    def _check_method(self) -> None:
        for name in _UNUSED.get(self.method, ()):
            value = getattr(self, name)
            if value and value != getattr(FineTuneConfig, name):
                raise ValueError(
                    f"{name}={value!r} has no effect with method={self.method!r}; omit it, or choose "
                    "the method both"
                )

    def _check_sampler(self) -> None:
        options = self.sampler_options
        if self.sampler == ITSELF and options:
            raise ValueError(f"sampler_options require sampler={VLLM!r}, got {sorted(options)}")
        for name in options:
            if name in _OURS:
                raise ValueError(f"vLLM's {name} is set by {_OURS[name]}; omit it")

    def training_specs(self, cells: Sequence[tuple[str, str]]) -> list[EnvSpec]:
        """Return the specs of the training envs."""
        return self.specs(cells, split="train", labels=self.label_reward > 0)

    def make_curriculum(self) -> Curriculum | None:
        """Return GRPO's curriculum."""
        cells = self.cells()
        if self.curriculum == "horizons":
            stages = []
            for horizon in self.horizons:
                stages.append(replace(self, horizons=(horizon,)).training_specs(cells))
            return HorizonCurriculum(stages, self.threshold)
        if self.curriculum == "hints":
            hinted = self.training_specs([(self.arms[-1], self.contexts[0])])
            bare = self.training_specs([(self.arms[0], self.contexts[0])])
            return HintCurriculum(hinted, bare)
        return None

    def make_sampler(self, model: Path, handover: Path) -> Sampler | None:
        """Return the GRPO sampler; None for the model itself. The sampler reads new weights from
        the folder `handover`.
        """
        if self.sampler == ITSELF:
            return None
        with needs_extra("sampling with vLLM", "vllm"):
            from agentgym.training.rollout.models.vllm_sampler import VLLMSampler  # noqa: PLC0415 - an extra
        lora: dict[str, Any] = {}
        if self.lora:  # vLLM accepts only certain maximum LoRA ranks
            rank = max(8, 2 ** (self.lora - 1).bit_length())
            lora = {"enable_lora": True, "max_lora_rank": rank}
        return VLLMSampler(str(model), handover, self.seed, **{**lora, **self.sampler_options})

    def ablation(self, policy: PolicyConfig) -> Ablation:
        """Return a policy's evaluation."""
        return Ablation(
            worlds=(self.world,),
            arms=self.arms if self.eval_arms is None else self.eval_arms,
            horizons=self.horizons if self.eval_horizons is None else self.eval_horizons,
            seeds=max(1, self.episodes),
            policy=policy,
            contexts=self.contexts,
            window=self.window,
            options={"": {**self.options, "split": "test", "max_failed_rounds": 1}},
        )

    def options_of_model(self) -> ModelOptions:
        """Return the model's evaluation options."""
        return ModelOptions(
            device=self.device,
            dtype=self.dtype,
            max_new_tokens=self.max_new_tokens,
            batch_size=self.batch_size,
            template=self.template,
        )
