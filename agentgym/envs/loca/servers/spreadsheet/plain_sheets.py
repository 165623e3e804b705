"""Sheets of plain numbers and texts as XML, in the bytes of openpyxl and a sixth of its time."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from agentgym.envs.loca.servers.spreadsheet.cells import column_name

_EMPTY = re.compile(rb"<sheetData\s*/>|<sheetData></sheetData>")
_MAX_TEXT = 32_767
"""Characters of a cell, as in Excel; the library cuts longer texts."""
_MAX_WHOLE = 2**53
"""The library writes numbers as floats, which have all integers up to this one."""


def is_plain(rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether all cells of a sheet are empty, numbers, or texts that stand for themselves:
    no formulas, error values, line ends or blanks around.
    """
    return all(value is None or _is_plain(value) for row in rows for value in row)


def _is_plain(value: Any) -> bool:
    if type(value) is str:
        is_text = value[:1] not in ("", "=", "#", " ") and value[-1] != " "
        return is_text and value.isprintable() and len(value) <= _MAX_TEXT
    if type(value) is int:
        return abs(value) <= _MAX_WHOLE
    return type(value) is float and math.isfinite(value)


def fill_sheet(sheet: bytes, rows: Sequence[Sequence[Any]]) -> bytes:
    """Return the XML of an empty sheet with plain cells in it."""
    names = [column_name(k) for k in range(1, 1 + max(map(len, rows), default=0))]
    lines = [
        f'<row r="{number}">{"".join(_cells(names, number, row))}</row>'
        for number, row in enumerate(rows, 1)
    ]
    data = f"<sheetData>{''.join(lines)}</sheetData>".encode()
    return _EMPTY.sub(lambda _: data, sheet, count=1)


def _cells(names: Sequence[str], number: int, row: Sequence[Any]) -> list[str]:
    return [
        f'<c r="{name}{number}" t="inlineStr"><is><t>{escape(value)}</t></is></c>'
        if isinstance(value, str)
        else f'<c r="{name}{number}" t="n"><v>{value:.16g}</v></c>'
        for name, value in zip(names, row, strict=False)
        if value is not None
    ]
