"""The registry of papers: their presets, report parts and commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentgym.training.evaluation.scoring import Result
from agentgym.training.evaluation.tables import Table
from agentgym.training.extras import needs_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Sizes are for printed pages, so all text has at least 7 points.
_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "figure.labelsize": 7,
    "figure.titlesize": 8,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "grid.linewidth": 0.5,
    "grid.alpha": 0.4,
    "hatch.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    # Many venues reject Type 3 fonts, and text must stay selectable.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "text.parse_math": False,
}


@contextmanager
def figure_style() -> Iterator[None]:
    """Apply the common figure style; use as a context manager or decorator."""
    with needs_extra("figures", "cli"):
        from matplotlib import rc_context  # noqa: PLC0415 - slow to import, and an extra
    with rc_context(_STYLE):
        yield


@dataclass(frozen=True, slots=True)
class Command:
    """A command of `agentgym`.

    Attributes:
        run: A function that yields lines and tables. The function's docstring is the help text.
            `Annotated` parameters become arguments, or options if they are keyword-only or have
            defaults.
        resumable: Whether rerunning the command resumes an interrupted run.
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
        place: The paper's sort key; `agentgym ablate` defaults to the first paper's first
            preset.
        sizes: The meaning of the presets' horizons, shown in the help of `--horizons`.
        applies: A function that selects the benchmark's episodes.
        headline: Whether the paper's tables precede the arm and context tables.
        levels: The success rate without oracles at which the paper compares policies, by world.
    """

    title: str
    place: int = 100
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sizes: str = ""
    applies: Callable[[Result], bool] = lambda result: False
    tables: Callable[[Sequence[Result]], list[Table]] = lambda results: []
    headline: bool = False
    figures: Mapping[str, Callable[[Sequence[Result]], Figure]] = field(default_factory=dict)
    commands: Sequence[Command] = ()
    levels: Mapping[str, float] = field(default_factory=dict)


_PAPERS: dict[str, Paper] = {}


def register_paper(paper: Paper) -> None:
    """Add a paper."""
    if paper.title in _PAPERS:
        raise ValueError(f"a paper {paper.title!r} already exists; choose another title")
    if taken := sorted(presets().keys() & paper.presets.keys()):
        raise ValueError(f"a preset {taken[0]!r} already exists; choose another name")
    _PAPERS[paper.title] = paper


def papers() -> list[Paper]:
    """Return the papers in order of `place`, then of registration."""
    return sorted(_PAPERS.values(), key=lambda paper: paper.place)


def presets() -> dict[str, Mapping[str, Any]]:
    """Return the presets of all papers, as arguments of `Ablation`."""
    found: dict[str, Mapping[str, Any]] = {}
    for paper in papers():
        found.update(paper.presets)
    return found
