"""Figures that compare policies after LUMINA's figures 4, 5 and 6a."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agentgym.training.evaluation.intervals import effects, summarize
from agentgym.training.evaluation.missing import as_results
from agentgym.training.evaluation.plots import (
    COLOURS,
    METRICS,
    add_caption,
    draw_bars,
    draw_changes,
    finish_changes,
    name_arms,
    new_figure,
)
from agentgym.training.evaluation.scoring import Result, group_by, ordered_arms
from agentgym.training.evaluation.tables import INTERVENTIONS

# for arms beyond the paper's, which their names distinguish
_OTHERS = "#999999"
_FRAGILE = "* the missing episodes could move this rate beyond its interval"
# Line length of a policy's name: about the height of a panel.
_NAME_WIDTH = 22


def arms_figure(results: Sequence[Result]) -> Figure:
    """Draw the success rate of each arm, by world and policy (figures 4 and 5)."""
    results = as_results(results)
    worlds, policies = group_by(results.everything, "world"), results.by("policy")
    height = 3.9 if len(policies) == 1 else 1.2 + 2.3 * len(policies)
    figure = new_figure(max(5.0, 3.2 * len(worlds) + 0.6), height)
    axes = figure.subplots(len(policies), len(worlds), sharex="col", sharey=True, squeeze=False)
    for line, policy in enumerate(policies):
        name = "" if len(policies) == 1 else fill(policy, _NAME_WIDTH) + "\n"
        axes[line, 0].set_ylabel(f"{name}success rate (%)", fontsize="medium")
        for column, own in enumerate(worlds.values()):
            arms = ordered_arms(own)
            rows = [row for row in own if row.policy == policy]
            _draw_rates(axes[line, column], rows, arms)
    for column, world in enumerate(worlds):
        axes[0, column].set_title(world)
        axes[-1, column].set_xlabel("oracles")
    axes[0, 0].set_yticks(range(0, 101, 20))
    rates = summarize(results, ("policy", "world", "arm"), "success").values()
    fragile = any(rate.fragile for rate in rates)
    add_caption(figure, results, _FRAGILE if fragile else "")
    return figure


def _draw_rates(panel: Axes, rows: Sequence[Result], arms: Sequence[str]) -> None:
    rates = summarize(rows, ("arm",), "success") if rows else {}
    places = [place for place, arm in enumerate(arms) if (arm,) in rates and rates[arm,].count]
    intervals = [rates[arms[place],] for place in places]
    colours = [COLOURS.get(arms[place], _OTHERS) for place in places]
    draw_bars(panel, np.array(places), intervals, 0.7, colours)
    name_arms(panel, arms)
    panel.set_ylim(0, 112)
    for place, interval in zip(places, intervals, strict=True):
        panel.annotate(
            f"{100 * interval.value:.0f}{'*' * interval.fragile}",
            (place, 100 * interval.high),
            (0, 4),
            textcoords="offset points",
            ha="center",
        )


def levelled_figure(results: Sequence[Result], note: str = "") -> Figure:
    """Draw intervention effects by policy, averaged over worlds, from `level_horizons` (figure 6a)."""
    results = as_results(results)
    policies = list(results.by("policy"))
    changes = {metric: effects(results, ("policy",), metric) for metric in METRICS}
    letters = [i for i in INTERVENTIONS if any(key[-1] == i for key in changes["success"])]
    figure = new_figure(max(6.0, (1.0 + 0.9 * len(policies)) * len(letters)), 4.2)
    axes = figure.subplots(1, max(1, len(letters)), sharey=True, squeeze=False)[0]
    for panel, letter in zip(axes, letters, strict=False):
        draw_changes(panel, changes, [(name, letter) for name in policies])
        panel.set_title(INTERVENTIONS[letter])
        panel.set_xticks(
            range(len(policies)),
            list(map(partial(fill, width=_NAME_WIDTH), policies)),
            rotation=30,
            ha="right",
            fontsize="small",
        )
        panel.set_xlim(-0.6, len(policies) - 0.4)
    finish_changes(figure, results, note)
    return figure
