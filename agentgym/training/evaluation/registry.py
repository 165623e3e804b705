"""The registry of papers: what the benchmark of a paper adds to presets, reports and the command
line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentgym.training.evaluation.scoring import Result
from agentgym.training.evaluation.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Command:
    """A command of `agentgym`.

    Attributes:
        run: Does the work and yields what is shown: lines and tables. A parameter is `Annotated`
            with its help text; one that is keyword-only or has a default is an option, any other an
            argument. The docstring is the help of the command.
        name: Its name.
        group: The command of which this is a sub-command, if any.
        group_help: The help of that.
        resumable: True if the same command goes on where it was stopped; a user who stops it is
            reminded of that.
    """

    run: Callable[..., Iterable[str | Table]]
    name: str
    group: str = ""
    group_help: str = ""
    resumable: bool = False


@dataclass(frozen=True, slots=True)
class Paper:
    """The benchmark of a paper.

    Attributes:
        title: Its short name.
        place: Where its presets are listed; the first preset of all is the default of `agentgym
            ablate`.
        presets: Arguments of `Ablation`, by the name of the preset.
        sizes: The meaning of the horizons of its presets, for the help of `--horizons`.
        applies: Says of an episode if it belongs to the benchmark. Tables, files and figures are
            made of such episodes only.
        tables: Makes its tables of the results of an ablation.
        headline: Put its tables before those of arms and contexts.
        files: Functions that write its files, by their names.
        figures: Functions that draw its figures, by the names of their files.
        commands: Commands of its own.
        levels: The success without oracles at which the paper compares policies, by world.
    """

    title: str
    place: int = 100
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sizes: str = ""
    applies: Callable[[Result], bool] = lambda result: False
    tables: Callable[[Sequence[Result]], list[Table]] = lambda results: []
    headline: bool = False
    files: Mapping[str, Callable[[Sequence[Result], Path], None]] = field(default_factory=dict)
    figures: Mapping[str, Callable[[Sequence[Result]], Figure]] = field(default_factory=dict)
    commands: Sequence[Command] = ()
    levels: Mapping[str, float] = field(default_factory=dict)


_PAPERS: dict[str, Paper] = {}


def register_paper(paper: Paper) -> None:
    """Add a paper.

    Raises:
        ValueError: Its title or one of its presets is taken.
    """
    if paper.title in _PAPERS:
        raise ValueError(f"there is a paper {paper.title!r} already; choose another title")
    if taken := sorted(presets().keys() & paper.presets.keys()):
        raise ValueError(f"there is a preset {taken[0]!r} already; choose another name")
    _PAPERS[paper.title] = paper


def papers() -> list[Paper]:
    """Return the papers by their places; those of one place in the order in which they were
    registered.
    """
    return sorted(_PAPERS.values(), key=lambda paper: paper.place)


def presets() -> dict[str, Mapping[str, Any]]:
    """Return the presets of all papers, as arguments of `Ablation`."""
    return {name: settings for paper in papers() for name, settings in paper.presets.items()}
