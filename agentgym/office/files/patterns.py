"""Glob patterns for paths: `*` and `?` match within a name, `**` across directories."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from agentgym.text.tools import ToolError

MAX_PATTERN_CHARS = 256  # bounds the matching time
MAX_PATTERNS = 100  # each pattern is matched against every path


class Patterns:
    """Glob patterns; a path matches if it matches at least one of them."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [pattern.split("/") for pattern in patterns]
        longest = max(map(len, patterns), default=0)
        if longest > MAX_PATTERN_CHARS:
            raise ToolError(
                f"limit exceeded: a pattern may have at most {MAX_PATTERN_CHARS} characters, got "
                f"{longest}"
            )
        if len(self._patterns) > MAX_PATTERNS:
            raise ToolError(
                f"limit exceeded: at most {MAX_PATTERNS} patterns are allowed, got "
                f"{len(self._patterns)}"
            )

    def match(self, path: str) -> bool:
        """Return whether a relative path matches any pattern."""
        names = path.split("/")
        return any(_match(names, pattern) for pattern in self._patterns)


def _match(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Match in polynomial time by computing where each prefix of the pattern can end."""
    ends = {0}
    for part in pattern:
        if not ends:
            return False
        if part == "**":  # any number of names, even none
            ends = set(range(min(ends), len(names) + 1))
            continue
        starts = ends - {len(names)}
        ends = {start + 1 for start in starts if fnmatchcase(names[start], part)}
    return len(names) in ends
