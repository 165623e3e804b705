"""Figures: labels, image formats, and equal bytes from equal results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from agentgym import ARMS
from agentgym.training.evaluation import Result, effects, plots, policy_plots, summarize
from agentgym.training.papers.lore import lore_figure

FIGURES = [plots.horizons_figure, policy_plots.arms_figure, plots.interventions_figure]


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
                    optimal = int(rng.binomial(horizon, min(0.95, 0.7 + 0.1 * len(arm))))
                    won = float(optimal == horizon)
                    counts = (horizon, optimal, horizon, optimal)
                    rows.append(Result(world, arm, horizon, seed, won, *counts))
    return rows


@pytest.mark.rotation(
    draw=FIGURES,
    shape=[
        {},
        {"worlds": ("GridWorld",)},
        {"arms": ("", "SP")},
        {"horizons": (7,)},
        {"arms": ("S",)},
    ],
)
def test_figures_are_written_alike_for_equal_results(
    tmp_path: Path, draw: Callable[[Sequence[Result]], Figure], shape: dict[str, Sequence[str]]
) -> None:
    rows = simulated(**shape)  # type: ignore[arg-type]
    pictures = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        paths = plots.save(draw(rows), tmp_path / name / "f.png")
        assert sorted(path.suffix for path in paths) == [".pdf", ".png", ".svg"]
        pictures.append([path.read_bytes() for path in paths])
    assert pictures[0] == pictures[1]
    png, svg, pdf = pictures[0]
    assert (svg[:5], pdf[:4]) == (b"<?xml", b"%PDF")
    assert b"<text" in svg
    assert b"/Type3" not in pdf
    assert b"/TrueType" in pdf or b"/CIDFontType2" in pdf
    width, height = (int.from_bytes(png[k : k + 4], "big") for k in (16, 20))
    assert width >= 400
    assert height >= 400


def texts(figure: Figure) -> set[str]:
    return {text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)}


def test_horizons_are_labelled() -> None:
    figure = plots.horizons_figure(simulated())
    assert {
        "ListWorld",
        "TreeWorld",
        "none (%)",
        "4",
        "8",
        "16",
        "task horizon\n(turns of an optimal policy)",
        "task horizon\n(nodes of the tree, the turns of the slowest search)",
        *(f"{arm} (%)" for arm in ARMS[1:]),
    } <= texts(figure)
    assert len(figure.axes) == len(ARMS) * 2
    panel = figure.axes[2 * ARMS.index("SP")]  # of ListWorld
    assert len(panel.collections) == 2, "a band for each metric, so no more than two overlap"
    bare, success, accuracy = (np.asarray(line.get_ydata()) for line in panel.lines)
    rows = [r for r in simulated() if (r.world, r.horizon) == ("ListWorld", 8)]
    own = [r for r in rows if r.arm == "SP"]
    assert success[1] == pytest.approx(100 * np.mean([r.success for r in own]))
    assert accuracy[1] == pytest.approx(100 * np.mean([r.optimal / r.steps for r in own]))
    assert bare[1] == pytest.approx(100 * np.mean([r.success for r in rows if not r.arm]))
    styles = {(line.get_linestyle(), line.get_color()) for line in panel.lines}
    assert len(styles) == 3, "lines that coincide are told apart"


@pytest.mark.parametrize("draw", FIGURES)
def test_captions_name_the_policy_and_the_number_of_instances(
    draw: Callable[[Sequence[Result]], Figure],
) -> None:
    rows = [replace(row, policy="my.module:model") for row in simulated()]
    (caption,) = (text for text in texts(draw(rows)) if "n = " in text)
    assert " ".join(caption.split()).startswith("policy: my.module:model; n = 10 instances")
    fewer = [row for row in rows if row.seed < 7 or row.arm]
    (caption,) = (text for text in texts(draw(fewer)) if "n = " in text)
    assert "n = 7 to 10 instances" in " ".join(caption.split())
    sampled = [replace(row, model="big-7B", sample=k) for row in rows for k in range(2)]
    (caption,) = (text for text in texts(draw(sampled)) if "n = " in text)
    assert "my.module:model (big-7B)" in " ".join(caption.split())
    assert "2 samples each" in " ".join(caption.split())


LONG = "a-policy-with-a-long-name/of-several-parts:temperature=0.7"
SHAPES: list[dict[str, Any]] = [
    {"worlds": ("GridWorld",)},
    {"worlds": ("GridWorld",), "horizons": (7,)},
    {"worlds": ("GridWorld",), "arms": ("", "S", "P0.5S_", "SPH")},
    {"worlds": ("WoocommerceStockAlert", "FilterLowSellingProducts", "UpdateMaterialInventory")},
    {"worlds": tuple(f"World{k}" for k in range(6))},
]


@pytest.mark.rotation(
    draw=[*FIGURES, policy_plots.levelled_figure, plots.contexts_figure], shape=SHAPES
)
def test_nothing_is_cut_off_or_covered(
    tmp_path: Path, draw: Callable[[Sequence[Result]], Figure], shape: dict[str, Any]
) -> None:
    names = (
        ("small", LONG)
        if draw in (policy_plots.arms_figure, policy_plots.levelled_figure)
        else (LONG,)
    )
    figure = draw([replace(row, policy=name) for name in names for row in simulated(**shape)])
    plots.save(figure, tmp_path / "f.png")
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()  # resolves the layout at this resolution
    written = [*figure.legends, *figure.texts, *([figure._suptitle] if figure._suptitle else [])]
    for part in [*written, *(text for panel in figure.axes for text in labels(panel))]:
        box = part.get_window_extent(renderer)
        assert box.x0 >= -1 <= box.y0, part
        assert box.x1 <= figure.bbox.x1 + 1, part
        assert box.y1 <= figure.bbox.y1 + 1, part
    for legend in figure.legends:
        box = legend.get_window_extent(renderer)
        assert not any(box.overlaps(panel.get_tightbbox(renderer)) for panel in figure.axes)


UNDRAWABLE = [
    "a\ud800b",
    "$x_{2",
    "$x$ and $y_{2}$",
    "\x00\x1b[31m\u0378",
    "\u4f60\U0001f680",
    "\\$1$",
]


@pytest.mark.filterwarnings("error")
@pytest.mark.family(
    name=UNDRAWABLE, draw=[policy_plots.arms_figure, policy_plots.levelled_figure, lore_figure]
)
def test_a_name_with_any_character_is_drawn_as_text(
    tmp_path: Path, draw: Callable[[Sequence[Result]], Figure], name: str
) -> None:
    rows = [
        replace(row, policy=policy, world=name, model=name, report={"operations": 3, "height": 2})
        for policy in (name, "other")
        for row in simulated(("ListWorld",))
    ]
    figure = draw(rows)
    plots.save(figure, tmp_path / "f.png")
    shown = {" ".join(text.split()) for text in texts(figure)}
    escaped = name.encode("ascii", "backslashreplace").decode()
    for control in "\x00\x1b":
        escaped = escaped.replace(control, f"\\x{ord(control):02x}")
    assert any(f"policy: {escaped} ({escaped})" in text for text in shown)


def labels(panel: Axes) -> list[Text]:
    return [
        text
        for text in (panel.title, panel.xaxis.label, panel.yaxis.label)
        if text.get_text() and text.get_visible()
    ]


def test_arms_are_labelled_and_bars_are_the_rates() -> None:
    figure = policy_plots.arms_figure(simulated())
    assert {"ListWorld", "TreeWorld", "success rate (%)", "none", *ARMS[1:]} <= texts(figure)
    heights = [patch.get_height() for patch in figure.axes[0].patches]  # type: ignore[attr-defined]
    rows = [r for r in simulated() if r.world == "ListWorld"]
    assert heights == pytest.approx(
        [100 * np.mean([r.success for r in rows if r.arm == arm]) for arm in ARMS]
    )


def test_interventions_are_labelled() -> None:
    metrics = {"change (percentage points)", "success rate", "step accuracy"}
    wanted = {"plan", "state", "history", "ListWorld", "TreeWorld", *metrics}
    assert wanted <= texts(plots.interventions_figure(simulated()))


def test_legends_name_all_that_is_drawn() -> None:
    rows = [*simulated(("ListWorld",), arms=("S",)), *simulated(("TreeWorld",))]
    (legend,) = plots.horizons_figure(rows).legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "success rate",
        "step accuracy",
        "success rate without oracles",
    ]
    figure = plots.interventions_figure(rows)
    (legend,) = figure.legends
    bars = {to_hex(patch.get_facecolor()) for patch in figure.axes[1].patches}
    assert {to_hex(patch.get_facecolor()) for patch in legend.get_patches()} == bars
    assert len(bars) == 2


def test_a_single_horizon_has_arms_for_an_axis() -> None:
    rows = simulated(("GridWorld",), horizons=(8,))
    (panel,) = plots.horizons_figure(rows).axes
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["none", *ARMS[1:]]
    assert panel.get_xscale() == "linear"
    assert panel.get_title() == "GridWorld, size 8"
    rates = summarize(rows, ("arm",), "success")
    values = np.asarray(panel.lines[0].get_ydata())
    assert list(values) == [100 * rates[arm,].value for arm in ARMS]
    bars = panel.collections[0].get_segments()  # type: ignore[attr-defined]
    ends = [[100 * rates[arm,].low, 100 * rates[arm,].high] for arm in ARMS]
    assert [list(bar[:, 1]) for bar in bars] == [pytest.approx(pair) for pair in ends]
    assert all(low < high for low, high in ends)


def test_policies_have_a_row_each_and_bars_of_their_own() -> None:
    rows = [replace(row, policy=name) for name in ("small", "large") for row in simulated()]
    rows = [row for row in rows if row.policy == "small" or row.arm != "SPH"]
    figure = policy_plots.arms_figure(rows)
    assert len(figure.axes) == 4
    assert [len(panel.patches) for panel in figure.axes] == [6, 6, 5, 5]
    assert any("large" in panel.get_ylabel() for panel in figure.axes)


def test_levelled_effects_are_those_of_each_policy() -> None:
    rows = [replace(row, policy=name) for name in ("small", "large") for row in simulated()]
    figure = policy_plots.levelled_figure(rows)
    assert [panel.get_title() for panel in figure.axes] == ["plan", "state", "history"]
    assert {"small", "large", "step accuracy", "change (percentage points)"} <= texts(figure)
    changes = effects(rows, ("policy",), "success")
    heights = [patch.get_height() for patch in figure.axes[1].patches]  # type: ignore[attr-defined]
    expected = [100 * changes[name, "S"].value for name in ("small", "large")]
    assert heights[:2] == pytest.approx(expected)
