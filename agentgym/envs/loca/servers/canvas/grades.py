"""Canvas: grades, as points and as what is written for them."""

from __future__ import annotations

import re
from typing import Any

from agentgym.envs.loca.servers.canvas.fields import points
from agentgym.tools import ToolError, echo

_NUMBER = re.compile(r"(\d{1,12}(?:\.\d{1,12})?|\.\d{1,12})(%?)")
"""A grade in digits; twelve of them are more than the most points have, and none is an exponent."""


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
