"""Worlds that break one law each, made of one that keeps all."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym import ToolCall, tool
from tests.world.guess_world import WholeGuessWorld


class PaidForNothing(WholeGuessWorld):
    """Pays who does nothing."""

    def score(self) -> float:
        return 1.0


class Overpaid(WholeGuessWorld):
    """Pays too much."""

    def score(self) -> float:
        return 2.0


class Endless(WholeGuessWorld):
    """Ends for nobody who does nothing."""

    def generate(self) -> None:
        super().generate()
        self.max_turns = None

    def task(self) -> str:
        return f"The number lies between 1 and {self.config.highest}. Turn budget: 10"


class GloballyRandom(WholeGuessWorld):
    """Draws from the generator of all."""

    def generate(self) -> None:
        super().generate()
        random.random()


class Unordered(WholeGuessWorld):
    """Writes a set in the order of its hashes."""

    def rules(self) -> str:
        return " ".join({"one", "two", "three", "four", "five", "six", "seven", "eight"})


class Telltale(WholeGuessWorld):
    """Hints at what was not shown."""

    def subtask(self, with_state: bool) -> str:
        return f"{super().subtask(with_state)}{' ' * self.number}"


class Moved(WholeGuessWorld):
    """Is changed by who looks at it."""

    looks = 0

    def state(self) -> str:
        self.looks += 1
        return super().state()


class Misled(WholeGuessWorld):
    """Takes for optimal what is not."""

    def optimal_calls(self) -> Sequence[ToolCall]:
        return (ToolCall("guess", {"number": self.low - 1}),)


class Shared(WholeGuessWorld):
    """Counts the guesses of all its copies together."""

    counts: Mapping[str, Any] = {"guesses": [0]}

    @tool
    def guess(self, number: int) -> str:
        """Guess a number.

        Args:
            number: Your guess.
        """
        self.counts["guesses"][0] += 1
        return f"{super().guess(number)}{' ' * (self.counts['guesses'][0] % 7)}"


class Fragile(WholeGuessWorld):
    """Breaks on numbers that nobody would guess."""

    @tool
    def guess(self, number: int) -> str:
        """Guess a number.

        Args:
            number: Your guess.
        """
        if not -1000 < number < 1000:
            raise ZeroDivisionError("no such number")
        return super().guess(number)
