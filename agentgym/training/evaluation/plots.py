"""Figures of an ablation after LUMINA's figures 3 and 6b, and shared drawing helpers.

This module loads matplotlib; import it only to draw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import gymnasium
import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, NullLocator

from agentgym.assemble.registry import resolve
from agentgym.oracles import ARMS
from agentgym.training.evaluation.intervals import Key, effects, summarize
from agentgym.training.evaluation.missing import Results, as_results, idle_wrappers
from agentgym.training.evaluation.scoring import (
    CELL,
    Result,
    group_by,
    ordered_arms,
    ordered_contexts,
)
from agentgym.training.evaluation.statistics import NO_DATA, Interval
from agentgym.training.evaluation.tables import INTERVENTIONS
from agentgym.training.rollout.storage import replacing
from agentgym.world.world import load_world

# Okabe and Ito's palette suits all kinds of colour vision.
COLOURS = dict(
    zip(ARMS, ("#555555", "#0072B2", "#D55E00", "#009E73", "#56B4E9", "#CC79A7"), strict=True)
)
_MARKERS = dict(zip(ARMS, "osD^vP", strict=True))
METRICS = {"success": ("success rate", "#0072B2"), "step_accuracy": ("step accuracy", "#E69F00")}
# Dashes and crosses keep overlapping lines visible.
_LINES: Mapping[str, Mapping[str, Any]] = {
    "success": {"color": "#0072B2", "marker": "o", "linestyle": "-", "markersize": 5, "zorder": 2},
    "step_accuracy": {
        "color": "#E69F00",
        "marker": "x",
        "linestyle": "--",
        "markersize": 5,
        "zorder": 3,
    },
}
_CONTEXT_PANELS = (
    ("success", "success rate (%)", 100, "#0072B2"),
    ("trajectory_tokens", "trajectory length (thousand tokens)", 0.001, "#E69F00"),
)
# Cells named in a caption; more would crowd the figure.
_NAMED = 4
# sharp enough for print, at a tenth of a megabyte per figure
_DPI = 150


def line_style(place: int, name: str) -> dict[str, Any]:
    """Return a line's colour, marker and dashes, by arm name or by position."""
    arm = "" if name == "none" else name
    arm = arm if arm in COLOURS else ARMS[place % len(ARMS)]
    return {
        "color": COLOURS[arm],
        "marker": _MARKERS[arm],
        "linestyle": "--" if place >= len(ARMS) else "-",
    }


def contexts_figure(results: Sequence[Result]) -> Figure:
    """Draw success rate and trajectory length by context strategy (LOCA-bench, table 2)."""
    results = as_results(results)
    worlds = group_by(results.everything, "world")
    contexts = ordered_contexts(results.everything)
    places = np.arange(len(contexts))[::-1]
    figure = new_figure(3.2 * len(worlds) + 1.4, 1.6 + 0.5 * len(contexts))
    axes = figure.subplots(2, len(worlds), sharex="row", sharey=True, squeeze=False)
    for column, (world, rows) in enumerate(worlds.items()):
        for line, (metric, name, scale, colour) in enumerate(_CONTEXT_PANELS):
            panel = axes[line, column]
            rates = summarize(rows, ("context",), metric)
            # Some worlds lack some contexts.
            intervals = [rates.get((context,), NO_DATA) for context in contexts]
            value, low, high = _ends(intervals, scale)
            panel.barh(places, value, 0.7, color=colour, zorder=2)
            panel.errorbar(
                value,
                places,
                xerr=[value - low, high - value],
                fmt="none",
                ecolor="#444444",
                capsize=3,
                zorder=3,
            )
            panel.set_yticks(places, contexts)
            panel.set_xlabel(name)
            panel.grid(axis="x", alpha=0.3, zorder=0)
        axes[0, column].set_title(world)
    add_caption(figure, results)
    return figure


def horizons_figure(results: Sequence[Result]) -> Figure:
    """Draw success rate and step accuracy against the horizon (figure 3).

    Worlds are columns and arms are rows, each with the success without oracles. A single horizon
    gets one panel per world.
    """
    results = as_results(results)
    if len({row.horizon for row in results.everything}) == 1:
        return _single_horizon_figure(results)
    worlds = group_by(results.everything, "world")
    arms = ordered_arms(results.everything)
    figure = new_figure(3.0 * len(worlds) + 1.6, 1.5 * len(arms) + 1.5)
    axes = figure.subplots(len(arms), len(worlds), sharex="col", sharey=True, squeeze=False)
    for column, (world, rows) in enumerate(worlds.items()):
        for line, arm in enumerate(arms):
            _draw_arm(axes[line, column], rows, arm)
            axes[line, 0].set_ylabel(f"{arm or 'none'} (%)")
        axes[0, column].set_title(world)
        axes[-1, column].set_xlabel(axis_label(rows[0]), fontsize="small")
    _add_legend_of_metrics(figure, compared="" in arms and len(arms) > 1)
    add_caption(figure, results)
    return figure


def _single_horizon_figure(results: Results) -> Figure:
    worlds = group_by(results.everything, "world")
    arms = ordered_arms(results.everything)
    figure, axes = _panels(len(worlds))
    for panel, (world, rows) in zip(axes, worlds.items(), strict=True):
        for shift, (metric, style) in zip((-0.12, 0.12), _LINES.items(), strict=True):
            rates = summarize(rows, ("arm",), metric)
            places = [k + shift for k, arm in enumerate(arms) if (arm,) in rates]
            values, errors = _bounds([rates[arm,] for arm in arms if (arm,) in rates])
            panel.errorbar(places, values, errors, capsize=3, **{**style, "linestyle": "none"})
        name_arms(panel, arms)
        panel.set(title=f"{world}, size {rows[0].horizon}", xlabel="oracles", ylim=(-3, 103))
        panel.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel("%")
    _add_legend_of_metrics(figure, compared=False)
    add_caption(figure, results)
    return figure


def interventions_figure(results: Sequence[Result], note: str = "") -> Figure:
    """Draw the effects on success rate and step accuracy by intervention and world (figure 6b)."""
    results = as_results(results)
    worlds = group_by(results.everything, "world")
    figure, axes = _panels(len(worlds))
    for panel, (world, rows) in zip(axes, worlds.items(), strict=True):
        changes = {metric: effects(rows, (), metric) for metric in METRICS}
        letters = [letter for letter in INTERVENTIONS if (letter,) in changes["success"]]
        draw_changes(panel, changes, [(letter,) for letter in letters])
        panel.set_xticks(range(len(letters)), [INTERVENTIONS[letter] for letter in letters])
        panel.set(title=world, xlabel="intervention")
    finish_changes(figure, results, note)
    return figure


def draw_changes(
    panel: Axes, changes: Mapping[str, Mapping[Key, Interval]], keys: Sequence[Key]
) -> None:
    """Draw a bar per metric at each key's place, and the line of no change."""
    for side, (metric, (_, colour)) in zip((-0.2, 0.2), METRICS.items(), strict=True):
        places, intervals = [], []
        for place, key in enumerate(keys):
            if key in changes[metric]:
                places.append(place + side)
                intervals.append(changes[metric][key])
        draw_bars(panel, np.array(places), intervals, 0.38, [colour] * len(places))
    panel.axhline(0, color="black", linewidth=0.8)


def finish_changes(figure: Figure, results: Sequence[Result], note: str) -> None:
    """Label panels of `draw_changes`, with a legend above and a caption below them."""
    figure.axes[0].set_ylabel("change (percentage points)")
    add_legend(figure, [Patch(facecolor=colour, label=name) for name, colour in METRICS.values()])
    add_caption(figure, results, note)


def _panels(count: int) -> tuple[Figure, Sequence[Axes]]:
    figure = new_figure(max(5.0, 3.2 * count + 0.6), 3.9)
    return figure, list(figure.subplots(1, count, sharey=True, squeeze=False)[0])


def axis_label(row: Result) -> str:
    """Return the axis label: the varied option, or the world's name for its horizon."""
    if row.axis != "horizon":
        return row.axis
    try:
        world = load_world(gymnasium.spec(resolve(row.world)).kwargs["world"])
    except ValueError:  # the world is not registered in this process
        return "task horizon"
    return f"task horizon\n({world.horizon_unit})"


def _draw_arm(panel: Axes, rows: Sequence[Result], arm: str) -> None:
    horizons = sorted({row.horizon for row in rows})
    if arm:
        bare = summarize(rows, ("arm", "horizon"), "success")
        reference = [100 * bare["", h].value if ("", h) in bare else np.nan for h in horizons]
        panel.plot(horizons, reference, color="#999999", linewidth=1, linestyle=":", zorder=1)
    for metric, style in _LINES.items():
        rates = summarize(rows, ("arm", "horizon"), metric)
        own = [horizon for horizon in horizons if (arm, horizon) in rates]
        if own:
            draw_line(panel, own, [rates[arm, horizon] for horizon in own], style, alpha=0.18)
    panel.set_xscale("log", base=2)
    set_ticks(panel, horizons, map(str, horizons))
    panel.set_ylim(-5, 105)


def set_ticks(panel: Axes, places: Sequence[float], labels: Iterable[str]) -> None:
    """Set the only ticks of a logarithmic axis, and add a grid."""
    panel.set_xticks(places, list(labels))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.grid(alpha=0.3)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches, whose layout avoids overlaps."""
    return Figure(figsize=(width, height), layout="constrained")


def add_line_legend(figure: Figure, styles: Mapping[str, Mapping[str, Any]], **marker: Any) -> None:
    """Add a legend of lines, by name, to the right of the panels."""
    handles = [Line2D([], [], label=name, **marker, **style) for name, style in styles.items()]
    figure.legend(handles=handles, loc="outside right center")


def add_legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """Add a legend above the panels, with as many columns as fit."""
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    for columns in range(len(handles), 0, -1):
        legend = figure.legend(handles=handles, loc="outside upper center", ncols=columns)
        if legend.get_window_extent(renderer).width <= figure.bbox.width:
            return
        legend.remove()


def _add_legend_of_metrics(figure: Figure, *, compared: bool) -> None:
    handles: list[Artist] = [
        Line2D([], [], label=METRICS[metric][0], **style) for metric, style in _LINES.items()
    ]
    if compared:
        without = "success rate without oracles"
        handles.append(Line2D([], [], color="#999999", linewidth=1, linestyle=":", label=without))
    add_legend(figure, handles)


def add_caption(figure: Figure, results: Sequence[Result], note: str = "") -> None:
    """Add a caption with the policy, the number of instances, remarks and a note."""
    results = as_results(results)
    counts, samples = [], []
    idle: dict[str, None] = {}
    for rows in group_by(results, *CELL).values():
        counts.append(len({row.seed for row in rows}))
        samples.append(len(rows) // counts[-1])
        idle |= dict.fromkeys(idle_wrappers(rows))
    each = f", {_span(samples)} samples each" if max(samples) > 1 else ""
    parts = []
    if models := dict.fromkeys((row.policy, row.model) for row in results if row.policy):
        names = [f"{name} ({model})" if model else name for name, model in models]
        parts.append(f"policy: {', '.join(names)}")
    parts.append(f"n = {_span(counts)} instances per world, size and arm{each}; 95 % intervals")
    lacking = Counter((row.world, row.arm, row.context) for row in results.missing)
    for (world, arm, context), count in lacking.most_common(_NAMED):
        name = f"{world} {arm or 'none'}" + (f" {context}" if context != "none" else "")
        parts.append(f"{name} lacks {count} episodes")
    if len(lacking) > _NAMED:
        parts.append(f"{len(results.missing)} episodes are missing in all")
    if idle:
        parts.append(f"{', '.join(idle)} never acted in some cells")
    if over := sum(row.over_window for row in results):
        parts.append(f"{over} episodes outgrew the window")
    if unreadable := sum(row.unreadable for row in results):
        share = unreadable / sum(row.replies for row in results)
        parts.append(f"{share:.1%} of the replies are unreadable")
    caption = "; ".join([*parts, note] if note else parts)
    lines = wrap(caption, round(14 * figure.get_figwidth()))
    figure.supxlabel("\n".join(lines), fontsize="small")


def _span(counts: Sequence[int]) -> str:
    fewest, most = min(counts), max(counts)
    return str(most) if fewest == most else f"{fewest} to {most}"


def draw_line(
    panel: Axes,
    places: Sequence[float],
    intervals: Sequence[Interval],
    style: Mapping[str, Any],
    alpha: float = 0.1,
    scale: float = 100,
) -> None:
    """Draw shares in %, or other means times `scale`, as a line with an interval band."""
    value, low, high = _ends(intervals, scale)
    panel.plot(places, value, **style)
    if len(places) == 1:  # a band would have no width
        panel.vlines(places, low, high, color=style["color"])
    else:
        panel.fill_between(places, low, high, color=style["color"], alpha=alpha, linewidth=0)


def draw_bars(
    panel: Axes,
    places: np.ndarray,
    intervals: Sequence[Interval],
    width: float,
    colours: Sequence[str],
) -> None:
    """Draw shares or differences as bars in %, with intervals."""
    values, errors = _bounds(intervals)
    panel.bar(places, values, width, color=list(colours), zorder=2)
    panel.errorbar(places, values, errors, fmt="none", ecolor="#444444", capsize=3, zorder=3)
    panel.grid(axis="y", alpha=0.3, zorder=0)


def _bounds(intervals: Sequence[Interval]) -> tuple[np.ndarray, np.ndarray]:
    """Return values in %, and the lengths of the error bars."""
    value, low, high = _ends(intervals)
    return value, np.maximum([value - low, high - value], 0)


def _ends(intervals: Sequence[Interval], scale: float = 100) -> np.ndarray:
    """Return values, lower ends and upper ends as rows, times `scale`."""
    ends = [(each.value, each.low, each.high) for each in intervals]
    return scale * np.array(ends).reshape(-1, 3).T


def name_arms(panel: Axes, arms: Sequence[str]) -> None:
    """Label an axis with the arms, vertically if there are more than the paper's."""
    panel.set_xticks(
        range(len(arms)),
        [arm or "none" for arm in arms],
        rotation=90 if len(arms) > len(ARMS) else 0,
    )


def save(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PNG, SVG and PDF, and return the files.

    Dates, versions and random ids are left out, so equal figures are equal files.
    """
    metadata: Mapping[str, Mapping[str, Any]] = {
        ".png": {"Software": None},
        ".svg": {"Date": None, "Creator": None},
        ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    }
    FigureCanvasAgg(figure)
    # Many venues refuse Type 3 fonts, and text must stay selectable.
    with rc_context(
        {
            "svg.hashsalt": path.stem,
            "text.parse_math": False,
            "pdf.fonttype": 42,
            "svg.fonttype": "none",
        }
    ):
        _make_drawable(figure)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the layout is final
        for ending, stamps in metadata.items():
            with replacing(path.with_suffix(ending)) as file:
                figure.savefig(file, format=ending[1:], dpi=_DPI, metadata=dict(stamps))
    return [path.with_suffix(ending) for ending in metadata]


def _make_drawable(figure: Figure) -> None:
    """Show names as they are: without formulas, and with undrawable characters escaped."""
    for text in figure.findobj(Text):
        text.set_parse_math(False)
        text.set_text(_drawable(text.get_text()))
    for panel in figure.axes:
        for axis in (panel.xaxis, panel.yaxis):
            formatter = axis.get_major_formatter()
            if isinstance(formatter, FuncFormatter):  # it writes the names of ticks again
                labels = formatter.func
                formatter.func = lambda *tick, labels=labels: _drawable(labels(*tick))


def _drawable(text: str) -> str:
    """Escape invisible characters, and those that the font lacks, as in Python source."""
    font = get_font(findfont("DejaVu Sans"))
    shown = []
    for char in text:
        if char == "\n" or (char.isprintable() and font.get_char_index(ord(char))):
            shown.append(char)
        else:
            shown.append(char.encode("unicode_escape").decode("ascii"))
    return "".join(shown)
