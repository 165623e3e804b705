from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from agentgym import ARMS
from agentgym.envs.agentlongbench import FULL, TASKS
from agentgym.training.evaluation import Result, arm_label, drawing, effects, plots, summarize
from agentgym.training.evaluation.tables import policy_names
from agentgym.training.papers.agentlongbench import heatmap_figure
from agentgym.training.papers.gsm_agent import revisits_figure
from agentgym.training.papers.loca import lengths_figure
from agentgym.training.papers.lore import lore_figure
from agentgym.training.rl.learning_curve import Point, learning_figure
from agentgym.training.rollout import Usage

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
        paths = drawing.save(draw(rows), tmp_path / name / "f.png")
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
    assert height >= 200


def texts(figure: Figure) -> set[str]:
    return {text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)}


def test_horizons_are_labelled() -> None:
    figure = plots.horizons_figure(simulated())
    assert {
        "ListWorld",
        "TreeWorld",
        "no hints",
        "4",
        "8",
        "16",
        "task horizon (turns of an optimal policy)",
        "task horizon (nodes of the tree, the turns of the slowest search)",
        "plan, state and history",
    } <= {" ".join(text.split()) for text in texts(figure)}
    assert len(figure.axes) == len(ARMS) * 2
    panel = figure.axes[2 * ARMS.index("SP")]  # the panel of ListWorld
    assert len(panel.collections) == 2, "intervals for each metric"
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
ELEVEN = (*ARMS, "P_", "P0", "P0.5", "S_", "S0.9")
WORLDS = "WoocommerceStockAlert FilterLowSellingProducts ListWorld TreeWorld CodeWorld".split()


def detailed(**shape: Any) -> list[Result]:
    """Return results for every figure; the arm without hints never succeeds."""
    counts = {f"{name}_tokens": 20_000 for name in ("trajectory", "tool_output")}
    usage = Usage(**{**dict.fromkeys((field.name for field in fields(Usage)), 0), **counts})
    rows = []
    for row in simulated(**shape):
        report = {"operations": row.horizon, "height": row.horizon, "description_tokens": 1}
        success = row.success if row.arm else 0.0
        rows.append(replace(row, success=success, usage=usage, report=report, policy="small"))
    return rows


def two_policies(rows: Sequence[Result]) -> list[Result]:
    return [replace(row, policy=name) for name in ("small", LONG) for row in rows]


def curve() -> list[Point]:
    steps = [Point("cloning", k, k, 9.0 * k, k / 9, k / 10, 100) for k in range(9)]
    later = [Point("rl", k, k, 90.0 + k, 0.9, 0.8, 100) for k in range(9)]
    levels = [Point(name, 0, 0, 0.0, 0.3, 0.3) for name in ("chance", "teacher")]
    return [*levels, *steps, *later]


def heat() -> dict[tuple[str, str, int], float]:
    lengths = [2**k * 1024 for k in range(5, 11)]
    return {key: key[2] / 2**20 for key in product(FULL, TASKS.values(), lengths)}


# Figures of each kind, with the largest amount of data that the figure must accommodate.
KINDS: dict[str, Callable[[], Figure]] = {
    "arms": lambda: plots.arms_figure(two_policies(detailed(worlds=WORLDS, arms=ELEVEN))),
    "horizons": lambda: plots.horizons_figure(detailed(worlds=WORLDS[2:], arms=ELEVEN)),
    "single": lambda: plots.horizons_figure(detailed(worlds=WORLDS, arms=ELEVEN, horizons=(8,))),
    "interventions": lambda: plots.interventions_figure(detailed(worlds=WORLDS)),
    "levelled": lambda: plots.levelled_figure(two_policies(detailed(worlds=WORLDS))),
    "contexts": lambda: plots.contexts_figure(
        [
            replace(row, context=context)
            for row in detailed(worlds=WORLDS, arms=("",))
            for context in ("none", "clear_results:trigger=50%:keep=2", "clear_results+memory")
        ]
    ),
    "lore": lambda: lore_figure(detailed(worlds=WORLDS[2:], arms=ELEVEN)),
    "loca": lambda: lengths_figure(detailed(arms=ELEVEN, horizons=(8_000, 16_000, 256_000))),
    "learning": lambda: learning_figure(curve()),
    "heat map": lambda: heatmap_figure(heat()),
    "revisits": lambda: revisits_figure({f"model-{k}": (0.3, k / 12) for k in range(11)}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_crowded_figure_is_readable_in_print(kind: str) -> None:
    figure = KINDS[kind]()
    assert figure.get_figwidth() in (drawing.COLUMN, drawing.PAGE)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    boxes = {}
    for text in figure.findobj(Text):
        box = text.get_window_extent(renderer)  # type: ignore[attr-defined]
        if text.get_visible() and text.get_text().strip() and box.width:  # type: ignore[attr-defined]
            boxes[text] = box
    hidden = [label for panel in figure.axes for label in unused_labels(panel)]
    boxes = {text: box for text, box in boxes.items() if text not in hidden}
    assert len(boxes) > 8
    assert min(text.get_fontsize() for text in boxes) >= 7
    for text, box in boxes.items():
        assert box.x0 >= -1 <= box.y0, text
        assert box.x1 <= figure.bbox.x1 + 1, text
        assert box.y1 <= figure.bbox.y1 + 1, text
    for (one, first), (two, second) in combinations(boxes.items(), 2):
        width = min(first.x1, second.x1) - max(first.x0, second.x0)
        height = min(first.y1, second.y1) - max(first.y0, second.y0)
        assert min(width, height) <= 1, (one.get_text(), two.get_text())
    for panel in figure.axes:
        empty = [bar for bar in panel.patches if isinstance(bar, Rectangle) and not bar.get_width()]
        wide = panel.spines["left"].get_linewidth()
        strokes = [part for part in panel.collections if part.get_linewidth()[0] > 2 * wide]  # type: ignore[index]
        assert len(strokes) == len(empty)


def unused_labels(panel: Axes) -> list[Text]:
    """Return the labels of ticks outside the axis limits, which are not drawn."""
    unused = []
    for axis, limits in ((panel.xaxis, panel.get_xlim()), (panel.yaxis, panel.get_ylim())):
        for tick in axis.get_major_ticks():
            if not min(limits) <= tick.get_loc() <= max(limits):  # type: ignore[attr-defined]
                unused += [tick.label1, tick.label2]
    return unused


def test_eleven_arms_look_different() -> None:
    names = list(map(arm_label, ELEVEN))
    lines, bars = drawing.line_styles(names), drawing.bar_styles(names)
    assert len({each["marker"] for each in lines.values()}) == 11
    assert len({(each["color"], each["linestyle"]) for each in lines.values()}) == 11
    assert len({(each["edgecolor"], each["hatch"]) for each in bars.values()}) == 11
    assert drawing.line_styles(names[:3]) == {name: lines[name] for name in names[:3]}


def test_captions_state_what_is_averaged() -> None:
    rows = detailed()
    for draw in (plots.arms_figure, plots.interventions_figure):
        (caption,) = (" ".join(text.split()) for text in texts(draw(rows)) if "n = " in text)
        assert "means over 3 sizes (4 to 16)" in caption
        assert not any("means" in text for text in texts(draw([r for r in rows if r.horizon == 4])))
    assert not any("means over" in text for text in texts(plots.horizons_figure(rows)))


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["control:planning=0.02:tracking=0.01"], ["control"]),
        (["noisy:p=0.1:seed=3", "noisy:p=0.2:seed=3"], ["noisy p=0.1", "noisy p=0.2"]),
        (["my.module:make_policy:depth=3", "runs/train"], ["module:make_policy", "train"]),
        (["a/x", "b/x"], ["a/x", "b/x"]),
        (["gpt-4.1", "weak (runs/a)", ""], ["gpt-4.1", "weak (runs/a)", ""]),
    ],
)
def test_policies_have_short_names(given: list[str], shown: list[str]) -> None:
    assert list(policy_names(given).values()) == shown


@pytest.mark.parametrize(
    ("arm", "label"),
    [
        ("", "no hints"),
        ("SP", "plan and state"),
        ("SPH", "plan, state and history"),
        ("P0.5S_", "plan (50% right) and placebo state"),
        ("P0", "wrong plan"),
        ("C", "communication"),
    ],
)
def test_arms_are_named_in_words(arm: str, label: str) -> None:
    assert arm_label(arm) == label


UNDRAWABLE = [
    "a\ud800b",
    "$x_{2",
    "$x$ and $y_{2}$",
    "\x00\x1b[31m\u0378",
    "\u4f60\U0001f680",
    "\\$1$",
]


@pytest.mark.filterwarnings("error")
@pytest.mark.family(name=UNDRAWABLE, draw=[plots.arms_figure, plots.levelled_figure, lore_figure])
def test_a_name_with_any_character_is_drawn_as_text(
    tmp_path: Path, draw: Callable[[Sequence[Result]], Figure], name: str
) -> None:
    rows = [
        replace(row, policy=policy, world=name, model=name, report={"operations": 3, "height": 2})
        for policy in (name, "other")
        for row in simulated(("ListWorld",))
    ]
    figure = draw(rows)
    drawing.save(figure, tmp_path / "f.png")
    shown = {" ".join(text.split()) for text in texts(figure)}
    escaped = name.encode("ascii", "backslashreplace").decode()
    for control in "\x00\x1b":
        escaped = escaped.replace(control, f"\\x{ord(control):02x}")
    assert any(f"policy: {escaped} ({escaped})" in text for text in shown)


def test_arms_are_labelled_and_bars_are_the_rates() -> None:
    figure = plots.arms_figure(simulated())
    assert {"ListWorld", "TreeWorld", "success rate (%)", "no hints", "state"} <= texts(figure)
    heights = [patch.get_width() for patch in figure.axes[0].patches]  # type: ignore[attr-defined]
    rows = [r for r in simulated() if r.world == "ListWorld"]
    assert heights == pytest.approx(
        [100 * np.mean([r.success for r in rows if r.arm == arm]) for arm in ARMS]
    )


def test_legends_name_all_that_is_drawn() -> None:
    rows = [*simulated(("ListWorld",), arms=("S",)), *simulated(("TreeWorld",))]
    (legend,) = plots.horizons_figure(rows).legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "success rate",
        "step accuracy",
        "success rate without hints",
    ]
    figure = plots.interventions_figure(rows)
    (legend,) = figure.legends
    bars = {to_hex(patch.get_facecolor()) for patch in figure.axes[1].patches}
    assert {to_hex(patch.get_facecolor()) for patch in legend.get_patches()} == bars
    assert len(bars) == 2


def test_a_single_horizon_has_arms_for_an_axis() -> None:
    rows = simulated(("GridWorld",), horizons=(8,))
    (panel,) = plots.horizons_figure(rows).axes
    names = [" ".join(tick.get_text().split()) for tick in panel.get_yticklabels()]
    assert names == list(map(arm_label, ARMS))
    assert panel.get_xscale() == "linear"
    assert panel.get_title() == "GridWorld, size 8"
    rates = summarize(rows, ("arm",), "success")
    values = np.asarray(panel.lines[0].get_xdata())
    assert list(values) == [100 * rates[arm,].value for arm in ARMS]
    bars = panel.collections[0].get_segments()  # type: ignore[attr-defined]
    ends = [[100 * rates[arm,].low, 100 * rates[arm,].high] for arm in ARMS]
    assert [list(bar[:, 0]) for bar in bars] == [pytest.approx(pair) for pair in ends]
    assert all(low < high for low, high in ends)


def test_policies_have_a_row_each_and_bars_of_their_own() -> None:
    rows = [replace(row, policy=name) for name in ("small", "large") for row in simulated()]
    rows = [row for row in rows if row.policy == "small" or row.arm != "SPH"]
    figure = plots.arms_figure(rows)
    assert len(figure.axes) == 4
    assert [len(panel.patches) for panel in figure.axes] == [6, 6, 5, 5]
    assert any("large" in panel.get_ylabel() for panel in figure.axes)


def test_levelled_effects_are_those_of_each_policy() -> None:
    rows = [replace(row, policy=name) for name in ("small", "large") for row in simulated()]
    figure = plots.levelled_figure(rows)
    assert [panel.get_title() for panel in figure.axes] == ["plan", "state", "history"]
    assert {"small", "large", "step accuracy", "change (percentage points)"} <= texts(figure)
    changes = effects(rows, ("policy",), "success")
    heights = [patch.get_width() for patch in figure.axes[1].patches]  # type: ignore[attr-defined]
    expected = [100 * changes[name, "S"].value for name in ("small", "large")]
    assert heights[:2] == pytest.approx(expected)
