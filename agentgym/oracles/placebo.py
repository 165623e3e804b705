"""Text without information, as long as a hint: what a placebo shows."""

from __future__ import annotations

import re

from agentgym.tokens import counter

_COUNTER = "cl100k_base"
"""The vocabulary that hints are measured in; each word and point below is one token of it."""
_TEXT = (
    "This note says nothing about the task. It is here to fill some space in the text. "
    "There is no need to read it, and no need to reply to it. It holds no plan, no state and no "
    "hint of any kind. The words in it are the same for every task and for every day. "
    "Some notes are long and some are short, and that has no meaning for you. "
    "You may go on with your work as if this note were not here. "
)
_UNITS = re.findall(r" ?[A-Za-z]+|[.,]", f" {_TEXT.rstrip()}")
_STARTS = [0, *(place + 1 for place, unit in enumerate(_UNITS[:-1]) if unit == ".")]


def placebo_for(hint: str, turn: int) -> str:
    """Return a text without information, of as many tokens as a hint.

    Args:
        hint: The hint, of which nothing but the length shows.
        turn: The number of the turn, which says with which sentence the text begins, so that the
            placebos of a chat differ as its hints do.
    """
    start = _STARTS[turn % len(_STARTS)]
    units = range(start, start + counter(_COUNTER).length(hint))
    return "".join(_UNITS[k % len(_UNITS)] for k in units).lstrip()
