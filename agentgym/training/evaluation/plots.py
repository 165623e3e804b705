"""Figures of an ablation, in the manner of LUMINA's figures 3, 4 and 6 and TaskWeaver's 3 and 4, and of a training run."""

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
from agentgym.training.evaluation.bootstrap import Interval, effects, summarize
from agentgym.training.evaluation.scoring import Result, ordered_contexts
from agentgym.training.papers.lore import Bin, curve, lines
from agentgym.training.rl.learning_curve import Point

# The palette of Okabe and Ito, which readers with any colour vision can tell apart.
_COLOURS = dict(zip(ARMS, ("#555555", "#0072B2", "#D55E00", "#009E73", "#56B4E9", "#CC79A7"), strict=True))
_MARKERS = dict(zip(ARMS, "osD^vP", strict=True))
_INTERVENTIONS = {"P": "plan", "S": "state", "H": "history"}
_METRICS = {"success": ("success rate", "#0072B2"), "step_accuracy": ("step accuracy", "#E69F00")}
_CONTEXT_PANELS = (
    ("success", "success rate (%)", 100, "#0072B2"),
    ("trajectory_tokens", "trajectory length (thousand tokens)", 0.001, "#E69F00"),
)
_PHASES = {"cloning": ("cloning", "#EEEEEE"), "hints": ("with hints", "#DDDDDD"), "rl": ("reinforcement learning", "#FFFFFF")}
_SAMPLING = {"greedy": ("most probable tokens", "#0072B2", "o"), "sampled": ("sampled, temperature 1", "#D55E00", "s")}
_LEVELS = {"chance": ("random legal play", "#555555", ":"), "teacher": ("teacher", "#009E73", "--")}
_LORE = {"operations": "number of operations", "height": "height: longest chain of dependencies"}
_SIZES = {"horizon": "task horizon (turns of an optimal policy)"}
_TICKS = tuple(digit * 10**power for power in range(6) for digit in (1, 2, 5))
_DPI = 150


def plot_horizons(results: Sequence[Result], path: Path) -> None:
    """Success rate and step accuracy against the task horizon, a panel per world and metric, a line per arm (figure 3)."""
    _save(horizons_figure(results), path)


def plot_arms(results: Sequence[Result], path: Path) -> None:
    """Success rate of each arm, averaged over horizons, a panel per world (figure 4)."""
    _save(arms_figure(results), path)


def plot_interventions(results: Sequence[Result], path: Path) -> None:
    """Change of success rate and step accuracy by each intervention, a group of bars per world (figure 6)."""
    _save(interventions_figure(results), path)


def plot_contexts(results: Sequence[Result], path: Path) -> None:
    """Success rate and trajectory length of each context strategy, a column of panels per world (LOCA-bench, table 2)."""
    _save(contexts_figure(results), path)


def plot_lore(results: Sequence[Result], path: Path) -> None:
    """Accuracy against operations and height in the worlds of LORE, a column of panels per world (TaskWeaver, figures 3 and 4)."""
    _save(lore_figure(results), path)


def plot_heatmap(cells: Mapping[tuple[str, str, int], float], path: Path) -> None:
    """Mean scores by task and length, a panel for each setting (AgentLongBench, figures 3 to 6)."""
    _save(heatmap_figure(cells), path)


def heatmap_figure(cells: Mapping[tuple[str, str, int], float]) -> Figure:
    """The figure that `plot_heatmap` writes.

    Args:
        cells: The mean score, in [0, 1], by setting, task and length in tokens; tasks are in the order of the mapping.
    """
    settings, tasks = list(dict.fromkeys(key[0] for key in cells)), list(dict.fromkeys(key[1] for key in cells))
    lengths = sorted({key[2] for key in cells})
    figure = Figure(figsize=(3.2 + (0.6 * len(lengths) + 0.4) * len(settings), 1.4 + 0.4 * len(tasks)), layout="constrained")
    axes = figure.subplots(1, len(settings), sharey=True, squeeze=False)[0]
    for panel, setting in zip(axes, settings, strict=True):
        values = np.array([[100 * cells.get((setting, task, length), np.nan) for length in lengths] for task in tasks])
        image = panel.imshow(values, vmin=0, vmax=100, cmap="RdYlGn", aspect="auto", alpha=0.75)
        for row, column in np.argwhere(~np.isnan(values)):
            panel.text(column, row, f"{values[row, column]:.1f}", ha="center", va="center", fontsize=8)
        panel.set_xticks(range(len(lengths)), [_short(length) for length in lengths])
        panel.set_yticks(range(len(tasks)), tasks)
        panel.set(title=setting, xlabel="tokens")
    figure.colorbar(image, ax=axes.tolist(), label="score (%)")
    return figure


def _short(tokens: int) -> str:
    """A number of tokens as the benchmark writes it: `32k`, `1M`."""
    for unit, size in (("M", 2**20), ("k", 2**10)):
        if tokens % size == 0:
            return f"{tokens // size}{unit}"
    return f"{tokens:,}"


def plot_learning(points: Sequence[Point], path: Path) -> None:
    """Success on held-out episodes against the processor time of the training, with its phases, its teacher and chance."""
    _save(learning_figure(points), path)


def plot_revisits(points: Mapping[str, tuple[float, float]], path: Path) -> None:
    """Accuracy against the revisit ratio, a point for each setting (GSM-Agent, figure 4).

    Args:
        points: The revisit ratio and the accuracy of each setting, as shares.
        path: Where to write the figure.
    """
    _save(revisits_figure(points), path)


def revisits_figure(points: Mapping[str, tuple[float, float]]) -> Figure:
    """The figure that `plot_revisits` writes."""
    figure = Figure(figsize=(5.4, 4.0), layout="constrained")
    panel = figure.subplots()
    known = {name: pair for name, pair in points.items() if not any(np.isnan(pair))}
    for name, (revisit, accuracy) in known.items():
        panel.scatter(100 * revisit, 100 * accuracy, color="#0072B2", zorder=3)
        panel.annotate(name, (100 * revisit, 100 * accuracy), (4, 4), textcoords="offset points", fontsize=8)
    most = max((100 * revisit for revisit, _ in known.values()), default=0.0)
    panel.set(xlabel="revisit ratio (%)", ylabel="accuracy (%)", xlim=(-1, 1.15 * most + 5), ylim=(-3, 103))
    panel.grid(alpha=0.3)
    return figure


def learning_figure(points: Sequence[Point]) -> Figure:
    """The figure that `plot_learning` writes."""
    figure = Figure(figsize=(7.2, 3.8), layout="constrained")
    panel = figure.subplots()
    model = [point for point in points if point.phase in _PHASES]
    seconds = [point.seconds for point in model]
    for name, (label, colour, marker) in _SAMPLING.items():
        shares = [100 * getattr(point, name) for point in model]
        panel.plot(seconds, shares, color=colour, marker=marker, markersize=4, label=label, zorder=3)
    for point in points:
        if point.phase in _LEVELS:
            label, colour, dashes = _LEVELS[point.phase]
            panel.axhline(100 * point.sampled, color=colour, linestyle=dashes, label=label, zorder=2)
    end = 0.0
    for phase, (name, colour) in _PHASES.items():
        begun, end = end, max((p.seconds for p in model if p.phase == phase), default=end)
        if end > begun:
            panel.axvspan(begun, end, color=colour, zorder=0, linewidth=0)
            panel.text((begun + end) / 2, 103, name, ha="center", va="bottom")
    panel.set(xlabel="processor seconds of training", ylabel="success on held-out instances (%)", ylim=(-3, 103))
    panel.set_xlim(0, max([*seconds, 1e-3]))
    panel.grid(alpha=0.3)
    panel.legend(loc="lower right", framealpha=0.9)
    return figure


def lore_figure(results: Sequence[Result]) -> Figure:
    """The figure that `plot_lore` writes; the bands are Wilson's 95 % intervals."""
    worlds = lines(results)
    names = list(dict.fromkeys(name for arms in worlds.values() for name in arms))
    looks = {name: _look(place, name) for place, name in enumerate(names)}
    figure = Figure(figsize=(3.6 * len(worlds) + 1.8, 6.4), layout="constrained")
    axes = figure.subplots(2, len(worlds), sharey=True, squeeze=False)
    for column, (world, arms) in enumerate(worlds.items()):
        for panel, (by, label) in zip(axes[:, column], _LORE.items(), strict=True):
            for name, rows in arms.items():
                _draw_accuracy(panel, curve(rows, by), looks[name])
            panel.set(xlabel=label, xscale="log", ylim=(-3, 103))
            low, high = panel.get_xlim()
            shown = [tick for tick in _TICKS if low <= tick <= high]
            panel.set_xticks(shown, [str(tick) for tick in shown])
            panel.xaxis.set_minor_locator(NullLocator())
            panel.grid(alpha=0.3)
        axes[0, column].set_title(world)
    for panel in axes[:, 0]:
        panel.set_ylabel("accuracy (%)")
    handles = [Line2D([], [], markersize=5, label=name, **look) for name, look in looks.items()]
    figure.legend(handles=handles, loc="outside right center")
    return figure


def _look(place: int, name: str) -> dict[str, Any]:
    """The colour, marker and dashes of a line: those of the arm that it is named after, else of its place."""
    arm = "" if name == "none" else name
    arm = arm if arm in _COLOURS else ARMS[place % len(ARMS)]
    return {"color": _COLOURS[arm], "marker": _MARKERS[arm], "linestyle": "--" if place >= len(ARMS) else "-"}


def _draw_accuracy(panel: Axes, found: Sequence[Bin], look: Mapping[str, Any]) -> None:
    """A line through the middles of bins."""
    places = [(each.low + each.high) / 2 for each in found]
    value, low, high = ([100 * getattr(each.accuracy, part) for each in found] for part in ("value", "low", "high"))
    panel.plot(places, value, markersize=4, **look)
    if len(places) == 1:  # a band would have no width
        panel.vlines(places, low, high, color=look["color"])
    else:
        panel.fill_between(places, low, high, color=look["color"], alpha=0.12, linewidth=0)


def contexts_figure(results: Sequence[Result]) -> Figure:
    """The figure that `plot_contexts` writes."""
    worlds = _worlds(results)
    contexts = ordered_contexts(results)
    places = np.arange(len(contexts))[::-1]
    figure = Figure(figsize=(3.2 * len(worlds) + 1.4, 1.6 + 0.5 * len(contexts)), layout="constrained")
    axes = figure.subplots(2, len(worlds), sharex="row", sharey=True, squeeze=False)
    for column, world in enumerate(worlds):
        rows = [row for row in results if row.world == world]
        for line, (metric, name, scale, colour) in enumerate(_CONTEXT_PANELS):
            panel = axes[line, column]
            found = summarize(rows, ("context",), metric)
            ends = [(found[c,].value, found[c,].low, found[c,].high) if (c,) in found else (np.nan,) * 3 for c in contexts]
            value, low, high = (scale * np.array(part) for part in zip(*ends, strict=True))
            panel.barh(places, value, 0.7, color=colour, zorder=2)
            panel.errorbar(value, places, xerr=[value - low, high - value], fmt="none", ecolor="#444444", capsize=3, zorder=3)
            panel.set_yticks(places, contexts)
            panel.set_xlabel(name)
            panel.grid(axis="x", alpha=0.3, zorder=0)
        axes[0, column].set_title(world)
    return figure


def horizons_figure(results: Sequence[Result]) -> Figure:
    """The figure that `plot_horizons` writes."""
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
    """The figure that `plot_arms` writes."""
    worlds = _worlds(results)
    figure, axes = _panels(len(worlds))
    for panel, world in zip(axes, worlds, strict=True):
        found = summarize([row for row in results if row.world == world], ("arm",), "success")
        arms = [arm for arm in ARMS if (arm,) in found]
        intervals = [found[arm,] for arm in arms]
        places = np.arange(len(arms))
        _draw_bars(panel, places, intervals, 0.7, [_COLOURS[arm] for arm in arms])
        panel.set_xticks(places, [arm or "none" for arm in arms])
        panel.set(title=world, xlabel="oracles", ylim=(0, 112))
        for place, interval in zip(places, intervals, strict=True):
            above = (place, 100 * interval.high)
            panel.annotate(f"{100 * interval.value:.0f}", above, (0, 4), textcoords="offset points", ha="center")
    axes[0].set_ylabel("success rate (%)")
    axes[0].set_yticks(range(0, 101, 20))
    return figure


def interventions_figure(results: Sequence[Result]) -> Figure:
    """The figure that `plot_interventions` writes."""
    worlds = _worlds(results)
    figure, axes = _panels(len(worlds))
    for panel, world in zip(axes, worlds, strict=True):
        rows = [row for row in results if row.world == world]
        for side, (metric, (_, colour)) in zip((-0.2, 0.2), _METRICS.items(), strict=True):
            found = effects(rows, (), metric)
            letters = [letter for letter in _INTERVENTIONS if (letter,) in found]
            intervals = [found[letter,] for letter in letters]
            _draw_bars(panel, np.arange(len(letters)) + side, intervals, 0.38, [colour] * len(letters))
            panel.set_xticks(range(len(letters)), [_INTERVENTIONS[letter] for letter in letters])
        panel.axhline(0, color="black", linewidth=0.8)
        panel.set(title=world, xlabel="intervention")
    axes[0].set_ylabel("change (percentage points)")
    handles = [Patch(facecolor=colour, label=name) for name, colour in _METRICS.values()]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _panels(count: int) -> tuple[Figure, Sequence[Axes]]:
    """A figure with a row of panels that share their vertical axis."""
    figure = Figure(figsize=(3.2 * count + 0.6, 3.5), layout="constrained")
    return figure, list(figure.subplots(1, count, sharey=True, squeeze=False)[0])


def _arm_handles(results: Sequence[Result]) -> list[Line2D]:
    """Legend entries for the arms of any world: a world need not have played them all."""
    played = {row.arm for row in results}
    shown = [arm for arm in ARMS if arm in played]
    return [Line2D([], [], color=_COLOURS[arm], marker=_MARKERS[arm], markersize=5, label=arm or "none") for arm in shown]


def _draw_lines(panel: Axes, rows: Sequence[Result], metric: str) -> None:
    found = summarize(rows, ("arm", "horizon"), metric)
    horizons = sorted({row.horizon for row in rows})
    for arm in ARMS:
        shown = [horizon for horizon in horizons if (arm, horizon) in found]
        if not shown:
            continue
        value, low, high = (np.array([100 * getattr(found[arm, h], part) for h in shown]) for part in ("value", "low", "high"))
        dashes = "-" if metric == "success" else "--"
        # Arms at a single horizon stand side by side, or they would hide one another.
        places = np.array(shown) * (2 ** (0.1 * ARMS.index(arm) - 0.25) if len(horizons) == 1 else 1)
        panel.plot(places, value, dashes, color=_COLOURS[arm], label=arm or "none", marker=_MARKERS[arm], markersize=5)
        if len(shown) == 1:  # a band would have no width
            panel.vlines(places, low, high, color=_COLOURS[arm])
        else:
            panel.fill_between(places, low, high, color=_COLOURS[arm], alpha=0.1, linewidth=0)
    panel.set_xscale("log", base=2)
    panel.set_xticks(horizons, [str(horizon) for horizon in horizons])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_ylim(-3, 103)
    panel.grid(alpha=0.3)


def _draw_bars(panel: Axes, places: np.ndarray, intervals: Sequence[Interval], width: float, colours: Sequence[str]) -> None:
    values = [100 * interval.value for interval in intervals]
    errors = [[100 * (i.value - i.low) for i in intervals], [100 * (i.high - i.value) for i in intervals]]
    panel.bar(places, values, width, color=list(colours), zorder=2)
    panel.errorbar(places, values, np.maximum(errors, 0), fmt="none", ecolor="#444444", capsize=3, zorder=3)
    panel.grid(axis="y", alpha=0.3, zorder=0)


def _worlds(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(row.world for row in results))


def _save(figure: Figure, path: Path) -> None:
    """Write a PNG without the version stamp that would make equal figures differ."""
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=_DPI, metadata={"Software": None})
