"""Validation of function arguments."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, TypeVar, cast

from pydantic_core import ValidationError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


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
    if not isinstance(value, str) or value not in choices:
        close = suggest(value, choices)
        text = f"{name} must be one of {', '.join(choices)}, got {value!r}"
        raise ValueError(f"{text}; {close}" if close else text)


def check_reset(options: Mapping[str, object] | None, known: Iterable[str]) -> None:
    """Raise `ValueError` if `reset` receives options."""
    if options or not isinstance(options, (NoneType, Mapping)):
        raise ValueError(
            f"reset takes no options, got {options!r}; options of the world hold for all "
            f"episodes, so pass them to make: {', '.join(known)}"
        )


def suggest(value: object, choices: Iterable[str]) -> str:
    """Return a question that suggests similar choices, if there are any."""
    # The order is reversed so that the dict keeps the first of choices that differ only in case.
    by_key = {choice.casefold(): choice for choice in reversed([*choices])}
    key = str(value).casefold()
    # A cutoff of 0.7 accepts one or two typos in a short name.
    keys = [key] if key in by_key else difflib.get_close_matches(key, by_key, n=2, cutoff=0.7)
    if not keys:
        return ""
    near = " or ".join(repr(by_key[key]) for key in keys)
    return f"did you mean {near}?"


def list_names(
    value: object, names: Sequence[str], noun: str, near: Iterable[str] | None = None
) -> str:
    """Return the remedy for an unknown name: the similar names and all names."""
    everything = f"{noun}: {', '.join(names) or 'none'}"
    close = suggest(value, names if near is None else near)
    return f"{close} {everything}" if close else everything


_COUNT = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,6}))?([kKmM]?)")
_POWERS = {"": 0, "k": 3, "m": 6}


def read_tokens(name: str, value: object, low: int, high: int) -> int:
    """Return a number of tokens, given as an integer or as a string such as `8k`."""
    number = parse_count(name, value) if isinstance(value, str) else value
    check_int(name, number, low, high)
    return cast(int, number)


def parse_count(name: str, text: str) -> int:
    """Parse a whole number such as `8k`, `1.5m` or `60000`."""
    match = _COUNT.fullmatch(text.strip())
    whole, part, power = match.groups(default="") if match else ("", "", "")
    missing = _POWERS[power.lower()] - len(part.rstrip("0"))
    if not match or missing < 0:
        raise ValueError(f"{name} must be a whole number, such as 60000 or 60k, got {text!r}")
    return int(whole + part.rstrip("0") + "0" * missing)


def check_shape(shape: TypeAdapter[T], data: object) -> T:
    """Validate data, or JSON bytes, against a type; the ValueError names the first wrong field."""
    try:
        if isinstance(data, bytes):
            return shape.validate_json(data, strict=True)
        return shape.validate_python(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise ValueError(f"{place}: {first['msg']}") from None
