"""The style of all figures. This module loads matplotlib, so import it only to draw."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import Any, cast

import numpy as np
from matplotlib import rc_context, rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.gridspec import SubplotSpec
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator
from matplotlib.transforms import ScaledTranslation

from agentgym.oracles import ARMS
from agentgym.training.evaluation.missing import Results, as_results, idle_cells
from agentgym.training.evaluation.registry import figure_style
from agentgym.training.evaluation.scoring import (
    CELL,
    Result,
    distinct,
    group_by,
    ordered_arms,
    ordered_contexts,
)
from agentgym.training.evaluation.statistics import Interval
from agentgym.training.evaluation.tables import arm_label, context_label
from agentgym.training.rollout.storage import replacing

# Figure widths in inches, for one and two columns of a printed page.
COLUMN, PAGE = 3.4, 6.9
# row name width, inches
_NAMES = 1.1
# Average characters per inch at 7 points.
_PER_INCH = 15
_LINE = 0.14  # line height in inches

# The Okabe-Ito palette is safe for colour-blind readers.
_COLOURS = ("#777777", "#0072B2", "#D55E00", "#009E73", "#56B4E9", "#CC79A7", "#E69F00")
_MARKERS = "osD^vPX<>ph*"
# Styles with the same colour differ in dashes or hatches.
_DASHES = ("-", "--", ":", "-.")
_HATCHES = ("", "//////", "......", "xxxxxx")
# Offset between neighbouring lines, in points.
SHIFT = 1.5
_POOLED = {"horizon": "sizes", "arm": "arms", "context": "context strategies", "world": "worlds"}
# Maximum number of cells named in a caption.
_NAMED = 4
_DPI = 200


def line_styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return a distinct colour, marker and dashes for each name; an arm's style never changes."""
    styles = {}
    for name, place in _places(names).items():
        styles[name] = {
            "color": _COLOURS[place % len(_COLOURS)],
            "marker": _MARKERS[place % len(_MARKERS)],
            "linestyle": _DASHES[place // len(_COLOURS) % len(_DASHES)],
        }
    return styles


def bar_styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return a distinct colour and hatch for each name, as in `line_styles`."""
    styles = {}
    for name, place in _places(names).items():
        colour = _COLOURS[place % len(_COLOURS)]
        hatch = _HATCHES[place // len(_COLOURS) % len(_HATCHES)]
        # Matplotlib draws hatches in the edge colour, so the face must be paler.
        face = to_rgba(colour, 0.2 if hatch else 1)
        styles[name] = {"facecolor": face, "edgecolor": colour, "hatch": hatch}
    return styles


def _places(names: Sequence[str]) -> dict[str, int]:
    order = list(dict.fromkeys(names))
    arms = list(map(arm_label, ARMS))
    if not set(arms).isdisjoint(names):
        order = list(dict.fromkeys([*arms, *names]))
    return {name: order.index(name) for name in names}


def line_names(rows: Sequence[Result]) -> dict[tuple[str, str], str]:
    """Label each pair of arm and context, omitting what all pairs share."""
    arms, contexts = ordered_arms(rows), ordered_contexts(rows)
    there = distinct(rows, "arm", "context")
    names = {}
    for arm, context in product(arms, contexts):
        words = []
        if len(arms) > 1 or len(contexts) == 1:
            words.append(arm_label(arm))
        if len(contexts) > 1:
            words.append(context_label(context))
        if (arm, context) in there:
            names[arm, context] = ", ".join(words)
    return names


def set_ticks(panel: Axes, places: Sequence[float], labels: Iterable[str]) -> None:
    """Replace the ticks of a logarithmic axis."""
    panel.set_xticks(places, list(labels))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.margins(x=0.1)
    panel.grid()


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; the width and height are in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def new_grid(
    count: int, rows: int, height: float, most: int = 5, sharey: bool = True
) -> tuple[Figure, list[Sequence[Axes]]]:
    """Return a figure that is one or two page columns wide, with `count` columns of `rows` panels.

    Each panel is `height` inches high, and each row has at most `most` columns.
    """
    blocks = ceil(count / most)
    across = ceil(count / blocks)
    total = blocks * (rows * (height + 0.08) + 0.6)
    figure = new_figure(COLUMN if across == 1 else PAGE, total)
    axes = figure.subplots(blocks * rows, across, sharey=sharey, squeeze=False)
    columns: list[Sequence[Axes]] = []
    for block, column in product(range(blocks), range(across)):
        columns.append(list(axes[block * rows : (block + 1) * rows, column]))
    for panel in chain.from_iterable(columns[count:]):
        panel.remove()
    return figure, columns[:count]


def panel_width(panel: Axes) -> float:
    """Return a panel's width in inches."""
    columns = _place(panel).get_gridspec().ncols
    return float((_figure(panel).get_figwidth() - _NAMES) / columns)


def in_first_column(panel: Axes) -> bool:
    """Report whether a panel is at its figure's left edge."""
    return bool(_place(panel).is_first_col())


def _place(panel: Axes) -> SubplotSpec:
    return cast(SubplotSpec, panel.get_subplotspec())


def _figure(panel: Axes) -> Figure:
    return cast(Figure, panel.get_figure())


def fit(text: str, inches: float) -> str:
    """Wrap text to a width in inches, and escape characters that cannot be drawn. A single long
    name breaks before capital letters.
    """
    width = max(7, round(_PER_INCH * inches))
    text = _drawable(text).replace(" %", "\u00a0%")  # keep a line from starting with %
    if " " in text:
        return fill(text, width).replace("\u00a0", " ")
    return fill(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text), width).replace(" ", "")


def set_title(panel: Axes, text: str) -> None:
    """Set a panel's title, broken into lines."""
    panel.set_title(fit(text, 0.85 * panel_width(panel)))


def rows_height(names: Sequence[str], least: int = 1) -> float:
    """Return the height in inches of a panel with these row names."""
    lines = least
    for name in names:
        lines = max(lines, fit(name, _NAMES).count("\n") + 1)
    return (lines * _LINE + 0.08) * max(len(names), 2)


def name_rows(panel: Axes, names: Sequence[str]) -> None:
    """Name a panel's rows from top to bottom."""
    panel.set_yticks(range(len(names)), [fit(name, _NAMES) for name in names])
    panel.set_ylim(max(len(names), 1) - 0.5, -0.5)


def add_legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """Add a legend above the panels, and make space for it."""
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    for columns in range(len(handles), 0, -1):
        legend = figure.legend(handles=handles, loc="outside upper center", ncols=columns)
        for text in legend.get_texts():
            text.set_text(_drawable(text.get_text()))
        box = legend.get_window_extent(renderer)
        if box.width <= figure.bbox.width or columns == 1:
            figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)
            return
        legend.remove()


def add_line_legend(figure: Figure, styles: Mapping[str, Mapping[str, Any]]) -> None:
    """Add a legend of lines by name."""
    add_legend(figure, [Line2D([], [], label=name, **style) for name, style in styles.items()])


def add_caption(
    figure: Figure, results: Sequence[Result], shown: Sequence[str], note: str = ""
) -> None:
    """Add a caption: policy, number of instances, averaged fields, missing episodes and a note.

    The figure averages over all fields of `Result` except the policy and `shown`.
    """
    results = as_results(results)
    parts = [_policies(results), _sample_sizes(results)]
    if pooled := _pooled(results, shown):
        parts.append(f"means over {', '.join(pooled)}")
    parts += _lacking(results)
    if idle := idle_cells(results):
        parts.append(f"{', '.join(idle)} never acted in some cells")
    if over := sum(row.over_window for row in results):
        parts.append(f"{over} episodes outgrew the window")
    if unreadable := sum(row.unreadable for row in results):
        share = unreadable / sum(row.replies for row in results)
        parts.append(f"{share:.1%} of the replies are unreadable")
    add_note(figure, "; ".join(filter(None, [*parts, note])))


def _policies(results: Results) -> str:
    names = []
    for name, model in distinct(results, "policy", "model"):
        if name:
            names.append(f"{name} ({model})" if model else name)
    return f"policy: {', '.join(names)}" if names else ""


def _sample_sizes(results: Results) -> str:
    counts, samples = [], []
    for rows in group_by(results, *CELL).values():
        counts.append(len(distinct(rows, "seed")))
        samples.append(len(rows) // counts[-1])
    each = f", {_span(samples)} samples each" if max(samples) > 1 else ""
    return f"n = {_span(counts)} instances per world, size and arm{each}; 95% intervals"


def _lacking(results: Results) -> Iterator[str]:
    lacking = Counter((row.world, row.arm, row.context) for row in results.missing)
    for (world, arm, context), count in lacking.most_common(_NAMED):
        label = arm_label(arm)
        if context != "none":
            label += f", {context_label(context)}"
        yield f"{world} ({label}) lacks {count} episodes"
    if len(lacking) > _NAMED:
        yield f"{len(results.missing)} episodes are missing in all"


@figure_style()
def add_note(figure: Figure, text: str) -> None:
    """Add text below the panels, and make space for it."""
    lines = fit(text, figure.get_figwidth())
    figure.supxlabel(lines)
    figure.set_figheight(figure.get_figheight() + _LINE * (lines.count("\n") + 1))


def _pooled(results: Results, shown: Sequence[str]) -> list[str]:
    parts = []
    for field, name in _POOLED.items():
        within = ["policy"] if field == "world" else ["policy", "world"]
        groups = group_by(results, *within).values()
        most = max(len(distinct(rows, field)) for rows in groups)
        if field in shown or most == 1:
            continue
        text = f"{most} {name}"
        if field == "horizon":
            sizes = distinct(results, "horizon")
            text += f" ({min(sizes)} to {max(sizes)})"
        parts.append(text)
    return parts


def _span(counts: Sequence[int]) -> str:
    fewest, most = min(counts), max(counts)
    return str(most) if fewest == most else f"{fewest} to {most}"


def draw_line(
    panel: Axes,
    places: Sequence[float],
    intervals: Sequence[Interval],
    style: Mapping[str, Any],
    scale: float = 100,
    shift: float = 0,
) -> None:
    """Plot scaled means as a line with error bars, moved right by `shift` points."""
    values, errors = bounds(intervals, scale)
    beside = ScaledTranslation(shift / 72, 0, _figure(panel).dpi_scale_trans)
    for part in panel.errorbar(places, values, errors, **style).get_children():
        part.set_transform(panel.transData + beside)


def shifts(count: int) -> list[float]:
    """Return horizontal shifts, in points, that keep all lines' error bars visible."""
    return [SHIFT * (place - (count - 1) / 2) for place in range(count)]


def draw_bars(
    panel: Axes,
    places: Sequence[float],
    intervals: Sequence[Interval],
    styles: Sequence[Mapping[str, Any]],
    height: float = 0.6,
    scale: float = 100,
) -> None:
    """Plot scaled means as horizontal bars with error bars."""
    values, errors = bounds(intervals, scale)
    for place, value, style in zip(places, values, styles, strict=True):
        panel.barh(place, value, height, **style)
        if value == 0:
            ends = place - height / 2, place + height / 2
            panel.vlines(0, *ends, color=style["edgecolor"], linewidth=2, zorder=3, clip_on=False)
    ink = rcParams["axes.edgecolor"]
    panel.errorbar(values, places, xerr=errors, fmt="none", ecolor=ink, elinewidth=0.8)
    panel.grid(axis="x")


def bounds(intervals: Sequence[Interval], scale: float = 100) -> tuple[np.ndarray, np.ndarray]:
    """Return the scaled values and the lengths of their error bars."""
    ends = [(each.value, each.low, each.high) for each in intervals]
    value, low, high = scale * np.array(ends).reshape(-1, 3).T
    return value, np.maximum([value - low, high - value], 0)


@figure_style()
def save(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PNG, SVG and PDF, without dates, versions or random ids."""
    metadata: Mapping[str, Mapping[str, Any]] = {
        ".png": {"Software": None},
        ".svg": {"Date": None, "Creator": None},
        ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    }
    FigureCanvasAgg(figure)
    paths = list(map(path.with_suffix, metadata))
    with rc_context({"svg.hashsalt": path.stem}):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the layout is final
        for place, stamps in zip(paths, metadata.values(), strict=True):
            with replacing(place) as file:
                figure.savefig(file, format=place.suffix[1:], dpi=_DPI, metadata=dict(stamps))
    return paths


def _drawable(text: str) -> str:
    font = get_font(findfont("DejaVu Sans"))
    shown = []
    for char in text:
        if char == "\n" or (char.isprintable() and font.get_char_index(ord(char))):
            shown.append(char)
        else:
            shown.append(char.encode("unicode_escape").decode("ascii"))
    return "".join(shown)
