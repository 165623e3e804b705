"""The function TEXT: numbers and dates written after a pattern, such as `#,##0.00` or `yyyy-mm-dd`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from agentgym.envs.loca.servers.spreadsheet.cell_values import (
    VALUE,
    CellError,
    FormulaError,
    number,
    text_of,
)
from agentgym.envs.loca.servers.spreadsheet.conversions import (
    limited,
    to_moment,
    to_number,
    to_text,
)

_PIECE = re.compile(
    r'"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|(?P<half>am/pm|a/p)|(?P<date>y+|m+|d+|h+|s+(?:\.0+)?)|(?P<other>.)',
    re.IGNORECASE | re.DOTALL,
)
_DIGITS = re.compile(r"[#0?](?:[#0?,]*[#0?])?(,*)(?:\.([#0?]*))?(,*)(?:[eE]([+-])(0+))?|\.([#0?]+)")
_QUOTED = re.compile(r'"[^"]*"|\\.')
_MAX_PATTERN = 255
"""Characters of a pattern."""


def text(value: Any, pattern: Any) -> str:
    """Write a value after a pattern; a text that is no number stays as it is."""
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
    match = _DIGITS.search(_QUOTED.sub(lambda quoted: "\0" * len(quoted[0]), section))
    if match is None:
        return _literal(section)
    scale = -3 * len((match[1] or "") + (match[3] or "")) + 2 * section.count("%")
    exact = Decimal(repr(abs(amount))).scaleb(scale)
    digits = _exponent(exact, match) if match[4] else _fixed(exact, match)
    sign = "-" if amount < 0 and at == 0 and re.search("[1-9]", digits) else ""
    return sign + _literal(section[: match.start()]) + digits + _literal(section[match.end() :])


def _literal(piece: str) -> str:
    return _QUOTED.sub(lambda quoted: quoted[0].strip('"').removeprefix("\\"), piece)


def _fixed(exact: Decimal, match: re.Match[str]) -> str:
    decimals = match[2] or match[6] or ""
    whole_form = "" if match[6] else match[0].partition(".")[0].rstrip(",")
    rounded = exact.quantize(Decimal(1).scaleb(-len(decimals)), ROUND_HALF_UP)
    whole, _, part = f"{rounded:f}".partition(".")
    least = len(decimals.rstrip("#?"))
    part = part[:least] + part[least:].rstrip("0")
    whole = whole.lstrip("0").rjust(whole_form.count("0"), "0")
    if "," in whole_form:
        whole = re.sub(r"(?<=\d)(?=(?:\d{3})+$)", ",", whole)
    return whole + ("." + part if part or ("." in match[0] and least) else "")


def _exponent(exact: Decimal, match: re.Match[str]) -> str:
    power = exact.adjusted() if exact else 0
    places = len(match[2] or "")
    mantissa = exact.scaleb(-power).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    if mantissa >= 10:
        mantissa, power = mantissa / 10, power + 1
    sign = "-" if power < 0 else match[4].replace("-", "")
    return f"{mantissa:.{places}f}E{sign}{abs(power):0{len(match[5])}}"
