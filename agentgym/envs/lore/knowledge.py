"""Knowledge of an agent from the documents it has read."""

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
    """The documents that an agent has read and the ids that follow from their text.

    Attributes:
        order: The known or read ids, oldest first.
        read: The reading positions of documents, by id.
        answer: The answer as text; None while unknown.
    """

    order: dict[str, None] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    answer: str | None = None

    @abstractmethod
    def learn(self, file: str, text: str) -> list[str]:
        """Read a document and return the newly known ids; a reread changes nothing.

        Any other text, such as a truncated document, raises ValueError and changes nothing.
        """

    @abstractmethod
    def unread(self) -> Sequence[str]:
        """The known ids that have not been read."""

    def follows(self, file: str) -> bool:
        """Report whether an unread id follows from the documents read."""
        return file in self.unread()

    @abstractmethod
    def useful(self) -> Sequence[str]:
        """Return the unread ids that the target certainly needs; the plan takes the first."""

    @abstractmethod
    def lines(self) -> list[str]:
        """Write the knowledge that optimal play needs, without results that the agent can compute."""

    @classmethod
    @abstractmethod
    def from_lines(cls, start: Self, text: str) -> Self:
        """Parse `lines` for a task that began with `start`; raise ValueError for other text."""

    @abstractmethod
    def describe(self, file: str) -> str:
        """Describe reading a document, without results that the agent can compute."""

    @abstractmethod
    def resolve(self, step: str) -> str | None:
        """Return the id that a step of `describe` asks for, if known."""

    def recent(self) -> list[str]:
        """Return the last documents read."""
        return list(islice(reversed(self.read), RECENT))[::-1]

    def record(self, file: str, *, read: bool = False) -> None:
        """Record a known id or a document that was read."""
        self.order[file] = None
        if read:
            self.read[file] = len(self.read)


def split_list(text: str | None, separator: str = ", ") -> list[str]:
    """Return the entries of a list in `lines`."""
    return text.split(separator) if text and text != "none" else []
