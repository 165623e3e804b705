"""Loggers for TensorBoard and Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from agentgym.training.extras import MissingExtraError, needs_extra
from agentgym.training.rl.trainer_config import TrainerConfig
from agentgym.training.rollout.storage import write_text

TENSORBOARD = "tensorboard"
WANDB_RUN = "wandb_run.txt"


class Logger(Protocol):
    """Logger of an experiment tracker."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record a step's metrics."""

    def close(self) -> None:
        """End the run."""


def open_loggers(out: Path, step: int, config: TrainerConfig) -> list[Logger]:
    """Return the selected loggers, which continue after a given step."""
    loggers: list[Logger] = []
    if config.tensorboard:
        loggers.append(TensorBoardLogger(out, step))
    if config.wandb:
        loggers.append(WandbLogger(out, config))
    return loggers


class TensorBoardLogger(Logger):
    """Writes event files to the folder `tensorboard`."""

    def __init__(self, out: Path, step: int) -> None:
        with needs_extra("tensorboard=True", "tensorboard"):
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra, and slow to import
        # `purge_step` hides events of steps that a resumed run repeats.
        self._writer = SummaryWriter(log_dir=str(out / TENSORBOARD), purge_step=step + 1)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WandbLogger(Logger):
    """Logs to one W&B run per folder; resumed training continues that run.

    W&B reads its project, mode and key from its own settings, such as `WANDB_PROJECT` and
    `WANDB_MODE=offline`. It ignores repeated steps.

    Raises:
        ValueError: W&B cannot start the run, for example because no API key is set.
    """

    def __init__(self, out: Path, config: TrainerConfig) -> None:
        try:
            import wandb  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - optional, and slow to import
        except ImportError as error:
            raise MissingExtraError(
                f"wandb=True requires a package: pip install wandb ({error})"
            ) from error
        file = out / WANDB_RUN
        known = file.read_text(encoding="utf-8") if file.exists() else None
        try:
            self._run: Any = wandb.init(
                dir=out, name=str(out), id=known, resume="allow", config=asdict(config)
            )
        except wandb.Error as error:
            raise ValueError(
                f"W&B cannot start a run ({error}); run `wandb login`, or set WANDB_MODE=offline"
            ) from error
        write_text(file, self._run.id)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()
