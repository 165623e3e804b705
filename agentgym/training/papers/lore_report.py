"""The benchmark of LORE in tables: accuracy against operations and height, and how episodes failed (TaskWeaver, section 4)."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean

from agentgym.training.evaluation.scoring import Result
from agentgym.training.evaluation.tables import Table, percent
from agentgym.training.papers.lore import accuracy, curve, lines

_COLUMNS = ("world", "oracles", "context", "by", "from", "to", "episodes", "solved", "accuracy", "low", "high")
_MEANS = {"lost_leads": "leads lost", "reads": "reads", "redundant_reads": "redundant", "guessed_reads": "guessed"}


def lore_tables(results: Sequence[Result]) -> list[Table]:
    """For each world of LORE: accuracy by operations and by height, a column for each arm, and the kinds of failure."""
    tables = []
    for world, arms in lines(results).items():
        tables += [_curve(world, arms, "operations"), _curve(world, arms, "height"), _failures(world, arms)]
    return tables


def write_curves(results: Sequence[Result], path: Path) -> None:
    """Write the accuracies as CSV: for each number of operations, and for 5 levels of height each, with 95 % intervals."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        played = [rows for arms in lines(results).values() for rows in arms.values()]
        for rows, (by, width) in product(played, (("operations", 1), ("height", None))):
            for found in accuracy(rows, by, width):
                share = found.accuracy
                sizes = (found.low, found.high, found.episodes, round(share.value * found.episodes))
                shares = (f"{part:.4f}" for part in (share.value, share.low, share.high))
                writer.writerow([rows[0].world, rows[0].arm or "none", rows[0].context, by, *sizes, *shares])


def _curve(world: str, arms: Mapping[str, Sequence[Result]], by: str) -> Table:
    """Exact answers of all, and their share."""
    columns = {name: {(found.low, found.high): found for found in curve(rows, by)} for name, rows in arms.items()}
    table = []
    for low, high in sorted({ends for column in columns.values() for ends in column}):
        cells = [column.get((low, high)) for column in columns.values()]
        shown = [f"{round(c.accuracy.value * c.episodes)}/{c.episodes}: {percent(c.accuracy)}" if c else "" for c in cells]
        table.append([str(low) if low == high else f"{low} to {high}", *shown])
    return f"{world}: accuracy by {by}, % with Wilson's 95 % intervals", [by, *columns], table


def _failures(world: str, arms: Mapping[str, Sequence[Result]]) -> Table:
    """How many episodes failed in each way; one may lose leads besides."""
    table = []
    for name, rows in arms.items():
        failed = [row.report or {} for row in rows if not row.success]
        halted, wrong = (sum(bool(each[kind]) for each in failed) for kind in ("premature_halt", "synthesis_error"))
        lost = sum(each["lost_leads"] > 0 for each in failed)
        means = [f"{fmean((row.report or {})[kind] for row in rows):.1f}" for kind in _MEANS]
        counts = (len(rows), len(failed), halted, wrong, len(failed) - halted - wrong, lost)
        table.append([name, *map(str, counts), *means])
    header = ["", "episodes", "failed", "premature halt", "wrong synthesis", "other", "lost leads", *_MEANS.values()]
    return f"{world}: how episodes failed, in numbers of episodes, and means of an episode", header, table
