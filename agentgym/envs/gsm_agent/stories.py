"""Stories with phrases for quantities, and schemas that relate quantities to each other."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, Self

from agentgym.envs.reading import load_texts

_TEXTS = load_texts(__file__, "stories")
UNITS: Mapping[str, int] = _TEXTS["units"]
"""The units of measure, with the largest number that a document states."""
SHARERS: Sequence[str] = _TEXTS["sharers"]["phrases"]
AGE = "years old"
ASKS = ("need", "change", "area", "around")
"""Kinds of question whose wordings belong to stories."""


class Verb(NamedTuple):
    """The forms of a verb."""

    base: str
    past: str
    participle: str


_VERBS = [Verb(*forms.split()) for forms in _TEXTS["verbs"]]
PAST: Mapping[str, Verb] = {verb.past: verb for verb in _VERBS}
BASE: Mapping[str, Verb] = {verb.base: verb for verb in _VERBS}
PARTICIPLE: Mapping[str, Verb] = {verb.participle: verb for verb in _VERBS}


class Parts(NamedTuple):
    """The parts of a phrase, such as `muffins`, `bake` and ` on Friday`."""

    item: str
    verb: Verb
    tail: str

    @property
    def phrase(self) -> str:
        return f"{self.item} {self.verb.participle}{self.tail}"


def _split_before(text: str, words: Container[str]) -> tuple[str, str]:
    # The first word always belongs to the first part.
    parts = text.split()
    for place, word in enumerate(parts):
        if place and word in words:
            return " ".join(parts[:place]), f" {' '.join(parts[place:])}"
    return " ".join(parts), ""


@lru_cache(maxsize=16384)
def parts_of(phrase: str) -> Parts:
    """Split a phrase at its participle."""
    item, rest = _split_before(phrase, PARTICIPLE)
    if not rest:
        raise ValueError(f"the phrase {phrase!r} must contain a participle")
    participle, space, tail = rest.lstrip().partition(" ")
    return Parts(item, PARTICIPLE[participle], space + tail)


def unit_of(phrase: str) -> str:
    """Return the unit of a phrase, or an empty string for countable things."""
    word = phrase.partition(" ")[0]
    return word if word in UNITS else ""


def is_rate(phrase: str) -> bool:
    """Return whether the phrase describes a rate, such as `muffins put into each box`."""
    return not {"each", "apiece"}.isdisjoint(phrase.split())


@dataclass(frozen=True, slots=True)
class Relation:
    """Formula for a quantity in terms of other quantities; questions have an empty `target`."""

    kind: str
    target: str
    sources: tuple[str, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, entry: Sequence[str], asked: bool) -> Self:
        kind, *rest = entry
        target = "" if asked else rest.pop(0)
        count = 1 if kind == "convert" else 2
        return cls(kind, target, tuple(rest[:count]), tuple(rest[count:]))


@dataclass(frozen=True)
class Story:
    """The items and phrases of a topic.

    Attributes:
        wholes: Maps the phrase of each part to the phrase of the whole that contains the part.
        linked: Maps each phrase to all phrases that occur in the same schema.
        frames: The phrases that can be compared, grouped by unit.
        asks: The schemas of questions.
    """

    items: Sequence[str]
    schemas: Mapping[str, Sequence[Relation]]
    wholes: Mapping[str, str]
    linked: Mapping[str, frozenset[str]]
    frames: Mapping[str, Sequence[str]]
    asks: Sequence[Relation]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        schemas: dict[str, list[Relation]] = {}
        wholes: dict[str, str] = {}
        linked: dict[str, frozenset[str]] = {}
        frames: dict[str, list[str]] = {}
        phrases = list(record["frames"])
        for entry in record["schemas"]:
            schema = Relation.of(entry, asked=False)
            schemas.setdefault(schema.target, []).append(schema)
            phrases += [schema.target, *schema.sources]
            if schema.kind == "minus":
                whole, part = schema.sources
                wholes |= {schema.target: whole, part: whole}
            for phrase in (schema.target, *schema.sources):
                linked[phrase] = linked.get(phrase, frozenset()) | {schema.target, *schema.sources}
        for phrase in dict.fromkeys(phrases):
            if not is_rate(phrase):
                frames.setdefault(unit_of(phrase), []).append(phrase)
        asks = [Relation.of(entry, asked=True) for entry in record["asks"]]
        return cls(record["items"], schemas, wholes, linked, frames, asks)


STORIES: Mapping[str, Story] = {
    name: Story.of(record) for name, record in _TEXTS["stories"].items()
}


def _phrases() -> list[str]:
    found = [AGE, *SHARERS]
    for story in STORIES.values():
        found += chain.from_iterable(story.frames.values())
        for schema in chain(story.asks, *story.schemas.values()):
            found += schema.sources
    return found


# In `muffins on Friday`, the item `muffins` ends before the word `on`.
_STARTERS = frozenset(
    parts_of(phrase).tail.split(" ")[1] for phrase in _phrases() if parts_of(phrase).tail
)


def split_item(text: str) -> tuple[str, str]:
    """Split `muffins on Friday` into `muffins` and ` on Friday`."""
    return _split_before(text, _STARTERS)


def is_tail(text: str) -> bool:
    """Return whether a string such as `on Friday` can follow an item."""
    return text.partition(" ")[0] in _STARTERS
