"""Round of a log whose guess is the first with the largest number, drawn before the log is played.

Left to itself, a log that is longer than its table has items shows the largest number early: every
round of a log has to be as likely as any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agentgym.envs.agentlongbench.items import ItemTable, Mask

LARGEST = "find_round_largest_value_env"
"""The task that asks for that round."""


@dataclass(frozen=True, slots=True, eq=False)
class Peak:
    """Guess with the largest number of a log.

    Attributes:
        number: The round of the guess.
        item: The item that is guessed in it.
        before: The items that may be guessed before it: those with a smaller number.
        after: The items that may be guessed after it: those with the same number too.
    """

    number: int
    item: int
    before: Mask
    after: Mask

    @classmethod
    def draw(
        cls, table: ItemTable, target: int, number: int, rng: np.random.Generator
    ) -> Peak | None:
        """Draw the item of a round: the largest of a random half of the items that may be guessed,
        since a log that always shows the largest of all could be left as soon as that is read.

        Args:
            table: The items.
            target: The hidden item, which is never guessed.
            number: The round.
            rng: Draws the half.

        Returns:
            The peak; None if too few items are smaller for the rounds before it, as where almost
            all have one number.
        """
        numbers = np.array([value for (value,) in table.columns[largest_section(table)]])
        others = np.delete(np.arange(len(table)), target)
        half = rng.choice(others, (len(others) + 1) // 2, replace=False)
        item = int(half[np.argmax(numbers[half])])
        before, after = numbers < numbers[item], numbers <= numbers[item]
        before[target] = after[target] = False
        return cls(number, item, before, after) if number == 1 or before.any() else None

    def allowed(self, number: int) -> Mask:
        """Return the items that may be guessed in a round."""
        if number == self.number:
            only = np.zeros(len(self.before), bool)
            only[self.item] = True
            return only
        return self.before if number < self.number else self.after


def largest_section(table: ItemTable) -> int:
    """Return the place of the section whose largest number is asked for: of those with numbers, the
    one with the most different ones.
    """
    numeric = [k for k, section in enumerate(table.sections) if section.numeric]
    return max(numeric, key=lambda k: len(set(table.columns[k])))
