"""Text functions. Regular expressions use RE2, as in Google Sheets, in linear time."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from agentgym.office.libraries import install_hint
from agentgym.office.spreadsheet.cell_values import (
    MAX_TEXT,
    NO_REFERENCE,
    NOT_AVAILABLE,
    NUMBER,
    VALUE,
    CellError,
    FormulaError,
    Grid,
    SerialDate,
    is_number,
    limited,
    number,
    text_of,
    to_int,
    to_moment,
    to_number,
    to_text,
    to_truth,
)

# Maximum characters of a regular expression.
_MAX_EXPRESSION = 1_000
# Maximum compiled instructions; this times the text length bounds a match.
_MAX_PROGRAM = 500


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


def _split(text: Any, delimiter: Any, each: Any = True, skip: Any = True) -> Grid:
    """Split at any delimiter character (`each`) or the whole delimiter; convert numeric parts."""
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
    """Compile a regular expression, or raise `FormulaError`."""
    written = to_text(pattern)
    compiled = _compile(written) if len(written) <= _MAX_EXPRESSION else None
    if compiled is None:
        raise FormulaError(NO_REFERENCE)
    return compiled


def _extract(text: Any, pattern: Any) -> Any:
    match = expression(pattern).search(to_text(text))
    if match is None:
        raise FormulaError(NOT_AVAILABLE)
    groups = [group or "" for group in match.groups()] or [match.group()]
    return groups[0] if len(groups) == 1 else Grid.of([groups])


def _regex_replace(text: Any, pattern: Any, new: Any) -> str:
    """Replace all matches; `$1` refers to a group."""
    compiled, whole, template = expression(pattern), to_text(text), to_text(new)

    def fill(match: Any) -> str:
        return re.sub(
            r"\\(.)|\$([0-9])",
            lambda mark: mark[1] or (match.group(int(mark[2])) or ""),
            template,
        )

    if sum(1 for _ in compiled.finditer(whole)) * len(template) > 10**6:
        raise FormulaError(VALUE)
    try:
        return limited(compiled.sub(fill, whole))
    except IndexError:
        raise FormulaError(VALUE) from None


# The function TEXT.

_PIECE = re.compile(
    r'"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|(?P<half>am/pm|a/p)|(?P<date>y+|m+|d+|h+|s+(?:\.0+)?)|(?P<other>.)',
    re.IGNORECASE | re.DOTALL,
)
_DIGITS = re.compile(r"[#0?](?:[#0?,]*[#0?])?(,*)(?:\.([#0?]*))?(,*)|\.([#0?]+)")
_QUOTED = re.compile(r'"[^"]*"|\\.')
# Maximum characters of a pattern.
_MAX_PATTERN = 255


def format_value(value: Any, pattern: Any) -> str:
    """Format a value; a non-numeric text stays unchanged."""
    form = to_text(pattern)
    if len(form) > _MAX_PATTERN:
        raise FormulaError(VALUE)
    try:
        amount = to_number(value)
    except FormulaError:
        if isinstance(value, CellError):
            raise
        return text_of(value)
    bare = _QUOTED.sub("", form)
    if bare in ("", "@") or bare.lower() == "general":
        return text_of(number(amount)) if bare else form.replace('"', "")
    if re.search("[ymdhs]", bare, re.IGNORECASE) and not re.search("[#?]|^0|[^s.0:]0", bare):
        return _date_text(to_moment(amount), form)
    return limited(_number_text(amount, form))


def _date_text(moment: datetime, form: str) -> str:
    pieces = [
        (match.lastgroup or "", match[match.lastgroup or 0]) for match in _PIECE.finditer(form)
    ]
    twelve = any(kind == "half" for kind, _ in pieces)
    dates = [(k, piece.lower()) for k, (kind, piece) in enumerate(pieces) if kind == "date"]
    minutes = {
        k
        for n, (k, piece) in enumerate(dates)
        if piece in ("m", "mm") and (_is(dates, n - 1, "h") or _is(dates, n + 1, "s"))
    }
    written = []
    for k, (kind, piece) in enumerate(pieces):
        if kind == "half":
            half = "AM" if moment.hour < 12 else "PM"
            written.append(half if "m" in piece.lower() else half[0])
        elif k in minutes:
            written.append(f"{moment.minute:0{len(piece)}}")
        else:
            written.append(
                _date_piece(moment, piece.lower(), twelve=twelve) if kind == "date" else piece
            )
    return "".join(written)


def _is(dates: Sequence[tuple[int, str]], place: int, letter: str) -> bool:
    return 0 <= place < len(dates) and dates[place][1].startswith(letter)


def _date_piece(moment: datetime, piece: str, *, twelve: bool) -> str:
    letter, size = piece[0], len(piece)
    if letter == "y":
        return f"{moment.year % 100:02}" if size <= 2 else f"{moment.year:04}"
    if letter in "md" and size >= 3:
        names = {"m": ("%b", "%B"), "d": ("%a", "%A")}[letter]
        name = moment.strftime(names[size > 3])
        return name[0] if (letter, size) == ("m", 5) else name
    if letter == "s":
        digits = piece.partition(".")[2]
        part = f".{moment.microsecond:06}"[: len(digits) + 1] if digits else ""
        return f"{moment.second:0{min(2, size)}}" + part
    hour = (moment.hour + 11) % 12 + 1 if twelve else moment.hour
    return f"{ {'m': moment.month, 'd': moment.day, 'h': hour}[letter]:0{min(2, size)}}"


def _number_text(amount: float, form: str) -> str:
    sections = form.split(";")
    at = 1 if amount < 0 and len(sections) > 1 else 2 if amount == 0 and len(sections) > 2 else 0
    section = sections[at]
    if re.search(r"[eE][+-]", _QUOTED.sub("", section)):
        raise FormulaError(VALUE)  # scientific notation
    match = _DIGITS.search(_QUOTED.sub(lambda quoted: "\0" * len(quoted[0]), section))
    if match is None:
        return _literal(section)
    scale = -3 * len((match[1] or "") + (match[3] or "")) + 2 * section.count("%")
    exact = Decimal(repr(abs(amount))).scaleb(scale)
    digits = _fixed(exact, match)
    sign = "-" if amount < 0 and at == 0 and re.search("[1-9]", digits) else ""
    return sign + _literal(section[: match.start()]) + digits + _literal(section[match.end() :])


def _literal(piece: str) -> str:
    return _QUOTED.sub(lambda quoted: quoted[0].strip('"').removeprefix("\\"), piece)


def _fixed(exact: Decimal, match: re.Match[str]) -> str:
    decimals = match[2] or match[4] or ""
    whole_form = "" if match[4] else match[0].partition(".")[0].rstrip(",")
    rounded = exact.quantize(Decimal(1).scaleb(-len(decimals)), ROUND_HALF_UP)
    whole, _, part = f"{rounded:f}".partition(".")
    least = len(decimals.rstrip("#?"))
    part = part[:least] + part[least:].rstrip("0")
    whole = whole.lstrip("0").rjust(whole_form.count("0"), "0")
    if "," in whole_form:
        whole = re.sub(r"(?<=\d)(?=(?:\d{3})+$)", ",", whole)
    return whole + ("." + part if part or ("." in match[0] and least) else "")


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
    "SPLIT": _split,
    "REGEXMATCH": lambda a, pattern: expression(pattern).search(to_text(a)) is not None,
    "REGEXEXTRACT": _extract,
    "REGEXREPLACE": _regex_replace,
    "TEXT": format_value,
    "TO_TEXT": to_text,
    "VALUE": to_number,
    "T": lambda a: a if isinstance(a, str) else "",
    "N": lambda a: float(a) if is_number(a) or isinstance(a, bool) else 0.0,
    "TO_DATE": lambda a: SerialDate(to_number(a)),
    "TO_PURE_NUMBER": to_number,
}
