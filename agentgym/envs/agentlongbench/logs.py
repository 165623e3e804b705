"""Puzzle logs (AgentLongBench, sections 2.2 and C.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from agentgym.envs.agentlongbench.items import ItemTable, Mask
from agentgym.text.messages import Message

LARGEST = "find_round_largest_value_env"
SHORTEST = 4_000
"""Minimum tokens; less has no room for the minimum rounds."""
FEWEST_ROUNDS, LONGEST_ROUNDS = 3, 100_000
"""A shorter log has no history to ask about."""
LONGEST = 10**9
"""Maximum tokens of a log, far beyond the benchmark's 4M."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundMessages:
    """The call, result, guess and feedback of a round; round 1 has only a guess and feedback."""

    number: int
    messages: tuple[Message, ...]
    start: int


@dataclass(frozen=True, slots=True, eq=False)
class Round(RoundMessages):
    """One round of a log; `lists` contains the items of each list in the tool result."""

    guess: int
    lists: tuple[NDArray[np.intp], ...]
    tokens: int

    @property
    def result(self) -> Message:
        return self.messages[1]

    @property
    def feedback(self) -> Message:
        return self.messages[-1]


@dataclass(frozen=True, eq=False)
class LogMessages:
    """The messages of a log and their token count."""

    style: str
    system: Message
    rounds: tuple[RoundMessages, ...]
    tokens: int

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @property
    def messages(self) -> Iterator[Message]:
        yield self.system
        for each in self.rounds:
            yield from each.messages


@dataclass(frozen=True, eq=False)
class Log(LogMessages):
    """The log of an unsolved puzzle, with the item table."""

    rounds: tuple[Round, ...]
    table: ItemTable
    target: int


def count_lists(lists: Sequence[NDArray[np.intp]], items: int) -> NDArray[np.int64]:
    """Return the number of lists that contain each item."""
    counts = np.zeros(items, np.int64)
    for places in lists:
        counts[places] += 1
    return counts


def within(lists: Sequence[NDArray[np.intp]], items: int) -> Mask:
    """Return a mask of the items that are in all lists."""
    mask: Mask = count_lists(lists, items) == len(lists)
    return mask


@dataclass(frozen=True, slots=True, eq=False)
class Peak:
    """The planned first guess of an item with the largest number in a log.

    The round is drawn before the log is played, so that all rounds are equally likely. Earlier
    guesses must have smaller numbers than this guess, and later guesses must not have larger ones.
    """

    number: int
    item: int
    before: Mask
    after: Mask

    @classmethod
    def draw(
        cls, table: ItemTable, target: int, number: int, rng: np.random.Generator
    ) -> Peak | None:
        """Draw the item for round `number`; return None if no item is left for earlier rounds."""
        numbers = np.array([value for (value,) in table.columns[largest_section(table)]])
        others = np.delete(np.arange(len(table)), target)
        # If every log contained the table's largest number, a reader could stop at that number.
        half = rng.choice(others, (len(others) + 1) // 2, replace=False)
        item = int(half[np.argmax(numbers[half])])
        before, after = numbers < numbers[item], numbers <= numbers[item]
        before[target] = after[target] = False
        if number > 1 and not before.any():
            return None
        return cls(number, item, before, after)

    def allowed(self, number: int) -> Mask:
        """Return a mask of the items that may be guessed in a round."""
        if number == self.number:
            only = np.zeros(len(self.before), bool)
            only[self.item] = True
            return only
        if number < self.number:
            return self.before
        return self.after


def largest_section(table: ItemTable) -> int:
    """Return the numeric section with the most distinct values."""
    numeric = [k for k, section in enumerate(table.sections) if section.numeric]
    return max(numeric, key=lambda k: len(set(table.columns[k])))
