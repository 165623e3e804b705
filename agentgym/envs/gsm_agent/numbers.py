"""Answers as numbers."""

from __future__ import annotations

import re
from decimal import Decimal

MARK = "####"
"""Marker of the answer in a reply without a call, as in GSM8K."""

_NUMBER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,400})(?:\.[0-9]{1,400})?|\.[0-9]{1,400}"
# Markdown, a currency symbol, a unit or a full stop may surround the number.
_ANSWER = re.compile(
    rf"[*_`\s]*+(?P<sign>[-+\u2212]?)\s*+[$\u20ac\u00a3]?\s*+(?P<signed>[-+\u2212]?)(?P<number>{_NUMBER})"
    r"\s*+[%$\u20ac\u00a3]?\s*+[A-Za-z ]*+[*_`\s]*+(?:\.[*_`\s]*+)?"
)


def parse_number(text: str) -> Decimal | None:
    """Parse a number, ignoring `$`, `,`, `%`, units and everything up to the last `####`."""
    match = _ANSWER.fullmatch(text.rpartition(MARK)[2])
    if match is None or (match["sign"] and match["signed"]):
        return None
    number = Decimal(match["number"].replace(",", ""))
    return number if (match["sign"] or match["signed"]) in ("", "+") else -number
