"""Print the table of context strategies in docs/finetuning.md: `python
benchmarks/context_training.py [FOLDER ...]`.

FOLDER contains an ablation of `PageWorld`, a world in which the last call needs every earlier
result. Without a folder, the script plays the teacher, which thinks, summarises and takes notes,
and prints the teacher's success by context.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import agentgym
from agentgym import ToolCall, ToolError, World, tool
from agentgym.training.evaluation import load_results, percent, summarize
from agentgym.training.rollout import PolicyConfig, collect

EPISODES = 20
# Six pages with thoughts do not fit a window of 560 tokens; the memory tool's documentation takes
# 480 tokens.
CONTEXTS = (
    "none:window=4k",
    "none:window=560",
    "clear_thinking:window=560",
    "compaction:trigger=0.7:window=560",
    "memory:window=1040",
)
_PAGE = re.compile(r"Value: ([0-9]+)\. Next key: (\w+)\.")
_STATE = re.compile(r"Values so far: (.*)\nNext key: (\w+)")


@dataclass(frozen=True)
class PageConfig(agentgym.Config):
    """Options of `PageWorld`."""

    pages: int = 6


class PageWorld(World[PageConfig]):
    """Follow a chain of pages and answer with the values of all pages."""

    Config = PageConfig
    parallel_calls = False

    def generate(self) -> None:
        count = self.config.pages
        self.chain = [f"k{key}" for key in self.rng.choice(9_000, count, replace=False) + 1_000]
        self.hidden = (self.rng.choice(900, count) + 100).tolist()
        self._start(self.chain[0])
        self.max_turns = 2 * count + 4  # half of the turns are reserved for notes

    def _start(self, key: str) -> None:
        self.values: dict[str, int] = {}
        self.next_key = key
        self.right = False

    def rules(self) -> str:
        return (
            "An archive has pages. Each page has a value and the key of the next page. Read the pages "
            "one after the other. When the next key is none, answer with all values in order."
        )

    def task(self) -> str:
        return f"Start with the key {self.next_key}. Turn budget: {self.max_turns}"

    @tool
    def read_page(self, key: str) -> str:
        """Read a page.

        Args:
            key: Its key.
        """
        if key not in self.chain:
            raise ToolError("no page has this key")
        place = self.chain.index(key)
        self.values[key] = self.hidden[place]
        self.next_key = [*self.chain[1:], "none"][place]
        return f"Value: {self.values[key]}. Next key: {self.next_key}."

    @tool(final=True)
    def answer(self, values: list[int]) -> str:
        """Answer with all values. This ends the task.

        Args:
            values: The values in the order of the pages.
        """
        self.right = values == self.hidden
        return "Your answer has been taken."

    def score(self) -> float:
        return float(self.right)

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        return {"pages": steps - 1}

    def optimal_calls(self) -> Sequence[ToolCall]:
        return () if self.done else self.legal_calls()[:1]

    def legal_calls(self) -> Sequence[ToolCall]:
        answer = ToolCall("answer", {"values": [*self.values.values()]})
        if self.next_key == "none":
            return (answer,)
        return (ToolCall("read_page", {"key": self.next_key}), answer)

    def reasoning(self, call: ToolCall) -> str:
        """Describe only the last page, so that the model cannot use its thoughts instead of the
        results.
        """
        if call.name == "answer":
            return (
                "The next key is none, so this was the last page and I can answer with all values."
            )
        last = [*self.values.values()][-1:]
        seen = f"The last page has the value {last[0]}. " if last else ""
        return f"{seen}The next key is {self.next_key}, so there is another page and I read it."

    def state(self) -> str:
        return f"Values so far: {[*self.values.values()]}\nNext key: {self.next_key}"

    @classmethod
    def read_task(cls, task: str) -> Self:
        world = cls(PageConfig(), 0)
        key, budget = re.findall(r"\bk?[0-9]+", task)
        world._start(key)
        world.max_turns = int(budget)
        return world

    def read_result(self, call: ToolCall, result: str) -> None:
        if page := _PAGE.search(result):
            self.values[call.arguments["key"]] = int(page[1])
            self.next_key = page[2]

    def read_state(self, state: str) -> None:
        """Read the next key and the values; earlier keys are not needed."""
        found = _STATE.search(state)
        if found is None:
            raise ValueError(f"expected a state of PageWorld, got {state!r}")
        values = re.findall("[0-9]+", found[1])
        self.values = {f"page {k}": int(value) for k, value in enumerate(values, 1)}
        self.next_key = found[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    given = parser.parse_args()
    print("| policy | turns | context | success, % |")
    print("|---|---|---|---|")
    if not given.folders:
        play_teacher()
        return
    results = [result for folder in given.folders for result in load_results(folder)]
    for (policy, turns, context), share in summarize(
        results, ("policy", "horizon", "context"), "success"
    ).items():
        print(f"| {policy} | {turns} | {context} | {percent(share)} |")


def play_teacher() -> None:
    agentgym.register(PageWorld)
    teacher = PolicyConfig("thinking:notes=true").make("PageWorld")
    for context in CONTEXTS:
        env = agentgym.spec("PageWorld", dialect="python", context=context)
        rewards = [t.reward for t in collect(teacher, env, seeds=range(EPISODES))]
        print(f"| teacher | 7 | {context} | {100 * sum(rewards) / EPISODES:.1f} |")


if __name__ == "__main__":
    main()
