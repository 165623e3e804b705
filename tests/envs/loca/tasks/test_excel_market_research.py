from __future__ import annotations

import io
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import openpyxl
import pytest

from agentgym.envs.loca.tasks.excel_market_research import (
    DATA,
    FORMAT,
    NONE,
    REQUEST,
    RESULT,
    SHEET,
    TOTAL,
    VALUES,
    WEIGHTS,
)
from agentgym.office.spreadsheet.workbooks import read_workbook, write_workbook
from tests.envs.loca.office import final_state_tests, fresh

TASK = "ExcelMarketResearch"
Rows = list[list[Any]]


def rewrite(
    change: Callable[[Rows], Rows], sheets: tuple[str, ...] = (SHEET,)
) -> Callable[[Any], None]:
    def apply(world: Any) -> None:
        rows = read_workbook(world.office.context.files.read(RESULT))[SHEET]
        world.office.context.files.write(
            RESULT, write_workbook(dict.fromkeys(sheets, change(rows)))
        )

    return apply


def cells(change: Callable[[Any], Any]) -> Callable[[Any], None]:
    return rewrite(
        lambda rows: [
            rows[0],
            *([row[0], *(v if v == NONE else change(v) for v in row[1:])] for row in rows[1:]),
        ]
    )


def cell(change: Callable[[Any], Any], row: int = -1, column: int = -1) -> Callable[[Any], None]:
    def apply(rows: Rows) -> Rows:
        rows[row][column] = change(rows[row][column])
        return rows

    return rewrite(apply)


def write(data: bytes) -> Callable[[Any], None]:
    return lambda world: world.office.context.files.write(RESULT, data)


def totals(world: Any, weigh: Callable[[float, str, float], float]) -> None:
    rows, sheets = (
        read_workbook(world.office.context.files.read(RESULT))[SHEET],
        read_workbook(world.office.context.files.read(DATA)),
    )
    target, _, _ = request(world)
    heads = [re.fullmatch(r"(.+) \((..) USD\)", head) for head in sheets[VALUES][0][1:]]
    weights = dict(
        zip(
            sheets[WEIGHTS][0],
            next(row for row in sheets[WEIGHTS] if row[0] == target),
            strict=False,
        )
    )
    size = {
        row[0]: sum(
            weigh(weights.get(head[1]) or 0, head[2], value)
            for head, value in zip(heads, row[1:], strict=True)
            if head
        )
        for row in sheets[VALUES][1:]
    }
    for row in rows[1:]:
        row[-1] = (
            row[-1] if row[-1] == NONE else round((size[row[0]] / size[row[0] - 1] - 1) * 100, 2)
        )
    world.office.context.files.write(RESULT, write_workbook({SHEET: rows}))


def request(world: Any) -> tuple[str, int, int]:
    text = world.office.context.files.read_text(REQUEST)
    lines = text.split("## Report to be made")[1].split("\n")[2:4]
    years = re.findall(r"\d{4}", lines[1])
    return lines[0].removeprefix("- Target category: "), int(years[0]), int(years[1])


NEAR_MISSES: dict[str, tuple[Callable[[Any], object], str]] = {
    "a column is missing": (rewrite(lambda rows: [[row[0], *row[2:]] for row in rows]), "has the columns"),
    "a column for a category without weight": (
        rewrite(lambda rows: [[*row[:-1], f"{row[-1]}" if k else "Lamps %", row[-1]] for k, row in enumerate(rows)]),
        "has the columns",
    ),
    "shares for percent": (cells(lambda v: v / 100), "expected"),
    "0.02 off": (cell(lambda v: v + 0.02), f"{TOTAL} of"),
    "0.02 below": (cell(lambda v: v - 0.02, column=1), "% of"),
    "one decimal": (cells(lambda v: round(v, 1)), "expected"),
    "texts": (cells(str), "expected"),
    "formulas": (cells(lambda v: f"={v}"), "formulas"),
    "a truth value": (cell(lambda _: True), f"{TOTAL} of"),
    "years as dates": (rewrite(lambda rows: [rows[0], *([datetime(r[0], 1, 1), *r[1:]] for r in rows[1:])]), "is missing"),
    "an empty workbook": (write(write_workbook({SHEET: []})), "has the columns []"),
    "the form": (
        lambda world: world.office.context.files.write(RESULT, world.office.context.files.read(FORMAT)),
        "has the columns",
    ),
}  # fmt: skip


def formatted(world: Any) -> None:
    book = openpyxl.load_workbook(io.BytesIO(world.office.context.files.read(RESULT)))
    for cell in book[SHEET][1]:
        cell.font, cell.number_format = openpyxl.styles.Font(bold=True), "0.0"
    book.save(out := io.BytesIO())
    world.office.context.files.write(RESULT, out.getvalue())


EQUIVALENTS: dict[str, Callable[[Any], object]] = {
    "0.01 off": cells(lambda v: v + 0.01),
    "0.01 below": cells(lambda v: v - 0.01),
    "floats for whole years": rewrite(lambda rows: [rows[0], *([float(row[0]), *row[1:]] for row in rows[1:])]),
    "in floating point": lambda world: totals(world, lambda w, u, v: w * v * (1 if u == "bn" else 0.001)),
    "formatted": formatted,
}  # fmt: skip


test_near_misses_fail, test_equivalents_pass = final_state_tests(
    TASK, NEAR_MISSES, EQUIVALENTS, seed=1
)


@pytest.mark.parametrize("seed", range(4))
def test_the_truth_in_plain_floating_point(seed: int) -> None:
    world = fresh(TASK, 24_000, seed)
    book = openpyxl.load_workbook(io.BytesIO(world.office.context.files.read(DATA)))
    target, first, last = request(world)
    names, *rows = book[WEIGHTS].iter_rows(values_only=True)
    weights = next(
        {n: w for n, w in zip(names[1:], row[1:], strict=True) if w}
        for row in rows
        if row[0] == target
    )
    assert list(weights) == [column.removesuffix(" %") for column in world.truth["columns"][1:-1]]
    heads, *years = book[VALUES].iter_rows(values_only=True)
    size = {
        row[0]: {
            head[:-9]: v * (1 if "(mn" in head else 1e3) for head, v in zip(heads, row, strict=True)
        }
        for row in years
    }
    truth = {row["Year"]: row for row in world.truth["rows"]}
    assert list(truth) == list(range(first, last + 1))
    for year, row in truth.items():
        if year == min(size):
            assert set(row.values()) == {year, NONE}
            continue
        old, new = size[year - 1], size[year]
        for name in weights:
            assert abs((new[name] - old[name]) / old[name] * 100 - float(row[f"{name} %"])) < 0.0051
        old_sum, new_sum = (
            sum(weight * each[name] for name, weight in weights.items()) for each in (old, new)
        )
        assert abs((new_sum / old_sum - 1) * 100 - float(row[TOTAL])) < 0.0051  # two decimals
