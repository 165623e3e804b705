"""Count each team's back-to-back games in a long season schedule (LOCA-bench, table 7)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from agentgym.envs.loca.checks import CsvTable, exact, hash_of, number, table_failures
from agentgym.envs.loca.draws import load_texts, shuffled, text_of, whole
from agentgym.envs.loca.fragments import create, fields_of, over, settle_file
from agentgym.envs.loca.plan import Plan, PlanStep, look, look_on, read, write
from agentgym.envs.loca.published.files import as_finite, as_name, read_table, typed_rows
from agentgym.envs.loca.published.rules import nhl_failures
from agentgym.envs.loca.published.states import PublishedConfig, load_workspace, read_spreadsheet
from agentgym.envs.loca.records import Fields, Grid, Record, Rows
from agentgym.envs.loca.results import sheet_values
from agentgym.envs.loca.task import OfficeTask
from agentgym.office.spreadsheet.excel_sheets import spot_name

SOURCE = "NHL Regular 2024-2025"
SHEET = "nhl-202425-asplayed_schedule"
RESULT = "nhl_b2b_analysis"
FILE = "nhl_b2b_analysis.csv"
HEADER = tuple(
    "Date|Start Time (Sask)|Start Time (ET)|Visitor|Score|Home|Score.1|Status".split("|")
)
COLUMNS = ("Team", "HA", "AH", "HH", "AA", "Total")
CELLS = {"Team": exact, **dict.fromkeys(COLUMNS[1:], number())}
TABLE = CsvTable(FILE, COLUMNS, CELLS, key=("Team",))
KINDS = COLUMNS[1:5]
CHUNK = 300  # rows per step, few enough that plans grow with the schedule
TEAMS: Sequence[str] = load_texts("words")["NhlB2bAnalysis"]["teams"]
_POSTPONED_RATE = 0.06  # share of games that were not played on the scheduled day
# Day, visiting team, home team, and whether the game was played.
Game = tuple[date, str, str, bool]


@dataclass(frozen=True, kw_only=True)
class NhlB2bAnalysisConfig(PublishedConfig):
    """The size is the number of rows in the schedule.

    Attributes:
        teams: The number of teams. Default: 5 plus one per 40 games, at most 32.
    """

    teams: Annotated[int, Field(ge=2, le=len(TEAMS))] | None = None


class NhlB2bAnalysis(OfficeTask[NhlB2bAnalysisConfig]):
    """Count each team's back-to-back games in a schedule, and fill a spreadsheet and a file."""

    Config = NhlB2bAnalysisConfig
    servers = ("filesystem", "terminal", "python_execute", "google_sheet", "claim_done")
    outputs = (f"spreadsheet {RESULT}", FILE)
    mutable_tables = ("google_sheet.spreadsheets", "google_sheet.sheets", "google_sheet.lines")
    harmless: ClassVar[Mapping[str, str]] = {
        "own:google_sheet.sheets/*": "titles and sizes of the sheets of the new spreadsheet, and empty sheets",
    }
    tokens_per_unit = 59.0
    text = text_of("prompts", "NhlB2bAnalysis")

    def draw(self, size: int) -> None:
        count = self.config.teams or min(len(TEAMS), 5 + size // 40)
        teams = self.rng.choice(TEAMS, count, replace=False).tolist()
        games = _season(self.rng, teams, size, date(2024, 10, 8), _POSTPONED_RATE)
        older = _season(self.rng, teams, min(size, 40), date(2023, 10, 10), 0.0)
        books = [
            (SOURCE, SHEET, games),
            ("NHL Regular 2023-2024", "nhl-202324-asplayed_schedule", older),
            ("NHL Playoffs 2025", "bracket", older[:3]),
        ]
        for title, name, part in shuffled(self.rng, books):
            self.sheets.add_spreadsheet(title, {name: [HEADER, *self._rows(part)]})
        self._set_truth(games)

    def _load(self, state: Path) -> None:
        load_workspace(state, self.files, [], FILE)
        columns = {"Date": date.fromisoformat, "Visitor": as_name, "Home": as_name}
        table = read_spreadsheet(state, SOURCE, SHEET)[SHEET]
        rows = typed_rows(f"{state}: cells.json", table, columns)
        games = [(row["Date"], row["Visitor"], row["Home"], True) for row in rows]
        self.sheets.add_spreadsheet(SOURCE, {SHEET: table})
        counts = {"Team": as_name, **dict.fromkeys(COLUMNS[1:], as_finite)}
        answer = state / "groundtruth_workspace" / "standard_answer.csv"
        expected = read_table(answer, counts, ["Team"])
        teams = _teams(games)
        if sorted(row["Team"] for row in expected) != teams:
            raise ValueError(f"{answer} must contain the teams in the schedule, {teams}")
        self._set_truth(games, published=expected)

    def _set_truth(self, games: Sequence[Game], **more: Any) -> None:
        self.truth = {
            "rows": _count(games),
            "sheets": self._states(),
            **more,
        }

    def _rows(self, games: Sequence[Game]) -> Iterator[list[Any]]:
        hours = self.rng.integers(12, 22, len(games)).tolist()
        scores = self.rng.integers(0, 8, (len(games), 2)).tolist()
        for game, hour, (away, own) in zip(games, hours, scores, strict=True):
            day, visitor, home, played = game
            start = [day.isoformat(), f"{hour - 2}:00", f"{hour}:00", visitor]
            if played:
                goals = own + (own == away)  # a played game has a winner
                yield [*start, away, home, goals, "Regulation"]
            else:
                yield [*start, "", home, "", "Postponed"]

    def plan(self) -> Plan:
        ids = yield read(
            "Find the spreadsheet.",
            lambda text: {book["title"]: book["id"] for book in json.loads(text)},
            "list_spreadsheets",
        )
        source = {"spreadsheet_id": ids[SOURCE], "sheet": SHEET}
        last = yield read(
            "Read how many rows there are.",
            lambda text: len(json.loads(text)["valueRanges"][0]["values"]),
            "get_sheet_data",
            **source,
            range="H:H",
        )
        steps = []
        for first in range(2, last + 1, CHUNK):
            area = f"A{first}:H{min(last, first + CHUNK - 1)}"
            label = f"Read {area} of the schedule."
            steps.append(read(label, _read_games, "get_sheet_data", **source, range=area))
        lists = yield steps
        rows = _count_texts(tuple(chain.from_iterable(lists)))
        table = [list(COLUMNS), *(list(row.values()) for row in rows)]
        file = yield from settle_file(TABLE, rows)
        seen = yield from _look_at_result()
        if seen and not any(_sheet_failures(seen["table"], rows)):
            yield file
            return
        if not seen:
            spreadsheet = yield create(
                "spreadsheets",
                f"Make the spreadsheet {RESULT}.",
                self.outputs[0],
                "spreadsheetId",
                "create_spreadsheet",
                title=RESULT,
            )
            seen = {"id": spreadsheet, "sheet": "Sheet1", "table": []}
        data = over(seen["table"], table)
        entry = write(
            "Write the counts into it.",
            self.outputs[0],
            "update_cells",
            thing="spreadsheets",
            spreadsheet_id=seen["id"],
            sheet=seen["sheet"],
            range=f"A1:{spot_name(len(data), len(data[0]))}",
            data=data,
        )
        yield [entry, *file]

    def task_failures(self) -> Iterator[str]:
        yield from TABLE.failures(self.files, self.truth["rows"])
        titles = self.sheets.titles()
        before = self.truth["sheets"]
        new = [book for book in titles if book not in before]
        result = next((book for book in new if titles[book] == RESULT), "")
        for book in new:
            if book != result:
                yield f"the spreadsheet {titles[book]!r} should not be there"
        if result:
            first, *others = self.sheets.sheet_titles(result)
            yield from _sheet_failures(self.sheets.values(result, first), self.truth["rows"])
            for name in others:
                if self.sheets.values(result, name):
                    yield f"the sheet {name!r} of the spreadsheet {RESULT} should be empty"
        else:
            yield f"there is no spreadsheet titled {RESULT}"
            yield from _sheet_failures([COLUMNS], self.truth["rows"])
        now = self._states()
        for book in before:
            if now[book] != before[book]:
                yield f"the spreadsheet {titles[book]!r} was changed"

    def _states(self) -> dict[str, str]:
        sql = (
            "SELECT title, row_count, column_count, row, cells FROM sheets LEFT JOIN lines ON sheet = sheets.id WHERE "
            "spreadsheet = ? ORDER BY sheets.id, row"
        )
        rows = self.sheets.store.rows
        return {book: hash_of(rows(sql, book)) for book in self.sheets.titles()}

    def published_failures(self) -> Iterator[str]:
        return nhl_failures(self.files, self.sheets, self.truth["published"])


def _sheet_failures(table: Grid, rows: Rows) -> Iterator[str]:
    yield from table_failures(f"the spreadsheet {RESULT}", table, rows, CELLS, ("Team",))


def _look_at_result() -> Generator[PlanStep, Any, Fields | None]:
    def find(text: str) -> list[str]:
        return [book["id"] for book in json.loads(text) if book["title"] == RESULT]

    thing, label = "spreadsheets", f"Look for the spreadsheet {RESULT}."
    ids = yield look(thing, label, find, "list_spreadsheets")
    if not ids:
        return None
    book = {"spreadsheet_id": ids[0]}
    label = "Look for its first sheet."
    sheet = yield look_on(thing, label, lambda text: json.loads(text)[0], "list_sheets", **book)
    place = {**book, "sheet": sheet}
    table = yield look_on(thing, "Look at its counts.", sheet_values, "get_sheet_data", **place)
    return {"id": ids[0], "sheet": sheet, "table": table}


def _season(
    rng: np.random.Generator, teams: Sequence[str], count: int, day: date, postponed: float
) -> list[Game]:
    # Teams that played the day before are less likely to play.
    games: list[Game] = []
    tired: set[str] = set()
    while len(games) < count:
        order = shuffled(rng, teams)
        ready = [team for team in order if team not in tired or rng.random() < 0.3]
        most = whole(rng, 0, 1 + max(1, len(teams) // 3))
        pairs = list(zip(ready[::2], ready[1::2], strict=False))[:most]
        tired = set()
        for visitor, home in pairs[: count - len(games)]:
            games.append((day, visitor, home, bool(rng.random() >= postponed)))
            tired |= {visitor, home}
        day += timedelta(days=1)
    return games


def _teams(games: Sequence[Game]) -> list[str]:
    return sorted(set(chain.from_iterable(game[1:3] for game in games)))


def _count(games: Sequence[Game]) -> list[Record]:
    venues: dict[str, dict[date, str]] = {team: {} for team in _teams(games)}
    for day, visitor, home, was_played in games:
        if was_played:  # a postponed game does not count
            venues[visitor][day], venues[home][day] = "A", "H"
    rows = []
    for team, days in venues.items():
        counts = Counter[str]()
        for first, second in pairwise(sorted(days)):
            if second - first == timedelta(days=1):
                counts[days[first] + days[second]] += 1
        rows.append({"Team": team, **fields_of(counts, *KINDS), "Total": counts.total()})
    return rows


@lru_cache(maxsize=8)  # cached, because each hint counts the same games again
def _count_texts(texts: tuple[str, ...]) -> Rows:
    games = []
    for text in texts:
        day, visitor, home, played = text.split("|")
        games.append((date.fromisoformat(day), visitor, home, played == "yes"))
    return _count(games)


def _read_games(text: str) -> list[str]:
    games = []
    for row in json.loads(text)["valueRanges"][0]["values"]:
        played = "no" if row[7] == "Postponed" else "yes"
        games.append("|".join((row[0], row[3], row[5], played)))
    return games
