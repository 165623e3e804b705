"""Canvas: field validation. Validators raise `ToolError`; None stays None."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from agentgym.office.context import iso
from agentgym.text.tools import ToolError, echo

Text: TypeAlias = str | None
When: TypeAlias = str | datetime | None

MAX_TEXT = 64_000  # Canvas stores long texts in 64 KB columns

_MAX_LINE = 255  # Canvas's column width for names and titles

_MAX_POINTS = 1e9  # larger scores would show an exponent in ten digits

_FIRST_YEAR = 1900  # earlier dates are probably typing errors


def line(field: str, value: str | None, most: int = _MAX_LINE) -> str | None:
    """Return a text of 1 to `most` characters, not all blank."""
    if value is not None and (not value.strip() or len(value) > most):
        raise ToolError(
            f"invalid argument: {field} must have 1 to {most} characters that are not all blank, "
            f"got {echo(value)}"
        )
    return value


def prose(field: str, value: str | None) -> str | None:
    """Return a long text, which may be blank."""
    if value is not None and len(value) > MAX_TEXT:
        raise ToolError(
            f"limit exceeded: {field} has {len(value)} characters, at most {MAX_TEXT} are allowed"
        )
    return value


def moment(field: str, value: When) -> str | None:
    """Convert a date from 1900 on to UTC in table format; "" clears a field."""
    if value is None:
        return None
    if value == "":
        return ""
    try:
        parsed = datetime.fromisoformat(value) if isinstance(value, str) else value
        if parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=UTC)
        in_utc = parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ToolError(
            f"invalid argument: {field} must be like 2025-01-15T09:00:00Z, got {echo(value)}"
        ) from None
    if in_utc.year < _FIRST_YEAR:
        raise ToolError(f"invalid argument: {field} must be after 1900, got {echo(value)}")
    return iso(in_utc)


def points(field: str, value: float | None) -> float | None:
    """Return a number of points, at least 0."""
    if value is not None and not 0 <= value <= _MAX_POINTS:
        raise ToolError(
            f"invalid argument: {field} must be between 0 and {_MAX_POINTS:g}, got {echo(value)}"
        )
    return value


def integer(field: str, value: int | None, low: int, high: int = 100_000) -> int | None:
    """Return an integer between `low` and `high`."""
    if value is not None and not low <= value <= high:
        raise ToolError(
            f"invalid argument: {field} must be between {low} and {high}, got {echo(value)}"
        )
    return value


def choice(field: str, value: str | None, choices: Sequence[str]) -> str | None:
    """Return one of the choices."""
    if value is not None and value not in choices:
        raise ToolError(
            f"invalid argument: {field} must be one of {', '.join(choices)}, got {echo(value)}"
        )
    return value


def grade_text(score: float) -> str:
    """Format a score with ten digits, which hides rounding errors."""
    return f"{score:.10g}"
