"""Helpers for the Google Cloud services: argument checks and text formatting."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentgym.text.tools import ToolError, echo

PROJECT = "local-project"  # an office has one project


def check_name(kind: str, name: str, pattern: str, rule: str) -> None:
    """Raise `ToolError` if a name does not match the pattern."""
    if not re.fullmatch(pattern, name):
        raise ToolError(f"invalid argument: {echo(name)} is not a valid {kind} name: {rule}")


def check_range(name: str, value: int, least: int, most: int) -> None:
    """Raise `ToolError` if a number is out of range."""
    if not least <= value <= most:
        raise ToolError(f"invalid argument: {name} must be in [{least}, {most}], got {echo(value)}")


def check_one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return the choice that equals `value`, ignoring case."""
    for choice in choices:
        if choice.lower() == value.lower():
            return choice
    raise ToolError(
        f"invalid argument: {name} must be one of {', '.join(choices)}, got {echo(value)}"
    )


def listing(heading: str, lines: Sequence[str], empty: str = "") -> str:
    """Return a heading with the count, followed by the lines; without lines, return `empty`."""
    if not lines and empty:
        return empty
    return "\n- ".join([f"{heading} ({len(lines)}):", *lines])
