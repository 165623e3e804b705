"""Parsing of texts that worlds wrote."""

from __future__ import annotations

import re


def expect(match: re.Match[str] | None, what: str, text: str) -> re.Match[str]:
    """Return the match.

    Raises:
        ValueError: There is no match; the error names `what` was expected.
    """
    if match is None:
        raise ValueError(f"this is not {what}: {text[:100]!r}")
    return match
