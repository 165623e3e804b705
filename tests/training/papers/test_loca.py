from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text

from agentgym.training.evaluation import Result, ablation_tables, drawing, summarize, wilson
from agentgym.training.papers.loca import AXIS, lengths_figure, loca_tables
from agentgym.training.rollout import Usage

TASKS = ("ABTesting", "NhlB2bAnalysis", "SetConfCrDdl")


def usage(tokens: int) -> Usage:
    return Usage("cl100k", tokens, 0, 0, 0, 0, 0, tokens // 2, 0, 0)


def row(task: str, length: int, seed: int, success: float, **more: Any) -> Result:
    report = {"description_tokens": length}
    counts = {"steps": 1, "optimal": 1, "alive": 1, "alive_optimal": 1, "calls": 7}
    return Result(task, "", length, seed, success, axis=AXIS, report=report, **{**counts, **more})


def grid(seeds: int, **more: Any) -> list[Result]:
    """The first task is always solved, the second only at 8K, and the third for odd seeds."""
    return [
        row(task, length, seed, success, **more)
        for length, seed in product((8_000, 16_000), range(seeds))
        for task, success in zip(TASKS, (1, length == 8_000, seed % 2), strict=True)
    ]


def cells(table: Any) -> dict[str, list[float]]:
    return {line[0]: [float(cell.split(" [")[0]) for cell in line[1:-3]] for line in table[2]}


def test_accuracy_is_shown_by_task_and_length() -> None:
    rows = [*grid(4), *grid(4, context="compaction:trigger=60k")]
    tables = [table for table in loca_tables(rows) if "by task" in table[0]]
    assert [re.findall("context (.*), 24 episodes", title) for title, _, _ in tables] == [
        ["none"],
        ["compaction:trigger=60k"],
    ]
    assert tables[0][1] == ["task", "8K", "16K", "all", "missing", "over window", "unreadable"]
    assert cells(tables[0]) == {
        "ABTesting": [100, 100, 100],
        "NhlB2bAnalysis": [100, 0, 50],
        "SetConfCrDdl": [50, 50, 50],
        "all": [83.3, 50, 66.7],
    }
    assert tables[0] in ablation_tables(rows)


def test_few_instances_are_said_and_no_interval_has_width_zero() -> None:
    for seeds in (1, 2, 5):
        for title, _, lines in loca_tables(grid(seeds)):
            if "accuracy" in title:
                assert f"WARNING: {seeds} instances a cell" in title
                bounds = re.findall(r"\[([0-9.]+), ([0-9.]+)\]", str(lines))
                assert bounds
                assert all(float(low) < float(high) for low, high in bounds)
    assert "WARNING" not in str(loca_tables(grid(20)))


def test_seeds_of_different_tasks_are_different_instances() -> None:
    # Fifteen tasks with one seed each count as fifteen instances, not as one cluster.
    tasks = [row(f"Task{k}", 8_000, 0, k < 11) for k in range(15)]
    assert summarize(tasks, (), "success")[()] == wilson(11, 15)
    # With more seeds, only variance within tasks counts; a task that is always solved has no variance.
    rng = np.random.default_rng(0)
    rows = [row("A", 8_000, seed, float(rng.random() < 0.5)) for seed in range(20)]
    alone, both = (
        summarize(some, (), "success")[()]
        for some in (rows, [*rows, *(row("B", 8_000, seed, 1.0) for seed in range(20))])
    )
    assert both.value == pytest.approx((alone.value + 1) / 2)
    assert both.high - both.low < alone.high - alone.low


def test_the_figure_has_a_panel_for_each_measure(tmp_path: Any) -> None:
    rows = [
        result
        for context, tokens in (("none", 10_000), ("memory", 20_000))
        for result in grid(3, context=context, usage=usage(tokens))
    ]
    figure = lengths_figure(rows)
    labels = [" ".join(panel.get_ylabel().split()) for panel in figure.axes]
    assert labels == [
        "accuracy (%)",
        "trajectory length (thousand tokens)",
        "tool calls",
        "tool output (thousand tokens)",
    ]
    values = [[list(line.get_ydata()) for line in panel.lines] for panel in figure.axes]
    assert np.allclose(values[0][0], [700 / 9, 400 / 9])
    assert values[1:] == [[[10, 10], [20, 20]], [[7, 7], [7, 7]], [[5, 5], [10, 10]]]
    assert len({line.get_color() for line in figure.axes[0].lines}) == 2
    shown = " ".join(each.get_text() for each in figure.findobj(Text))
    assert {"8K", "16K", "strategy", "memory"} <= set(shown.split())
    assert "n = 3 instances" in shown
    assert [
        path.suffix for path in drawing.save(figure, tmp_path / "f.png")
    ] == ".png .svg .pdf".split()
    bare = lengths_figure(grid(2))
    assert [panel.get_ylabel() for panel in bare.axes] == ["accuracy (%)", "tool calls"]
