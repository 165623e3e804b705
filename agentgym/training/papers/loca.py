"""LOCA-bench's tables and figure: accuracy by task and description length; trajectory length, tool
calls and tool output by description length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from agentgym.assemble.registry import worlds
from agentgym.assemble.wrapper_stack import WINDOW
from agentgym.envs.loca import LENGTHS
from agentgym.oracles import sort_arms
from agentgym.training.evaluation import (
    Interval,
    Paper,
    Result,
    Table,
    few_instances,
    ordered_contexts,
    percent,
    register_paper,
    summarize,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXIS = "length"
# The package of the tasks; listing them does not import their modules.
_TASKS = "agentgym.envs.loca.tasks."
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
    },
}
"""The run of LOCA-bench's table 1, as arguments of `Ablation`."""


def is_loca(result: Result) -> bool:
    """Return whether an episode is an office task with an environment description length."""
    return result.axis == AXIS and "description_tokens" in (result.report or {})


def loca_tables(results: Sequence[Result]) -> list[Table]:
    """Return the paper's tables 1, 4, 5 and 6, with a row per arm and strategy and a column per
    length over all tasks, and the accuracy by task and length for each arm and strategy.

    Token counts come from context wrappers; without a window there are none, and their tables are
    omitted.
    """
    rows = [row for row in results if is_loca(row)]
    if not rows:
        return []
    tables = [_accuracy(rows), _means("tool calls", rows, lambda row: float(row.calls))]
    if all(row.usage for row in rows):
        tables += [
            _means(
                "trajectory length, tokens",
                rows,
                lambda row: row.usage.trajectory_tokens if row.usage else 0,
            ),
            _means(
                "tool output, tokens",
                rows,
                lambda row: row.usage.tool_output_tokens if row.usage else 0,
            ),
        ]
    return [*tables, *_tasks(rows)]


def _tasks(rows: Sequence[Result]) -> list[Table]:
    """Return a table for each arm and strategy, with a row per task and a column per length."""
    tables = []
    lengths = sorted({row.horizon for row in rows})
    for arm, context in _lines(rows):
        alike = [row for row in rows if (row.arm, row.context) == (arm, context)]
        cells = summarize(alike, ("world", "horizon"), "success")
        tasks, columns = (
            summarize(alike, ("world",), "success"),
            summarize(alike, ("horizon",), "success"),
        )
        lines = [
            [task, *(_cell(cells, (task, length)) for length in lengths), _cell(tasks, (task,))]
            for task in sorted({row.world for row in alike})
        ]
        shares = (_cell(columns, (length,)) for length in lengths)
        lines.append(["all", *shares, percent(summarize(alike, (), "success")[()])])
        title = (
            f"LOCA-bench: accuracy by task and description length, arm {arm or 'none'}, context "
            f"{context}, {len(alike)} episodes, % with 95 % intervals{few_instances(alike)}"
        )
        tables.append((title, ["task", *map(_short, lengths), "all"], lines))
    return tables


def _cell(cells: Mapping[Any, Interval], key: tuple[str | int, ...]) -> str:
    return percent(cells[key]) if key in cells else ""


def _accuracy(rows: Sequence[Result]) -> Table:
    cells = summarize(rows, ("arm", "context", "horizon"), "success")
    whole = summarize(rows, ("arm", "context"), "success")
    lengths = sorted({row.horizon for row in rows})
    lines = [
        [
            arm or "none",
            context,
            *(_cell(cells, (arm, context, length)) for length in lengths),
            percent(whole[arm, context]),
        ]
        for arm, context in _lines(rows)
    ]
    title = (
        f"LOCA-bench: accuracy by description length, {len(rows)} episodes, % with 95 % intervals"
        f"{few_instances(rows)}"
    )
    return title, ["arm", "context", *map(_short, lengths), "all"], lines


def _means(title: str, rows: Sequence[Result], value: Callable[[Result], float]) -> Table:
    lengths = sorted({row.horizon for row in rows})
    lines = []
    for arm, context in _lines(rows):
        alike = [row for row in rows if (row.arm, row.context) == (arm, context)]
        groups = [[row for row in alike if row.horizon == length] for length in lengths]
        cells = [f"{fmean(map(value, group)):,.1f}" if group else "" for group in (*groups, alike)]
        lines.append([arm or "none", context, *cells])
    return (
        f"LOCA-bench: mean {title}, by description length",
        ["arm", "context", *map(_short, lengths), "all"],
        lines,
    )


def _lines(rows: Sequence[Result]) -> list[tuple[str, str]]:
    pairs = {(row.arm, row.context) for row in rows}
    return [
        (arm, context)
        for arm in sort_arms(row.arm for row in rows)
        for context in ordered_contexts(rows)
        if (arm, context) in pairs
    ]


def _short(length: int) -> str:
    return f"{length // 1_000}K" if length % 1_000 == 0 else str(length)


# The panels of the figure: the metric, its label, and the scale factor.
_PANELS = (
    ("success", "accuracy (%)", 100.0),
    ("trajectory_tokens", "trajectory length (thousand tokens)", 0.001),
    ("calls", "tool calls", 1.0),
    ("tool_output_tokens", "tool output (thousand tokens)", 0.001),
)


def lengths_figure(results: Sequence[Result]) -> Figure:
    """Draw accuracy, trajectory length, tool calls and tool output against the description length
    (figures 1 and 3), one line per arm and strategy, with 95 % intervals as bands.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import, and an extra
    from matplotlib.lines import Line2D  # noqa: PLC0415
    from matplotlib.ticker import NullLocator  # noqa: PLC0415

    from agentgym.training.evaluation import plots  # noqa: PLC0415

    counted = all(row.usage for row in results)
    shown = [panel for panel in _PANELS if counted or not panel[0].endswith("_tokens")]
    lengths = sorted({row.horizon for row in results})
    names = {(arm, context): f"{arm} {context}".strip() for arm, context in _lines(results)}
    styles = {
        pair: plots.line_style(place, name) for place, (pair, name) in enumerate(names.items())
    }
    figure = Figure(figsize=(3.4 * len(shown) + 1.8, 3.9), layout="constrained")
    axes = figure.subplots(1, len(shown), squeeze=False)[0]
    for panel, (metric, label, scale) in zip(axes, shown, strict=True):
        cells = summarize(results, ("arm", "context", "horizon"), metric)
        for pair, style in styles.items():
            own = [length for length in lengths if (*pair, length) in cells]
            plots.draw_line(
                panel,
                own,
                [cells[*pair, length] for length in own],
                {**style, "markersize": 4},
                0.12,
                scale,
            )
        panel.set(xlabel="description length (tokens)", ylabel=label, xscale="log")
        panel.set_ylim(bottom=0 if metric != "success" else -3)
        panel.set_xticks(lengths, list(map(_short, lengths)))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.grid(alpha=0.3)
    handles = [Line2D([], [], label=names[pair], **style) for pair, style in styles.items()]
    figure.legend(handles=handles, loc="outside right center")
    plots.add_caption(figure, results)
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
