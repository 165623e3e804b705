"""Answers as numbers."""

from __future__ import annotations

import re
from decimal import Decimal

MARK = "####"
"""Marker of the answer in a reply without a call, as in GSM8K."""

_NUMBER = re.compile(
    r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,400})(?:\.[0-9]{1,400})?|[-+]?\.[0-9]{1,400}"
)
_UNIT = re.compile(r"%?\s*+[A-Za-z ]*+\.?")


def parse_number(text: str) -> Decimal | None:
    """Parse an answer's number, if any, after the last `####` and without `$`, `,`, `%` or unit."""
    answer = text.rpartition(MARK)[2].strip().lstrip("$").strip()
    number = _NUMBER.match(answer)
    if number is None or not _UNIT.fullmatch(answer[number.end() :].strip()):
        return None
    return Decimal(number[0].replace(",", ""))
