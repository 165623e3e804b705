"""The command `gsm`: the tables and the scatter of GSM-Agent from files of trajectories."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from agentgym.tokens import cl100k
from agentgym.training.evaluation.plots import plot_revisits
from agentgym.training.evaluation.tables import to_markdown
from agentgym.training.papers.gsm_agent import metrics, outcome, summary
from agentgym.training.papers.reasoning_graph import figures, graph_summary, paths_of
from agentgym.training.rollout.trajectory import Trajectory, TrajectoryLog


def add_gsm(app: typer.Typer, clear_errors: Callable[[], AbstractContextManager[None]]) -> None:
    """Add the command to an app.

    Args:
        app: The app.
        clear_errors: A context that tells the user what is wrong.
    """

    @app.command()
    def gsm(
        settings: Annotated[list[str], typer.Argument(help="name=FILE for each setting: a file of trajectories of SearchWorld.")],
        out: Annotated[Path, typer.Option(help="Folder for the tables and the figure.")] = Path("runs/gsm"),
        nodes: Annotated[int | None, typer.Option(help="Clusters of the graph; by the number of documents if not given.")] = None,
        embed: Annotated[
            str, typer.Option(help="wordllama or package.module:function; latent semantic analysis if not given.")
        ] = "",
        count: Annotated[bool, typer.Option(help="Count tokens with cl100k_base where replies carry none.")] = False,
    ) -> None:
        """Write the tables of GSM-Agent, and accuracy against the revisit ratio."""
        with clear_errors():
            for path in write_gsm({name: read(name, file) for name, file in map(_pair, settings)}, out, nodes, embed, count):
                typer.echo(f"wrote {path}")


def read(name: str, file: str) -> list[Trajectory]:
    """The episodes of a file that did not break.

    Raises:
        ValueError: There is none.
    """
    played = [trajectory for trajectory in TrajectoryLog(Path(file)) if not trajectory.failure]
    if not played:
        raise ValueError(f"setting {name!r}: {file} holds no trajectories")
    return played


def write_gsm(settings: dict[str, list[Trajectory]], out: Path, nodes: int | None, embed: str, count: bool) -> list[Path]:
    """Write `summary.md` and `revisits.png`.

    Args:
        settings: The episodes of each setting.
        out: The folder.
        nodes: The clusters of the graph; None for a number that goes by the documents.
        embed: What turns texts into vectors; empty for latent semantic analysis.
        count: Whether to count the tokens of replies that carry none.
    """
    counter = cl100k().length if count else None
    outcomes = {name: [outcome(each, counter) for each in played] for name, played in settings.items()}
    paths = {name: paths_of(played, embed, nodes) for name, played in settings.items()}
    out.mkdir(parents=True, exist_ok=True)
    table, figure = out / "summary.md", out / "revisits.png"
    table.write_text(f"{to_markdown(summary(outcomes))}\n\n{to_markdown(graph_summary(paths))}\n", encoding="utf-8")
    plot_revisits({name: (figures(paths[name]).Rvst, metrics(outcomes[name]).Acc) for name in settings}, figure)
    return [table, figure]


def _pair(text: str) -> tuple[str, str]:
    name, equals, file = text.partition("=")
    if not equals or not name or not file:
        raise ValueError(f"a setting is name=FILE, got {text!r}")
    return name, file
