"""The log of a training run: figures gathered in each step, written to a file and to
TensorBoard.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch

from agentgym.training.rollout.storage import (
    DamagedFileError,
    append_text,
    whole_lines,
    write_text,
)

METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"


class Recorder:
    """Gathers the figures of one step: the mean, or the maximum, of all that was recorded under a
    name.

    A value that is recorded for each token counts for each token, so the figures do not depend on
    how a batch was divided.
    """

    def __init__(self) -> None:
        self._mean: defaultdict[str, list[torch.Tensor]] = defaultdict(list)
        self._max: defaultdict[str, list[torch.Tensor]] = defaultdict(list)

    def mean(self, **values: torch.Tensor | float) -> None:
        """Record numbers, or tensors of any shape, whose mean matters."""
        _append(self._mean, values)

    def track_max(self, **values: torch.Tensor | float) -> None:
        """Record numbers, or tensors of any shape, whose maximum matters."""
        _append(self._max, values)

    def figures(self) -> dict[str, float]:
        """Return the figures of all that was recorded."""
        return {
            name: torch.cat([x.cpu().double() for x in parts]).mean().item()
            for name, parts in self._mean.items()
        } | {name: max(x.max().item() for x in parts) for name, parts in self._max.items()}


def _append(
    lists: Mapping[str, list[torch.Tensor]], values: Mapping[str, torch.Tensor | float]
) -> None:
    for name, value in values.items():  # a tensor stays on its device, which is not made to wait
        tensor = (
            value.detach()
            if isinstance(value, torch.Tensor)
            else torch.tensor(value, dtype=torch.float64)
        )
        lists[name].append(tensor.flatten())


class MetricsLog:
    """Writes the figures of each step to `metrics.jsonl`, one JSON line each, and to TensorBoard. A
    context manager.

    Args:
        out: The folder; None writes nothing.
        step: The step to resume from. Lines beyond it, of a run that was killed, are going to be
            repeated and are cut off.
        tensorboard: Write events for TensorBoard too, into the folder `tensorboard`.

    Raises:
        ImportError: TensorBoard is asked for and not installed.
    """

    def __init__(self, out: Path | None, step: int, *, tensorboard: bool = False) -> None:
        self.path = out / METRICS if out is not None else None
        self._writer: Any = None
        if out is None or self.path is None:
            return
        out.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            write_text(self.path, "".join(line for at, line in steps_of(self.path) if at <= step))
        if tensorboard:
            self._writer = _summary_writer(out / TENSORBOARD, step + 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(
        self, step: int, metrics: Mapping[str, float], lost: Sequence[tuple[int, str]] = ()
    ) -> None:
        """Write the figures of a step.

        Args:
            step: The step.
            metrics: Its figures.
            lost: Seeds of the episodes that could not be played, with the causes; TensorBoard shows
                their number alone.
        """
        if self.path is not None:
            named = [{"seed": seed, "failure": failure} for seed, failure in lost]
            line = {"step": step, **metrics, **({"lost": named} if named else {})}
            append_text(self.path, json.dumps(line) + "\n")
        if self._writer is not None:
            for name, value in metrics.items():
                self._writer.add_scalar(name, value, step)

    def sync(self) -> None:
        """Wait until all that was written is on the disk."""
        if self.path is not None:
            append_text(self.path, "", sync=True)


def steps_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the steps of a file of metrics with their lines.

    Raises:
        DamagedFileError: A line before the last cannot be read.
    """
    for number, line in whole_lines(path):
        try:
            yield int(json.loads(line)["step"]), line.decode("utf-8")
        except (LookupError, RecursionError, TypeError, ValueError) as error:
            problem = f"it has no figures of a step ({error!r})"
            raise DamagedFileError(path, problem, number) from None


def _summary_writer(folder: Path, purge_step: int) -> Any:
    """Return TensorBoard's writer; events of this step and later ones that are there already are
    not shown.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise ImportError(
            "tensorboard=True needs TensorBoard: pip install 'agentgym[tensorboard]'"
        ) from error
    return SummaryWriter(log_dir=str(folder), purge_step=purge_step)
