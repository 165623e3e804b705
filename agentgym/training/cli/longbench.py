"""The commands `longbench write`, `answer`, `score` and `report`: AgentLongBench as files, from rows to figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from agentgym.envs.agentlongbench.config import FULL
from agentgym.envs.agentlongbench.rows import LENGTHS
from agentgym.envs.agentlongbench.scoring import TASKS
from agentgym.tokens import counter
from agentgym.training.evaluation.plots import plot_heatmap
from agentgym.training.papers import agentlongbench as longbench
from agentgym.training.papers.agentlongbench import LongBenchResult, Plan
from agentgym.training.rollout.policies import PolicyConfig
from agentgym.training.rollout.trajectory import TrajectoryLog

_SETTINGS, _LENGTHS, _TASKS = ",".join(FULL), ",".join(LENGTHS), ",".join(TASKS)

Context = Callable[[], AbstractContextManager[None]]
Names = Annotated[str, typer.Option(help="By commas.")]
Out = Annotated[Path, typer.Option(help="Folder for results, tables and the heat map.")]


def add_longbench(app: typer.Typer, clear_errors: Context, goes_on: Context, console: Console) -> None:
    """Add the commands to an app.

    Args:
        app: The app.
        clear_errors: A context that tells the user what is wrong with the input.
        goes_on: A context that tells how an interrupted run is taken up again.
        console: Where tables are shown.
    """
    commands = typer.Typer(help="AgentLongBench: write its rows, answer them, score the answers.", no_args_is_help=True)
    app.add_typer(commands, name="longbench")
    _add_rows(commands, clear_errors, goes_on, console)
    _add_reports(commands, clear_errors, console)


def _add_rows(commands: typer.Typer, clear_errors: Context, goes_on: Context, console: Console) -> None:
    """Add the commands that write and answer rows."""

    @commands.command()
    def write(
        folder: Annotated[Path, typer.Argument(help="Folder for the rows.")],
        settings: Names = _SETTINGS,
        lengths: Annotated[str, typer.Option(help="By commas; also any number of tokens.")] = _LENGTHS,
        tasks: Names = _TASKS,
        samples: Annotated[int | None, typer.Option(help="At most so many of each cell; all of the paper's if not given.")] = None,
        seed: Annotated[int, typer.Option(help="Seeds all that is drawn.")] = 0,
        tokens: Annotated[str, typer.Option(help="cl100k_base, heuristic or package.module:factory.")] = "cl100k_base",
    ) -> None:
        """Write the rows of the benchmark as JSONL. Cells that are there already are kept."""
        written = 0
        with clear_errors(), goes_on():
            plan = Plan(_split(settings), _split(lengths), _split(tasks), samples, seed)
            for setting, length, rows in longbench.write(plan, folder, counter(tokens)):
                written += rows
                console.print(f"{setting} {length}: {written:,} rows", highlight=False)
        typer.echo(f"wrote {written} rows to {folder}")

    @commands.command()
    def answer(
        folder: Annotated[Path, typer.Argument(help="A folder that `write` wrote.")],
        policy: Annotated[str, typer.Option(help="package.module:factory, or the folder of a trained model.")],
        out: Annotated[Path, typer.Option(help="Folder for the answers.")] = Path("runs/longbench"),
    ) -> None:
        """Let a policy answer the rows. The same command goes on where it was stopped."""
        with clear_errors(), goes_on():
            answered = sum(longbench.answer(folder, out, PolicyConfig(policy).make("LongContextQA")))
        typer.echo(f"answered {answered} rows in {out}; score them: agentgym longbench score {folder} {out}")


def _add_reports(commands: typer.Typer, clear_errors: Context, console: Console) -> None:
    """Add the commands that make tables and figures."""

    @commands.command()
    def score(
        folder: Annotated[Path, typer.Argument(help="A folder that `write` wrote.")],
        answers: Annotated[Path, typer.Argument(help="A folder of answers, with files of the same names.")],
        out: Out = Path("runs/longbench"),
    ) -> None:
        """Score answers: results, tables of scores and context lengths, and the heat map."""
        with clear_errors():
            _report(longbench.score_folder(folder, answers), out, console)

    @commands.command()
    def report(
        logs: Annotated[list[Path], typer.Argument(help="JSONL files of `agentgym rollout LongContextQA --out`.")],
        out: Out = Path("runs/longbench"),
    ) -> None:
        """The same tables and heat map of episodes of LongContextQA."""
        with clear_errors():
            episodes = [trajectory for path in logs for trajectory in TrajectoryLog(path) if not trajectory.failure]
            _report([longbench.outcome(trajectory) for trajectory in episodes], out, console)


def _report(outcomes: Sequence[LongBenchResult], out: Path, console: Console) -> None:
    """Show the tables, and write them with the results and the heat map."""
    if not outcomes:
        raise ValueError("there are no episodes to report on")
    for title, header, lines in longbench.write_report(outcomes, out, plot_heatmap):
        table = Table(*header, title=title, title_justify="left")
        for line in lines:
            table.add_row(*line)
        console.print(table)
    typer.echo(f"wrote {out / longbench.RESULTS}, {out / longbench.SUMMARY}, {out / longbench.FIGURE}")


def _split(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())
