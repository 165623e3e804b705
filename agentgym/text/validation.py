"""Checks of arguments of functions; a configuration declares its bounds (`agentgym.world.config`)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import cast


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
    """Raise `ValueError` if a reset is given options: those of an env hold for all its episodes.

    Args:
        options: The options of the reset.
        known: The names of the options of the env.
    """
    if options or not isinstance(options, (NoneType, Mapping)):
        raise ValueError(
            f"reset takes no options, got {options!r}; options of the world hold for all "
            f"episodes, so give them to make: {', '.join(known)}"
        )


def suggest(value: object, choices: Iterable[str]) -> str:
    """Return a question that names the choices close to a value, in any case; empty if there are
    none.
    """
    # Reversed, since the first of those that differ only in case counts.
    by_key = {choice.casefold(): choice for choice in reversed([*choices])}
    key = str(value).casefold()
    # 0.7: a letter or two of a short name, and no name that only ends like it.
    keys = [key] if key in by_key else difflib.get_close_matches(key, by_key, n=2, cutoff=0.7)
    return f"did you mean {' or '.join(repr(by_key[key]) for key in keys)}?" if keys else ""


def list_names(
    value: object, names: Sequence[str], noun: str, near: Iterable[str] | None = None
) -> str:
    """Return the remedy for an unknown name: the names that are close to it, and all of them.

    Args:
        value: The unknown name.
        names: The names to list.
        noun: The plural of what they name, such as `worlds`.
        near: The names to suggest, if they are more than those to list.
    """
    everything = f"{noun}: {', '.join(names) or 'none'}"
    close = suggest(value, names if near is None else near)
    return f"{close} {everything}" if close else everything


_COUNT = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,6}))?([kKmM]?)")
_POWERS = {"": 0, "k": 3, "m": 6}


def read_tokens(name: str, value: object, low: int, high: int) -> int:
    """Return a number of tokens, which may be given as text, such as `8k`.

    Raises:
        ValueError: It is none, or not in [low, high].
    """
    number = parse_count(name, value) if isinstance(value, str) else value
    check_int(name, number, low, high)
    return cast(int, number)


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
