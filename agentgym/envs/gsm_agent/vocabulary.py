"""Names of people and places in problems and documents; none of them is a number word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentgym.envs.reading import load_texts

_TEXTS = load_texts(__file__, "vocabulary")

FIRST_NAMES: Sequence[str] = _TEXTS["first_names"]
LAST_NAMES: Sequence[str] = _TEXTS["last_names"]
ROLES: Sequence[str] = _TEXTS["roles"]
TOWNS: Sequence[str] = _TEXTS["towns"]
MONTHS: Sequence[str] = _TEXTS["months"]
WOMEN = frozenset(_TEXTS["women"])


def capital(text: str) -> str:
    """Return the text with a capital first letter."""
    return f"{text[:1].upper()}{text[1:]}"


def pronouns(name: str) -> Mapping[str, str]:
    """Return the object, subject and possessive pronouns of a person."""
    if name == "I":
        return {"o": "me", "s": "I", "h": "my"}
    if name.split(maxsplit=1)[0] in WOMEN:
        return {"o": "her", "s": "she", "h": "her"}
    return {"o": "him", "s": "he", "h": "his"}
