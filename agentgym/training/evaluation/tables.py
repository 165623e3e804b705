"""Tables for the command line and the summary of a run."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym.training.evaluation.intervals import MIN_EPISODES, Interval
from agentgym.training.evaluation.scoring import CELL, Result, group_by

Table = tuple[str, list[str], list[list[str]]]
"""Title, header and rows."""

INTERVENTIONS = {"P": "plan", "S": "state", "H": "history"}
"""The names of the interventions, by letter."""
METRIC_NAMES = {
    "success": "success rate",
    "step_accuracy": "step accuracy",
    "alive_step_accuracy": "step accuracy while alive",
}


def percent(interval: Interval, signed: bool = False) -> str:
    """Format an interval of shares as percentages: `57.5 [50.0, 65.0]`."""
    form = "{:+.1f} [{:+.1f}, {:+.1f}]" if signed else "{:.1f} [{:.1f}, {:.1f}]"
    return form.format(100 * interval.value, 100 * interval.low, 100 * interval.high)


def p_value(value: float | None) -> str:
    """Format a p-value as papers do: `p = 0.012`, or `p < 0.001`."""
    if value is None:
        return "p = ?"
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def to_markdown(table: Table) -> str:
    """Format a table with its title in Markdown."""
    title, header, rows = table
    lines = [header, ["---"] * len(header), *rows]
    return f"### {title}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines)


def few_instances(results: Sequence[Result]) -> str:
    """Return a title suffix that warns of cells with few instances; empty if there are none."""
    cells = group_by(results, *CELL).values()
    fewest = min(len({row.seed for row in rows}) for rows in cells)
    if fewest >= MIN_EPISODES:
        return ""
    return f" (WARNING: {fewest} instances a cell; fewer than {MIN_EPISODES} show little)"
