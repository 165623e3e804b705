"""Worlds that each break one law, derived from one that satisfies all."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym import ToolCall, tool
from tests.world.guess_world import WholeGuessWorld


class PaidForNothing(WholeGuessWorld):
    """Rewards an agent that does nothing."""

    def score(self) -> float:
        return 1.0


class Overpaid(WholeGuessWorld):
    """Rewards too much."""

    def score(self) -> float:
        return 2.0


class Endless(WholeGuessWorld):
    """Never ends if the agent does nothing."""

    def generate(self) -> None:
        super().generate()
        self.max_turns = None

    def task(self) -> str:
        return f"The number lies between 1 and {self.config.highest}. Turn budget: 10"


class GloballyRandom(WholeGuessWorld):
    """Draws from the global generator."""

    def generate(self) -> None:
        super().generate()
        random.random()


class Unordered(WholeGuessWorld):
    """Prints a set in hash order."""

    def rules(self) -> str:
        return " ".join({"one", "two", "three", "four", "five", "six", "seven", "eight"})


class Telltale(WholeGuessWorld):
    """Hints at something that was not shown."""

    def subtask(self, with_state: bool) -> str:
        return f"{super().subtask(with_state)}{' ' * self.number}"


class Moved(WholeGuessWorld):
    """Changes when it is inspected."""

    looks = 0

    def state(self) -> str:
        self.looks += 1
        return super().state()


class Misled(WholeGuessWorld):
    """Considers a wrong call optimal."""

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
    """Fails on numbers that nobody would guess."""

    @tool
    def guess(self, number: int) -> str:
        """Guess a number.

        Args:
            number: Your guess.
        """
        if not -1000 < number < 1000:
            raise ZeroDivisionError("no such number")
        return super().guess(number)
