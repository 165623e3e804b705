"""LOCA-bench's own success rules, for the tasks whose states can be loaded.

The functions apply the published tolerances and check only what the published rules check. Unlike
the published rules, they do not accept a storage object in place of a log entry. Each function
yields one sentence per failure, and raises an error in `checks.UNREADABLE` for an unreadable output.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import json
import operator
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from agentgym.envs.loca.checks import as_text, named_rows
from agentgym.envs.loca.published.files import as_finite, finite_or
from agentgym.envs.loca.records import Fields, Grid, Record, Rows
from agentgym.envs.loca.service_checks import log_state
from agentgym.office.email.server import Email
from agentgym.office.files.workspace import Workspace
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.office.spreadsheet.google_sheet import GoogleSheet
from agentgym.office.spreadsheet.workbooks import read_workbook
from agentgym.office.woocommerce.server import WooCommerce
from agentgym.text.tools import ToolError

_Reading: TypeAlias = tuple[datetime, str, str, float]

# Tolerances for conversion rates and for growth rates, in percentage points.
_RATE, _POINTS = 0.05, 1.0
# Page size of LOCA-bench's checker, which requests only one page of products.
_PAGE = 10
_AMOUNT = 0.01 + 1e-9
_TIME, _READING = timedelta(seconds=60), 0.01
_TIMES = ("%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S")  # fmt: skip
_NHL_TITLES = ("nhl_b2b_analysis", "nhl b2b analysis", "nhl-b2b-analysis")
_NHL_WORDS = ("nhl", "back", "b2b", "analysis", "sheet")
# Maps each column to the accepted spellings.
_NHL_COLUMNS = {
    "Team": ("Team", "team", "TEAM", "Teams", "TeamName"),
    "HA": ("HA", "Home-Away", "HomeAway"),
    "AH": ("AH", "Away-Home", "AwayHome"),
    "HH": ("HH", "Home-Home", "HomeHome"),
    "AA": ("AA", "Away-Away", "AwayAway"),
    "Total": ("Total", "TOTAL", "Sum"),
}

_OUTLETS = ("Outlet/Clearance", "Outlet", "Clearance")
_FILE = "discount_products.csv"
# Tolerances by column, in currency units or percentage points.
_LIMITS = {"Original Price": 0.01, "Discounted Price": 0.01, "Discount Ratio": 0.2}


def ab_testing_failures(
    files: Workspace, cloud: GoogleCloud, expected: Rows, verdict: Fields
) -> Iterator[str]:
    """Check each conversion rate with a tolerance of 0.05 percentage points.

    Whether a bucket or a log entry is required depends on the agent's own overall rates. `verdict`
    contains the names of the bucket, the log and the overall row, and the required payload.
    """
    wanted = _rates(expected)
    rates = _rates(_records(files.read_text("record.csv")))
    if rates.keys() != wanted.keys():
        yield f"record.csv has other scenarios: {sorted(rates.keys() ^ wanted.keys())[:5]}"
        return
    for name, pair in wanted.items():
        if any(abs(a - b) > _RATE for a, b in zip(rates[name], pair, strict=True)):
            yield f"record.csv: {name} is {rates[name]}, expected {pair}"
    bucket, log = verdict["bucket"] in cloud.storage.buckets(), verdict["log"]
    payloads = [json.loads(text) for name, _, text in log_state(cloud) if log in name]
    first, second = rates[verdict["overall"]]
    if second > first and (not bucket or payloads):
        yield "B wins: there must be the bucket and no log entry"
    if second <= first:
        logged = [_parse(each.get("textPayload", each.get("jsonPayload"))) for each in payloads]
        if bucket or verdict["payload"] not in logged:
            yield "A wins: there must be the log entry and no bucket"


def academic_warning_failures(
    files: Workspace, cloud: GoogleCloud, expected: Rows, students: Mapping[str, str]
) -> Iterator[str]:
    """Check the ids in bad_student.csv, and the critical log entries for drops over 45 percent."""
    drops = {row["student_id"]: row["drop_ratio"] for row in expected}
    rows = _records(files.read_text("bad_student.csv"))
    listed = {(row["student_id"] or "").strip() for row in rows} - {""}
    if listed != drops.keys():  # LOCA-bench's answer contains only drops above 25 percent
        yield "bad_student.csv lists other students"
    messages = list(_critical_messages(cloud))
    needed = [student for student, drop in drops.items() if drop > 0.45]
    if not messages:
        yield "there is no critical log entry"
    unused = list(messages)
    for student in needed:
        for text in unused:
            if student in text and students[student] in text:
                unused.remove(text)
                break
        else:
            yield f"no critical entry names {students[student]} ({student})"
    for student in students.keys() - set(needed):
        if any(student in text or students[student] in text for text in messages):
            yield f"a critical entry contains {student} or {students[student]}"


def nhl_failures(files: Workspace, sheets: GoogleSheet, expected: Rows) -> Iterator[str]:
    """Compare the file with `expected`, and the spreadsheet with both; allow additional teams."""
    file = next(_nhl_tables(files), [])
    if not file:
        yield "there is no CSV file with the counts"
    sheet: Rows = []
    for book, title in sheets.titles().items():
        if any(name in title.lower() for name in _NHL_TITLES):
            sheet = _counts(_shown_table(sheets, book))
            break
    if not sheet:
        yield "there is no spreadsheet with the counts"
    if file and sheet:
        yield from _count_failures("the file", file, expected)
        yield from _count_failures("the spreadsheet", sheet, expected)
        yield from _count_failures("the spreadsheet, compared with the file,", sheet, file)


def _nhl_tables(files: Workspace) -> Iterator[Rows]:
    for path in files.walk():
        name = path.rpartition("/")[2].lower()
        if name.endswith(".csv") and any(word in name for word in _NHL_WORDS):
            with contextlib.suppress(ToolError, csv.Error):
                table = _counts(list(csv.reader(files.read_text(path).splitlines())))
                if len(table) > 1:
                    yield table


def machine_failures(cloud: GoogleCloud, bucket: str, expected: Rows) -> Iterator[str]:
    """Compare the last report in the bucket with the expected anomalies."""
    if bucket not in cloud.storage.buckets():
        yield f"there is no bucket {bucket}"
        return
    reports = [n for n in cloud.storage.objects(bucket, "anomaly_report") if n.endswith(".csv")]
    rows: list[_Reading | None] = []
    if reports:
        text = cloud.storage.read_object(bucket, reports[-1]).decode()
        rows += map(_reading, _records(text))
    anomalies = list(map(_reading, expected))
    if not rows or not anomalies:
        yield "the report, or the answer, has no rows"
    for reading in _unmatched(rows, anomalies):
        yield f"{reading} is no anomaly"
    for reading in _unmatched(anomalies, rows):
        yield f"{reading} is missing"


def growth_failures(
    files: Workspace, path: str, expected: Rows, optional: Collection[str]
) -> Iterator[str]:
    """Check growth rates within one percentage point, ignoring the columns in `optional`."""
    columns = [name for name in expected[0] if name not in optional]
    years = {row["Year"]: row for row in first_sheet(files, path)}
    for wanted in expected:
        row = years.get(wanted["Year"])
        if row is None:
            yield f"{path} lacks the year {wanted['Year']:g}"
            continue
        for name in columns:
            rate = _growth(row[name])
            if rate is None or abs(rate - wanted[name]) > _POINTS:
                yield f"{path}: {name} of {wanted['Year']:g} is {rate}, expected {wanted[name]}"


def first_sheet(files: Workspace, path: str) -> Rows:
    """Return the rows of a workbook's first sheet by the names in the header."""
    table = next(iter(read_workbook(files.read(path)).values()), []) or [[]]
    _, rows = named_rows(table, list(map(as_text, table[0])))
    return rows


def inventory_failures(
    shop: WooCommerce, stock: Grid, products: Mapping[str, int], materials: Mapping[str, float]
) -> Iterator[str]:
    """Check the stock of each product and, with a tolerance of 0.01, of each material."""
    seen = {row["sku"]: row.get("stock_quantity") for row in shop.products.all()}
    if len(seen) > _PAGE:
        yield f"the rule reads {_PAGE} products, so it fails with {len(seen)}"
    for sku, count in products.items():
        if seen.get(sku) != count:
            yield f"the stock of {sku} is {seen.get(sku)}, expected {count}"
    left = {}
    for row in stock[1:]:
        name, _, quantity, *_ = [*map(as_text, row), "", "", ""]
        if name:
            left[name] = _count(quantity)
    for material, amount in materials.items():
        if material not in left or abs(left[material] - amount) > _AMOUNT:
            yield f"the stock of {material} is {left.get(material)}, expected {amount}"


def outlet_failures(
    shop: WooCommerce, email: Email, files: Workspace, rows: Rows, subscribers: Fields
) -> Iterator[str]:
    """Check the products in the outlet, and the table attached to each subscriber's email.

    Like LOCA-bench's checker, read the attached file from the final workspace.
    """
    outlets = [term["id"] for term in shop.categories.all() if term["name"] in _OUTLETS]
    slow = {row["Product Name"] for row in rows}
    moved = set()
    if outlets:
        sql = "SELECT name FROM products WHERE id IN (SELECT product_id FROM product_categories WHERE term_id = ?)"
        moved = {row["name"] for row in shop.store.rows(sql, outlets[0])}
    if moved != slow:
        yield f"the outlet lacks {sorted(slow - moved)} and has {sorted(moved - slow)} beside"
    if not slow:
        yield "the rule always fails without a slow product"
    yield from _offer_failures(files, rows)
    for address in subscribers:
        if not any(_FILE in mail.attachments for mail in email.messages(address, "INBOX")):
            yield f"{address} has no mail with {_FILE}"


def _records(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def _rates(rows: Rows) -> dict[str, list[float]]:
    columns = ("scenario", "A_conversion %", "B_conversion %")
    rates = {}
    for row in rows:
        name, *cells = ((row.get(column) or "").strip() for column in columns)
        if name and all(cells):
            rates[name.removeprefix("ab_")] = [float(cell.replace("%", "")) for cell in cells]
    return rates


def _parse(content: Any) -> Any:
    if not isinstance(content, str):
        return content
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(content)
    with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        return ast.literal_eval(content)
    return content


def _critical_messages(cloud: GoogleCloud) -> Iterator[str]:
    for name, severity, text in log_state(cloud):
        if "exam_log" not in name:
            continue
        entry = json.loads(text)
        payload, plain = entry.get("jsonPayload"), entry.get("textPayload")
        if payload and isinstance(payload, dict):
            if "CRITICAL" in (severity, str(payload.get("warning_level", "")).upper()):
                yield str(payload.get("message") or json.dumps(payload))
        elif plain and (severity == "CRITICAL" or "CRITICAL" in plain.upper()):
            yield plain


def _shown_table(sheets: GoogleSheet, book: str) -> Grid:
    """Return the first sheet with at least four expected columns, or else the first sheet."""
    tables = [sheets.values(book, name) for name in sheets.sheet_titles(book)]
    shown = tables[0]
    for table in tables:
        if len(table) < 2:
            continue
        heads = "\n".join(map(as_text, table[0])).lower()
        if sum(name.lower() in heads for name in _NHL_COLUMNS) >= 4:
            shown = table
            break
    return [row[:26] for row in shown[:100]]


def _counts(table: Grid) -> list[Record]:
    header = list(map(as_text, table[0] if table else ()))
    places = {}
    for name, variants in _NHL_COLUMNS.items():
        found = [k for k, head in enumerate(header) if head in variants]
        if not found:
            return []
        places[name] = found[0]
    counts = []
    for row in table[1:]:
        cells = [*map(as_text, row), *[""] * len(header)]
        record: Record = {name: _count(cells[place]) for name, place in places.items()}
        counts.append({**record, "Team": cells[places["Team"]]})
    return counts


def _count(text: str) -> float:
    return finite_or(text.replace(",", "").replace(" ", ""), 0.0)


def _count_failures(what: str, actual: Rows, expected: Rows) -> Iterator[str]:
    teams = {row["Team"].lower() for row in expected}
    by_team = operator.itemgetter("Team")
    found = sorted((row for row in actual if row["Team"].lower() in teams), key=by_team)
    if len(found) != len(expected):
        yield f"{what} has {len(found)} teams, expected {len(expected)}"
        return
    for row, wanted in zip(found, sorted(expected, key=by_team), strict=True):
        if sum(row[name] for name in ("HA", "AH", "HH", "AA")) != row["Total"]:
            yield f"{what}: the counts of {row['Team']} do not sum up to Total"
        elif row != wanted:
            yield f"{what} has {row}, expected {wanted}"


def _reading(row: Fields) -> _Reading | None:
    text = str(row.get("timestamp")).strip().partition("+")[0]
    text = text.removesuffix("Z").removesuffix(" UTC")
    for form in _TIMES:
        with contextlib.suppress(ValueError):
            moment = datetime.strptime(text, form)
            machine, sensor = (str(row.get(name)).strip() for name in ("machine_id", "sensor_type"))
            return moment, machine, sensor, as_finite(row.get("reading"))
    return None


def _unmatched(
    rows: Sequence[_Reading | None], others: Sequence[_Reading | None]
) -> Iterator[_Reading | None]:
    by_sensor = defaultdict(list)
    for other in others:
        if other:
            by_sensor[other[1:3]].append(other)
    for row in rows:
        if not row or not any(_agree(row, other) for other in by_sensor[row[1:3]]):
            yield row


def _agree(one: _Reading, other: _Reading) -> bool:
    return abs(one[0] - other[0]) <= _TIME and abs(one[3] - other[3]) <= _READING


def _growth(cell: Any) -> float | None:
    if isinstance(cell, str):
        cell = cell.strip().upper().removesuffix("%")
        if cell in ("", "NA"):
            return 0.0
    return finite_or(cell, None)


def _offer_failures(files: Workspace, rows: Rows) -> Iterator[str]:
    table = [row for row in _records(files.read_text(_FILE)) if row.get("Product Name")]
    if [row["Product Name"].strip() for row in table] != [row["Product Name"] for row in rows]:
        yield f"{_FILE} has other products, or another order"
        return
    for row, wanted in zip(table, rows, strict=True):
        for name, limit in _LIMITS.items():
            found = _amount(row.get(name))
            if abs(found - _amount(wanted[name])) > limit + 1e-9:
                yield f"{_FILE}: {name} of {wanted['Product Name']} is {found}"


def _amount(cell: Any) -> float:
    return as_finite(str(cell or 0).strip().replace("$", "").replace(",", "").rstrip("%"))
