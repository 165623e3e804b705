"""Stories with phrases for quantities, and schemas that relate quantities to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
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


@lru_cache(maxsize=16384)
def parts_of(phrase: str) -> Parts:
    """Split a phrase at its participle."""
    words = phrase.split()
    place = next((k for k, word in enumerate(words) if k and word in PARTICIPLE), 0)
    if not place:
        raise ValueError(f"the phrase {phrase!r} must contain a participle")
    tail = " ".join(words[place + 1 :])
    return Parts(" ".join(words[:place]), PARTICIPLE[words[place]], f" {tail}" if tail else "")


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
        start = 1 if asked else 2
        end = start + (1 if entry[0] == "convert" else 2)
        target = "" if asked else entry[1]
        return cls(entry[0], target, tuple(entry[start:end]), tuple(entry[end:]))


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
                wholes |= {schema.target: schema.sources[0], schema.sources[1]: schema.sources[0]}
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
        found += [phrase for phrases in story.frames.values() for phrase in phrases]
        schemas = [schema for some in story.schemas.values() for schema in some]
        found += [source for schema in (*schemas, *story.asks) for source in schema.sources]
    return found


# In `muffins on Friday`, the item `muffins` ends before the word `on`.
_STARTERS = frozenset(
    parts_of(phrase).tail.split(" ")[1] for phrase in _phrases() if parts_of(phrase).tail
)


def split_item(text: str) -> tuple[str, str]:
    """Split `muffins on Friday` into `muffins` and ` on Friday`."""
    words = text.split()
    place = next((k for k, word in enumerate(words) if k and word in _STARTERS), len(words))
    return " ".join(words[:place]), "".join(f" {word}" for word in words[place:])


def is_tail(text: str) -> bool:
    """Return whether a string such as `on Friday` can follow an item."""
    return text.partition(" ")[0] in _STARTERS
