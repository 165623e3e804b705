from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text

from agentgym import Reply
from agentgym.envs.lore import GRID
from agentgym.training.evaluation import (
    Ablation,
    Result,
    ablation_tables,
    presets,
    run_ablation,
    write_report,
)
from agentgym.training.papers.lore import accuracy, curve, lines, lore_figure, lore_tables
from agentgym.training.rollout import PolicyConfig
from tests.cli.test_main import command

BOTH = ("lore-standard", "lore-hard")


def row(solved: int, operations: int, height: int, seed: int = 0, **changes: Any) -> Result:
    """Return an episode with a LORE report; `changes` override the report's or result's fields."""
    report: dict[str, Any] = dict.fromkeys(("guessed_reads", "lost_leads"), 0)
    report |= {"premature_halt": False, "synthesis_error": False}
    report |= {"operations": operations, "height": height, "reads": 4, "redundant_reads": 1}
    for name in report.keys() & changes.keys():
        report[name] = changes.pop(name)
    fields = {"world": "DocumentWorld", "arm": "", **changes, "report": report}
    counts = dict.fromkeys(("steps", "optimal", "alive", "alive_optimal"), 1)
    size = {"horizon": operations, "axis": "operations"}
    return Result(seed=seed, success=float(solved), **size, **counts, **fields)


ROWS = [
    row(1, 1, 1, reads=2, redundant_reads=0),
    row(0, 1, 2, 1, premature_halt=True, lost_leads=3, guessed_reads=2),
    row(1, 5, 5),
    row(1, 5, 5, 1),
    row(1, 5, 6, 2, lost_leads=4),
    row(0, 30, 21, synthesis_error=True),
    row(0, 60, 40),
    row(1, 1, 1, arm="SP"),
]


def test_the_tables_are_those_computed_by_hand() -> None:
    """By Wilson's formula, 1/2 gives 50 ± 40.5, and the interval of 0/n ends at z² / (n + z²)."""
    operations, height, failures = lore_tables(
        [*ROWS, Result("ListWorld", "", 3, 0, 1.0, 3, 3, 3, 3)]
    )
    assert operations == (
        "DocumentWorld: accuracy by operations, % with Wilson's 95% intervals",
        ["operations", "none", "SP"],
        [
            ["1", "1/2: 50.0 [9.5, 90.5]", "1/1: 100.0 [20.7, 100.0]"],
            ["5", "3/3: 100.0 [43.9, 100.0]", ""],
            ["30", "0/1: 0.0 [0.0, 79.3]", ""],
            ["60", "0/1: 0.0 [0.0, 79.3]", ""],
            *(
                quality := [
                    ["missing", "0", "6 not played"],
                    ["over window", "0", "0"],
                    ["unreadable", "no data", "no data"],
                ]
            ),
        ],
    )
    assert height[1] == ["height", "none", "SP"]
    # Wilson's interval for 4/7 has the centre (4/7 + 0.27439) / 1.54878 = 54.61 and the half-width
    # z * sqrt(0.034985 + 0.019599) / 1.54878 = 29.57.
    assert height[2] == [
        ["1 to 5", "", "1/1: 100.0 [20.7, 100.0]"],
        ["1 to 40", "4/7: 57.1 [25.0, 84.2]", ""],
        *quality,
    ]
    assert failures[1] == [
        *("", "episodes", "failed", "premature halt", "wrong synthesis", "other", "lost leads"),
        *("leads lost", "reads", "redundant", "guessed", "missing", "over window", "unreadable"),
    ]
    assert failures[2] == [
        ["none", "7", "3", "1", "1", "1", "1", "1.0", "3.7", "0.9", "0.3", "0", "0", "no data"],
        ["SP", *"1 0 0 0 0 0 0.0 4.0 1.0 0.0".split(), "6 not played", "0", "no data"],
    ]


def test_bins_of_height_are_joined_until_they_hold_ten_episodes() -> None:
    def ends(*heights: int) -> list[tuple[int, int, int]]:
        return [
            (each.low, each.high, each.episodes)
            for each in curve([row(1, 1, height) for height in heights], "height")
        ]

    assert ends(7) == [(6, 10, 1)]
    assert ends(*[3] * 10, *[8] * 10) == [(1, 5, 10), (6, 10, 10)]
    assert ends(*[3] * 9, 12, *[31] * 10) == [(1, 15, 10), (31, 35, 10)]
    assert ends(*[3] * 12, *[31] * 4, *[90] * 5) == [(1, 90, 21)]
    assert ends(*[3] * 12, *[31] * 4, *[90] * 6) == [(1, 5, 12), (31, 90, 10)]
    mixed = curve(
        [row(k % 4 == 0, 1, height) for k, height in enumerate([3] * 8 + [8] * 8)], "height"
    )
    assert [(each.low, each.high, each.episodes, each.accuracy.value) for each in mixed] == [
        (1, 10, 16, 0.25)
    ]


def test_lines_are_named_after_what_differs() -> None:
    def names(*pairs: tuple[str, str]) -> list[str]:
        rows = [row(1, 1, 1, arm=arm, context=context) for arm, context in pairs]
        return list(lines(rows)["DocumentWorld"])

    assert names(("", "none")) == ["none"]
    assert names(("SP", "memory")) == ["SP"]
    assert names(("SP", "none"), ("", "none"), ("S", "none")) == ["none", "S", "SP"]
    assert names(("", "memory"), ("", "none")) == ["none", "memory"]
    assert names(*product(("", "S"), ("none", "memory"))) == [
        "none, none",
        "none, memory",
        "S, none",
        "S, memory",
    ]
    assert lines([Result("ListWorld", "", 3, 0, 1.0, 3, 3, 3, 3)]) == {}


def test_the_figure_shows_the_accuracies_and_their_intervals() -> None:
    rows = [*ROWS, *(row(1, size, size, world="CodeWorld") for size in (1, 350))]
    figure = lore_figure(rows)
    top, other, bottom, _ = figure.axes
    assert [panel.get_title() for panel in (top, other)] == ["DocumentWorld", "CodeWorld"]
    assert np.asarray(top.lines[0].get_xydata()).tolist() == [[1, 50], [5, 100], [30, 0], [60, 0]]
    assert np.asarray(bottom.lines[0].get_xydata()).tolist() == [[20.5, pytest.approx(400 / 7)]]
    intervals = top.collections[0].get_segments()  # type: ignore[attr-defined]
    assert [round(end, 1) for end in intervals[0][:, 1]] == [9.5, 90.5]
    intervals = top.collections[1].get_segments()  # type: ignore[attr-defined]
    assert [round(end, 1) for end in intervals[0][:, 1]] == [20.7, 100.0]
    texts = {
        " ".join(text.get_text().split()) for text in figure.findobj(Text) if isinstance(text, Text)
    }
    assert {
        "number of operations",
        "height: longest chain of dependencies",
        "accuracy (%)",
        "no hints",
        "plan and state",
        "5",
        "200",
    } <= texts


def test_the_presets_are_the_grid_of_the_paper_in_three_worlds() -> None:
    for name, difficulty in zip(BOTH, ("standard", "hard"), strict=True):
        ablation = Ablation(**presets()[name])
        assert (ablation.horizons, GRID[0], GRID[-1]) == (GRID, 1, 350)
        assert len(ablation.cells()) == 3 * len(GRID) * 30
        for world, size in product(ablation.worlds, GRID):
            options = ablation.spec(world, "", "none", size).kwargs
            assert (options["operations"], options["difficulty"]) == (size, difficulty)
    assert Ablation(**presets()["lumina"]).axis == "horizon"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"axis": "operation"},
            "DocumentWorld has no option 'operation'; did you mean 'operations'",
        ),
        ({"horizons": (100_001,)}, r"operations must be an integer in \[0, 100000\], got 100001"),
        (
            {"options": {"": {"operations": 3}}},
            "operations is the axis of this ablation; give its values as horizons",
        ),
    ],
)
def test_an_axis_that_cannot_be_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Ablation(**{**presets()["lore-standard"], **changes})


@pytest.mark.rotation
def test_an_oracle_solves_all_and_a_guess_halts_early(tmp_path: Path) -> None:
    small: dict[str, Any] = {
        "horizons": (1, 6),
        "seeds": 1,
        "contexts": ("none", "clear_results"),
        "window": 100_000,
    }
    ablation = Ablation(**{**presets()["lore-hard"], **small}, policy=PolicyConfig("oracle"))
    rows = run_ablation(ablation, tmp_path / "a", 1)
    assert [row.success for row in rows] == [1.0] * 12
    assert {(row.axis, row.horizon, (row.report or {})["operations"]) for row in rows} == {
        ("operations", n, n) for n in (1, 6)
    }
    assert all(row.usage for row in rows)
    for found in (accuracy(rows, "operations", 1), accuracy(rows, "height", 1)):
        assert sum(each.episodes for each in found) == 12
        assert all(each.accuracy.value == 1 for each in found)
    written = {path.name for path in write_report(rows, tmp_path / "a")}
    assert {"lore.png", "contexts.png", "summary.md"} <= written
    assert "CodeWorld: how episodes failed" in (tmp_path / "a" / "summary.md").read_text()
    guess = Ablation(
        **{**presets()["lore-hard"], "horizons": (1, 6), "seeds": 2},
        policy=PolicyConfig(f"{__name__}:guess"),
    )
    failures = [
        table
        for title, _, table in ablation_tables(run_ablation(guess, tmp_path / "b", 1))
        if "how episodes failed" in title
    ]
    assert [line[:7] for table in failures for line in table] == [
        ["none", "4", "4", "4", "0", "0", "0"]
    ] * 3


def guess(_: str) -> Any:
    return lambda chats: [Reply("Final answer: 42x") for _ in chats]


@pytest.mark.rotation
def test_the_command_takes_a_preset_and_what_is_given_besides(tmp_path: Path) -> None:
    line = "ablate --preset lore-hard --world CodeWorld,DocumentWorld --oracles none,SP"
    line += " --horizons 2,8 --episodes 2 --policy noisy --workers 1"
    line += " --set theta=2 --set CodeWorld.names=sequential"
    shown = command(*line.split(), "--out", str(tmp_path))
    assert shown.returncode == 0, shown.stderr
    assert "DocumentWorld: accuracy by height" in shown.stdout
    (run,) = json.loads((tmp_path / "ablation.json").read_text())["runs"]
    assert run["options"][""] == {"difficulty": "hard", "theta": 2}
    assert run["options"]["CodeWorld"] == {"names": "sequential"}
    assert (run["axis"], run["horizons"], run["arms"]) == ("operations", [2, 8], ["", "SP"])
    shown = command("ablate", "--preset", "lore")
    assert shown.returncode == 2
    assert "one of lumina, lore-standard, lore-hard, loca, got 'lore'" in shown.stderr
