from __future__ import annotations

import functools
import json
from datetime import date
from typing import Any

import pytest

from agentgym.envs.loca.tasks.nhl_b2b_analysis import COLUMNS, FILE, RESULT, SHEET, SOURCE
from agentgym.office.spreadsheet.google_sheet import GoogleSheet
from tests.envs.loca.office import (
    Change,
    Rows,
    call,
    enter,
    final_state_tests,
    fresh,
    in_csv,
    one_cell,
)

TASK = "NhlB2bAnalysis"
rewrite = functools.partial(in_csv, FILE)


def book(world: Any, title: str = RESULT) -> str:
    titles = world.office.get(GoogleSheet).titles()
    return next(book for book, name in titles.items() if name == title)


def entered(area: str, data: Rows, title: str = RESULT, sheet: str = "Sheet1") -> Change:
    return lambda world: enter(world, book(world, title), sheet, area, data)


def swap(rows: Rows) -> Rows:
    return [rows[0], *([row[0], row[2], row[1], *row[3:]] for row in rows[1:])]


def again_in_a_new_book(world: Any) -> None:
    table = world.office.get(GoogleSheet).values(book(world), "Sheet1")
    enter(world, book(world), "Sheet1", "A1", table[:1] + table[:0:-1])


NEAR_MISSES: dict[str, tuple[Change, str]] = {
    "a total off by one": (rewrite(one_cell(1, 5, lambda cell: str(int(cell) + 1))), "Total"),
    "HA and AH swapped": (rewrite(swap), "HA"),
    "another count in the spreadsheet": (entered("B2", [[99]]), "HA"),
    "a row more in the spreadsheet": (
        entered("A60", [["Sum", 1, 1, 1, 1, 4]]),
        "should not be there",
    ),
    "a blank behind the title": (
        call("create_spreadsheet", title=f"{RESULT} "),
        "should not be there",
    ),
}
EQUIVALENTS: dict[str, Change] = {
    "with a point": rewrite(
        lambda rows: [rows[0], *([row[0], *(f"{cell}.0" for cell in row[1:])] for row in rows[1:])]
    ),
    "the spreadsheet in another order": again_in_a_new_book,
    "sums as formulas": lambda world: entered(
        "F2", [[f"=SUM(B{k}:E{k})"] for k in range(2, len(world.truth["rows"]) + 2)]
    )(world),
    "a row below a gap": lambda world: (
        entered("A2", [[""] * 6])(world),
        entered("A60", [list(world.truth["rows"][0].values())])(world),
    ),
    "a second sheet": lambda world: world.office.call(
        "create_sheet", {"spreadsheet_id": book(world), "title": "notes"}
    ),
}


test_near_misses_fail, test_equivalents_pass = final_state_tests(TASK, NEAR_MISSES, EQUIVALENTS)


@pytest.mark.parametrize("seed", range(3))
def test_the_truth_day_by_day(seed: int) -> None:
    world = fresh(TASK, 32_000, seed)
    shown = world.office.call(
        "get_sheet_data", {"spreadsheet_id": book(world, SOURCE), "sheet": SHEET}
    )
    header, *rows = json.loads(shown)["valueRanges"][0]["values"]
    place = {name: header.index(name) for name in ("Date", "Visitor", "Home", "Status")}
    counts: dict[str, dict[str, int]] = {}
    games = [{name: row[k] for name, k in place.items()} for row in rows]
    for game in games:
        for team in (game["Visitor"], game["Home"]):
            counts.setdefault(team, dict.fromkeys(COLUMNS[1:], 0))
    played = [game for game in games if game["Status"] != "Postponed"]
    for first in played:
        for second in played:
            if (
                date.fromisoformat(second["Date"]).toordinal()
                - date.fromisoformat(first["Date"]).toordinal()
                == 1
            ):
                for team in {first["Visitor"], first["Home"]} & {second["Visitor"], second["Home"]}:
                    kind = "".join("H" if game["Home"] == team else "A" for game in (first, second))
                    counts[team][kind] += 1
                    counts[team]["Total"] += 1
    assert counts == {
        row["Team"]: {name: row[name] for name in COLUMNS[1:]} for row in world.truth["rows"]
    }
    assert len(played) < len(games)
    months = {game["Date"][:7] for game in games}
    assert len(months) > 1, "days follow each other across the ends of months"
    assert sum(row["Total"] for row in world.truth["rows"]) > 10
    assert all(game["Visitor"] != game["Home"] for game in games)
