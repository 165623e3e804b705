"""Reading of texts that worlds wrote."""

from __future__ import annotations

import re


def expect(match: re.Match[str] | None, what: str, text: str) -> re.Match[str]:
    """Return the match of a text.

    Args:
        match: The match, or None.
        what: What the text should be, in words.
        text: The text.

    Raises:
        ValueError: There is no match.
    """
    if match is None:
        raise ValueError(f"this is not {what}: {text[:100]!r}")
    return match
