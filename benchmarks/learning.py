"""Compare the learning curves of training runs: `python benchmarks/learning.py NAME=RUN,RUN ...`.

The script prints success on held-out instances with 95% intervals, sampled success in training,
and the CPU minutes of training. `--out` plots success against CPU minutes, or against steps with
`--steps`. RUN is a folder written by `agentgym train`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from matplotlib.figure import Figure

from agentgym.training.evaluation import drawing, wilson
from agentgym.training.evaluation.registry import figure_style
from agentgym.training.rl import Curve, Point
from agentgym.training.rl.learning_curve import CURVE
from agentgym.training.rl.trainer import METRICS, steps_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN,RUN")
    parser.add_argument("--out", type=Path, help="the figure, such as docs/reward.png")
    parser.add_argument("--steps", action="store_true", help="draw against steps")
    given = parser.parse_args()
    runs = {}
    for text in given.runs:
        name, _, folders = text.partition("=")
        runs[name] = [Path(folder) for folder in folders.split(",")]
    print("| run | greedy before, %, and at each evaluation | sampled in training | CPU minutes |")
    print("|---|---|---|---|")
    for name, folders in runs.items():
        for folder in folders:
            print(row(name, folder))
    if given.out:
        drawing.save(draw(runs, steps=given.steps), given.out)


def points_of(folder: Path) -> list[Point]:
    return [point for point in Curve(folder / CURVE).points if point.phase in ("cloning", "rl")]


def interval(point: Point) -> str:
    """Format a success rate with its interval."""
    bounds = wilson(point.greedy * point.trials, point.trials)
    return f"{100 * point.greedy:.1f} [{100 * bounds.low:.0f}, {100 * bounds.high:.0f}]"


def row(name: str, folder: Path) -> str:
    """Return the table row of a run."""
    points = points_of(folder)
    steps = steps_of(folder / points[-1].phase / METRICS)
    curve = " → ".join(map(interval, points))
    trained = " ".join(f"{100 * json.loads(line)['success']:.0f}" for _, line in steps)
    return f"| {name} ({folder.name}) | {curve} | {trained} | {points[-1].seconds / 60:.1f} |"


@figure_style()
def draw(runs: dict[str, list[Path]], *, steps: bool) -> Figure:
    """Plot success against steps or CPU minutes, with one line per run and one colour per name."""
    figure = drawing.new_figure(drawing.COLUMN, 2.2)
    panel = figure.subplots()
    styles = drawing.line_styles(list(runs))
    lines = [(name, folder) for name, folders in runs.items() for folder in folders]
    for (name, folder), shift in zip(lines, drawing.shifts(len(lines)), strict=True):
        points = points_of(folder)
        trained = [float(point.step) if steps else point.seconds / 60 for point in points]
        bounds = [wilson(point.greedy * point.trials, point.trials) for point in points]
        drawing.draw_line(panel, trained, bounds, styles[name], shift=shift)
    panel.set(
        xlabel="steps" if steps else "CPU minutes of training after the start",
        ylabel="success (%)",
        ylim=(-3, 103),
    )
    panel.grid()
    drawing.add_line_legend(figure, styles)
    drawing.add_note(figure, "success on held-out instances; a line per run; 95% intervals")
    return figure


if __name__ == "__main__":
    main()
