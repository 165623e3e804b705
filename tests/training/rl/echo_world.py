"""A world with a known answer, for the trainer tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium

from agentgym import ToolCall, World, tool
from agentgym.text.validation import check_int

WORDS = ("one", "two", "three", "four")


@dataclass(frozen=True)
class Config:
    turns: int = 1

    def __post_init__(self) -> None:
        check_int("turns", self.turns, 1, 9)


class EchoWorld(World[Config]):
    """Say the requested word at each turn; the score is the share of right words."""

    Config = Config

    def generate(self) -> None:
        self.word = WORDS[int(self.rng.integers(len(WORDS)))]
        self.right = 0

    def rules(self) -> str:
        return "Say the word."

    def task(self) -> str:
        return self.word

    def final_answer(self, text: str) -> ToolCall | None:
        return ToolCall("say", {"word": text})

    @tool
    def say(self, word: str) -> str:
        """Say a word.

        Args:
            word: The word.
        """
        self.right += word == self.word
        self.done = self.turn >= self.config.turns
        return "again"

    def score(self) -> float:
        return self.right / self.config.turns


# This world is not in agentgym's registry, which lists only the package's worlds.
gymnasium.register(
    "tests/EchoWorld-v0",
    "agentgym.play.env:ToolEnv",
    kwargs={"world": "tests.training.rl.echo_world:EchoWorld"},
)


def make_env(turns: int = 1) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("tests/EchoWorld-v0", turns=turns, disable_env_checker=True)
