"""Canvas: checks of what goes into a field, and grades as points and as texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from agentgym.office.context import iso
from agentgym.text.tools import ToolError, echo

Text: TypeAlias = str | None
When: TypeAlias = str | datetime | None

MAX_TEXT = 64_000
"""Characters of a long text; Canvas stores long texts in columns of 64 KB."""

MAX_URL = 2_000
"""Characters of a URL; browsers and proxies cut longer ones."""

_MAX_LINE = 255
"""Characters of a name or a title; Canvas stores them in columns of this width."""

_MAX_POINTS = 1e9
"""Points of one piece of work: the most that a grade of ten digits shows without an exponent."""

_FIRST_YEAR = 1900
"""Dates before it are typing errors here, and not all have four digits."""

_NUMBER = re.compile(r"(\d{1,12}(?:\.\d{1,12})?|\.\d{1,12})(%?)")
"""A grade in digits; twelve of them are more than the most points have, and none is an exponent."""


def line(field: str, value: str | None, most: int = _MAX_LINE) -> str | None:
    """Return a text that is not blank, or None.

    Raises:
        ToolError: It is blank or too long.
    """
    if value is not None and (not value.strip() or len(value) > most):
        raise ToolError(
            f"invalid argument: {field} must have 1 to {most} characters that are not all blank, "
            f"got {echo(value)}"
        )
    return value


def prose(field: str, value: str | None) -> str | None:
    """Return a long text, or None; it may be blank.

    Raises:
        ToolError: It is too long.
    """
    if value is not None and len(value) > MAX_TEXT:
        raise ToolError(
            f"limit exceeded: {field} has {len(value)} characters, at most {MAX_TEXT} are allowed"
        )
    return value


def moment(field: str, value: When) -> str | None:
    """Return a moment in the form of the tables, in UTC, or None; "" stays and stands for none.

    Raises:
        ToolError: It is no date, or one before 1900.
    """
    if value is None or value == "":
        return None if value is None else ""
    try:
        parsed = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        in_utc = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ToolError(
            f"invalid argument: {field} must be like 2025-01-15T09:00:00Z, got {echo(value)}"
        ) from None
    if in_utc.year < _FIRST_YEAR:
        raise ToolError(f"invalid argument: {field} must be after 1900, got {echo(value)}")
    return iso(in_utc)


def points(field: str, value: float | None) -> float | None:
    """Return a number of points, or None.

    Raises:
        ToolError: It is negative or too large.
    """
    if value is not None and not 0 <= value <= _MAX_POINTS:
        raise ToolError(
            f"invalid argument: {field} must be between 0 and {_MAX_POINTS:g}, got {echo(value)}"
        )
    return value


def integer(field: str, value: int | None, low: int, high: int = 100_000) -> int | None:
    """Return an integer of a range, or None.

    Raises:
        ToolError: It is out of the range.
    """
    if value is not None and not low <= value <= high:
        raise ToolError(
            f"invalid argument: {field} must be between {low} and {high}, got {echo(value)}"
        )
    return value


def choice(field: str, value: str | None, choices: Sequence[str]) -> str | None:
    """Return one of some words, or None.

    Raises:
        ToolError: It is another word.
    """
    if value is not None and value not in choices:
        raise ToolError(
            f"invalid argument: {field} must be one of {', '.join(choices)}, got {echo(value)}"
        )
    return value


def updates(**fields: Any) -> dict[str, Any]:
    """Return the fields that an update names; an empty moment takes the moment away."""
    return {
        key: None if value == "" and key.endswith("_at") else value
        for key, value in fields.items()
        if value is not None
    }


def grade_text(score: float) -> str:
    """Return a score as a grade, in ten digits so that rounding errors do not show."""
    return f"{score:.10g}"


def percent(score: float | None, possible: float | None) -> float | None:
    """Return a score as a percentage of the possible points, or None where it has none."""
    return round(100 * score / possible, 2) if score is not None and possible else None


def parse_grade(grade: Any, possible: float) -> float | None:
    """Return the points that a grade means, or None for no grade.

    Raises:
        ToolError: It is no grade.
    """
    if grade is None or grade == "":
        return None
    if isinstance(grade, str):
        word = grade.strip().lower()
        if word in ("complete", "pass"):
            return possible
        if word in ("incomplete", "fail"):
            return 0.0
        if number := _NUMBER.fullmatch(word):
            value = float(number[1])
            return points("grade", value * possible / 100 if number[2] else value)
    if isinstance(grade, bool) or not isinstance(grade, (int, float)):
        raise ToolError(
            f'invalid argument: grade must be points, "85%", "complete" or "incomplete", got {echo(grade)}'
        )
    points("grade", grade)
    return float(grade)
