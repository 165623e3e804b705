"""Checks of arguments of functions; a configuration declares its bounds (`agentgym.config`)."""

from __future__ import annotations

import re
from collections.abc import Sequence


def check_int(name: str, value: object, low: int, high: int) -> None:
    """Raise `ValueError` unless an option is an integer in [low, high]."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} must be an integer in [{low}, {high}], got {value!r}")


def check_float(name: str, value: object, low: float, high: float) -> None:
    """Raise `ValueError` unless an option is a number in [low, high]."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} must be a number in [{low}, {high}], got {value!r}")


def check_bool(name: str, value: object) -> None:
    """Raise `ValueError` unless an option is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise `ValueError` unless an option is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


_COUNT = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,6}))?([kKmM]?)")
_POWERS = {"": 0, "k": 3, "m": 6}


def parse_count(name: str, text: str) -> int:
    """Return a whole number from its text, such as `8k`, `1.5m` or `60000`.

    Raises:
        ValueError: It is none.
    """
    match = _COUNT.fullmatch(text.strip())
    whole, part, power = match.groups(default="") if match else ("", "", "")
    missing = _POWERS[power.lower()] - len(part.rstrip("0"))
    if not match or missing < 0:
        raise ValueError(f"{name} must be a whole number, such as 60000 or 60k, got {text!r}")
    return int(whole + part.rstrip("0") + "0" * missing)
