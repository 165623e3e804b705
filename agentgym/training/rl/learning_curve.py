"""The learning curve of a run: success on held-out episodes, in a file that grows with the run."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

PHASES = ("chance", "teacher", "cloning", "hints", "rl")
"""What a point is about: random legal play, the teacher, or the model in one of its phases."""


@dataclass(frozen=True, slots=True)
class Point:
    """An evaluation.

    Attributes:
        phase: One of `PHASES`.
        step: The step of the phase.
        episodes: Episodes trained on so far, in all phases.
        seconds: Processor time of the training so far, without evaluations.
        greedy: The share of held-out episodes that the most probable tokens solve.
        sampled: The share that is solved when tokens are sampled at temperature 1.
    """

    phase: str
    step: int
    episodes: int
    seconds: float
    greedy: float
    sampled: float


class Curve:
    """The points of a run.

    Args:
        path: A file with a JSON line for each point; it need not exist.

    Attributes:
        points: In the order in which they were made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        self.points = [Point(**json.loads(line)) for line in lines if line.endswith("\n")]

    def add(self, point: Point) -> None:
        """Write a point."""
        self.points.append(point)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(point)) + "\n")

    def cut(self, phase: str, step: int) -> None:
        """Drop what lies beyond a step of a phase, and an unfinished line: a run that goes on from there makes it again."""
        place = PHASES.index(phase)
        self.points = [p for p in self.points if (PHASES.index(p.phase), p.step) <= (place, step)]
        fresh = self.path.with_name(f"{self.path.name}.new")
        fresh.write_text("".join(json.dumps(asdict(point)) + "\n" for point in self.points), encoding="utf-8")
        os.replace(fresh, self.path)  # noqa: PTH105 - atomic on every system

    def last(self, phase: str) -> Point | None:
        """The newest point of a phase."""
        return next((point for point in reversed(self.points) if point.phase == phase), None)
