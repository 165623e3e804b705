"""The benchmark of LOCA-bench in tables: accuracy, trajectory length, tool calls and tool output by
description length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from agentgym.envs.loca.config import LENGTHS
from agentgym.envs.loca.task import OfficeTask
from agentgym.oracles import ARMS
from agentgym.registry import worlds
from agentgym.stacks import WINDOW
from agentgym.training.evaluation import (
    Paper,
    Result,
    Table,
    ordered_contexts,
    percent,
    register_paper,
    summarize,
)

AXIS = "length"
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "loca": {
        "worlds": tuple(
            entry.world.__name__ for entry in worlds() if issubclass(entry.world, OfficeTask)
        ),
        "arms": ("",),
        "axis": AXIS,
        "horizons": tuple(LENGTHS.values()),
        "seeds": 5,
        "window": WINDOW,
    },
}
"""The run of LOCA-bench's table 1, as arguments of `Ablation`."""


def is_loca(result: Result) -> bool:
    """Return whether an episode was an office task played at an environment description length."""
    return result.axis == AXIS and "description_tokens" in (result.report or {})


def loca_tables(results: Sequence[Result]) -> list[Table]:
    """Return tables 1, 4, 5 and 6 of the paper: a row for each arm and strategy, a column for each
    length, all tasks together.

    Tokens are those that context wrappers counted; without a window there are none, and their
    tables are left out.
    """
    rows = [row for row in results if is_loca(row)]
    if not rows:
        return []
    tables = [_accuracy(rows), _means("tool calls", rows, lambda row: float(row.calls))]
    if all(row.usage for row in rows):
        tables.append(
            _means(
                "trajectory length, tokens",
                rows,
                lambda row: row.usage.trajectory_tokens if row.usage else 0,
            )
        )
        tables.append(
            _means(
                "tool output, tokens",
                rows,
                lambda row: row.usage.tool_output_tokens if row.usage else 0,
            )
        )
    return tables


def _accuracy(rows: Sequence[Result]) -> Table:
    cells = summarize(rows, ("arm", "context", "horizon"), "success")
    whole = summarize(rows, ("arm", "context"), "success")
    lengths = sorted({row.horizon for row in rows})
    lines = []
    for arm, context in _lines(rows):
        shares = [cells.get((arm, context, length)) for length in lengths]
        texts = [percent(share) if share else "" for share in shares]
        lines.append([arm or "none", context, *texts, percent(whole[arm, context])])
    title = (
        f"LOCA-bench: accuracy by description length, {len(rows)} episodes, % with 95 % intervals"
    )
    return title, ["arm", "context", *map(_short, lengths), "all"], lines


def _means(title: str, rows: Sequence[Result], value: Callable[[Result], float]) -> Table:
    lengths = sorted({row.horizon for row in rows})
    lines = []
    for arm, context in _lines(rows):
        alike = [row for row in rows if (row.arm, row.context) == (arm, context)]
        groups = [[value(row) for row in alike if row.horizon == length] for length in lengths]
        cells = [
            f"{fmean(group):,.1f}" if group else ""
            for group in (*groups, [value(row) for row in alike])
        ]
        lines.append([arm or "none", context, *cells])
    return (
        f"LOCA-bench: mean {title}, by description length",
        ["arm", "context", *map(_short, lengths), "all"],
        lines,
    )


def _lines(rows: Sequence[Result]) -> list[tuple[str, str]]:
    pairs = {(row.arm, row.context) for row in rows}
    return [
        (arm, context)
        for arm in ARMS
        for context in ordered_contexts(rows)
        if (arm, context) in pairs
    ]


def _short(length: int) -> str:
    return f"{length // 1_000}K" if length % 1_000 == 0 else str(length)


register_paper(
    Paper(
        "LOCA-bench",
        place=2,
        presets=PRESETS,
        sizes="tokens, such as 8k (loca)",
        size_names=LENGTHS,
        applies=is_loca,
        tables=loca_tables,
        headline=True,
    )
)
