"""Documents and tasks: a premise in a record, and the parts of a problem."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from agentgym.envs.gsm_agent.facts import Fact, write_fact
from agentgym.envs.gsm_agent.vocabulary import DOCUMENT_TYPES, MONTHS, ROLES, TOPICS


@dataclass(frozen=True, slots=True)
class Document:
    """A document of the database. Searches match only its content; results show all fields.

    Attributes:
        timestamp: The year and month, such as `1990-05`.
        name: The people in the text, joined by commas; an anonymised document names them only here.
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
        return f"[{self.id}] {about}\n{self.content}" if about else f"[{self.id}]\n{self.content}"


@dataclass(frozen=True, slots=True)
class Task:
    """A problem whose premises are spread over documents.

    Attributes:
        answer: The number, as text.
        documents: The indices of the documents with its premises.
        static_only: Why searching cannot solve it; empty if it can.
    """

    id: str
    question: str
    answer: str
    documents: tuple[int, ...] = ()
    premises: tuple[str, ...] = ()
    static_only: str = ""

    def __post_init__(self) -> None:
        # JSON records contain lists.
        for name in ("documents", "premises"):
            object.__setattr__(self, name, tuple(getattr(self, name)))


RecordT = TypeVar("RecordT", bound=Document | Task)


class Pack(Sequence[RecordT], Generic[RecordT]):
    """Records in one read-only byte block, which forked processes share.

    Args:
        record: The class of the records.
        block: The concatenated JSON records; uint8, shape `(bytes,)`.
        ends: The start of each record and the end of the last; int64, shape `(records + 1,)`.
    """

    def __init__(
        self, record: type[RecordT], block: NDArray[np.uint8], ends: NDArray[np.int64]
    ) -> None:
        self.record, self.block, self.ends = record, block, ends

    @classmethod
    def of(cls, record: type[RecordT], records: Iterable[RecordT]) -> Self:
        """Pack records."""
        lines = [json.dumps(asdict(each), ensure_ascii=False).encode() for each in records]
        ends = np.cumsum([0, *map(len, lines)], dtype=np.int64)
        return cls(record, np.frombuffer(b"".join(lines), np.uint8), ends)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, place: Any) -> Any:
        line = self.block[self.ends[place] : self.ends[place + 1]].tobytes()
        return self.record(**json.loads(line))


def month_name(timestamp: str) -> str:
    """Return `May 1990` for `1990-05`; other texts stay unchanged."""
    year, _, month = timestamp.partition("-")
    if month.isdigit() and 0 < int(month) <= len(MONTHS):
        return f"{MONTHS[int(month) - 1]} {year}"
    return timestamp


def write_document(
    facts: Sequence[Fact], timestamp: str, town: str, anonymous: bool, rng: Random
) -> Document:
    """Write one premise's facts, the numeric one last, into a record without an id.

    If `anonymous`, a role replaces the name in facts about one person.
    """
    people = tuple(dict.fromkeys(owner for fact in facts for owner in fact.owners))
    names = {people[0]: f"the {rng.choice(ROLES)}"} if anonymous and len(people) == 1 else None
    kind = rng.choice(tuple(DOCUMENT_TYPES))
    headings, fillers = DOCUMENT_TYPES[kind]["headings"], DOCUMENT_TYPES[kind]["fillers"]
    sentences = rng.sample(fillers, rng.randint(2, len(fillers)))
    place = rng.randint(0, len(sentences))
    topic = rng.choice(TOPICS).format(phrase=facts[-1].target.phrase)
    sentences[place:place] = [topic, *(write_fact(fact, rng, names) for fact in facts)]
    heading = rng.choice(headings).format(town=town, month=month_name(timestamp))
    return Document("", f"{heading}\n{' '.join(sentences)}", timestamp, ", ".join(people), kind)
