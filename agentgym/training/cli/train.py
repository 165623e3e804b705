"""What `agentgym train` does; the libraries that it needs are loaded when it is used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import Progress, TaskID

from agentgym.training.evaluation.plots import plot_learning
from agentgym.training.rl.learning_curve import Point

if TYPE_CHECKING:
    from agentgym.training.rl.from_scratch import Learning

FIGURE = "learning_curve.png"


def prepare(out: Path, **settings: Any) -> Learning:
    """A run, checked, with its folder.

    Args:
        out: The folder.
        **settings: As `LearnConfig` takes them.

    Raises:
        ValueError: A setting is not right, the folder holds another run, or the extra is missing.
        OSError: The folder cannot be written.
    """
    try:
        from agentgym.training.rl.from_scratch import LearnConfig, Learning  # noqa: PLC0415 - slow to import, and an extra
    except ImportError as error:
        raise ValueError(f"training needs its extra: pip install 'agentgym[train]' ({error})") from error
    return Learning(LearnConfig(**settings), out)


def run(learning: Learning, progress: Progress) -> list[Path]:
    """Learn to the end, say how it goes, and draw the curve.

    Returns:
        What was written.
    """
    tasks: dict[str, TaskID] = {}
    told = 0

    def advance(phase: str, step: int, steps: int) -> None:
        nonlocal told
        if phase not in tasks:
            tasks[phase] = progress.add_task(phase)
        progress.update(tasks[phase], completed=step, total=steps)
        for point in learning.curve.points[told:]:
            progress.console.print(in_a_line(point), highlight=False)
        told = len(learning.curve.points)

    points = learning.run(advance)
    plot_learning(points, learning.out / FIGURE)
    return [learning.out, learning.curve.path, learning.out / FIGURE]


def in_a_line(point: Point) -> str:
    """A point of the curve for the terminal."""
    if point.phase in ("chance", "teacher"):
        return f"{point.phase}: {100 * point.sampled:.0f} % of held-out instances solved"
    what = f"{point.phase} {point.step}, {point.episodes:,} episodes, {point.seconds:.0f} s"
    return f"{what}: {100 * point.greedy:.0f} % greedy, {100 * point.sampled:.0f} % sampled"
