"""Glob patterns over paths: `*` and `?` within a name, `**` over any number of names, `{a,b}` for
either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from agentgym.text.tools import ToolError

MAX_PATTERN_CHARS = 256
"""Characters of a pattern: it bounds the time of a match."""
MAX_PATTERNS = 100
"""Patterns after braces are spelled out, whose number grows with each pair of braces."""

_CHOICE = re.compile(r"\{([^{}]*)\}")
"""Innermost braces; they are spelled out from the inside."""


class Patterns:
    """Some patterns, of which a path matches any.

    Args:
        patterns: The patterns.

    Raises:
        ToolError: A pattern is too long, or there are too many.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [
            spelled.split("/") for pattern in patterns for spelled in _spell_out(pattern)
        ]
        if len(self._patterns) > MAX_PATTERNS:
            raise ToolError(
                f"limit exceeded: {len(self._patterns)} patterns, at most {MAX_PATTERNS} are "
                "allowed"
            )

    def match(self, path: str) -> bool:
        """Tell if a relative path matches one of them."""
        names = path.split("/")
        return any(_match(names, pattern) for pattern in self._patterns)


def _spell_out(pattern: str) -> list[str]:
    """Return the patterns without braces that a pattern stands for."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ToolError(
            f"limit exceeded: a pattern of {len(pattern)} characters, at most {MAX_PATTERN_CHARS} "
            "are allowed"
        )
    spellings = [pattern]
    while any(choices := [_CHOICE.search(each) for each in spellings]):
        spellings = [
            each if choice is None else each[: choice.start()] + option + each[choice.end() :]
            for each, choice in zip(spellings, choices, strict=True)
            for option in ([""] if choice is None else choice[1].split(","))
        ]
        if len(spellings) > MAX_PATTERNS:
            raise ToolError(f"limit exceeded: the pattern has more than {MAX_PATTERNS} spellings")
    return spellings


def _match(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Match names by the ends that each part of the pattern can reach: quick for any pattern."""
    ends = {0}
    for part in pattern:
        if part == "**":
            ends = set(range(min(ends), len(names) + 1)) if ends else ends
        else:
            ends = {end + 1 for end in ends if end < len(names) and fnmatchcase(names[end], part)}
    return len(names) in ends
