"""The benchmark of LOCA-bench in tables: accuracy, trajectory length, tool calls and tool output by description length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from agentgym.oracles import ARMS
from agentgym.training.evaluation.bootstrap import summarize
from agentgym.training.evaluation.scoring import Result, ordered_contexts
from agentgym.training.evaluation.tables import Table, percent

AXIS = "length"


def is_loca(result: Result) -> bool:
    """Whether an episode was an office task played at an environment description length."""
    return result.axis == AXIS and "description_tokens" in (result.report or {})


def loca_tables(results: Sequence[Result]) -> list[Table]:
    """Tables 1, 4, 5 and 6 of the paper: a row for each arm and strategy, a column for each length, all tasks together.

    Tokens are those that context wrappers counted; without a window there are none, and their tables are left out.
    """
    rows = [row for row in results if is_loca(row)]
    if not rows:
        return []
    tables = [_accuracy(rows), _means("tool calls", rows, lambda row: float(row.calls))]
    if all(row.usage for row in rows):
        counted = {"trajectory length": "trajectory_tokens", "tool output": "tool_output_tokens"}
        for title, name in counted.items():
            tables.append(_means(f"{title}, tokens", rows, lambda row, name=name: float(getattr(row.usage, name))))  # type: ignore[misc]
    return tables


def _accuracy(rows: Sequence[Result]) -> Table:
    found = summarize(rows, ("arm", "context", "horizon"), "success")
    whole = summarize(rows, ("arm", "context"), "success")
    lengths = sorted({row.horizon for row in rows})
    lines = []
    for arm, context in _lines(rows):
        cells = [percent(found[arm, context, length]) if (arm, context, length) in found else "" for length in lengths]
        lines.append([arm or "none", context, *cells, percent(whole[arm, context])])
    title = f"LOCA-bench: accuracy by description length, {len(rows)} episodes, % with 95 % intervals"
    return title, ["arm", "context", *map(_short, lengths), "all"], lines


def _means(title: str, rows: Sequence[Result], value: Callable[[Result], float]) -> Table:
    lengths = sorted({row.horizon for row in rows})
    lines = []
    for arm, context in _lines(rows):
        alike = [row for row in rows if (row.arm, row.context) == (arm, context)]
        groups = [[value(row) for row in alike if row.horizon == length] for length in lengths]
        cells = [f"{fmean(group):,.1f}" if group else "" for group in (*groups, [value(row) for row in alike])]
        lines.append([arm or "none", context, *cells])
    return f"LOCA-bench: mean {title}, by description length", ["arm", "context", *map(_short, lengths), "all"], lines


def _lines(rows: Sequence[Result]) -> list[tuple[str, str]]:
    played = {(row.arm, row.context) for row in rows}
    return [(arm, context) for arm in ARMS for context in ordered_contexts(rows) if (arm, context) in played]


def _short(length: int) -> str:
    return f"{length // 1_000}K" if length % 1_000 == 0 else str(length)
