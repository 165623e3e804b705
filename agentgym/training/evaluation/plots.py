"""Figures of an ablation, as in LUMINA. This module loads matplotlib, so import it only to draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from agentgym.assemble.registry import resolve
from agentgym.training.evaluation.drawing import (
    SHIFT,
    add_caption,
    add_legend,
    add_line_legend,
    bar_styles,
    bounds,
    draw_bars,
    draw_line,
    fit,
    in_first_column,
    name_rows,
    new_grid,
    panel_width,
    rows_height,
    set_ticks,
    set_title,
)
from agentgym.training.evaluation.intervals import Key, effects, summarize
from agentgym.training.evaluation.missing import Results, as_results
from agentgym.training.evaluation.registry import figure_style
from agentgym.training.evaluation.scoring import Result, group_by, ordered_arms, ordered_contexts
from agentgym.training.evaluation.statistics import NO_DATA, Interval
from agentgym.training.evaluation.tables import INTERVENTIONS, arm_label, context_label
from agentgym.world.world import load_world

METRICS = {"success": ("success rate", "#0072B2"), "step_accuracy": ("step accuracy", "#E69F00")}
_LINES: Mapping[str, Mapping[str, Any]] = {
    "success": {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    "step_accuracy": {"color": "#E69F00", "marker": "X", "linestyle": "--"},
}
_CONTEXT_PANELS = (
    ("success", "success rate (%)", 100, "#0072B2"),
    ("trajectory_tokens", "trajectory length (thousand tokens)", 0.001, "#E69F00"),
)
_FRAGILE = "* the missing episodes could move this rate beyond its interval"


@figure_style()
def contexts_figure(results: Sequence[Result]) -> Figure:
    """Plot success rate and trajectory length by context strategy (LOCA-bench, table 2)."""
    results = as_results(results)
    worlds = group_by(results.everything, "world")
    contexts = ordered_contexts(results.everything)
    names = list(map(context_label, contexts))
    figure, columns = new_grid(len(worlds), 2, rows_height(names))
    for panels, (world, rows) in zip(columns, worlds.items(), strict=True):
        set_title(panels[0], world)
        for panel, (metric, label, scale, colour) in zip(panels, _CONTEXT_PANELS, strict=True):
            rates = summarize(rows, ("context",), metric)
            intervals = [rates.get((context,), NO_DATA) for context in contexts]
            style = {"facecolor": colour, "edgecolor": colour}
            draw_bars(panel, range(len(contexts)), intervals, [style] * len(contexts), scale=scale)
            name_rows(panel, names)
            panel.set_xlabel(fit(label, panel_width(panel)))
    add_caption(figure, results, ("world", "context"))
    return figure


@figure_style()
def horizons_figure(results: Sequence[Result]) -> Figure:
    """Plot success rate and step accuracy against the horizon (figure 3).

    Each world has a column with one panel per arm. With a single horizon, all arms share a panel.
    """
    results = as_results(results)
    if len(group_by(results.everything, "horizon")) == 1:
        return _single_horizon_figure(results)
    worlds = group_by(results.everything, "world")
    arms = ordered_arms(results.everything)
    height = max(0.65, min(1.0, 6 / len(arms)))
    figure, columns = new_grid(len(worlds), len(arms), height)
    for panels, (world, rows) in zip(columns, worlds.items(), strict=True):
        set_title(panels[0], world)
        for panel, arm in zip(panels, arms, strict=True):
            _draw_arm(panel, rows, arm)
            panel.tick_params(labelbottom=panel is panels[-1])
            if in_first_column(panel):
                panel.set_ylabel(fit(arm_label(arm), height))
        panels[-1].set_xlabel(fit(_axis_label(rows[0]), panel_width(panels[-1])))
    figure.supylabel("rate (%)")
    _add_legend_of_metrics(figure, compared="" in arms and len(arms) > 1)
    add_caption(figure, results, ("world", "arm", "horizon"))
    return figure


def _single_horizon_figure(results: Results) -> Figure:
    worlds = group_by(results.everything, "world")
    arms = ordered_arms(results.everything)
    names = list(map(arm_label, arms))
    figure, columns = new_grid(len(worlds), 1, rows_height(names))
    for (panel,), (world, rows) in zip(columns, worlds.items(), strict=True):
        for shift, (metric, style) in zip((-0.15, 0.15), _LINES.items(), strict=True):
            rates = summarize(rows, ("arm",), metric)
            places, intervals = _existing(rates, [(arm,) for arm in arms])
            values, errors = bounds(intervals)
            shifted = [place + shift for place in places]
            panel.errorbar(values, shifted, xerr=errors, **{**style, "linestyle": "none"})
        name_rows(panel, names)
        set_title(panel, f"{world}, size {rows[0].horizon}")
        panel.set(xlabel="rate (%)", xlim=(-3, 103))
        panel.grid(axis="x")
    _add_legend_of_metrics(figure, compared=False)
    add_caption(figure, results, ("world", "arm"))
    return figure


def _existing(
    intervals: Mapping[Key, Interval], keys: Iterable[Key]
) -> tuple[list[int], list[Interval]]:
    """Return the places of the keys that have an interval, and these intervals."""
    places, found = [], []
    for place, key in enumerate(keys):
        if key in intervals:
            places.append(place)
            found.append(intervals[key])
    return places, found


@figure_style()
def interventions_figure(results: Sequence[Result], note: str = "") -> Figure:
    """Draw the effects on success rate and step accuracy by intervention and world (figure 6b)."""
    results = as_results(results)
    changes, letters = _changes(results, "world")
    panels: dict[str, list[Key]] = {}
    for world in group_by(results.everything, "world"):
        panels[world] = [(world, letter) for letter in letters]
    names = [INTERVENTIONS[letter] for letter in letters]
    figure = _draw_changes(changes, panels, names)
    add_caption(figure, results, ("world", "arm"), note)
    return figure


@figure_style()
def arms_figure(results: Sequence[Result]) -> Figure:
    """Draw the success rate of each arm, by world and policy (figures 4 and 5)."""
    results = as_results(results)
    worlds, policies = group_by(results.everything, "world"), results.by("policy")
    arms = ordered_arms(results.everything)
    height = rows_height(list(map(arm_label, arms)))
    figure, columns = new_grid(len(worlds), len(policies), height)
    for panels, (world, own) in zip(columns, worlds.items(), strict=True):
        by_policy = group_by(own, "policy")
        for panel, policy in zip(panels, policies, strict=True):
            _draw_rates(panel, by_policy.get(policy, ()), arms)
            panel.tick_params(labelbottom=panel is panels[-1])
            if len(policies) > 1 and in_first_column(panel):
                panel.set_ylabel(fit(policy, height))
        set_title(panels[0], world)
        panels[-1].set_xlabel("success rate (%)")
    rates = summarize(results, ("policy", "world", "arm"), "success").values()
    fragile = any(rate.fragile for rate in rates)
    add_caption(figure, results, ("world", "arm"), _FRAGILE if fragile else "")
    return figure


def _draw_rates(panel: Axes, rows: Sequence[Result], arms: Sequence[str]) -> None:
    names = list(map(arm_label, arms))
    rates = summarize(rows, ("arm",), "success") if rows else {}
    measured = {key: rate for key, rate in rates.items() if rate.count}
    places, intervals = _existing(measured, [(arm,) for arm in arms])
    styles = bar_styles(names)
    draw_bars(panel, places, intervals, [styles[names[place]] for place in places])
    name_rows(panel, names)
    panel.set(xlim=(0, 103), xticks=(0, 50, 100))
    # Numbers are printed to the right of the panel, where no bar or interval can cover them.
    beside = panel.get_yaxis_transform()
    for place, interval in zip(places, intervals, strict=True):
        text = f"{100 * interval.value:.0f}{'*' * interval.fragile}"
        panel.text(1.03, place, text, transform=beside, va="center", fontsize=7)


@figure_style()
def levelled_figure(results: Sequence[Result], note: str = "") -> Figure:
    """Draw intervention effects by policy, averaged over worlds (figure 6a)."""
    results = as_results(results)
    policies = list(results.by("policy"))
    changes, letters = _changes(results, "policy")
    panels: dict[str, list[Key]] = {}
    for letter in letters:
        panels[INTERVENTIONS[letter]] = [(name, letter) for name in policies]
    figure = _draw_changes(changes, panels, policies)
    add_caption(figure, results, ("arm",), note)
    return figure


def _changes(results: Results, field: str) -> tuple[dict[str, dict[Key, Interval]], list[str]]:
    """Return each metric's effects by `field` and intervention, and the interventions in order."""
    changes = {metric: effects(results, (field,), metric) for metric in METRICS}
    found = {key[1] for key in changes["success"]}
    return changes, [letter for letter in INTERVENTIONS if letter in found]


def _draw_changes(
    changes: Mapping[str, Mapping[Key, Interval]],
    panels: Mapping[str, Sequence[Key]],
    names: Sequence[str],
) -> Figure:
    """Draw a panel for each title in `panels`, with a named row for each of the title's keys."""
    figure, columns = new_grid(max(1, len(panels)), 1, rows_height(names, 2))
    for (panel,), (title, keys) in zip(columns, panels.items(), strict=False):
        set_title(panel, title)
        panel.axvline(0, color=rcParams["axes.edgecolor"], linewidth=0.6)
        for side, (metric, (_, colour)) in zip((-0.2, 0.2), METRICS.items(), strict=True):
            places, intervals = _existing(changes[metric], keys)
            shifted = [place + side for place in places]
            style = {"facecolor": colour, "edgecolor": colour}
            draw_bars(panel, shifted, intervals, [style] * len(places), 0.34)
        name_rows(panel, names)
        panel.set_xlabel(fit("change (percentage points)", panel_width(panel)))
    limits = np.array([panel.get_xlim() for panel in figure.axes])
    for panel in figure.axes:
        panel.set_xlim(limits.min(), limits.max())
    add_legend(figure, [Patch(facecolor=colour, label=name) for name, colour in METRICS.values()])
    return figure


def _axis_label(row: Result) -> str:
    if row.axis != "horizon":
        return row.axis
    try:
        world = load_world(gymnasium.spec(resolve(row.world)).kwargs["world"])
    except ValueError:  # the world is not registered
        return "task horizon"
    return f"task horizon ({world.horizon_unit})"


def _draw_arm(panel: Axes, rows: Sequence[Result], arm: str) -> None:
    horizons = sorted(group_by(rows, "horizon"))
    if arm:
        bare = summarize(rows, ("arm", "horizon"), "success")
        reference = [100 * bare.get(("", h), NO_DATA).value for h in horizons]
        panel.plot(horizons, reference, color="#999999", linestyle=":", zorder=1)
    for side, (metric, style) in zip((-1, 1), _LINES.items(), strict=True):
        rates = summarize(rows, ("arm", "horizon"), metric)
        own = [horizon for horizon in horizons if (arm, horizon) in rates]
        if own:
            draw_line(panel, own, [rates[arm, each] for each in own], style, shift=side * SHIFT)
    panel.set_xscale("log", base=2)
    set_ticks(panel, horizons, map(str, horizons))
    panel.set(ylim=(-8, 108), yticks=(0, 50, 100))


def _add_legend_of_metrics(figure: Figure, *, compared: bool) -> None:
    styles = {METRICS[metric][0]: style for metric, style in _LINES.items()}
    if compared:
        styles["success rate without hints"] = {"color": "#999999", "linestyle": ":"}
    add_line_legend(figure, styles)
