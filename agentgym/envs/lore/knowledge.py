"""An agent's knowledge from the documents read so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Self

RECENT = 3
"""The number of last-read documents that the state names; an agent may otherwise reread them."""


@dataclass
class ReadDocuments(ABC):
    """The documents read by an agent, and the ids that can be deduced from these documents.

    Attributes:
        order: The ids of all known or read documents, starting with the oldest.
        read: Maps the id of each read document to its position in the reading order.
        answer: The answer as a string; None if not yet known.
    """

    order: dict[str, None] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    answer: str | None = None

    @abstractmethod
    def learn(self, file: str, text: str) -> list[str]:
        """Learn from a document and return the newly known ids; rereading changes nothing.

        If `text` is not a complete document, raise ValueError and change nothing.
        """

    @abstractmethod
    def unread(self) -> Sequence[str]:
        """Return the known ids of documents that have not been read."""

    def follows(self, file: str) -> bool:
        """Return whether an unread document's id can be deduced from the documents read so far."""
        return file in self.unread()

    @abstractmethod
    def useful(self) -> Sequence[str]:
        """Return the ids of unread documents that are certainly needed; plans pick the first id."""

    @abstractmethod
    def lines(self) -> list[str]:
        """Format the knowledge needed for optimal play, without results that can be computed."""

    @classmethod
    @abstractmethod
    def from_lines(cls, start: Self, text: str) -> Self:
        """Parse the output of `lines`; `start` is the initial knowledge of the task."""

    @abstractmethod
    def describe(self, file: str) -> str:
        """Describe the step of reading a document."""

    @abstractmethod
    def resolve(self, step: str) -> str | None:
        """Return the document id in a step written by `describe`, or None if the id is unknown."""

    def recent(self) -> list[str]:
        """Return the ids of the most recently read documents."""
        return list(islice(reversed(self.read), RECENT))[::-1]

    def record(self, file: str, *, read: bool = False) -> None:
        """Record an id as known, and optionally as read."""
        self.order[file] = None
        if read:
            self.read[file] = len(self.read)


def split_list(text: str | None, separator: str = ", ") -> list[str]:
    """Split a list written by `lines` into its entries."""
    return text.split(separator) if text and text != "none" else []
