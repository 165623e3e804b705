"""LORE's benchmark (TaskWeaver, section 4): accuracy by task size, and kinds of failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

from agentgym.envs.lore import GRID
from agentgym.envs.lore.config import DIFFICULTIES
from agentgym.training.evaluation import (
    QUALITY,
    Interval,
    Paper,
    Result,
    Table,
    as_results,
    group_by,
    ordered_arms,
    ordered_contexts,
    percent,
    played,
    quality,
    register_paper,
    wilson,
)
from agentgym.training.evaluation.registry import figure_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The axes of the paper's curves, and the bin width of each axis.
WIDTHS = {"operations": 10, "height": 5}
# Arguments of `Ablation` for TaskWeaver's figures 3 and 4.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    f"lore-{difficulty}": {
        "worlds": ("DocumentWorld", "MultimodalWorld", "CodeWorld"),
        "arms": ("",),
        "axis": "operations",
        "horizons": GRID,
        "seeds": 30,
        "options": {"": {"difficulty": difficulty}},
    }
    for difficulty in DIFFICULTIES
}

# With ten episodes per bin, the half-width of Wilson's interval is at most 26 points.
_LEAST = 10
_FAILURES = ("episodes", "failed", "premature halt", "wrong synthesis", "other", "lost leads")
_MEANS = {
    "lost_leads": "leads lost",
    "reads": "reads",
    "redundant_reads": "redundant",
    "guessed_reads": "guessed",
}
_LABELS = {"operations": "number of operations", "height": "height: longest chain of dependencies"}
# Set the ticks explicitly, because matplotlib would draw only one tick per decade.
_TICKS = tuple(digit * 10**power for power in range(6) for digit in (1, 2, 5))


@dataclass(frozen=True, slots=True)
class Bin:
    """Episodes with tasks of similar size, from `low` to `high` inclusive."""

    low: int
    high: int
    episodes: int
    accuracy: Interval

    @property
    def solved(self) -> int:
        return round(self.accuracy.value * self.episodes)


def is_lore(episode: Result) -> bool:
    """Report whether an episode of LORE was played to its end."""
    return "height" in (episode.report or {})


def lines(results: Sequence[Result]) -> dict[str, dict[str, list[Result]]]:
    """Return LORE's results by world and label; each label names an arm, a context or both."""
    results = as_results(results)
    worlds = {row.world for row in results if is_lore(row)}
    rows = []
    for row in results.everything:
        unplayed = row.missing or row.over_window
        if is_lore(row) or (unplayed and row.world in worlds):
            rows.append(row)
    arms = ordered_arms(rows)
    contexts = ordered_contexts(rows)
    by_world: dict[str, dict[str, list[Result]]] = {row.world: {} for row in rows}
    groups = group_by(rows, "world", "arm", "context")
    for world, arm, context in product(by_world, arms, contexts):
        name = arm or "none"
        if len(contexts) > 1:
            name = f"{name}, {context}" if len(arms) > 1 else context
        if line := groups.get((world, arm, context)):
            by_world[world][name] = line
    return by_world


def accuracy(
    episodes: Sequence[Result], by: str = "operations", width: int | None = None
) -> list[Bin]:
    """Return the share of exact answers by task size, with Wilson's 95% interval.

    Sizes are `operations`, in bins of 10 by default, or `height`, in bins of 5 levels. The first
    bin includes size 0.
    """
    step = WIDTHS[by] if width is None else width
    inside: dict[int, list[Result]] = {}
    for each in episodes:
        if (size := _size(each, by)) is not None:
            inside.setdefault(max(0, size - 1) // step, []).append(each)
    bins = []
    for place, some in sorted(inside.items()):
        if there := played(some):
            share = wilson(sum(bool(each.success) for each in there), len(there))
            bins.append(Bin(place * step + 1, (place + 1) * step, len(there), share))
    return bins


def _size(episode: Result, by: str) -> int | None:
    if episode.report:
        return int(episode.report[by])
    if episode.axis == by:
        return episode.horizon
    return None


def curve(episodes: Sequence[Result], by: str) -> list[Bin]:
    """Return accuracies by task size (`operations` or `height`); neighbouring bins of heights
    are merged until each bin contains at least ten episodes.
    """
    if by == "operations":
        return accuracy(episodes, by, 1)
    bins: list[Bin] = []
    for each in accuracy(episodes, by):
        too_few = bins and bins[-1].episodes < _LEAST
        bins.append(_join(bins.pop(), each) if too_few else each)
    if len(bins) > 1 and bins[-1].episodes < _LEAST:
        bins[-2:] = [_join(*bins[-2:])]
    return bins


def _join(first: Bin, second: Bin) -> Bin:
    episodes = first.episodes + second.episodes
    share = wilson(first.solved + second.solved, episodes)
    return Bin(first.low, second.high, episodes, share)


def lore_tables(results: Sequence[Result]) -> list[Table]:
    """Return each world's accuracy by task size, and its failures."""
    tables = []
    for world, arms in lines(results).items():
        tables += [_curve_table(world, arms, by) for by in WIDTHS]
        tables.append(_failure_table(world, arms))
    return tables


def _curve_table(world: str, arms: Mapping[str, Sequence[Result]], by: str) -> Table:
    bins: dict[tuple[int, int], dict[str, Bin]] = {}
    for name, rows in arms.items():
        for each in curve(rows, by):
            bins.setdefault((each.low, each.high), {})[name] = each
    table = []
    for (low, high), columns in sorted(bins.items()):
        size = str(low) if low == high else f"{low} to {high}"
        table.append([size, *(_write_bin(columns.get(name)) for name in arms)])
    for name, *cells in zip(QUALITY, *map(quality, arms.values()), strict=True):
        table.append([name, *cells])
    return f"{world}: accuracy by {by}, % with Wilson's 95% intervals", [by, *arms], table


def _write_bin(each: Bin | None) -> str:
    if each is None:
        return ""
    return f"{each.solved}/{each.episodes}: {percent(each.accuracy)}"


def _failure_table(world: str, arms: Mapping[str, Sequence[Result]]) -> Table:
    table = []
    for name, rows in arms.items():
        there = played(rows)
        failed = [row.report or {} for row in there if not row.success]
        halted = sum(bool(each.get("premature_halt")) for each in failed)
        wrong = sum(bool(each.get("synthesis_error")) for each in failed)
        lost = sum(each.get("lost_leads", 0) > 0 for each in failed)
        other = len(failed) - halted - wrong
        counts = (len(there), len(failed), halted, wrong, other, lost)
        line = [name, *map(str, counts)]
        for kind in _MEANS:
            values = [row.report[kind] for row in there if row.report]
            line.append(f"{fmean(values):.1f}" if values else "no data")
        table.append([*line, *quality(rows)])
    title = f"{world}: how episodes failed, in numbers of episodes, and means of an episode"
    return title, ["", *_FAILURES, *_MEANS.values(), *QUALITY], table


@figure_style()
def lore_figure(results: Sequence[Result]) -> Figure:
    """Plot accuracy against operations and height, one column of panels per world."""
    from agentgym.training.evaluation import drawing  # noqa: PLC0415 - matplotlib is slow to import, and an extra

    results = as_results(results)
    worlds = lines(results)
    names = drawing.line_names([row for row in results.everything if row.world in worlds])
    styles = drawing.line_styles(list(names.values()))
    shifts = dict(zip(names, drawing.shifts(len(names)), strict=True))
    figure, columns = drawing.new_grid(len(worlds), 2, 1.5)
    for panels, (world, arms) in zip(columns, worlds.items(), strict=True):
        for panel, (by, label) in zip(panels, _LABELS.items(), strict=True):
            for rows in arms.values():
                pair = rows[0].arm, rows[0].context
                bins = curve(rows, by)
                middles = [(each.low + each.high) / 2 for each in bins]
                intervals = [each.accuracy for each in bins]
                style, shift = styles[names[pair]], shifts[pair]
                drawing.draw_line(panel, middles, intervals, style, shift=shift)
            panel.set_xlabel(drawing.fit(label, drawing.panel_width(panel)))
            panel.set(xscale="log", ylim=(-3, 103))
            low, high = panel.get_xlim()
            ticks = [tick for tick in _TICKS if low <= tick <= high]
            drawing.set_ticks(panel, ticks, map(str, ticks))
            if drawing.in_first_column(panel):
                panel.set_ylabel("accuracy (%)")
        drawing.set_title(panels[0], world)
    drawing.add_line_legend(figure, styles)
    drawing.add_caption(figure, results, ("world", "arm", "context", "horizon"))
    return figure


register_paper(
    Paper(
        "LORE",
        place=1,
        presets=PRESETS,
        sizes="operations (presets of LORE)",
        applies=is_lore,
        tables=lore_tables,
        figures={"lore.png": lore_figure},
    )
)
