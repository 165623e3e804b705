"""Train by self-play from scratch: `python benchmarks/self_play.py train 0 1 2`, then `... rate 0 1
2`.

A small transformer clones a weak scripted player of PursuitWorld-match and continues with GRPO
against itself, its snapshots and its teacher. `rate` plays a league of the snapshots, the teacher
and random legal play for each seed, and plots the ratings on held-out boards.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

from agentgym.training.evaluation import Interval, drawing, to_markdown
from agentgym.training.evaluation.leagues import League, league_ratings, league_tables, play_league
from agentgym.training.evaluation.registry import figure_style
from agentgym.training.rl import Curve, LearnConfig, Learning
from agentgym.training.rl.learning_curve import CURVE
from agentgym.training.rollout import PolicyConfig

WORLD = "PursuitWorld-match"
OPTIONS = {"size": 4, "catches": 1, "wall_density": 0.0}
TEACHER = "noisy:p=0.5"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["train", "rate"])
    parser.add_argument("seeds", nargs="+", type=int)
    parser.add_argument("--out", type=Path, default=Path("runs/self_play"))
    parser.add_argument("--figure", type=Path, help="such as docs/self_play.png")
    given = parser.parse_args()
    lines = []
    for seed in given.seeds:
        if given.command == "train":
            train(seed, given.out / str(seed))
        else:
            lines.append(rate(given.out / str(seed)))
    if given.figure:
        drawing.save(draw(lines), given.figure)


def train(seed: int, out: Path) -> None:
    config = LearnConfig(
        world=WORLD,
        options={**OPTIONS, "split": "train"},
        teacher=TEACHER,
        pool=("current", "past", TEACHER),
        cloning_steps=150,
        rl_steps=400,
        evaluations=5,
        episodes=30,
        context=1_024,
        max_new_tokens=48,
        seed=seed,
    )
    for point in Learning(config, out).run(lambda *step: print(*step, flush=True)):
        print(point)


def rate(out: Path) -> list[tuple[float, Interval]]:
    """Return (training CPU seconds, rating) pairs, starting with the teacher."""
    points = [point for point in Curve(out / CURVE).points if point.phase == "rl"]
    seconds = {f"step {point.step}": point.seconds for point in points}
    cloned = [point for point in Curve(out / CURVE).points if point.phase == "cloning"]
    seconds["step 0"] = cloned[-1].seconds
    last = f"step {points[-1].step}"
    folders = {f"step {int(each.name)}": each for each in sorted((out / "rl/past").iterdir())}
    folders[last] = out
    policies = [PolicyConfig("random"), PolicyConfig(TEACHER, label="teacher")]
    policies += [PolicyConfig(str(folder), label=name) for name, folder in folders.items()]
    league = League(
        world=WORLD, policies=policies, episodes=40, options={**OPTIONS, "split": "test"}
    )
    games = play_league(league, out / "league")
    print(to_markdown(league_tables(league, games)[0]))
    for reference in ("teacher", "step 0"):
        # Put the reference policy first, because ratings are relative to the first policy.
        order = sorted(policies, key=lambda policy: policy.column != reference)
        rating = league_ratings(replace(league, policies=order), games)[last]
        print(
            f"{last} above {reference}: {rating.value:+.0f} [{rating.low:+.0f}, {rating.high:+.0f}]"
        )
    rated = league_ratings(league, games)
    return [(0.0, rated["teacher"]), *((seconds[name], rated[name]) for name in folders)]


@figure_style()
def draw(lines: list[list[tuple[float, Interval]]]) -> Figure:
    figure = drawing.new_figure(drawing.COLUMN, 2.6)
    panel = figure.subplots()
    styles = drawing.line_styles([f"seed {seed}" for seed in range(len(lines))])
    shifts = drawing.shifts(len(lines))
    for (name, style), shift, rated in zip(styles.items(), shifts, lines, strict=True):
        (_, teacher), *points = rated
        times, ratings = zip(*points, strict=True)
        drawing.draw_line(panel, times, ratings, {**style, "label": name}, 1, shift)
        panel.axhline(teacher.value, color=style["color"], linestyle="--", linewidth=0.8)
    panel.axhline(0, color="0.4", linestyle=":")
    panel.set(xlabel="CPU seconds of training", ylabel="Elo above random play")
    panel.grid()
    drawing.add_line_legend(figure, styles)
    return figure


if __name__ == "__main__":
    main()
