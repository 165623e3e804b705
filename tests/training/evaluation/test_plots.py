"""Figures: what they say, that they are pictures, and that equal results give equal bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from agentgym import ARMS
from agentgym.training.evaluation import Result, plots, summarize

FIGURES = [plots.horizons_figure, plots.arms_figure, plots.interventions_figure]


def simulated(
    worlds: Sequence[str] = ("ListWorld", "TreeWorld"),
    arms: Sequence[str] = ARMS,
    horizons: Sequence[int] = (4, 8, 16),
) -> list[Result]:
    rng = np.random.default_rng(0)
    rows = []
    for world in worlds:
        for arm in arms:
            for horizon in horizons:
                for seed in range(10):
                    optimal = int(rng.binomial(horizon, 0.7 + 0.1 * len(arm)))
                    rows.append(
                        Result(
                            world,
                            arm,
                            horizon,
                            seed,
                            float(optimal == horizon),
                            horizon,
                            optimal,
                            horizon,
                            optimal,
                        )
                    )
    return rows


@pytest.mark.parametrize("draw", FIGURES)
@pytest.mark.parametrize(
    "shape",
    [{}, {"worlds": ("GridWorld",)}, {"arms": ("", "SP")}, {"horizons": (7,)}, {"arms": ("S",)}],
)
def test_figures_are_written_alike_for_equal_results(
    tmp_path: Path, draw: Callable[[Sequence[Result]], Figure], shape: dict[str, Sequence[str]]
) -> None:
    rows = simulated(**shape)  # type: ignore[arg-type]
    pictures = []
    for name in ("a.png", "b.png"):
        plots.save(draw(rows), tmp_path / name)
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0] == pictures[1]
    assert pictures[0].startswith(b"\x89PNG")
    width, height = (int.from_bytes(pictures[0][k : k + 4], "big") for k in (16, 20))
    assert width >= 400
    assert height >= 400


def texts(figure: Figure) -> set[str]:
    return {text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)}


def test_horizons_are_labelled() -> None:
    figure = plots.horizons_figure(simulated())
    assert {
        "ListWorld",
        "TreeWorld",
        "success rate (%)",
        "step accuracy (%)",
        "4",
        "8",
        "16",
        "none",
        *ARMS[1:],
    } <= texts(figure)
    top = figure.axes[0]
    assert len(top.lines) == len(ARMS)
    assert len(top.collections) == len(ARMS), "an interval for each line"
    success = {line.get_label(): line.get_ydata() for line in top.lines}
    rows = [r for r in simulated() if (r.world, r.arm, r.horizon) == ("ListWorld", "SP", 8)]
    assert np.asarray(success["SP"])[1] == pytest.approx(100 * np.mean([r.success for r in rows]))
    assert {line.get_linestyle() for line in figure.axes[2].lines} == {"--"}


def test_arms_are_labelled_and_bars_are_the_rates() -> None:
    figure = plots.arms_figure(simulated())
    assert {"ListWorld", "TreeWorld", "success rate (%)", "none", *ARMS[1:]} <= texts(figure)
    heights = [patch.get_height() for patch in figure.axes[0].patches]  # type: ignore[attr-defined]
    rows = [r for r in simulated() if r.world == "ListWorld"]
    assert heights == pytest.approx(
        [100 * np.mean([r.success for r in rows if r.arm == arm]) for arm in ARMS]
    )


def test_interventions_are_labelled() -> None:
    figure = plots.interventions_figure(simulated())
    wanted = {
        "plan",
        "state",
        "history",
        "change (percentage points)",
        "success rate",
        "step accuracy",
        "ListWorld",
        "TreeWorld",
    }
    assert wanted <= texts(figure)


def test_legends_name_what_the_first_world_lacks() -> None:
    rows = [*simulated(("ListWorld",), arms=("S",)), *simulated(("TreeWorld",))]
    (legend,) = plots.horizons_figure(rows).legends
    assert [text.get_text() for text in legend.get_texts()] == ["none", *ARMS[1:]]
    figure = plots.interventions_figure(rows)
    (legend,) = figure.legends
    bars = {to_hex(patch.get_facecolor()) for patch in figure.axes[1].patches}
    assert {to_hex(patch.get_facecolor()) for patch in legend.get_patches()} == bars
    assert len(bars) == 2


def test_intervals_at_a_single_horizon_are_seen() -> None:
    rows = simulated(("GridWorld",), horizons=(8,))
    top, bottom = plots.horizons_figure(rows).axes
    intervals = [summarize(rows, ("arm",), "success")[arm,] for arm in ARMS]
    drawn = [
        np.asarray(collection.get_paths()[0].vertices) for collection in top.collections
    ]  # the two ends of each line
    assert [list(ends[:, 1]) for ends in drawn] == [[100 * i.low, 100 * i.high] for i in intervals]
    assert len({ends[0, 0] for ends in drawn}) == len(ARMS), "side by side"
    assert [tick.get_text() for tick in bottom.get_xticklabels()] == ["8"]


def test_six_worlds_have_a_panel_each() -> None:
    worlds = [f"World{k}" for k in range(6)]
    for build, rows_of_panels in zip(FIGURES, (2, 1, 1), strict=True):
        figure = build(simulated(worlds, arms=("", "S"), horizons=(4, 8)))
        assert len(figure.axes) == rows_of_panels * len(worlds)
        assert [panel.get_title() for panel in figure.axes[:6]] == worlds
