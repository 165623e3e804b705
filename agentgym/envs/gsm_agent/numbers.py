"""Answers as numbers."""

from __future__ import annotations

import re
from decimal import Decimal

MARK = "####"
"""Marker before the answer in a reply in words, as in GSM8K."""

_NUMBER = re.compile(
    r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,400})(?:\.[0-9]{1,400})?|[-+]?\.[0-9]{1,400}"
)
_UNIT = re.compile(r"%?\s*+[A-Za-z ]*+\.?")


def parse_number(text: str) -> Decimal | None:
    """Read the number of an answer: the text after the last `####`, if there is one, without
    `$`, `,`, `%`, a unit and a full stop; None if there is none.
    """
    answer = text.rpartition(MARK)[2].strip().lstrip("$").strip()
    number = _NUMBER.match(answer)
    if number is None or not _UNIT.fullmatch(answer[number.end() :].strip()):
        return None
    return Decimal(number[0].replace(",", ""))
