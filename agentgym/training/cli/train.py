"""The command `train`: learning a world from nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress, TaskID

from agentgym.training.cli.common import (
    CONTEXT_HELP,
    Options,
    Window,
    exit_on_user_error,
    parse_arms,
    parse_integer,
    parse_options,
    parse_window,
    progress_bar,
    resume_hint,
    split,
)
from agentgym.training.extras import needs_extra
from agentgym.training.rl.learning_curve import Point, learning_figure

if TYPE_CHECKING:
    from agentgym.training.rl import Learning

FIGURE = "learning_curve.png"


def train(
    world: Annotated[str, typer.Option(help="The world to learn.")] = "ListWorld",
    horizons: Annotated[
        str, typer.Option(help="Turns of an optimal policy in training, separated by commas.")
    ] = "3",
    arms: Annotated[
        str,
        typer.Option(help="Oracle arms in training, by commas; the first is the one of the curve."),
    ] = "none",
    context: Annotated[
        str,
        typer.Option(help=f"Context strategies in training, by commas: {CONTEXT_HELP}."),
    ] = "none",
    window: Window = None,
    options: Options = [],  # noqa: B006
    noise: Annotated[float, typer.Option(help="Error rate of the teacher, in each step.")] = 0.2,
    cloning: Annotated[
        int, typer.Option(help="Steps of cloning in the first arm and context.")
    ] = 600,
    hints: Annotated[
        int, typer.Option(help="Steps of cloning in all arms and contexts after it.")
    ] = 300,
    rl: Annotated[int, typer.Option(help="Steps of reinforcement learning (GRPO) after it.")] = 120,
    episodes: Annotated[int, typer.Option(help="Held-out episodes of each evaluation.")] = 100,
    seed: Annotated[int, typer.Option(help="Seeds the weights and all that is drawn.")] = 0,
    out: Annotated[
        Path, typer.Option(help="Folder for the model, its checkpoints and its learning curve.")
    ] = Path("runs/train"),
) -> None:
    """Train a small transformer from nothing: cloning, then GRPO.

    Started again, it goes on where it was stopped.
    """
    with exit_on_user_error():
        with needs_extra("training", "train"):
            from agentgym.training.evaluation import plots  # noqa: PLC0415 - matplotlib is slow to import
            from agentgym.training.rl.from_scratch import LearnConfig, Learning  # noqa: PLC0415 - slow to import, and an extra
        config = LearnConfig(
            world=world,
            horizons=[parse_integer("horizons", text) for text in split(horizons)],
            arms=parse_arms(arms),
            contexts=split(context),
            window=parse_window(window),
            options=parse_options(options),
            noise=noise,
            cloning_steps=cloning,
            hint_steps=hints,
            rl_steps=rl,
            episodes=episodes,
            seed=seed,
        )
        learning = Learning(config, out)
    with progress_bar() as progress, resume_hint():
        plots.save(learning_figure(_run(learning, progress)), out / FIGURE)
    typer.echo(f"wrote {out}, {learning.curve.path}, {out / FIGURE}")


def _run(learning: Learning, progress: Progress) -> list[Point]:
    """Learn to the end, with a bar for each phase and a line for each point of the curve."""
    tasks: dict[str, TaskID] = {}
    shown = 0

    def on_progress(phase: str, step: int, steps: int) -> None:
        nonlocal shown
        if phase not in tasks:
            tasks[phase] = progress.add_task(phase)
        progress.update(tasks[phase], completed=step, total=steps)
        for point in learning.curve.points[shown:]:
            progress.console.print(summarize_point(point), highlight=False)
        shown = len(learning.curve.points)

    return learning.run(on_progress)


def summarize_point(point: Point) -> str:
    """Return a point of the curve as a line for the terminal."""
    if point.phase in ("chance", "teacher"):
        return f"{point.phase}: {100 * point.sampled:.0f} % of held-out instances solved"
    head = f"{point.phase} {point.step}, {point.episodes:,} episodes, {point.seconds:.0f} s"
    return f"{head}: {100 * point.greedy:.0f} % greedy, {100 * point.sampled:.0f} % sampled"
