"""ReadDocuments of an agent from the documents that it has read: the part common to all domains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Self

RECENT = 3
"""Number of documents read last that the state names: these may be read again by mistake."""


@dataclass
class ReadDocuments(ABC):
    """Read documents and the ids that they lead to; filled from texts alone, so nothing in it is
    hidden.

    A domain fills the hooks below. Each world has one, and so has each scripted policy, which reads
    the chat.

    Attributes:
        order: The ids that are known or were read, oldest first.
        read: The places in the order of reading, by id, of the documents that were read.
        answer: The answer, as text; None while it is not known.
    """

    order: dict[str, None] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    answer: str | None = None

    @abstractmethod
    def learn(self, file: str, text: str) -> list[str]:
        """Take in a document; one that was read before changes nothing.

        Returns:
            The ids that follow now, and did not before.

        Raises:
            ValueError: The text is not that of a document (it may have been cut); nothing has
                changed.
        """

    @abstractmethod
    def unread(self) -> Sequence[str]:
        """The ids that follow from what was read, and were not read."""

    def follows(self, file: str) -> bool:
        """Return whether an id follows from what was read; one that was read already need not."""
        return file in self.unread()

    @abstractmethod
    def useful(self) -> Sequence[str]:
        """List the unread ids that the target certainly depends on, as far as is known.

        Their order depends on nothing but the ids; the plan takes the first.
        """

    @abstractmethod
    def lines(self, full: bool) -> list[str]:
        """Write the knowledge in words, enough for optimal play from here.

        `full` spells out results that could be computed.
        """

    @classmethod
    @abstractmethod
    def from_lines(cls, start: Self, text: str) -> Self:
        """Read the text of `lines`, for a task that began with `start`.

        Raises:
            ValueError: The text is not one that `lines` wrote.
        """

    @abstractmethod
    def describe(self, file: str, full: bool) -> str:
        """Describe the step of reading a document, from what was read only, unless `full`."""

    @abstractmethod
    def resolve(self, step: str) -> str | None:
        """Return the id of the document that a step of `describe` asks for, if it is known."""

    def recent(self) -> list[str]:
        """List the documents that were read last, in order.

        The state names them, so that they are known without the history.
        """
        return list(islice(reversed(self.read), RECENT))[::-1]

    def record(self, file: str, *, read: bool = False) -> None:
        """Record an id that has become known, or a document that was read."""
        self.order[file] = None
        if read:
            self.read[file] = len(self.read)


def split_list(text: str | None, separator: str = ", ") -> list[str]:
    """Return the entries of a list in the text of `ReadDocuments.lines`; none of a missing one."""
    return text.split(separator) if text and text != "none" else []
