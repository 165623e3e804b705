"""Answers as numbers."""

from __future__ import annotations

import re
from decimal import Decimal

MARK = "####"
"""What stands before the answer in a reply in words."""

_NUMBER = re.compile(
    r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,400})(?:\.[0-9]{1,400})?|[-+]?\.[0-9]{1,400}"
)


def parse_number(text: str) -> Decimal | None:
    """The number that an answer tells: the text after the last `####`, if there is one, without
    `$`, `,`, `%`, a unit and a full stop; None if there is none.
    """
    told = text.rpartition(MARK)[2].strip().lstrip("$").strip()
    found = _NUMBER.match(told)
    rest = told[found.end() :].strip() if found else ""
    if found is None or not re.fullmatch(r"%?\s*[A-Za-z ]*\.?", rest):
        return None
    return Decimal(found[0].replace(",", ""))
