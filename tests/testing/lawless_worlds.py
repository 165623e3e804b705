"""Worlds that each break one law, derived from a world that satisfies all laws."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import make_dataclass
from typing import Any

from agentgym import ToolCall, ToolError, tool
from tests.world.guess_world import GuessWorld, WholeGuessWorld


class PaidForNothing(WholeGuessWorld):
    """World that rewards an agent for doing nothing."""

    def score(self) -> float:
        return 1.0


class Overpaid(WholeGuessWorld):
    """World whose reward is too large."""

    def score(self) -> float:
        return 2.0


class Endless(WholeGuessWorld):
    """World that never ends if the agent does nothing."""

    def generate(self) -> None:
        super().generate()
        self.max_turns = None

    def task(self) -> str:
        return f"The number lies between 1 and {self.config.highest}. Turn budget: 10"


class Talkative(GuessWorld):
    """World that never ends, whatever the agent calls."""

    def generate(self) -> None:
        super().generate()
        self.max_turns = None

    @tool
    def guess(self, number: int) -> str:
        """Guess a number.

        Args:
            number: Your guess.
        """
        return "wrong"


class HalfTurns(GuessWorld):
    """World whose turn budget is a fraction."""

    def generate(self) -> None:
        super().generate()
        self.max_turns = 7.5  # type: ignore[assignment]


class Wordless(GuessWorld):
    """World without a task text."""

    def task(self) -> str:
        return None  # type: ignore[return-value]


class Odd(GuessWorld):
    """World whose tool always fails."""

    error: BaseException = KeyError("odd")

    @tool
    def guess(self, number: int) -> str:
        """Guess a number.

        Args:
            number: Your guess.
        """
        raise self.error


class Leaving(Odd):
    """World whose tool ends the process."""

    error = SystemExit(3)


class Undocumented(GuessWorld):
    """World with a tool that has no docstring."""

    @tool
    def look(self) -> str:
        return ""


class Undefaulted(GuessWorld):
    """World whose only option has no default."""

    Config = make_dataclass("Config", [("size", int)], frozen=True)


class Plain(GuessWorld):
    """World whose options are not a dataclass."""

    Config = dict


class GloballyRandom(WholeGuessWorld):
    """World that uses the global random generator."""

    def generate(self) -> None:
        super().generate()
        random.random()


class Unordered(WholeGuessWorld):
    """World that prints a set in hash order."""

    def rules(self) -> str:
        return " ".join({"one", "two", "three", "four", "five", "six", "seven", "eight"})


class Telltale(WholeGuessWorld):
    """World whose hints reveal something that the agent has not seen."""

    def subtask(self, with_state: bool) -> str:
        return f"{super().subtask(with_state)}{' ' * self.number}"


class Moved(WholeGuessWorld):
    """World that changes when it is inspected."""

    looks = 0

    def state(self) -> str:
        self.looks += 1
        return super().state()


class Misled(WholeGuessWorld):
    """World that considers a wrong call to be optimal."""

    def optimal_calls(self) -> Sequence[ToolCall]:
        return (ToolCall("guess", {"number": self.low - 1}),)


class Shared(WholeGuessWorld):
    """World that counts the guesses of all its copies together."""

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
    """World that fails on numbers that nobody would guess."""

    @tool
    def guess(self, number: int) -> str:
        """Guess a number.

        Args:
            number: Your guess.
        """
        if not -1000 < number < 1000:
            raise ZeroDivisionError("no such number")
        return super().guess(number)


class HalfDone(GuessWorld):
    """World that changes its state before it rejects a call."""

    refused = 0

    @tool
    def guess(self, number: int) -> str:
        """Guess a number.

        Args:
            number: Your guess.
        """
        if number < 0:
            self.refused += 1
            raise ToolError("the number must not be negative")
        return super().guess(number)


class Forgetful(GuessWorld):
    """World whose copies lack a field."""

    guesses = 0

    @tool
    def guess(self, number: int) -> str:
        """Guess a number.

        Args:
            number: Your guess.
        """
        self.guesses += 1
        return f"{super().guess(number)} ({self.guesses} guesses)"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "guesses": 0}


class Noted(GuessWorld):
    """World that fails on text with a bidirectional control character."""

    @tool
    def note(self, text: str) -> str:
        """Write a note.

        Args:
            text: The note.
        """
        if set(text) & set("\u202a\u202b\u202d\u202e\u2066\u2067"):
            raise RuntimeError("text layout failed")
        return "Noted."
