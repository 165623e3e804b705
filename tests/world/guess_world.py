"""README's world with only the required hooks, and a second version with all hooks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from agentgym import CallSet, ToolCall, World, tool


@dataclass(frozen=True)
class Config:
    highest: int = 10


class GuessWorld(World[Config]):
    """Find a hidden number."""

    Config = Config

    def generate(self) -> None:
        self.number = int(self.rng.integers(1, self.config.highest + 1))
        self.max_turns = self.config.highest
        self.right = False

    def rules(self) -> str:
        return "Guess the number. You are told whether it is higher or lower."

    def task(self) -> str:
        return f"The number lies between 1 and {self.config.highest}. Turn budget: {self.max_turns}"

    @tool
    def guess(self, number: int) -> str:
        """Guess a number.

        Args:
            number: Your guess.
        """
        self.done = self.right = number == self.number
        return "right" if self.right else "higher" if number < self.number else "lower"

    def score(self) -> float:
        return float(self.right)


class WholeGuessWorld(GuessWorld):
    """Find a hidden number, with every hook."""

    low, high = 1, 10

    def generate(self) -> None:
        super().generate()
        self.low, self.high = 1, self.config.highest

    @tool
    def guess(self, number: int) -> str:
        """Guess a number.

        Args:
            number: Your guess.
        """
        answer = super().guess(number)
        self._narrow(number, answer)
        return answer

    def _narrow(self, number: int, answer: str) -> None:
        self.low = max(self.low, number + 1) if answer == "higher" else self.low
        self.high = min(self.high, number - 1) if answer == "lower" else self.high

    def state(self) -> str:
        return f"The number lies between {self.low} and {self.high}."

    def subtask(self, with_state: bool) -> str:
        return f"Guess {(self.low + self.high) // 2}."

    def optimal_calls(self) -> Sequence[ToolCall]:
        return [ToolCall("guess", {"number": (self.low + self.high) // 2})]

    @classmethod
    def read_task(cls, task: str) -> WholeGuessWorld:
        world = cls(cls.Config(int(re.findall(r"and ([0-9]+)\.", task)[0])), 0)
        world.generate()
        return world

    def read_result(self, call: ToolCall, result: str) -> None:
        self._narrow(call.arguments["number"], result)

    def read_state(self, state: str) -> None:
        self.low, self.high = map(int, re.findall("[0-9]+", state))

    def read_subtask(self, subtask: str) -> ToolCall | None:
        return ToolCall("guess", {"number": int(subtask.split()[1][:-1])})

    def legal_calls(self) -> Sequence[ToolCall]:
        return CallSet("guess", "number", range(1, self.config.highest + 1))

    def action_catalog(self) -> Sequence[ToolCall]:
        return CallSet("guess", "number", range(1, self.config.highest + 1))

    def features(self) -> NDArray[np.float32]:
        return np.array([self.low, self.high], np.float32) / self.config.highest

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        return {"highest": 2**steps}


for world in (GuessWorld, WholeGuessWorld):
    gymnasium.register(
        f"tests/{world.__name__}-v0",
        "agentgym.play.env:ToolEnv",
        kwargs={"world": f"tests.world.guess_world:{world.__name__}"},
    )
