"""Compare the final state of an office with the expected state."""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from typing import Any, TypeAlias

from agentgym.envs.loca.records import Fields, Grid, Record, Rows
from agentgym.office.email.messages import Mail
from agentgym.office.files.workspace import Workspace
from agentgym.office.spreadsheet.workbooks import hidden_parts, read_workbook
from agentgym.office.store import Store
from agentgym.text.tools import ToolError, echo

# A comparison function takes the actual cell and the expected cell.
Same: TypeAlias = Callable[[Any, Any], bool]

# Errors that an output can cause when LOCA-bench's rules read it.
UNREADABLE = (ToolError, ValueError, LookupError, csv.Error)
_ROUNDING = 1e-9  # tolerates floating-point errors, which the agent cannot avoid

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def exact(actual: Any, expected: Any) -> bool:
    """Return whether strings are equal, ignoring surrounding whitespace."""
    return as_text(actual) == as_text(expected)


def identical(actual: Any, expected: Any) -> bool:
    """Return whether database values have the same type and are equal."""
    return type(actual) is type(expected) and bool(actual == expected)


def loose(actual: Any, expected: Any) -> bool:
    """Return whether strings are equal, ignoring case and whitespace."""
    return as_text(actual).casefold().split() == as_text(expected).casefold().split()


def number(tolerance: float = 0.0, unit: str = "") -> Same:
    """Return a comparison function that accepts a unit and thousands separators."""

    def same(actual: Any, expected: Any) -> bool:
        value = as_number(actual, unit)
        return value is not None and abs(value - float(expected)) <= tolerance + _ROUNDING

    return same


def as_number(value: Any, unit: str = "") -> float | None:
    """Return a cell as a number, or None; booleans are not numbers."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    text = as_text(value).removesuffix(unit).strip() if unit else as_text(value)
    if re.fullmatch(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?", text):
        text = text.replace(",", "")
    return float(text) if _NUMBER.fullmatch(text) else None


def as_text(value: Any) -> str:
    """Return a cell as a string, with dates in ISO 8601."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def set_failures(
    what: str, actual: Iterable[Hashable], expected: Iterable[Hashable]
) -> Iterator[str]:
    """Yield a sentence for each missing or extra item, counting duplicates."""
    there, expected_counts = Counter(actual), Counter(expected)
    for item in sorted((expected_counts - there).elements(), key=str):
        yield f"{what}: {echo(item)} is missing"
    for item in sorted((there - expected_counts).elements(), key=str):
        yield f"{what}: {echo(item)} should not be there"


def row_failures(
    what: str,
    actual: Rows,
    expected: Rows,
    columns: Mapping[str, Same],
    key: Sequence[str],
    ordered: bool = False,
) -> Iterator[str]:
    """Yield a sentence for each row that differs.

    Args:
        what: The name of the table.
        actual: The actual rows.
        expected: The expected rows.
        columns: The comparison function of each column.
        key: The columns that identify rows; several expected rows may have the same key.
        ordered: Whether the order of rows matters.
    """

    def keys_of(rows: Rows) -> list[tuple[str, ...]]:
        return [tuple(as_text(row.get(name)) for name in key) for row in rows]

    def differences(row: Fields, wanted: Fields) -> int:
        return sum(not same(row.get(column), wanted[column]) for column, same in columns.items())

    actual_keys, expected_keys = keys_of(actual), keys_of(expected)
    unmatched = list(
        set_failures(what, map(" / ".join, actual_keys), map(" / ".join, expected_keys))
    )
    yield from unmatched
    candidates: dict[tuple[str, ...], list[Fields]] = {}
    for name, row in zip(actual_keys, actual, strict=True):
        candidates.setdefault(name, []).append(row)
    for name, row in zip(expected_keys, expected, strict=True):
        rows = candidates.get(name)
        if not rows:
            continue
        # If several rows share the key, compare with the most similar row.
        best = rows[0]
        if len(rows) > 1:
            best = min(rows, key=functools.partial(differences, wanted=row))
        rows.remove(best)
        for column, same in columns.items():
            if not same(best.get(column), row[column]):
                place = f"{what}: {column} of {' / '.join(name)}"
                value, wanted = as_text(best.get(column)), as_text(row[column])
                yield f"{place} is {echo(value)}, expected {echo(wanted)}"
    if ordered and not unmatched and actual_keys != expected_keys:
        yield f"{what}: the rows are not in the required order"


@dataclass(frozen=True)
class CsvTable:
    """A CSV file that a task requires."""

    path: str
    columns: Sequence[str]
    cells: Mapping[str, Same]
    key: Sequence[str]
    ordered: bool = False
    forms: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)

    def failures(self, files: Workspace, expected: Rows) -> Iterator[str]:
        """Yield a sentence for each failed check of the file in a workspace."""
        try:
            text = files.read_text(self.path)
        except ToolError as error:
            yield f"{self.path}: {error}"
            text = ",".join(self.columns)  # without a file, every row is missing
        yield from self.text_failures(text, expected)

    def text_failures(self, text: str, expected: Rows) -> Iterator[str]:
        """Yield a sentence for each failed check of CSV text."""
        rows, format_failures = csv_rows(text, self.path, self.columns)
        yield from format_failures
        actual, wanted = map(self._in_one_form, (rows, expected))
        yield from row_failures(self.path, actual, wanted, self.cells, self.key, self.ordered)

    def _in_one_form(self, rows: Rows) -> Rows:
        converted = []
        for row in rows:
            cells = {name: form(row[name]) for name, form in self.forms.items()}
            converted.append({**row, **cells})
        return converted

    def matches(self, text: str, expected: Rows) -> bool:
        """Return whether CSV text passes all checks."""
        return not any(self.text_failures(text, expected))


def csv_rows(text: str, path: str, columns: Sequence[str]) -> tuple[list[Record], list[str]]:
    """Return the rows and the format errors of CSV text."""
    try:
        reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
        records = [record for record in reader if not is_blank(record)]
    except csv.Error as error:
        return [], [f"{path} is not valid CSV: {error}"]
    first, *rows = records or [[]]
    header = list(map(str.strip, first))
    if header != list(columns):
        return [], [f"{path} has the columns {echo(header)}, expected {echo(list(columns))}"]
    for k, row in enumerate(rows, 2):
        if len(row) != len(header):
            return [], [f"{path} has {len(row)} cells in row {k}, expected {len(header)}"]
    return [dict(zip(header, row, strict=True)) for row in rows], []


def digest(store: Store, *tables: str, without: Collection[str] = ()) -> str:
    """Hash all records of the tables, ignoring the columns in `without`."""
    return hash_of([store.fingerprint(table, without) for table in tables])


def hash_of(value: object) -> str:
    """Hash the `repr` of a value."""
    return hashlib.sha256(repr(value).encode()).hexdigest()


def table_failures(
    what: str,
    table: Grid,
    expected: Rows,
    cells: Mapping[str, Same],
    key: Sequence[str],
    ordered: bool = False,
) -> Iterator[str]:
    """Compare a sheet with the expected rows, as `row_failures` does."""
    columns = list(cells)
    names, rows = named_rows(table, columns)
    if names != columns:
        yield f"{what} has the columns {echo(names)}, expected {echo(columns)}"
        rows = []
    if not all(is_blank(row[len(columns) :]) for row in table):
        yield f"{what} has cells to the right of its columns"
    yield from row_failures(what, rows, expected, cells, key, ordered)


def named_rows(table: Grid, columns: Sequence[str]) -> tuple[list[str], list[Record]]:
    """Return the header and the non-empty rows of a table."""
    header, *rows = table or [[]]
    padding = [None] * len(columns)  # a row ends at its last non-empty cell
    names = list(map(as_text, header))
    while names and not names[-1]:
        names.pop()
    rows = [row for row in rows if not is_blank(row)]
    return names, [dict(zip(columns, [*row, *padding], strict=False)) for row in rows]


@functools.lru_cache(maxsize=4)  # each call triggers a check, but few calls change a workbook
def _sheets_of(data: bytes) -> tuple[Mapping[str, Grid], Sequence[str]]:
    return read_workbook(data), hidden_parts(data)


def open_output(files: Workspace, path: str, title: str) -> tuple[Grid, list[str]]:
    """Return the rows of a workbook's only sheet, and a sentence for each failed check."""
    try:
        sheets, hidden = _sheets_of(files.read(path))
    except ToolError as error:
        return [], [f"{path}: {error}"]
    failures = []
    if hidden:
        failures.append(f"{path} has hidden parts or formulas: {', '.join(hidden)}")
    if list(sheets) != [title]:
        failures.append(f"{path} has the sheets {echo(list(sheets))}, expected only {title}")
    return sheets.get(title, []), failures


def is_blank(row: Iterable[Any]) -> bool:
    """Return whether a row has only blank cells."""
    return not any(map(as_text, row))


def file_state(files: Workspace) -> dict[str, bytes]:
    """Return the workspace files by canonical path."""
    return {path: files.read(path) for path in files.walk()}


def file_failures(
    files: Workspace, before: Mapping[str, bytes], changed: Iterable[str]
) -> Iterator[str]:
    """Yield a sentence for each initial file that was changed or removed."""
    free = {files.resolve(path) for path in changed}
    for path, data in before.items():
        if path in free:
            continue
        if not files.is_file(path):
            yield f"the file {path} is gone"
        elif files.read(path) != data:
            yield f"the file {path} was changed"


def write_csv(columns: Sequence[str], rows: Iterable[Fields]) -> str:
    """Return rows as CSV text with a header."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([as_text(row[name]) for name in columns])
    return text.getvalue()


_HIDING = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|<[^<>]*\shidden\b"
    r"|line-through|<(s|del|strike)\b",
    re.IGNORECASE,
)
# The mail server joins the cells of a row when it turns HTML into text.
_CELL_END = re.compile(r"</t[dh]\s*>", re.IGNORECASE)


def hides_text(mail: Mail) -> bool:
    """Return whether an email's HTML hides text or strikes it out."""
    return bool(_HIDING.search(mail.html or ""))


def parts_of(mail: Mail) -> list[str]:
    """Return an email's bodies, HTML first."""
    return replace(mail, html=_CELL_END.sub(r"\g<0> ", mail.html or "")).parts


def says(mail: Mail, text: str) -> bool:
    """Return whether every part of an email has exactly these words."""
    return not hides_text(mail) and all(part.split() == text.split() for part in parts_of(mail))


def same_subject(mail: Mail, subject: str) -> bool:
    """Return whether an email has this subject, ignoring whitespace."""
    return mail.subject.split() == subject.split()
