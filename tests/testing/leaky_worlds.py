"""A toy world without leaks, and one world for each kind of leak that the battery must find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import gymnasium

from agentgym import ToolCall, ToolError, World, tool

WORDS = (
    "amber basil cedar delta ember fable grove heron ivory jewel karma lemon maple noble ocean "
    "pearl quartz raven solar tulip umber velvet willow xenon yarrow zephyr acorn birch coral dune"
).split()
SIZE, PAGE = 16, 4
LETTERS = list("bcdfghjkmnpqrstvwxz23456789")


@dataclass(frozen=True)
class NotesConfig:
    pass


class CleanNotes(World[NotesConfig]):
    """Find the note whose numbers have a given sum; nothing else identifies the note."""

    Config = NotesConfig
    parallel_calls = False

    def generate(self) -> None:
        rng = self.rng
        self.names = [WORDS[k] for k in rng.permutation(len(WORDS))[:SIZE]]
        self.ids = ["".join(rng.choice(LETTERS, size=7)) + "7x" for _ in self.names]
        sums = 100 + rng.permutation(800)[:SIZE]
        self.parts = [(int(n := rng.integers(1, s)), int(s - n)) for s in sums]
        self.target = int(rng.integers(SIZE))
        self.order = [int(k) for k in rng.permutation(SIZE)]
        self.max_turns = 20
        self.chosen = ""
        self.listed = self.was_read = 0
        self.plant()

    def plant(self) -> None:
        """Plant the leak."""

    def rules(self) -> str:
        return (
            "Find the note whose two numbers have the sum that is asked for, and answer its name."
        )

    def task(self) -> str:
        total = sum(self.parts[self.target])
        return f"Names: {', '.join(self.names)}\nThe sum: {total}{self.extra()}\nTurn budget: {self.max_turns}"

    def extra(self) -> str:
        """Return text to insert in the prompt before the budget."""
        return ""

    def mark(self, note: int) -> str:
        return f"size {sum(map(ord, self.ids[note])) % 7}"

    @tool
    def list_notes(self, page: int) -> str:
        """List a page of notes.

        Args:
            page: The page, from 1 on.
        """
        if not 1 <= page <= SIZE // PAGE:
            raise ToolError(f"page must be in [1, {SIZE // PAGE}], got {page}")
        self.listed += 1
        rows = self.order[(page - 1) * PAGE : page * PAGE]
        return "\n".join(f"{self.ids[k]} {self.names[k]} {self.mark(k)}" for k in rows)

    @tool
    def read(self, id: str) -> str:
        """Read a note.

        Args:
            id: Its id.
        """
        if id not in self.ids:
            raise ToolError("there is no such note")
        note = self.ids.index(id)
        self.was_read += note == self.target
        return f"The numbers are {self.parts[note][0]} and {self.parts[note][1]}."

    @tool(final=True)
    def answer(self, name: str) -> str:
        """Answer.

        Args:
            name: The name of the note.
        """
        self.chosen = name
        return "Taken."

    def score(self) -> float:
        return float(self.chosen == self.names[self.target])

    def optimal_calls(self) -> Sequence[ToolCall]:
        if self.listed < SIZE // PAGE:
            return [ToolCall("list_notes", {"page": self.listed + 1})]
        if not self.was_read:
            return [ToolCall("read", {"id": self.ids[self.target]})]
        return [ToolCall("answer", {"name": self.names[self.target]})]


class BudgetTells(CleanNotes):
    """The printed budget depends on the target."""

    def plant(self) -> None:
        self.max_turns = 20 + self.target


class LengthTells(CleanNotes):
    """The later the target occurs in the prompt, the longer the prompt is."""

    def plant(self) -> None:
        self.names = [name[:5].ljust(5, "e") for name in self.names]

    def extra(self) -> str:
        return "." * self.target


class ConstantAnswer(CleanNotes):
    """One answer is correct more often than the number of options suggests."""

    def plant(self) -> None:
        if "amber" in self.names and self.rng.random() < 0.8:
            self.target = self.names.index("amber")


class FirstOption(CleanNotes):
    """The first option is correct in a third of the instances."""

    def plant(self) -> None:
        if self.rng.random() < 0.35:
            self.target = 0


class SecondLastOption(CleanNotes):
    """The answer has a fixed position in the prompt."""

    def plant(self) -> None:
        self.target = SIZE - 2


class LongestOption(CleanNotes):
    """The correct option is the longest."""

    def plant(self) -> None:
        self.target = max(range(SIZE), key=lambda k: len(self.names[k]))


class LastPageSuffices(CleanNotes):
    """The last entry of the last page is the correct answer."""

    def plant(self) -> None:
        self.order.remove(self.target)
        self.order.append(self.target)


class FirstPageSuffices(CleanNotes):
    """The second entry of the first page is the correct answer."""

    def plant(self) -> None:
        self.order.remove(self.target)
        self.order.insert(1, self.target)


class MetadataMarks(CleanNotes):
    """Metadata on the first page marks the target, whose place on the page varies."""

    def plant(self) -> None:
        self.order.remove(self.target)
        self.order.insert(int(self.rng.integers(PAGE)), self.target)

    def mark(self, note: int) -> str:
        return "starred" if note == self.target else "plain"


class RepeatedIds(CleanNotes):
    """In every instance, the correct note has one of a few ids."""

    def plant(self) -> None:
        self.ids[self.target] = f"a7f3c2e{int(self.rng.integers(4))}"


class SameSteps(CleanNotes):
    """The same calls are successful in a quarter of the instances."""

    def plant(self) -> None:
        if self.rng.random() < 0.25:
            self.ids[self.target], self.names[self.target] = "q7777777", "pearl"


class AnyEnd(CleanNotes):
    """An empty answer is accepted."""

    def score(self) -> float:
        return float(self.done and self.chosen in ("", self.names[self.target]))


class GuessOnce(World[NotesConfig]):
    """Guess which of four seals is correct; the world has no optimal calls."""

    Config = NotesConfig

    def generate(self) -> None:
        self.seal = int(self.rng.integers(1, 5))
        self.token = int(self.rng.integers(10**9))
        self.chosen = 0
        self.max_turns = 3

    def rules(self) -> str:
        return "Guess the seal."

    def task(self) -> str:
        return f"Case {self.token}: which seal is it?"

    @tool(final=True)
    def guess(self, seal: Literal[1, 2, 3, 4]) -> str:
        """Guess.

        Args:
            seal: The seal.
        """
        self.chosen = seal
        return "Taken."

    def score(self) -> float:
        return float(self.chosen == self.seal)


LEAKY = (
    BudgetTells,
    LengthTells,
    ConstantAnswer,
    FirstOption,
    SecondLastOption,
    LongestOption,
    LastPageSuffices,
    FirstPageSuffices,
    MetadataMarks,
    RepeatedIds,
    SameSteps,
    AnyEnd,
)

for world in (CleanNotes, *LEAKY, GuessOnce):
    # Only registered with Gymnasium, so that the tests of agentgym's registry skip these worlds.
    gymnasium.register(
        f"agentgym/{world.__name__}-v0",
        entry_point="agentgym.play.env:ToolEnv",
        kwargs={"world": f"{__name__}:{world.__name__}"},
        order_enforce=False,
        disable_env_checker=True,
    )
