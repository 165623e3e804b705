"""LOCA-bench's tables and figure, by task and description length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING, Any

from agentgym.assemble.registry import worlds
from agentgym.assemble.wrapper_stack import WINDOW
from agentgym.envs.loca import LENGTHS
from agentgym.training.evaluation import (
    QUALITY,
    Paper,
    Result,
    Results,
    Table,
    as_results,
    cell,
    count_played,
    few_instances,
    group_by,
    ordered_arms,
    ordered_contexts,
    percent,
    quality,
    register_paper,
    summarize,
)
from agentgym.training.evaluation.registry import figure_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXIS = "length"
# Filtering by path avoids importing the task modules.
_TASKS = "agentgym.envs.loca.tasks."
# Arguments of `Ablation` for LOCA-bench's table 1.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "loca": {
        "worlds": tuple(
            entry.path.rpartition(":")[2] for entry in worlds() if entry.path.startswith(_TASKS)
        ),
        "arms": ("",),
        "axis": AXIS,
        "horizons": tuple(LENGTHS.values()),
        "seeds": 5,
        "window": WINDOW,
    }
}


def is_loca(result: Result) -> bool:
    """Report whether an episode is an office task with a description length."""
    return result.axis == AXIS and "description_tokens" in (result.report or {})


def loca_tables(results: Sequence[Result]) -> list[Table]:
    """Return the paper's tables 1, 4, 5 and 6, and the accuracy by task and length.

    Token tables are omitted if no window is given.
    """
    results = _played_here(results)
    if not results:
        return []
    rows = results.everything
    lengths = sorted({row.horizon for row in rows})
    shares = {
        **summarize(rows, ("arm", "context", "horizon"), "success"),
        **summarize(rows, ("arm", "context"), "success"),
    }
    title = (
        f"LOCA-bench: accuracy by description length, {len(results)} episodes, % with 95% intervals"
        f"{few_instances(rows)}"
    )
    texts = {key: percent(share) for key, share in shares.items()}
    tables = [_by_length(title, rows, lengths, texts)]
    metrics = {"calls": "tool calls"}
    if all(row.usage for row in results):
        metrics["usage.trajectory_tokens"] = "trajectory length, tokens"
        metrics["usage.tool_output_tokens"] = "tool output, tokens"
    groups = group_by(results, "arm", "context", "horizon") | group_by(results, "arm", "context")
    for metric, name in metrics.items():
        value = attrgetter(metric)
        means = {key: f"{fmean(map(value, own)):,.1f}" for key, own in groups.items()}
        title = f"LOCA-bench: mean {name}, by description length"
        tables.append(_by_length(title, rows, lengths, means))
    return [*tables, *_task_tables(rows, lengths)]


def _played_here(results: Sequence[Result]) -> Results:
    results = as_results(results)
    worlds = {row.world for row in results if is_loca(row)}
    return results.where(lambda row: row.world in worlds)


def _by_length(
    title: str,
    rows: Sequence[Result],
    lengths: Sequence[int],
    cells: Mapping[tuple[str | int, ...], str],
) -> Table:
    groups = group_by(rows, "arm", "context")
    lines = []
    for arm, context in _lines(rows):
        line = [arm or "none", context]
        for length in lengths:
            line += [cells.get((arm, context, length), "")]
        line += [cells.get((arm, context), "")]
        lines.append([*line, *quality(groups[arm, context])])
    return title, ["arm", "context", *map(_short, lengths), "all", *QUALITY], lines


def _task_tables(rows: Sequence[Result], lengths: Sequence[int]) -> list[Table]:
    tables = []
    groups = group_by(rows, "arm", "context")
    for arm, context in _lines(rows):
        alike = groups[arm, context]
        tasks = group_by(sorted(alike, key=lambda row: row.world), "world")
        lines = []
        for task, own in {**tasks, "all": alike}.items():
            shares = summarize(own, ("horizon",), "success")
            line = [task]
            for length in lengths:
                line += [cell(shares, (length,))]
            lines.append([*line, percent(summarize(own, (), "success")[()]), *quality(own)])
        title = (
            f"LOCA-bench: accuracy by task and description length, arm {arm or 'none'}, context "
            f"{context}, {count_played(alike)} episodes, % with 95% intervals{few_instances(alike)}"
        )
        tables.append((title, ["task", *map(_short, lengths), "all", *QUALITY], lines))
    return tables


def _lines(rows: Sequence[Result]) -> list[tuple[str, str]]:
    pairs = group_by(rows, "arm", "context")
    ordered = product(ordered_arms(rows), ordered_contexts(rows))
    return [pair for pair in ordered if pair in pairs]


def _short(length: int) -> str:
    if length % 1_000:
        return str(length)
    return f"{length // 1_000}K"


# Panels of the figure, as (metric, label, scale factor).
_PANELS = (
    ("success", "accuracy (%)", 100.0),
    ("trajectory_tokens", "trajectory length (thousand tokens)", 0.001),
    ("calls", "tool calls", 1.0),
    ("tool_output_tokens", "tool output (thousand tokens)", 0.001),
)


@figure_style()
def lengths_figure(results: Sequence[Result]) -> Figure:
    """Plot accuracy, trajectory length, tool calls and tool output by length (figures 1 and 3)."""
    from agentgym.training.evaluation import drawing  # noqa: PLC0415 - matplotlib is slow to import, and an extra

    results = as_results(results)
    counted = all(row.usage for row in results)
    shown = [panel for panel in _PANELS if counted or not panel[0].endswith("_tokens")]
    lengths = sorted({row.horizon for row in results.everything})
    names = drawing.line_names(results.everything)
    styles = drawing.line_styles(list(names.values()))
    figure, columns = drawing.new_grid(len(shown), 1, 1.5, most=2, sharey=False)
    for (panel,), (metric, label, scale) in zip(columns, shown, strict=True):
        cells = summarize(results, ("arm", "context", "horizon"), metric)
        shifts = drawing.shifts(len(names))
        for (pair, name), shift in zip(names.items(), shifts, strict=True):
            own = [length for length in lengths if (*pair, length) in cells]
            intervals = [cells[*pair, length] for length in own]
            drawing.draw_line(panel, own, intervals, styles[name], scale, shift)
        panel.set(xlabel="description length (tokens)", ylabel=drawing.fit(label, 1.3))
        panel.set_xscale("log")
        panel.set_ylim(bottom=-3 if metric == "success" else 0)
        drawing.set_ticks(panel, lengths, map(_short, lengths))
    drawing.add_line_legend(figure, styles)
    drawing.add_caption(figure, results, ("arm", "context", "horizon"))
    return figure


register_paper(
    Paper(
        "LOCA-bench",
        place=2,
        presets=PRESETS,
        sizes="tokens, such as 8k (loca)",
        applies=is_loca,
        tables=loca_tables,
        headline=True,
        figures={"loca_lengths.png": lengths_figure},
    )
)
