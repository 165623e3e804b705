"""Text functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from agentgym.office.spreadsheet.cell_values import (
    MAX_TEXT,
    NUMBER,
    VALUE,
    FormulaError,
    SerialDate,
    is_number,
    limited,
    to_int,
    to_number,
    to_text,
)


def _find(part: Any, text: Any, start: Any = 1.0) -> float:
    return to_text(text).index(to_text(part), to_int(start) - 1) + 1.0


def _search(part: Any, text: Any, start: Any = 1.0) -> float:
    return to_text(text).lower().index(to_text(part).lower(), to_int(start) - 1) + 1.0


def _cut(text: Any, start: int | None, length: Any) -> str:
    whole, size = to_text(text), to_int(length)
    first = max(0, len(whole) - size) if start is None else start
    return whole[first : first + size] if size >= 0 and first >= 0 else VALUE


def _substitute(text: Any, old: Any, new: Any, which: Any = None) -> str:
    whole, part, other = to_text(text), to_text(old), to_text(new)
    if not part:
        return whole
    if which is None:
        if len(whole) + whole.count(part) * (len(other) - len(part)) > MAX_TEXT:
            raise FormulaError(VALUE)
        return whole.replace(part, other)
    pieces, at = whole.split(part), to_int(which)
    if at < 1:
        raise FormulaError(VALUE)
    if at >= len(pieces):
        return whole
    return limited(part.join(pieces[:at]) + other + part.join(pieces[at:]))


def _replace(text: Any, start: Any, length: Any, new: Any) -> str:
    whole, first = to_text(text), to_int(start) - 1
    if first < 0 or to_int(length) < 0:
        raise FormulaError(VALUE)
    return limited(whole[:first] + to_text(new) + whole[first + to_int(length) :])


def _repeat(text: Any, count: Any) -> str:
    whole, times = to_text(text), to_int(count)
    if times < 0 or times * len(whole) > MAX_TEXT:
        raise FormulaError(VALUE)
    return whole * times


def _proper(text: Any) -> str:
    return re.sub(r"[^\W\d_]+", lambda word: word[0].capitalize(), to_text(text))


def _char(code: Any) -> str:
    place = to_int(code)
    if not 1 <= place < 0x110000 or 0xD800 <= place < 0xE000:
        raise FormulaError(NUMBER)
    return chr(place)


# Functions of single texts.
TEXTS: dict[str, Callable[..., Any]] = {
    "LEN": lambda a: float(len(to_text(a))),
    "LEFT": lambda a, n=1.0: _cut(a, 0, n),
    "RIGHT": lambda a, n=1.0: _cut(a, None, n),
    "MID": lambda a, start, n: _cut(a, to_int(start) - 1, n),
    "TRIM": lambda a: " ".join(to_text(a).split()),
    "CLEAN": lambda a: re.sub(r"[\x00-\x1f]", "", to_text(a)),
    "UPPER": lambda a: to_text(a).upper(),
    "LOWER": lambda a: to_text(a).lower(),
    "PROPER": _proper,
    "SUBSTITUTE": _substitute,
    "REPLACE": _replace,
    "REPT": _repeat,
    "FIND": _find,
    "SEARCH": _search,
    "EXACT": lambda a, b: to_text(a) == to_text(b),
    "CONCAT": lambda a, b: limited(to_text(a) + to_text(b)),
    "CHAR": _char,
    "CODE": lambda a: float(ord(to_text(a)[0])),
    "TO_TEXT": to_text,
    "VALUE": to_number,
    "T": lambda a: a if isinstance(a, str) else "",
    "N": lambda a: float(a) if is_number(a) or isinstance(a, bool) else 0.0,
    "TO_DATE": lambda a: SerialDate(to_number(a)),
    "TO_PURE_NUMBER": to_number,
}
