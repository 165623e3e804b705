"""Base class of trainers, with checkpoints, metrics and evaluation."""

from __future__ import annotations

import json
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Generic, TypeVar

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from agentgym.training.rl.batches import BatchT
from agentgym.training.rl.curriculum import Curriculum
from agentgym.training.rl.episodes import EpisodeBatch, EpisodeSource, reseed
from agentgym.training.rl.loggers import Logger, open_loggers
from agentgym.training.rl.trainer_config import TrainerConfig
from agentgym.training.rollout import DamagedFileError, EnvLike, PolicyLike, RunLock, make_renderer
from agentgym.training.rollout.models.prefixes import sharing_fault
from agentgym.training.rollout.models.pretrained import has_adapter
from agentgym.training.rollout.storage import append_text, replacing, whole_lines, write_text

CHECKPOINT = "checkpoint.pt"
METRICS = "metrics.jsonl"
# Parts of a checkpoint other than weights.
_PROGRESS = frozenset({"optimizer", "step", "seconds", "next_seed", "curriculum"})
ConfigT = TypeVar("ConfigT", bound=TrainerConfig)


class Trainer(Generic[ConfigT]):
    """Trains a model on episodes. Subclasses implement `updates`.

    Args:
        model: A causal language model, which is trained on its current device. If the model has
            PEFT adapters, only the adapters are trained and saved.
        env: As in `Collector`.
        out: A folder for metrics and checkpoints. Training resumes from a checkpoint in the folder.
        curriculum: Selects the env of each step, and replaces `env`.
        opponents: The policies that play a team's untrained seats.

    Attributes:
        step: The completed steps.
        seconds: CPU seconds spent on the steps, excluding checkpoints.

    Raises:
        ValueError: The checkpoint belongs to another kind of run, or the trained weights have only
            16 bits.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        env: EnvLike,
        config: ConfigT,
        out: Path | None = None,
        curriculum: Curriculum | None = None,
        opponents: Mapping[str, PolicyLike] | None = None,
    ) -> None:
        self.model, self.tokenizer, self.config, self.out = model, tokenizer, config, out
        self.source = EpisodeSource(env, config, curriculum, opponents)
        self.modules: dict[str, torch.nn.Module] = {"model": model, **self.extras()}
        self._trained: list[torch.nn.Parameter] = []
        for module in self.modules.values():
            self._trained += [p for p in module.parameters() if p.requires_grad]
        _check_precision(self._trained)
        fault = sharing_fault(model)
        self.share_prefixes = not fault
        if fault:
            warnings.warn(f"this run computes each row whole: {fault}", stacklevel=2)
        self.renderer = make_renderer(model, tokenizer, config.template)
        self.optimizer = torch.optim.AdamW(
            self._trained,
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            betas=(0.9, 0.95),
        )  # With AdamW's default beta2 of 0.999, gradient spikes are forgotten too slowly.
        self.records = Recorder()
        self.step, self.seconds = 0, 0.0
        self.lost: list[tuple[int, str]] = []
        if out is not None and (out / CHECKPOINT).exists():
            self.load(load_checkpoint(out / CHECKPOINT))

    def updates(self) -> Iterator[Iterable[torch.Tensor]]:
        """Collect episodes, then yield each update's losses, one per micro-batch."""
        raise NotImplementedError

    def passes(self, data: BatchT) -> Iterator[tuple[torch.Tensor, BatchT]]:
        """Yield batches for forward passes, each with its row indices."""
        size = self.config.micro_batch
        return data.passes(size, share=self.share_prefixes, device=self.model.device)

    def extras(self) -> dict[str, torch.nn.Module]:
        """Return additional modules to save, by name; modules with gradients are also trained."""
        return {}

    def draw_seed(self, step: int) -> int:
        """Return a step's random seed."""
        return self.config.seed * 10**9 + step

    def record(self, played: EpisodeBatch) -> None:
        """Record the outcomes of this step's episodes."""
        for figures in played.figures:
            self.records.mean(**figures)
        self.lost += played.lost

    def train(
        self, on_progress: Callable[[int, Mapping[str, float]], None] = lambda step, metrics: None
    ) -> None:
        """Train to the end, with the folder locked."""
        with (
            RunLock(self.out) if self.out is not None else nullcontext(),
            closing(MetricsLog(self.out, self.step, self.config)) as log,
            closing(self.source),
        ):
            while self.step < self.config.steps:
                self.records, self.lost = Recorder(), []
                begun = time.process_time()
                self._run_step()
                self.step += 1
                self.seconds += time.process_time() - begun
                metrics = self.records.figures()
                log.write(self.step, metrics, self.lost)
                on_progress(self.step, metrics)
                if self.step % self.config.save_every == 0 or self.step == self.config.steps:
                    log.sync()  # metrics must reach the disk before the checkpoint
                    self.save()

    def _run_step(self) -> None:
        # Random choices, such as dropout, depend only on the step, so a resumed run repeats them.
        devices = [self.model.device] if self.model.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(self.draw_seed(self.step))
            for opponent in self.source.opponents.values():
                reseed(opponent, self.draw_seed(self.step))
            for losses in self.updates():
                self._update(losses)

    def _update(self, losses: Iterable[torch.Tensor]) -> None:
        config = self.config
        rate = (
            config.learning_rate
            * min(1.0, (self.step + 1) / max(1, config.warmup))
            * max(0.1, 1 - self.step / config.steps)
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        total = torch.zeros((), device=self.model.device)
        for loss in losses:  # `backward` frees the graph of each micro-batch
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(self._trained, config.max_grad_norm)
        self.optimizer.step()
        self.records.mean(loss=total, grad_norm=norm, learning_rate=rate)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        state: dict[str, Any] = {name: _weights(module) for name, module in self.modules.items()}
        state["optimizer"] = self.optimizer.state_dict()
        state |= {"step": self.step, "seconds": self.seconds, "next_seed": self.source.next_seed}
        if self.source.curriculum is not None:
            state["curriculum"] = self.source.curriculum.state()
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore a state; `ValueError` if it belongs to another kind of run."""
        saved = sorted(state.keys() - _PROGRESS)
        if saved != sorted(self.modules):
            raise ValueError(
                f"the checkpoint in {self.out} has {', '.join(saved)}, but this run has "
                f"{', '.join(sorted(self.modules))}; "
                "continue with the trainer and settings that wrote it, or choose another folder"
            )
        for name, module in self.modules.items():
            self._check_weights(name, _weights(module), state[name])
            module.load_state_dict(state[name], strict=not has_adapter(module))
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.source.next_seed = state["step"], state["next_seed"]
        self.seconds = state.get("seconds", 0.0)  # older checkpoints lack it
        if "curriculum" in state and self.source.curriculum is not None:
            self.source.curriculum.load(state["curriculum"])

    def _check_weights(
        self, name: str, own: Mapping[str, torch.Tensor], saved: Mapping[str, torch.Tensor]
    ) -> None:
        for key in {**saved, **own}:
            if key not in own or key not in saved or own[key].shape != saved[key].shape:
                raise ValueError(
                    f"the checkpoint in {self.out} has other weights: {key} of the {name} differs in "
                    "shape or is missing; continue with the model that wrote it, or choose another "
                    "folder"
                )

    def save(self) -> None:
        """Write a checkpoint atomically."""
        if self.out is None:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        try:
            with replacing(self.out / CHECKPOINT) as file:
                torch.save(self.state(), file)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):  # torch hides the OSError
                raise error.__context__ from None
            raise


def _weights(module: torch.nn.Module) -> Mapping[str, torch.Tensor]:
    weights = module.state_dict()
    if not has_adapter(module):
        return weights
    trained = {name for name, p in module.named_parameters() if p.requires_grad}
    return {name: weights[name] for name in weights if name in trained}


def _check_precision(trained: Iterable[torch.nn.Parameter]) -> None:
    # Most AdamW steps are smaller than the gap between adjacent 16-bit numbers.
    for dtype in {p.dtype for p in trained} - {torch.float32, torch.float64}:
        raise ValueError(
            f"the trained weights are {dtype}, and most updates would round to nothing; "
            "load the model with dtype=torch.float32 (precision='bf16' still computes in 16 "
            "bits), or train adapters"
        )


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Return a checkpoint's state, or raise `DamagedFileError`."""
    # Load tensors to the CPU, because this machine may lack the checkpoint's device.
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        if missing := {"model", "optimizer", "step", "next_seed"} - state.keys():
            raise ValueError(f"the checkpoint lacks {', '.join(sorted(missing))}")
    # torch raises RuntimeError for a truncated archive, and various errors for other damage.
    except (
        AttributeError,
        EOFError,
        LookupError,
        RuntimeError,
        ValueError,
        UnpicklingError,
    ) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedFileError(path, f"it is an incomplete checkpoint ({reason})") from None
    return state


class Recorder:
    """Collects a step's metrics: the mean or the maximum of the values of each metric.

    Values are weighted per token, so the division into batches does not matter.
    """

    def __init__(self) -> None:
        self._mean: defaultdict[str, list[torch.Tensor]] = defaultdict(list)
        self._max: defaultdict[str, list[torch.Tensor]] = defaultdict(list)

    def mean(self, **values: torch.Tensor | float) -> None:
        """Record the mean of numbers or tensors of any shape."""
        _append(self._mean, values)

    def track_max(self, **values: torch.Tensor | float) -> None:
        """Record the maximum of numbers or tensors of any shape."""
        _append(self._max, values)

    def figures(self) -> dict[str, float]:
        """Return the recorded metrics."""
        figures = {}
        for name, parts in self._mean.items():
            figures[name] = torch.cat([part.cpu().double() for part in parts]).mean().item()
        for name, parts in self._max.items():
            figures[name] = max(part.max().item() for part in parts)
        return figures


def _append(
    lists: Mapping[str, list[torch.Tensor]], values: Mapping[str, torch.Tensor | float]
) -> None:
    for name, value in values.items():  # no device synchronisation here
        if isinstance(value, torch.Tensor):
            lists[name].append(value.detach().flatten())
        else:
            lists[name].append(torch.tensor([value], dtype=torch.float64))


class MetricsLog:
    """Writes each step's metrics to `metrics.jsonl`, one JSON object per line, and to the selected
    loggers.

    When a run resumes, the lines of steps that will be repeated are removed.
    """

    def __init__(self, out: Path | None, step: int, config: TrainerConfig) -> None:
        self.path = out / METRICS if out is not None else None
        self._loggers: list[Logger] = []
        if out is None or self.path is None:
            return
        out.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            write_text(self.path, "".join(line for at, line in steps_of(self.path) if at <= step))
        self._loggers = open_loggers(out, step, config)

    def close(self) -> None:
        """Close the loggers."""
        for logger in self._loggers:
            logger.close()

    def write(
        self, step: int, metrics: Mapping[str, float], lost: Sequence[tuple[int, str]] = ()
    ) -> None:
        """Write a step's metrics and its failures by seed."""
        if self.path is not None:
            line: dict[str, Any] = {"step": step, **metrics}
            if lost:
                line["lost"] = [{"seed": seed, "failure": failure} for seed, failure in lost]
            append_text(self.path, json.dumps(line) + "\n")
        for logger in self._loggers:
            logger.log(step, metrics)

    def sync(self) -> None:
        """Flush everything to disk."""
        if self.path is not None:
            append_text(self.path, "", sync=True)


def steps_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the step and text of each line of a metrics file."""
    for number, line in whole_lines(path):
        try:
            yield int(json.loads(line)["step"]), line.decode("utf-8")
        except (LookupError, RecursionError, TypeError, ValueError) as error:
            raise DamagedFileError(
                path, f"it lacks the figures of a step ({error!r})", number
            ) from None
