"""Glob patterns for paths: `*` and `?` within a name, `**` across names, `{a,b}` for either."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from agentgym.text.tools import ToolError

MAX_PATTERN_CHARS = 256  # bounds the matching time
MAX_PATTERNS = 100  # braces expand to exponentially many patterns

_CHOICE = re.compile(r"\{([^{}]*)\}")  # innermost braces expand first


class Patterns:
    """Glob patterns, any of which may match; raises `ToolError` above the limits."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns: list[list[str]] = []
        for pattern in patterns:
            self._patterns += [spelling.split("/") for spelling in _spell_out(pattern)]
        if len(self._patterns) > MAX_PATTERNS:
            raise ToolError(
                f"limit exceeded: {len(self._patterns)} patterns, at most {MAX_PATTERNS} are "
                "allowed"
            )

    def match(self, path: str) -> bool:
        """Return whether a relative path matches any pattern."""
        names = path.split("/")
        return any(_match(names, pattern) for pattern in self._patterns)


def _spell_out(pattern: str) -> list[str]:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ToolError(
            f"limit exceeded: a pattern of {len(pattern)} characters, at most {MAX_PATTERN_CHARS} "
            "are allowed"
        )
    spellings: list[str] = []
    open_spellings = [pattern]
    while open_spellings:
        spelling = open_spellings.pop(0)
        choice = _CHOICE.search(spelling)
        if choice is None:
            spellings.append(spelling)
            continue
        before, after = spelling[: choice.start()], spelling[choice.end() :]
        open_spellings += [before + option + after for option in choice[1].split(",")]
        if len(spellings) + len(open_spellings) > MAX_PATTERNS:
            raise ToolError(f"limit exceeded: the pattern has more than {MAX_PATTERNS} spellings")
    return spellings


def _match(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Match in polynomial time by tracking the name positions where each part can end."""
    ends = {0}
    for part in pattern:
        if part == "**":
            ends = set(range(min(ends), len(names) + 1)) if ends else ends
        else:
            ends = {end + 1 for end in ends if end < len(names) and fnmatchcase(names[end], part)}
    return len(names) in ends
