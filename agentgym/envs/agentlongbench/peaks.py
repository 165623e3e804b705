"""The round that first guesses the largest number, drawn before the log is played.

All rounds must be equally likely; otherwise long logs show the largest number early.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agentgym.envs.agentlongbench.items import ItemTable, Mask

LARGEST = "find_round_largest_value_env"


@dataclass(frozen=True, slots=True, eq=False)
class Peak:
    """The guess with the largest number in a log.

    Attributes:
        number: The round of the guess.
        before: The items allowed before it, with a smaller number.
        after: The items allowed after it, with at most the same number.
    """

    number: int
    item: int
    before: Mask
    after: Mask

    @classmethod
    def draw(
        cls, table: ItemTable, target: int, number: int, rng: np.random.Generator
    ) -> Peak | None:
        """Draw a round's item; None if too few items have smaller numbers."""
        numbers = np.array([value for (value,) in table.columns[largest_section(table)]])
        others = np.delete(np.arange(len(table)), target)
        # A reader could stop at the overall largest number if logs always showed it.
        half = rng.choice(others, (len(others) + 1) // 2, replace=False)
        item = int(half[np.argmax(numbers[half])])
        before, after = numbers < numbers[item], numbers <= numbers[item]
        before[target] = after[target] = False
        return cls(number, item, before, after) if number == 1 or before.any() else None

    def allowed(self, number: int) -> Mask:
        """Return the items allowed in a round."""
        if number == self.number:
            only = np.zeros(len(self.before), bool)
            only[self.item] = True
            return only
        return self.before if number < self.number else self.after


def largest_section(table: ItemTable) -> int:
    """Return the numeric section with the most distinct values, which the question is about."""
    numeric = [k for k, section in enumerate(table.sections) if section.numeric]
    return max(numeric, key=lambda k: len(set(table.columns[k])))
