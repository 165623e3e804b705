"""The learning curve of a run: success on held-out episodes, in a file that grows with the run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentgym.training.evaluation import wilson
from agentgym.training.rollout.storage import (
    DamagedFileError,
    append_text,
    whole_lines,
    write_text,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PHASES = ("chance", "teacher", "cloning", "hints", "rl")
"""The subjects of a point: random legal play, the teacher, or the model in one of its phases, in
the order of a run.
"""

_BANDS = {
    "cloning": ("cloning", "#EEEEEE"),
    "hints": ("with hints", "#DDDDDD"),
    "rl": ("reinforcement learning", "#FFFFFF"),
}
_SAMPLING = {
    "greedy": ("most probable tokens", "#0072B2", "o"),
    "sampled": ("sampled, temperature 1", "#D55E00", "s"),
}
_LEVELS = {"chance": ("random legal play", "#555555", ":"), "teacher": ("teacher", "#009E73", "--")}


@dataclass(frozen=True, slots=True)
class Point:
    """An evaluation.

    Attributes:
        phase: One of `PHASES`.
        step: The step of the phase.
        episodes: Episodes trained on so far, in all phases.
        seconds: Processor time of the training so far, without evaluations.
        greedy: The share of held-out episodes that the most probable tokens solve.
        sampled: The share that is solved when tokens are sampled at temperature 1; None if that was
            not tried.
        trials: The number of held-out episodes; 0 if it was not recorded.
    """

    phase: str
    step: int
    episodes: int
    seconds: float
    greedy: float
    sampled: float | None
    trials: int = 0


class Curve:
    """The points of a run.

    Args:
        path: A file with a JSON line for each point; it need not exist.

    Attributes:
        points: In the order in which they were added.

    Raises:
        DamagedFileError: A line before the last cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.points = [self._read(number, line) for number, line in whole_lines(path)]

    def _read(self, number: int, line: bytes) -> Point:
        try:
            point = Point(**json.loads(line))
            PHASES.index(point.phase)
        except (RecursionError, TypeError, ValueError) as error:
            problem = f"it is no point of a curve ({error!r})"
            raise DamagedFileError(self.path, problem, number) from None
        return point

    def add(self, point: Point) -> None:
        """Write a point."""
        self.points.append(point)
        append_text(self.path, json.dumps(asdict(point)) + "\n", sync=True)

    def truncate_after(self, phase: str, step: int) -> None:
        """Drop what lies beyond a step of a phase, and an unfinished line: a run that goes on from
        there makes it again.
        """
        place = PHASES.index(phase)
        self.points = [p for p in self.points if (PHASES.index(p.phase), p.step) <= (place, step)]
        write_text(self.path, "".join(json.dumps(asdict(point)) + "\n" for point in self.points))

    def last(self, phase: str) -> Point | None:
        """Return the newest point of a phase."""
        return next((point for point in reversed(self.points) if point.phase == phase), None)


def learning_figure(points: Sequence[Point]) -> Figure:
    """Draw success on held-out episodes against the processor time of the training, with its
    phases, teacher and chance.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import, and an extra

    figure = Figure(figsize=(7.2, 3.8), layout="constrained")
    panel = figure.subplots()
    model = [point for point in points if point.phase in _BANDS]
    seconds = [point.seconds for point in model]
    for name, (label, colour, marker) in _SAMPLING.items():
        tried = [(p, share) for p in model if (share := getattr(p, name)) is not None]
        if not tried:
            continue
        times, shares = [p.seconds for p, _ in tried], [100 * share for _, share in tried]
        panel.plot(times, shares, color=colour, marker=marker, markersize=4, label=label, zorder=3)
        bounds = [wilson(share * p.trials, p.trials) for p, share in tried if p.trials]
        if len(bounds) == len(tried):
            lows, highs = [100 * b.low for b in bounds], [100 * b.high for b in bounds]
            panel.fill_between(times, lows, highs, color=colour, alpha=0.15, linewidth=0, zorder=1)
    for point in points:
        if point.phase in _LEVELS:
            label, colour, dashes = _LEVELS[point.phase]
            panel.axhline(100 * point.greedy, color=colour, linestyle=dashes, label=label, zorder=2)
    end = 0.0
    for phase, (name, colour) in _BANDS.items():
        start, end = end, max((p.seconds for p in model if p.phase == phase), default=end)
        if end > start:
            panel.axvspan(start, end, color=colour, zorder=0, linewidth=0)
            panel.text((start + end) / 2, 103, name, ha="center", va="bottom")
    panel.set(
        xlabel="processor seconds of training",
        ylabel="success on held-out instances (%)",
        ylim=(-3, 103),
    )
    panel.set_xlim(0, max([*seconds, 1e-3]))
    panel.grid(alpha=0.3)
    panel.legend(loc="lower right", framealpha=0.9)
    return figure
