"""What an agent knows that has read certain documents: the part that does not depend on the
domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Self

RECENT = 3
"""How many of the documents that were read the state names: those that may be read again by
mistake.
"""


@dataclass
class Knowledge:
    """What has been read, and what that leads to. Filled from texts alone, so it holds nothing
    hidden.

    A domain fills the hooks below. Each world has one, and so has each scripted policy, which reads
    the chat.

    Attributes:
        order: The ids that were found out or read, in the order in which they were.
        read: Their places in the order of reading, by id, for those that were read.
        answer: What the task asks for, as text; None while it is not known.
    """

    order: dict[str, None] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    answer: str | None = None

    def learn(self, file: str, text: str) -> list[str]:
        """Take in a document; one that was read before tells nothing new.

        Returns:
            The ids that can be found out now, and could not before.

        Raises:
            ValueError: The text is not that of a document (it may have been cut); nothing has
                changed.
        """
        raise NotImplementedError

    def unread(self) -> Sequence[str]:
        """The ids that follow from what was read, and were not read."""
        raise NotImplementedError

    def follows(self, file: str) -> bool:
        """Whether an id follows from what was read; one that was read already need not."""
        return file in self.unread()

    def useful(self) -> Sequence[str]:
        """Those among them that are best read next, in an order that depends on nothing but the
        ids; the plan takes the first.

        These are the ones the target certainly depends on, as far as what was read tells.
        """
        raise NotImplementedError

    def lines(self, full: bool) -> list[str]:
        """What was found out, in words; enough for optimal play from here. `full` spells out what
        could be computed.
        """
        raise NotImplementedError

    @classmethod
    def from_lines(cls, start: Self, text: str) -> Self:
        """What `lines` told, for a task that began with `start`.

        Raises:
            ValueError: The text is not one that `lines` wrote.
        """
        raise NotImplementedError

    def describe(self, file: str, full: bool) -> str:
        """The step of reading a document, in words that tell no more than what was read, unless
        `full`.
        """
        raise NotImplementedError

    def resolve(self, step: str) -> str | None:
        """The id of the document that a step of `describe` asks for, if it can be told."""
        raise NotImplementedError

    def recent(self) -> list[str]:
        """The documents that were read last, in order; the state tells them, so that they are known
        without the history.
        """
        return list(islice(reversed(self.read), RECENT))[::-1]

    def found(self, file: str, *, read: bool = False) -> None:
        """Note an id that was found out, or a document that was read."""
        self.order[file] = None
        if read:
            self.read[file] = len(self.read)
