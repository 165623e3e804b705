"""Compute the yearly market growth of a company's category (LOCA-bench, table 7)."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import Field, TypeAdapter

from agentgym.envs.loca.checks import exact, file_state, number, open_output, table_failures
from agentgym.envs.loca.draws import load_texts, pick, shuffled, text_of
from agentgym.envs.loca.fragments import as_records, look_at_workbook, remove_sheets
from agentgym.envs.loca.plan import Plan, PlanStep, read, write
from agentgym.envs.loca.published.files import (
    as_finite,
    as_name,
    read_book,
    read_json,
    read_table,
    typed_rows,
)
from agentgym.envs.loca.published.rules import growth_failures
from agentgym.envs.loca.published.states import PublishedConfig, load_workspace
from agentgym.envs.loca.records import Grid, Record, Rows
from agentgym.envs.loca.results import cell_rows, read_metadata
from agentgym.envs.loca.task import OfficeTask
from agentgym.office.spreadsheet.cells import parse_area
from agentgym.office.spreadsheet.excel_sheets import spot_name
from agentgym.office.spreadsheet.workbooks import write_workbook

DATA = "Market_Data.xlsx"
FORMAT = "Market_Data_Format.xlsx"
REQUEST = "task_specific.md"
RESULT = "growth_rate.xlsx"
WEIGHTS = "Methodology"
VALUES = "RawData"
SHEET = "Growth"
YEAR = "Year"
TOTAL = "Growth Rate %"
NONE = "NA"
WORDS = load_texts("words")["ExcelMarketResearch"]
SCALES = {"mn": 1, "bn": 1000}  # values of the units, in millions
BLOCK = 20  # cells per unit of size
MAX_BLOCKS = 8_000  # limits years times categories
# The market sizes of each year.
Sizes: TypeAlias = Mapping[int, Sequence[Decimal]]
_WEIGHT_RATE = 0.6  # share of data categories that contribute to a company category
_CHUNK = 80  # cells per read, few because each cell takes many tokens as JSON
_HEADING = "## Report to be made\n\n"
_REQUEST = re.compile(rf"{_HEADING}- Target category: (.+)\n- Years: (\d+) to (\d+)")
_HEAD = re.compile(r"(.+) \((mn|bn) USD\)")
# Request format and category header in LOCA-bench's states.
_PUBLISHED_REQUEST = re.compile(
    r"\*\*Target Category:\*\* (.{1,200})\n\n\*\*Time Range:\*\* (\d{4}) to (\d{4})"
)
CATEGORY = "Category"
PUBLISHED_CATEGORY = "Internal / Raw"


@dataclass(frozen=True)
class _Metadata:
    target_category: str
    conversion_weights: dict[str, dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class ExcelMarketResearchConfig(PublishedConfig):
    """The size is the area of the data sheets, in blocks of 20 cells.

    Attributes:
        num_years: The number of years of data. Default: depends on the size, as in the paper.
        num_raw_categories: The number of categories in the data. Default: as for `num_years`.
        num_internal_categories: The number of company categories. Default: as for `num_years`.
    """

    size: Annotated[int, Field(ge=1, le=MAX_BLOCKS)] | None = None
    num_years: Annotated[int, Field(ge=2, le=300)] | None = None
    num_raw_categories: Annotated[int, Field(ge=1, le=300)] | None = None
    num_internal_categories: Annotated[int, Field(ge=1, le=200)] | None = None


class ExcelMarketResearch(OfficeTask[ExcelMarketResearchConfig]):
    """Convert market data to a company's own category with the weights in a workbook, and report
    yearly growth.
    """

    Config = ExcelMarketResearchConfig
    servers = ("filesystem", "terminal", "python_execute", "excel", "claim_done")
    outputs = (RESULT,)
    tokens_per_unit = 1_000.0
    text = text_of("prompts", "ExcelMarketResearch")

    def draw(self, size: int) -> None:
        years, raw, internal = self._shape(BLOCK * min(size, MAX_BLOCKS))
        markets = itertools.product(WORDS["kinds"], WORDS["goods"], WORDS["places"])
        names = self.rng.choice(list(map("".join, markets)), raw, replace=False).tolist()
        categories = itertools.product(WORDS["fields"], WORDS["lines"])
        own = self.rng.choice(list(map("".join, categories)), internal, replace=False).tolist()
        target = self.whole(internal)
        weights = [_weights(self.rng, raw) for _ in own]
        weights[target] = _weights(self.rng, raw, mixed=True)
        used = [k for k, weight in enumerate(weights[target]) if weight]
        units = {k: pick(self.rng, ("mn", "mn", "bn")) for k in range(raw)}
        # The target category uses both units, if possible.
        units |= dict(zip(self.rng.permutation(used).tolist()[:2], ("mn", "bn"), strict=False))
        last = self.whole(2015, 2025)
        data = dict(enumerate(_values(self.rng, years, raw, units), last - years + 1))
        first, last = self._write_request(own, target, sorted(data))
        self._write_data(names, own, weights, data, units)
        factors = [weights[target][k] * SCALES[units[k]] for k in used]
        values = {}
        for year, row in data.items():
            values[year] = [row[k] for k in used]
        used_names = [names[k] for k in used]
        self._set_truth(used_names, factors, values, (first, last))

    def _load(self, state: Path) -> None:
        load_workspace(state, self.files, [DATA, FORMAT, REQUEST], RESULT)
        folder = state / "agent_workspace"
        answers = state / "groundtruth_workspace"
        request = self.files.read(REQUEST).decode("utf-8", "replace")
        match = _PUBLISHED_REQUEST.search(request)
        if not match:
            raise ValueError(f"{folder / REQUEST} must name a target category and a time range")
        target = match[1]
        first = int(match[2])
        last = int(match[3])
        # agentgym's prompt describes a different request format.
        self.files.write(REQUEST, f"{_HEADING}{_request(target, first, last)}\n")
        names, factors, values = _read_market(folder / DATA, target)
        if not set(range(first, last + 1)) <= values.keys():
            raise ValueError(f"{folder / DATA} must contain the years {first} to {last}")
        metadata = read_json(answers / "metadata.json", TypeAdapter(_Metadata))
        weights = metadata.conversion_weights.get(metadata.target_category)
        if metadata.target_category != target or weights is None:
            raise ValueError(f"{answers / 'metadata.json'} must contain the weights of {target!r}")
        answer = answers / "Market_Data_gt.csv"
        expected = read_table(answer, dict.fromkeys(_header(weights), as_finite))
        if {row[YEAR] for row in expected} != set(range(first, last + 1)):
            raise ValueError(f"{answer} must contain the years {first} to {last}")
        sheet = next(iter(read_book(folder / FORMAT)))
        optional = [f"{name} %" for name, weight in weights.items() if not weight]
        more = {"sheet": sheet, "published": expected, "optional": optional}
        self._set_truth(names, factors, values, (first, last), **more)

    def _set_truth(
        self,
        names: Sequence[str],
        factors: Sequence[Decimal],
        values: Sizes,
        years: tuple[int, int],
        **more: Any,
    ) -> None:
        columns = _header(names)
        rows = as_records(columns, _report(factors, values, years))
        files = file_state(self.files)
        self.truth = {"columns": columns, "rows": rows, "files": files, **more}

    def _shape(self, cells: int) -> tuple[int, int, int]:
        config = self.config
        side = cells**0.5
        years = config.num_years
        if not years:
            years = max(3, round(min(1.15 * side, 120) * self.rng.uniform(0.9, 1.1)))
        internal = config.num_internal_categories or min(200, max(2, round(0.25 * side)))
        raw = min(1_000, max(1, round(cells / (years + internal + 2)) - 1))
        return years, config.num_raw_categories or raw, internal

    def _write_request(
        self, own: Sequence[str], target: int, years: Sequence[int]
    ) -> tuple[int, int]:
        spare = min(3, len(years) - 2)
        first = years[0] + self.whole(0, spare + 1) * int(self.happens(0.5))
        last = max(first + 1, years[-1] - self.whole(0, 3))
        one, other = self.rng.integers(len(own), size=2)
        parts = [
            f"## Delivered in 2023\n\n{_request(own[one], years[0], years[-1] - 1)}",
            f"{_HEADING}{_request(own[target], first, last)}",
            f"## Delivered in 2024\n\n{_request(own[other], years[0], years[-1] - 1)}",
        ]
        text = "\n\n".join(shuffled(self.rng, parts))
        self.files.write(REQUEST, f"# Growth reports\n\n{text}\n")
        return first, last

    def _write_data(
        self,
        names: Sequence[str],
        own: Sequence[str],
        weights: Sequence[Sequence[Decimal]],
        data: Sizes,
        units: Mapping[int, str],
    ) -> None:
        # The sheets RawData and Methodology have different column orders.
        rows: list[list[Any]] = [[CATEGORY, *names]]
        for name, row in zip(own, weights, strict=True):
            rows.append([name, *(_cell(self.rng, weight) for weight in row)])
        order = self.rng.permutation(len(names)).tolist()
        years = sorted(data, reverse=bool(self.happens(0.4)))
        table: list[list[Any]] = [[YEAR, *(f"{names[k]} ({units[k]} USD)" for k in order)]]
        for year in years:
            table.append([year, *(float(data[year][k]) for k in order)])
        form: list[list[Any]] = [
            [YEAR, "Category A %", "Category B %", TOTAL],
            [2020, NONE, NONE, NONE],
            [2021, 5.25, -1.5, 2.04],
            [2022, 3, 0.7, 1.9],
        ]
        self.files.write(DATA, write_workbook({WEIGHTS: rows, VALUES: table}))
        self.files.write(FORMAT, write_workbook({SHEET: form}))

    def plan(self) -> Plan:
        request = yield read("Read the request.", _read_request, "read_text_file", path=REQUEST)
        ranges = {"filepath": DATA, "include_ranges": True}
        label = "Look at the size of the sheets."
        form, sizes = yield [
            read("Look at the form.", _read_title, "get_workbook_metadata", filepath=FORMAT),
            read(label, _read_sizes, "get_workbook_metadata", **ranges),
        ]
        place = {"filepath": FORMAT, "sheet_name": form}
        read_weights = functools.partial(_read_weights, target=request["target"])
        [last, heads, *parts] = yield [
            read("Read the form.", _read_last_head, "read_data_from_excel", **place),
            *_pieces(VALUES, 1, [1, sizes[VALUES][1]], lambda rows: rows[0]),
            *_pieces(WEIGHTS, 1, sizes[WEIGHTS], read_weights),
        ]
        used, columns, factors = _used_columns(parts, heads)
        read_values = functools.partial(_read_values, columns=columns)
        pages = yield list(_pieces(VALUES, 2, sizes[VALUES], read_values))
        data = {}
        for year, *values in itertools.chain.from_iterable(pages):
            data[year] = list(map(_exact, values))
        header = _header(used, last)
        rows = []
        for year, *cells in _report(factors, data, (request["first"], request["last"])):
            rows.append([year, *map(_as_cell, cells)])
        sheets = yield from look_at_workbook(RESULT, form)
        records = as_records(header, rows)
        if sheets is None or any(_table_failures(sheets.get(form, []), header, records)):
            # Remove the empty sheet last, because a workbook needs at least one sheet.
            step = functools.partial(write, thing=f"file {RESULT}", filepath=RESULT)
            yield step(f"Make {RESULT}.", RESULT, "create_workbook")
            label = f"Write the report into its sheet {form}."
            table = {"sheet_name": form, "data": [header, *rows]}
            yield step(label, RESULT, "write_data_to_excel", **table)
            yield step("Remove its empty sheet.", RESULT, "delete_worksheet", sheet_name="Sheet1")
        else:
            yield from remove_sheets(RESULT, sheets, form)

    def task_failures(self) -> Iterator[str]:
        table, failures = open_output(self.files, RESULT, self.truth.get("sheet", SHEET))
        yield from failures
        yield from _table_failures(table, self.truth["columns"], self.truth["rows"])

    def published_failures(self) -> Iterator[str]:
        truth = self.truth
        return growth_failures(self.files, RESULT, truth["published"], truth["optional"])


def _request(target: str, first: int, last: int) -> str:
    return f"- Target category: {target}\n- Years: {first} to {last}"


def _header(names: Iterable[str], total: str = TOTAL) -> list[str]:
    return [YEAR, *(f"{name} %" for name in names), total]


def _report(factors: Sequence[Decimal], values: Sizes, years: tuple[int, int]) -> list[list[Any]]:
    rows = []
    for year in range(years[0], years[1] + 1):
        growth = [NONE] * (len(factors) + 1)
        if year - 1 in values:
            sizes = [_with_sum(values[y], factors) for y in (year - 1, year)]
            growth = [f"{(new / old - 1) * 100:.2f}" for old, new in zip(*sizes, strict=True)]
        rows.append([year, *growth])
    return rows


def _as_cell(growth: str) -> str | float:
    return growth if growth == NONE else float(growth)


def _read_market(path: Path, target: str) -> tuple[list[str], list[Decimal], Sizes]:
    book = read_book(path, WEIGHTS, VALUES)
    heads = {}
    for head in book[VALUES][0][1:]:
        match = _HEAD.fullmatch(str(head))
        if not match:
            place = f"{path}: {VALUES}: row 1"
            raise ValueError(f"{place}: {head!r} must end with (mn USD) or (bn USD)")
        heads[match[1]] = match
    names = list(book[WEIGHTS][0][1:])
    columns = {PUBLISHED_CATEGORY: as_name, **dict.fromkeys(names, as_finite)}
    rows = typed_rows(f"{path}: {WEIGHTS}", book[WEIGHTS], columns, [PUBLISHED_CATEGORY])
    found = next((row for row in rows if row[PUBLISHED_CATEGORY] == target), None)
    if not found or heads.keys() != set(names):
        raise ValueError(
            f"{path}: {WEIGHTS} must contain {target!r} and all categories of {VALUES}"
        )
    used = [name for name in names if found[name]]
    factors = [_exact(found[name]) * SCALES[heads[name][2]] for name in used]
    titles = [heads[name][0] for name in used]
    columns = {YEAR: as_finite, **dict.fromkeys(titles, _as_size)}
    values = {}
    for row in typed_rows(f"{path}: {VALUES}", book[VALUES], columns, [YEAR]):
        values[int(row[YEAR])] = [row[title] for title in titles]
    return used, factors, values


def _exact(value: float) -> Decimal:
    return Decimal(str(value))


def _as_size(cell: object) -> Decimal:
    if (size := as_finite(cell)) <= 0:
        raise ValueError(f"must be greater than 0, got {cell!r}")
    return _exact(size)


def _weights(rng: np.random.Generator, count: int, *, mixed: bool = False) -> list[Decimal]:
    drawn = (rng.random(count) < _WEIGHT_RATE) * rng.uniform(0.05, 1, count)
    if mixed:  # some categories contribute, and one does not
        places = rng.permutation(count)
        drawn[places[:2]] = rng.uniform(0.2, 1, len(places[:2]))
        drawn[places[-1]] *= count == 1
    total = max(float(drawn.sum()), 0.05)
    weights = []
    for weight in drawn.tolist():
        thousandths = max(1, round(1000 * weight / total)) if weight else 0
        weights.append(Decimal(thousandths) / 1000)
    return weights


def _values(
    rng: np.random.Generator, years: int, count: int, units: Mapping[int, str]
) -> list[list[Decimal]]:
    size = rng.uniform(5_000, 50_000, count)
    trend = rng.choice([0.05, 0.02, 0.0, -0.015], count)
    noise = rng.choice([0.05, 0.15], count, p=[0.8, 0.2]) * rng.uniform(-1, 1, (years, count))
    scales = [SCALES[units[k]] for k in range(count)]
    drawn = size * (1 + trend) ** np.arange(years)[:, None] * (1 + noise) / scales
    rows = []
    for row in drawn.tolist():
        rows.append([Decimal(max(1, round(100 * value))) / 100 for value in row])
    return rows


def _cell(rng: np.random.Generator, weight: Decimal) -> float | None:
    # Half of the zero weights are empty cells.
    return float(weight) if weight or rng.random() < 0.5 else None


def _read_title(text: str) -> str:
    return str(read_metadata(text)["sheets"][0])


def _read_last_head(text: str) -> Any:
    return cell_rows(text)[0][-1]


def _read_request(text: str) -> Record:
    match = _REQUEST.search(text)
    if not match:
        raise ValueError("the file must contain a request")
    return {"target": match[1], "first": int(match[2]), "last": int(match[3])}


def _read_sizes(text: str) -> dict[str, list[int]]:
    sizes = {}
    for title, area in read_metadata(text)["used_ranges"].items():
        used = parse_area(area)
        sizes[title] = [used.bottom or 0, used.right or 0]
    return sizes


def _pieces(
    title: str, first: int, size: Sequence[int], keep: Callable[[list[list[Any]]], Any]
) -> Iterator[PlanStep]:
    bottom, right = size
    at_once = max(1, _CHUNK // right)
    for top in range(first, bottom + 1, at_once):
        end = min(bottom, top + at_once - 1)
        yield read(
            f"Read rows {top} to {end} of {title}.",
            lambda text: keep(cell_rows(text)),
            "read_data_from_excel",
            filepath=DATA,
            sheet_name=title,
            start_cell=spot_name(top, 1),
            end_cell=spot_name(end, right),
        )


def _read_values(rows: Grid, columns: Sequence[int]) -> list[list[Any]]:
    values = []
    for row in rows:
        values.append([row[k] for k in columns])
    return values


def _read_weights(rows: Grid, target: str) -> Record:
    names = rows[0][1:] if rows[0][0] in (CATEGORY, PUBLISHED_CATEGORY) else None
    return {"names": names, "weights": next((row[1:] for row in rows if row[0] == target), None)}


def _used_columns(parts: Rows, heads: Sequence[str]) -> tuple[list[str], list[int], list[Decimal]]:
    weights = next(part["weights"] for part in parts if part["weights"])
    places = {}
    for k, head in enumerate(heads):
        if match := _HEAD.fullmatch(head):
            places[match[1]] = (k, SCALES[match[2]])
    used, columns, factors = [], [0], []  # the first column contains the years
    for name, weight in zip(parts[0]["names"], weights, strict=True):
        if weight:
            used.append(name)
            columns.append(places[name][0])
            factors.append(_exact(weight) * places[name][1])
    return used, columns, factors


def _with_sum(values: Sequence[Decimal], factors: Sequence[Decimal]) -> list[Decimal]:
    total = sum((factor * value for factor, value in zip(factors, values, strict=True)), Decimal(0))
    return [*values, total]


def _table_failures(table: Grid, columns: Sequence[str], rows: Rows) -> Iterator[str]:
    cells = dict.fromkeys(columns, _same)
    yield from table_failures(RESULT, table, rows, cells, (YEAR,), ordered=True)


def _same(actual: Any, expected: Any) -> bool:
    if expected == NONE:
        return exact(actual, NONE)
    if isinstance(actual, str):  # numbers must not be stored as text
        return False
    return number(0.0 if isinstance(expected, int) else 0.01)(actual, expected)
