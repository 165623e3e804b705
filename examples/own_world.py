"""A custom world with the four required hooks, and three more hooks for labels and oracles.

Needs: pip install agentgym-suite

Prints: an episode that the oracle policy plays from the chat alone, and the mean reward.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass

import agentgym
from agentgym import CallSet, ToolCall, World, tool
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import collect


@dataclass(frozen=True)
class GuessConfig(agentgym.Config):  # the fields become keyword arguments of agentgym.make
    highest: int = 100


class GuessWorld(World[GuessConfig]):
    """Find a hidden number."""

    Config = GuessConfig
    parallel_calls = False  # one call per reply
    observes = True  # `read_result` also updates the world itself

    def generate(self) -> None:  # draws the instance; all random numbers come from self.rng
        self.number = int(self.rng.integers(1, self.config.highest + 1))
        self.low, self.high = 1, self.config.highest
        self.max_turns = self.high.bit_length()

    def rules(self) -> str:  # the system message, which is followed by the tools
        return "Guess the number. You are told whether it is higher or lower than your guess."

    def task(self) -> str:  # the first user message
        return f"It lies between {self.low} and {self.high}. Turn budget: {self.max_turns}"

    @tool
    def guess(self, number: int) -> str:
        """Guess a number."""
        self.done = number == self.number
        return "right" if self.done else "higher" if number < self.number else "lower"

    def score(self) -> float:  # the reward of the episode
        return float(self.done)

    def optimal_calls(self) -> Sequence[ToolCall]:  # guesses that keep success certain
        rest = 2 ** (self.turns_left - 1) - 1  # later turns can distinguish this many numbers
        optimal = range(max(self.low, self.high - rest), min(self.high, self.low + rest) + 1)
        return CallSet("guess", "number", optimal)

    def read_result(self, call: ToolCall, result: str) -> None:  # records the result of a call
        if result == "higher":
            self.low = max(self.low, call.arguments["number"] + 1)
        elif result == "lower":
            self.high = min(self.high, call.arguments["number"] - 1)

    @classmethod
    def read_task(cls, task: str) -> "GuessWorld":  # rebuilds the world from the task text
        world = cls(GuessConfig(), 0)
        world.low, world.high, world.max_turns = map(int, re.findall(r"\d+", task))
        return world


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Play the world and return the rewards."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=20)
    given = parser.parse_args(arguments)
    agentgym.register(GuessWorld)
    env = agentgym.spec("GuessWorld", labels=True)
    played = list(collect(OraclePolicy("GuessWorld"), env, seeds=range(given.episodes)))
    print(played[0].last, "\noptimal:", [step.info["optimal"] for step in played[0].steps])
    print("mean reward:", sum(trajectory.reward for trajectory in played) / given.episodes)
    return [trajectory.reward for trajectory in played]


if __name__ == "__main__":
    main()
