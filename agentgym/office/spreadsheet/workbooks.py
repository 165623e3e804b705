"""Read Excel workbooks after checking the size, and write workbooks reproducibly."""

from __future__ import annotations

import io
import itertools
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.parsers import expat

from agentgym.office.context import START
from agentgym.office.libraries import install_hint
from agentgym.office.spreadsheet.cell_values import trim
from agentgym.office.spreadsheet.cells import column_number
from agentgym.text.tools import ToolError

MAX_BYTES = 64 * 2**20  # maximum unpacked size, because small archives may expand enormously
MAX_PARTS = 2_000  # maximum files per workbook; a sheet with charts has a few files
MAX_CELLS = 100_000  # opening a workbook takes about 20 µs per cell
MAX_ROWS = 100_000  # equal to MAX_CELLS, because each non-empty row has a cell
MAX_COLUMNS = 16_384  # as in Excel
MAX_SPREAD = 1_000_000  # maximum cells, including empty cells before other cells in a row
MAX_OTHERS = 30_000  # maximum XML elements other than cells, such as styles and rules
# Length of the longest formula times the number of shared formulas, which openpyxl expands.
MAX_SHARED = 2_000_000
MAX_TEXT = 32_767  # characters per cell, as in Excel; openpyxl truncates longer strings

# Byte order marks and whitespace that may precede XML.
_BEFORE = b"\xef\xbb\xbf\xfe\xff\0 \t\r\n"
# Modification time of all archive entries, fixed for reproducibility.
_STAMP = (1980, 1, 1, 0, 0, 0)


def library() -> Any:
    """Import and return openpyxl, which is optional and slow to import."""
    with install_hint("workbooks need openpyxl; get it with", "openpyxl"):
        import openpyxl  # type: ignore[import-untyped]  # noqa: PLC0415 - it loads for a third of a second
    return openpyxl


@contextmanager
def _readable() -> Iterator[None]:
    """Convert errors on corrupt workbooks to `ToolError`."""
    try:
        yield
    except (ToolError, ImportError, MemoryError):
        raise
    except Exception as error:
        kind = type(error).__name__
        raise ToolError(
            f"invalid argument: the file is not a readable workbook ({kind})"
        ) from error


def write_workbook(
    sheets: Mapping[str, Iterable[Sequence[Any]]], created: datetime = START
) -> bytes:
    """Return a workbook with the given sheets; strings that start with `=` become formulas."""
    book = library().Workbook(write_only=True)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    return save_workbook(book, created, created=created)


def read_workbook(data: bytes) -> dict[str, list[list[Any]]]:
    """Return the values of each sheet by title, without trailing empty rows and cells.

    Whole numbers are `int`, and dates are `datetime`. A formula's value is the stored result, or
    None if the workbook stores no result.
    """
    check_workbook(data)
    sheets = {}
    with _readable():
        book = library().load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # the declared size is untrusted
            rows = []
            for row in sheet.iter_rows(values_only=True):
                rows.append(trim(list(map(_whole, row)), None))
            sheets[sheet.title] = trim(rows, [])
    return sheets


def open_workbook(data: bytes) -> Any:
    """Return a workbook for editing."""
    check_workbook(data)
    with _readable():
        return library().load_workbook(io.BytesIO(data))


def hidden_parts(data: bytes) -> tuple[str, ...]:
    """Return the names of hidden sheets, rows and columns, and of cells with formulas.

    Raises `ToolError` if the workbook is invalid or too large.
    """
    names = []
    for sheet in open_workbook(data).worksheets:
        if sheet.sheet_state != "visible":
            names.append(sheet.title)
        for lines in (sheet.row_dimensions, sheet.column_dimensions):
            names += [f"{sheet.title}!{key}" for key, line in lines.items() if line.hidden]
        for cell in itertools.chain.from_iterable(sheet.iter_rows()):
            if cell.data_type == "f":
                names.append(f"{sheet.title}!{cell.coordinate}")
    return tuple(names)


def save_workbook(book: Any, modified: datetime, created: datetime | None = None) -> bytes:
    """Return a workbook as bytes, which depend only on the content and the given times."""
    book.properties.modified = modified.astimezone(UTC).replace(tzinfo=None)
    if created is not None:
        book.properties.created = created.astimezone(UTC).replace(tzinfo=None)
    out = io.BytesIO()
    library().writer.excel.ExcelWriter(book, _Archive(out, "w", zipfile.ZIP_DEFLATED)).save()
    return out.getvalue()


class _Archive(zipfile.ZipFile):
    """Archive in which all entries have the same modification time."""

    def writestr(self, zinfo_or_arcname: Any, data: Any, *_: Any, **__: Any) -> None:
        entry = zipfile.ZipInfo(str(zinfo_or_arcname), _STAMP)
        entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
        entry.external_attr = 0o600 << 16
        super().writestr(entry, data)

    def write(self, filename: Any, arcname: Any = None, *_: Any, **__: Any) -> None:
        self.writestr(arcname, Path(filename).read_bytes())


def check_workbook(data: bytes) -> None:
    """Check a workbook without loading it.

    Raises `ToolError` if the workbook is too large, cannot be read, or declares a DTD.
    """
    with _readable(), zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = archive.infolist()
        if len(parts) > MAX_PARTS or sum(part.file_size for part in parts) > MAX_BYTES:
            raise ToolError(
                f"limit exceeded: an unpacked workbook may have at most {MAX_PARTS} files and {MAX_BYTES} bytes"
            )
        look = _Look()
        for part in parts:
            with archive.open(part) as stream:
                look.through(stream)


class _Look:
    def __init__(self) -> None:
        self._cells = self._spread = self._others = self._opened = 0
        self._row = self._column = self._shared = self._longest = self._began = 0

    def through(self, stream: Any) -> None:
        """Count the XML elements of a file; files that do not start like XML are not parsed."""
        parser = self._parser = expat.ParserCreate()
        parser.StartElementHandler = self._element
        parser.StartDoctypeDeclHandler = self._doctype
        self._row = self._column = 0
        start = stream.read(2**10)
        if start and start.lstrip(_BEFORE)[:1] in (b"<", b""):
            parser.Parse(start)
            parser.ParseFile(stream)

    def _doctype(self, *_: Any) -> None:
        raise ToolError("invalid argument: the XML of a workbook must not declare a document type")

    def _element(self, name: str, attributes: dict[str, str]) -> None:
        match name.rpartition(":")[2]:
            case "v" | "is" | "t" | "si":  # a cell's value
                return
            case "c":
                self._cell(attributes.get("r", ""))
            case "row":
                self._row, self._column = int(attributes.get("r", self._row + 1)), 0
            case "f":
                self._shared += attributes.get("t") == "shared"
                self._began = self._parser.CurrentByteIndex
                self._parser.EndElementHandler = self._formula
            case "mergeCell" | "hyperlink" | "table":  # openpyxl expands the range into cells
                self._opened += _size(attributes.get("ref", ""))
                self._others += 1
            case _:
                self._others += 1
        if (
            self._cells > MAX_CELLS
            or self._opened > MAX_CELLS
            or self._spread > MAX_SPREAD
            or self._others > MAX_OTHERS
        ):
            raise ToolError(
                f"limit exceeded: a workbook may have at most {MAX_CELLS} cells, and "
                f"{MAX_SPREAD} including the empty cells before them"
            )
        if self._row > MAX_ROWS or self._column > MAX_COLUMNS:
            raise ToolError(
                f"limit exceeded: a sheet may have at most {MAX_ROWS} rows and {MAX_COLUMNS} columns"
            )

    def _formula(self, _: str) -> None:
        self._longest = max(self._longest, self._parser.CurrentByteIndex - self._began)
        self._parser.EndElementHandler = None
        if self._shared * self._longest > MAX_SHARED:
            raise ToolError(
                f"limit exceeded: the shared formulas of a workbook may have at most {MAX_SHARED} "
                "characters"
            )

    def _cell(self, place: str) -> None:
        letters = place.rstrip("0123456789")
        before = self._column
        self._column = column_number(letters) if letters else before + 1
        self._row = int(place[len(letters) :] or self._row)
        self._cells += 1
        self._spread += max(1, self._column - before)


def _size(reference: str) -> int:
    left, top, right, bottom = library().utils.range_boundaries(reference)
    if bottom is None:  # whole columns
        top, bottom = 1, MAX_ROWS
    return int((abs(left - right) + 1) * (abs(top - bottom) + 1))


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
