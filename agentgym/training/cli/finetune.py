"""Fine-tuning of a language model, for the command `train --model`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer
from rich.progress import Progress, TaskID

from agentgym.arguments import list_names
from agentgym.training.cli.common import (
    exit_on_user_error,
    parse_arms,
    parse_integer,
    progress_bar,
    resume_hint,
    show_table,
    split,
)
from agentgym.training.evaluation import Result, Table, load_results, percent, summarize
from agentgym.training.extras import needs_extra
from agentgym.training.rl.learning_curve import Curve, Point, learning_figure

FIGURE = "learning_curve.png"


def finetune(settings: dict[str, Any], out: Path) -> None:
    """Fine-tune a model, and show what it could do before and after.

    Args:
        settings: The fields of a `FineTuneConfig` that are not left at their defaults.
        out: The folder of the run.
    """
    with exit_on_user_error():
        with needs_extra("fine-tuning", "train"):
            from agentgym.training.evaluation import plots  # noqa: PLC0415 - matplotlib is slow to import
            from agentgym.training.rl import FineTuneConfig, FineTuning  # noqa: PLC0415 - slow to import, and an extra
        names = [field.name for field in fields(FineTuneConfig)]
        if unknown := [name for name in settings if name not in names]:
            remedy = list_names(unknown[0], names, "settings")
            raise ValueError(f"there is no setting {unknown[0]!r}; {remedy}")
        tuning = FineTuning(FineTuneConfig(**settings), out)
    typer.echo(tuning.describe())
    with progress_bar() as progress, resume_hint(out), exit_on_user_error():
        points = tuning.run(show_progress(tuning.curve, progress))
        plots.save(learning_figure(points), out / FIGURE)
    if tuning.config.episodes:
        show_table(comparison(load_results(out / "before"), load_results(out / "after")))
    typer.echo(f"wrote {out}, {tuning.curve.path}, {out / FIGURE}")


def show_progress(curve: Curve, progress: Progress) -> Callable[[str, int, int], None]:
    """Return a function that moves a bar for each phase, and prints a line for each new point of
    the curve.
    """
    tasks: dict[str, TaskID] = {}
    shown = 0

    def on_progress(phase: str, step: int, steps: int) -> None:
        nonlocal shown
        if phase not in tasks:
            tasks[phase] = progress.add_task(phase)
        progress.update(tasks[phase], completed=step, total=steps)
        for point in curve.points[shown:]:
            progress.console.print(summarize_point(point), highlight=False)
        shown = len(curve.points)

    return on_progress


def summarize_point(point: Point) -> str:
    """Return a point of the curve as a line for the terminal."""
    greedy = f"{100 * point.greedy:.0f} %"
    if point.phase in ("chance", "teacher"):
        return f"{point.phase}: {greedy} of held-out instances solved"
    head = f"{point.phase} {point.step}, {point.episodes:,} episodes, {point.seconds:.0f} s"
    sampled = f", {100 * point.sampled:.0f} % sampled" if point.sampled is not None else ""
    return f"{head}: {greedy} greedy{sampled}"


def comparison(before: list[Result], after: list[Result]) -> Table:
    """Return success and step accuracy of each arm and horizon, before and after."""
    by = ("arm", "context", "horizon")
    columns = [
        summarize(results, by, metric)
        for metric in ("success", "step_accuracy")
        for results in (before, after)
    ]
    rows = [
        [*(str(part) or "none" for part in key), *(percent(column[key]) for column in columns)]
        for key in sorted(columns[0], key=lambda key: (key[2], key[1], key[0]))
        if all(key in column for column in columns)
    ]
    header = ["arm", "context", "turns", "success before", "after", "step accuracy before", "after"]
    return f"{len(after)} held-out episodes before and after, % with 95 % intervals", header, rows


def parse_cells(text: str) -> dict[str, Any]:
    """Return the arms and horizons of an evaluation.

    Raises:
        ValueError: It is not of the form `ORACLES:HORIZONS`.
    """
    arms, colon, horizons = text.partition(":")
    if not colon or not split(horizons):
        raise ValueError(f"--eval takes ORACLES:HORIZONS, such as none,P:2,3,4, got {text!r}")
    return {
        "eval_arms": parse_arms(arms),
        "eval_horizons": [parse_integer("horizons of --eval", h) for h in split(horizons)],
    }
