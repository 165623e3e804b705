"""Knowledge of an agent from the documents it has read: the part common to all domains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Self

RECENT = 3
"""The number of last-read documents that the state names, because an agent may reread them by
mistake.
"""


@dataclass
class ReadDocuments(ABC):
    """Documents read and the ids that follow from them, filled from visible texts alone.

    A domain implements the hooks below. Each world has one, and so does each scripted policy, which
    reads the chat.

    Attributes:
        order: The known or read ids, oldest first.
        read: The positions of read documents in reading order, by id.
        answer: The answer as text; None while unknown.
    """

    order: dict[str, None] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    answer: str | None = None

    @abstractmethod
    def learn(self, file: str, text: str) -> list[str]:
        """Read a document; one that was read before changes nothing.

        Returns:
            The newly known ids.

        Raises:
            ValueError: The text is not a document (it may have been cut); nothing has changed.
        """

    @abstractmethod
    def unread(self) -> Sequence[str]:
        """The known ids that have not been read."""

    def follows(self, file: str) -> bool:
        """Report whether an id follows from what was read; ids already read need not."""
        return file in self.unread()

    @abstractmethod
    def useful(self) -> Sequence[str]:
        """Return the unread ids that the target certainly depends on, as far as is known.

        Their order depends only on the ids; the plan takes the first.
        """

    @abstractmethod
    def lines(self, full: bool) -> list[str]:
        """Write the knowledge in words, sufficient for optimal play from here.

        `full` spells out results that could be computed.
        """

    @classmethod
    @abstractmethod
    def from_lines(cls, start: Self, text: str) -> Self:
        """Read a text of `lines`, for a task that began with `start`.

        Raises:
            ValueError: The text was not written by `lines`.
        """

    @abstractmethod
    def describe(self, file: str, full: bool) -> str:
        """Describe the step of reading a document, using only what was read unless `full`."""

    @abstractmethod
    def resolve(self, step: str) -> str | None:
        """Return the id of the document that a step of `describe` asks for, if known."""

    def recent(self) -> list[str]:
        """Return the last documents read, in order.

        The state names them, so that they are known without the history.
        """
        return list(islice(reversed(self.read), RECENT))[::-1]

    def record(self, file: str, *, read: bool = False) -> None:
        """Record a newly known id or a read document."""
        self.order[file] = None
        if read:
            self.read[file] = len(self.read)


def split_list(text: str | None, separator: str = ", ") -> list[str]:
    """Return the entries of a list in the text of `ReadDocuments.lines`; empty for a missing list."""
    return text.split(separator) if text and text != "none" else []
