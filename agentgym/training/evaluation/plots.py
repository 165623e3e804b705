"""Figures of an ablation, in the manner of LUMINA's figures 3, 4 and 6, and the pieces that papers
draw theirs with.

Matplotlib is imported here, so this module is imported where a figure is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from agentgym.oracles import ARMS
from agentgym.training.evaluation.intervals import Interval, effects, summarize
from agentgym.training.evaluation.scoring import Result, ordered_contexts
from agentgym.training.rollout.storage import replacing

# The palette of Okabe and Ito, which readers with any colour vision can tell apart.
_COLOURS = dict(
    zip(ARMS, ("#555555", "#0072B2", "#D55E00", "#009E73", "#56B4E9", "#CC79A7"), strict=True)
)
_MARKERS = dict(zip(ARMS, "osD^vP", strict=True))
_INTERVENTIONS = {"P": "plan", "S": "state", "H": "history"}
_METRICS = {"success": ("success rate", "#0072B2"), "step_accuracy": ("step accuracy", "#E69F00")}
_CONTEXT_PANELS = (
    ("success", "success rate (%)", 100, "#0072B2"),
    ("trajectory_tokens", "trajectory length (thousand tokens)", 0.001, "#E69F00"),
)
_SIZES = {"horizon": "task horizon (turns of an optimal policy)"}
_DPI = 150
"""Sharp enough for a page of print, at a tenth of a megabyte a figure."""


def line_style(place: int, name: str) -> dict[str, Any]:
    """Return the colour, marker and dashes of a line: those of the arm that it is named after, else
    of its place.
    """
    arm = "" if name == "none" else name
    arm = arm if arm in _COLOURS else ARMS[place % len(ARMS)]
    return {
        "color": _COLOURS[arm],
        "marker": _MARKERS[arm],
        "linestyle": "--" if place >= len(ARMS) else "-",
    }


def contexts_figure(results: Sequence[Result]) -> Figure:
    """Draw success rate and trajectory length of each context strategy, a column of panels per
    world (LOCA-bench, table 2).
    """
    worlds = _worlds(results)
    contexts = ordered_contexts(results)
    places = np.arange(len(contexts))[::-1]
    figure = Figure(
        figsize=(3.2 * len(worlds) + 1.4, 1.6 + 0.5 * len(contexts)), layout="constrained"
    )
    axes = figure.subplots(2, len(worlds), sharex="row", sharey=True, squeeze=False)
    for column, world in enumerate(worlds):
        rows = [row for row in results if row.world == world]
        for line, (metric, name, scale, colour) in enumerate(_CONTEXT_PANELS):
            panel = axes[line, column]
            rates = summarize(rows, ("context",), metric)
            missing = Interval(
                np.nan, np.nan, np.nan
            )  # a world need not have been played in each context
            intervals = [rates.get((context,), missing) for context in contexts]
            value, low, high = (
                scale * np.array([getattr(i, part) for i in intervals])
                for part in ("value", "low", "high")
            )
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
    return figure


def horizons_figure(results: Sequence[Result]) -> Figure:
    """Draw success rate and step accuracy against the horizon, a panel per world and metric, a line
    per arm (figure 3).
    """
    worlds = _worlds(results)
    figure = Figure(figsize=(3.6 * len(worlds) + 1.4, 6.4), layout="constrained")
    axes = figure.subplots(2, len(worlds), sharex="col", sharey=True, squeeze=False)
    for column, world in enumerate(worlds):
        rows = [row for row in results if row.world == world]
        for line, (metric, (name, _)) in enumerate(_METRICS.items()):
            _draw_lines(axes[line, column], rows, metric)
            axes[line, 0].set_ylabel(f"{name} (%)")
        axes[0, column].set_title(world)
        axes[1, column].set_xlabel(_SIZES.get(rows[0].axis, rows[0].axis))
    figure.legend(handles=_arm_handles(results), title="oracles", loc="outside right center")
    return figure


def arms_figure(results: Sequence[Result]) -> Figure:
    """Draw the success rate of each arm, averaged over horizons, a panel per world (figure 4)."""
    worlds = _worlds(results)
    figure, axes = _panels(len(worlds))
    for panel, world in zip(axes, worlds, strict=True):
        rates = summarize([row for row in results if row.world == world], ("arm",), "success")
        arms = [arm for arm in ARMS if (arm,) in rates]
        intervals = [rates[arm,] for arm in arms]
        places = np.arange(len(arms))
        _draw_bars(panel, places, intervals, 0.7, [_COLOURS[arm] for arm in arms])
        panel.set_xticks(places, [arm or "none" for arm in arms])
        panel.set(title=world, xlabel="oracles", ylim=(0, 112))
        for place, interval in zip(places, intervals, strict=True):
            above = (place, 100 * interval.high)
            panel.annotate(
                f"{100 * interval.value:.0f}",
                above,
                (0, 4),
                textcoords="offset points",
                ha="center",
            )
    axes[0].set_ylabel("success rate (%)")
    axes[0].set_yticks(range(0, 101, 20))
    return figure


def interventions_figure(results: Sequence[Result]) -> Figure:
    """Draw the change of success rate and step accuracy by each intervention, a group of bars per
    world (figure 6).
    """
    worlds = _worlds(results)
    figure, axes = _panels(len(worlds))
    for panel, world in zip(axes, worlds, strict=True):
        rows = [row for row in results if row.world == world]
        for side, (metric, (_, colour)) in zip((-0.2, 0.2), _METRICS.items(), strict=True):
            changes = effects(rows, (), metric)
            letters = [letter for letter in _INTERVENTIONS if (letter,) in changes]
            intervals = [changes[letter,] for letter in letters]
            _draw_bars(
                panel, np.arange(len(letters)) + side, intervals, 0.38, [colour] * len(letters)
            )
            panel.set_xticks(range(len(letters)), [_INTERVENTIONS[letter] for letter in letters])
        panel.axhline(0, color="black", linewidth=0.8)
        panel.set(title=world, xlabel="intervention")
    axes[0].set_ylabel("change (percentage points)")
    handles = [Patch(facecolor=colour, label=name) for name, colour in _METRICS.values()]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _panels(count: int) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure with a row of panels that share their vertical axis."""
    figure = Figure(figsize=(3.2 * count + 0.6, 3.5), layout="constrained")
    return figure, list(figure.subplots(1, count, sharey=True, squeeze=False)[0])


def _arm_handles(results: Sequence[Result]) -> list[Line2D]:
    """Return legend entries for the arms of any world: a world need not have played them all."""
    present = {row.arm for row in results}
    arms = [arm for arm in ARMS if arm in present]
    return [
        Line2D([], [], color=_COLOURS[arm], marker=_MARKERS[arm], markersize=5, label=arm or "none")
        for arm in arms
    ]


def _draw_lines(panel: Axes, rows: Sequence[Result], metric: str) -> None:
    rates = summarize(rows, ("arm", "horizon"), metric)
    horizons = sorted({row.horizon for row in rows})
    dashes = "-" if metric == "success" else "--"
    for number, arm in enumerate(ARMS):
        own = [horizon for horizon in horizons if (arm, horizon) in rates]
        if own:
            # Arms at a single horizon stand side by side, or they would hide one another.
            shift = 2 ** (0.1 * number - 0.25) if len(horizons) == 1 else 1
            style = {
                "color": _COLOURS[arm],
                "marker": _MARKERS[arm],
                "linestyle": dashes,
                "markersize": 5,
                "label": arm or "none",
            }
            draw_line(
                panel,
                [shift * horizon for horizon in own],
                [rates[arm, horizon] for horizon in own],
                style,
            )
    panel.set_xscale("log", base=2)
    panel.set_xticks(horizons, [str(horizon) for horizon in horizons])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_ylim(-3, 103)
    panel.grid(alpha=0.3)


def draw_line(
    panel: Axes,
    places: Sequence[float],
    intervals: Sequence[Interval],
    style: Mapping[str, Any],
    alpha: float = 0.1,
) -> None:
    """Draw a line through shares, in %, in a band of their intervals."""
    value, low, high = (
        [100 * getattr(each, part) for each in intervals] for part in ("value", "low", "high")
    )
    panel.plot(places, value, **style)
    if len(places) == 1:  # a band would have no width
        panel.vlines(places, low, high, color=style["color"])
    else:
        panel.fill_between(places, low, high, color=style["color"], alpha=alpha, linewidth=0)


def _draw_bars(
    panel: Axes,
    places: np.ndarray,
    intervals: Sequence[Interval],
    width: float,
    colours: Sequence[str],
) -> None:
    values = [100 * interval.value for interval in intervals]
    errors = [
        [100 * (i.value - i.low) for i in intervals],
        [100 * (i.high - i.value) for i in intervals],
    ]
    panel.bar(places, values, width, color=list(colours), zorder=2)
    panel.errorbar(
        places, values, np.maximum(errors, 0), fmt="none", ecolor="#444444", capsize=3, zorder=3
    )
    panel.grid(axis="y", alpha=0.3, zorder=0)


def _worlds(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(row.world for row in results))


def save(figure: Figure, path: Path) -> None:
    """Write a PNG without the version stamp that would make equal figures differ."""
    FigureCanvasAgg(figure)
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})
