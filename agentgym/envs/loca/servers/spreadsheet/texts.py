"""Functions of texts. Regular expressions are those of RE2, as in Google Sheets: they take time that
is linear in the text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from agentgym.envs.loca.servers.libraries import install_hint
from agentgym.envs.loca.servers.spreadsheet.cell_values import (
    MAX_TEXT,
    NO_REFERENCE,
    NOT_AVAILABLE,
    NUMBER,
    VALUE,
    CellError,
    FormulaError,
    Grid,
    SerialDate,
    number,
)
from agentgym.envs.loca.servers.spreadsheet.conversions import (
    is_number,
    limited,
    to_int,
    to_number,
    to_text,
    to_truth,
)
from agentgym.envs.loca.servers.spreadsheet.number_formats import text

_MAX_EXPRESSION = 1_000
"""Characters of a regular expression."""
_MAX_PROGRAM = 500
"""Instructions of a compiled regular expression, which times the length of the text bounds a match."""


def _find(part: Any, text: Any, start: Any = 1.0) -> float:
    return to_text(text).index(to_text(part), to_int(start) - 1) + 1.0


def _search(part: Any, text: Any, start: Any = 1.0) -> float:
    return to_text(text).lower().index(to_text(part).lower(), to_int(start) - 1) + 1.0


def _cut(text: Any, start: int | None, length: Any) -> str:
    """Return `length` characters from a place on, at the end without one."""
    whole, size = to_text(text), to_int(length)
    first = max(0, len(whole) - size) if start is None else start
    return whole[first : first + size] if size >= 0 and first >= 0 else VALUE


def _substitute(text: Any, old: Any, new: Any, which: Any = None) -> str:
    whole, part, other = to_text(text), to_text(old), to_text(new)
    if not part:
        return whole
    if which is None:
        size = len(whole) + whole.count(part) * (len(other) - len(part))
        if size > MAX_TEXT:
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


def _split(text: Any, delimiter: Any, each: Any = True, skip: Any = True) -> Grid:
    """Split a text at any letter of the delimiter (`each`), or at all of it; parts that are numbers
    become such.
    """
    whole, marks = to_text(text), to_text(delimiter)
    if not marks:
        raise FormulaError(VALUE)
    pattern = f"[{re.escape(marks)}]" if to_truth(each) else re.escape(marks)
    parts = [part for part in re.split(pattern, whole) if part or not to_truth(skip)]
    return Grid.of([[_part(part) for part in parts]])


def _part(part: str) -> Any:
    value = number(part) if part.strip() else VALUE
    return part if isinstance(value, CellError) else value


@functools.lru_cache(maxsize=256)
def _compile(expression: str) -> Any:
    with install_hint("regular expressions in formulas need RE2; get it with", "re2"):
        import re2  # type: ignore[import-untyped]  # noqa: PLC0415 - of the extra `office`
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(expression, options)
    except re2.error:
        return None
    return compiled if compiled.programsize <= _MAX_PROGRAM else None


def expression(pattern: Any) -> Any:
    """Return a compiled regular expression.

    Raises:
        FormulaError: It is none, or too long.
    """
    written = to_text(pattern)
    compiled = _compile(written) if len(written) <= _MAX_EXPRESSION else None
    if compiled is None:
        raise FormulaError(NO_REFERENCE)
    return compiled


def _extract(text: Any, pattern: Any) -> Any:
    match = expression(pattern).search(to_text(text))
    if match is None:
        raise FormulaError(NOT_AVAILABLE)
    groups = match.groups()
    if not groups:
        return match.group()
    return groups[0] or "" if len(groups) == 1 else Grid.of([[group or "" for group in groups]])


def _regex_replace(text: Any, pattern: Any, new: Any) -> str:
    """Replace all matches; `$1` stands for a group."""
    compiled, whole, template = expression(pattern), to_text(text), to_text(new)

    def fill(match: Any) -> str:
        return re.sub(
            r"\\(.)|\$([0-9])",
            lambda mark: mark[1] or (match.group(int(mark[2])) or ""),
            template,
        )

    matches = sum(1 for _ in compiled.finditer(whole))
    if matches * len(template) > 10**6:
        raise FormulaError(VALUE)
    try:
        return limited(compiled.sub(fill, whole))
    except IndexError:
        raise FormulaError(VALUE) from None


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
    "SPLIT": _split,
    "REGEXMATCH": lambda a, pattern: expression(pattern).search(to_text(a)) is not None,
    "REGEXEXTRACT": _extract,
    "REGEXREPLACE": _regex_replace,
    "TEXT": text,
    "TO_TEXT": to_text,
    "FIXED": lambda a, places=2.0: text(a, "#,##0." + "0" * max(0, min(20, to_int(places)))),
    "DOLLAR": lambda a, places=2.0: text(a, "$#,##0." + "0" * max(0, min(20, to_int(places)))),
    "VALUE": to_number,
    "T": lambda a: a if isinstance(a, str) else "",
    "N": lambda a: float(a) if is_number(a) or isinstance(a, bool) else 0.0,
    "TO_DATE": lambda a: SerialDate(to_number(a)),
    "TO_PURE_NUMBER": to_number,
    "ENCODEURL": lambda a: limited(quote(to_text(a), safe="")),
    "HYPERLINK": lambda url, label=None: to_text(url if label is None else label),
    "ISURL": lambda a: re.fullmatch(r"(?:https?|ftp)://[^\s/]+\.\S+", to_text(a)) is not None,
    "ISEMAIL": lambda a: re.fullmatch(r"[^@\s]+@[^@\s.]+(?:\.[^@\s.]+)+", to_text(a)) is not None,
}
"""Functions of single texts, by name."""
