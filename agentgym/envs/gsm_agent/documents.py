"""Documents, each of which states one premise, and the tasks that require them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any

from agentgym.envs.gsm_agent.facts import Fact, owners_of
from agentgym.envs.gsm_agent.narration import Narrator
from agentgym.envs.gsm_agent.vocabulary import MONTHS, ROLES, capital
from agentgym.envs.reading import load_texts

_TEXTS = load_texts(__file__, "genres")
_SLOTS: Mapping[str, Sequence[str]] = _TEXTS["slots"]
_MARKS: Mapping[str, Sequence[str]] = _TEXTS["marks"]
_GENRES: Mapping[str, Mapping[str, Any]] = _TEXTS["genres"]
_KINDS = tuple(_GENRES)
_FIELD = re.compile(r"\{(\w+)\}")
_YEARS = range(1960, 2020)
# Only this share of documents with names states the month, so searching for a month is not enough.
_DATED = 0.5


@dataclass(frozen=True, slots=True)
class Document:
    """A document of the database. Searches match only `content`, but results show all fields.

    Attributes:
        timestamp: The year and month, such as `1990-05`.
        name: The names of the people, separated by commas; anonymised content omits them.
    """

    id: str
    content: str
    timestamp: str = ""
    name: str = ""
    type: str = ""

    def show(self) -> str:
        """Format a search result."""
        metadata = {"date": self.timestamp, "name": self.name, "type": self.type}
        about = "; ".join(f"{key}: {value}" for key, value in metadata.items() if value)
        head = f"[{self.id}]"
        if about:
            head += f" {about}"
        return f"{head}\n{self.content}"


@dataclass(frozen=True, slots=True)
class Task:
    """A problem with premises in several documents; `documents` contains indices into the database.

    If searching cannot solve the task, `static_only` contains the reason.
    """

    id: str
    question: str
    answer: str
    documents: tuple[int, ...] = ()
    premises: tuple[str, ...] = ()
    static_only: str = ""


def places_of(documents: Sequence[Document]) -> dict[str, int]:
    """Map the ids of documents to their indices."""
    return {document.id: place for place, document in enumerate(documents)}


def shuffled_months(seed: int) -> list[str]:
    """Return all months as timestamps, in random order, so that no month has the most tasks."""
    months = [f"{year}-{month:02d}" for year, month in product(_YEARS, range(1, 13))]
    Random(seed).shuffle(months)
    return months


def month_name(timestamp: str) -> str:
    """Convert `1990-05` to `May 1990`; return other strings unchanged."""
    year, _, month = timestamp.partition("-")
    if month.isdigit() and 0 < int(month) <= len(MONTHS):
        return f"{MONTHS[int(month) - 1]} {year}"
    return timestamp


def write_document(
    facts: Sequence[Fact], timestamp: str, town: str, anonymous: bool, rng: Random, mark: str = ""
) -> Document:
    """Write a document, without an id, that states the facts of a premise.

    If `anonymous`, a document about one person uses `I` or a role instead of the name. `mark` adds
    a sentence that calls the number corrected or outdated.
    """
    people = owners_of(facts)
    kind = rng.choice(_KINDS)
    genre = _GENRES[kind]
    names = {}
    if anonymous and len(people) == 1:
        names[people[0]] = "I" if genre["voice"] == "I" else f"the {rng.choice(ROLES)}"
    lines = bool(genre.get("lines"))
    narrator = Narrator(rng, names, genre["leads"], lines)
    told = list(map(narrator.write, facts))
    if mark:
        told.insert(rng.choice((0, len(told))), rng.choice(_MARKS[mark]))
    fillers = rng.sample(genre["fillers"], rng.randint(1, 3))
    sentences = [_FIELD.sub(lambda slot: _word(slot[1], rng), filler) for filler in fillers]
    place = rng.randint(0, len(sentences))
    gap = "\n" if lines else " "
    sentences[place:place] = [gap.join(told)]
    dated = bool(names) or rng.random() < _DATED
    headings = genre["dated" if dated else "undated"]
    heading = rng.choice(headings).format(town=town, month=month_name(timestamp))
    text = f"{heading}\n{gap.join(sentences)}"
    return Document("", text, timestamp, ", ".join(people), kind)


def _word(slot: str, rng: Random) -> str:
    word = rng.choice(_SLOTS[slot.lower().rstrip("2")])
    return word if slot.islower() else capital(word)
