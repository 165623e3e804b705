"""Compare the learning curves of training runs: `python benchmarks/learning.py NAME=RUN,RUN ...`.

It prints success on held-out instances with 95 % intervals, sampled success in training, and the CPU
minutes of training, and draws success against them (`--out`). RUN is a folder of `agentgym train`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from matplotlib.figure import Figure

from agentgym.training.evaluation import plots, wilson
from agentgym.training.rl import Curve, Point
from agentgym.training.rl.learning_curve import CURVE
from agentgym.training.rl.trainer import METRICS, steps_of

# The palette of the arms' figures.
PALETTE = list(plots.COLOURS.values())[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN,RUN")
    parser.add_argument("--out", type=Path, help="the figure, such as docs/reward.png")
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
        plots.save(draw(runs), given.out)


def points_of(folder: Path) -> list[Point]:
    """Return a run's evaluations of the model."""
    return [point for point in Curve(folder / CURVE).points if point.phase in ("cloning", "rl")]


def interval(point: Point) -> str:
    """Format a point's success with its interval."""
    bounds = wilson(point.greedy * point.trials, point.trials)
    return f"{100 * point.greedy:.1f} [{100 * bounds.low:.0f}, {100 * bounds.high:.0f}]"


def row(name: str, folder: Path) -> str:
    """Return a run's table row."""
    points = points_of(folder)
    steps = steps_of(folder / points[-1].phase / METRICS)
    curve = " → ".join(map(interval, points))
    trained = " ".join(f"{100 * json.loads(line)['success']:.0f}" for _, line in steps)
    return f"| {name} ({folder.name}) | {curve} | {trained} | {points[-1].seconds / 60:.1f} |"


def draw(runs: dict[str, list[Path]]) -> Figure:
    """Draw success against CPU minutes, with a line per run and a colour per name."""
    figure = plots.new_figure(7.2, 3.8)
    panel = figure.subplots()
    for (name, folders), colour in zip(runs.items(), PALETTE, strict=False):
        for folder in folders:
            points = points_of(folder)
            minutes = [point.seconds / 60 for point in points]
            bounds = [wilson(point.greedy * point.trials, point.trials) for point in points]
            label = name if folder == folders[0] else None
            shares = [100 * point.greedy for point in points]
            panel.plot(minutes, shares, color=colour, marker="o", markersize=4, label=label)
            lows, highs = [100 * each.low for each in bounds], [100 * each.high for each in bounds]
            panel.fill_between(minutes, lows, highs, color=colour, alpha=0.12, linewidth=0)
    panel.set(
        xlabel="CPU minutes of training after the start",
        ylabel="success on held-out instances (%)",
        ylim=(-3, 103),
    )
    panel.grid(alpha=0.3)
    panel.legend(loc="center right", framealpha=0.9)
    return figure


if __name__ == "__main__":
    main()
