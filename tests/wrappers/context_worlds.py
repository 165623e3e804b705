from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
from hypothesis import strategies as st

from agentgym import Chat, Message, ToolCall, ToolEnv, ToolError, World, render, tool
from agentgym.assemble.wrapper_order import Stage
from agentgym.oracles import HistoryOracle, PlanOracle, StateOracle
from agentgym.wrappers import (
    AnyOf,
    ClearThinking,
    ClearToolResults,
    Compaction,
    ContextAwareness,
    ContextBudget,
    ContextWrapper,
    MemoryTool,
    Tokens,
    ToolUses,
    Trim,
    Turns,
    WindowFraction,
)

Env = gymnasium.Env[Chat, str]
WORDS = (
    "list reads of every page are kept <state> error: [cleared] </think> 12 345 Größe 値".split()
)


@dataclass(frozen=True)
class Config:
    turns: int = 400


class ToolBox(World[Config]):
    """Tools with results of any size, without a task to solve."""

    Config = Config

    def generate(self) -> None:
        self.max_turns = self.config.turns
        self.reads = 0
        self.printed = "print"

    def rules(self) -> str:
        return "Use the tools."

    def task(self) -> str:
        return "Read what you like."

    @tool
    def read(self, page: int, size: int) -> str:
        """Read a page.

        Args:
            page: Which.
            size: How many words of it.
        """
        self.reads += 1
        rng = random.Random(page)
        return " ".join(rng.choice(WORDS) for _ in range(size))

    @tool
    def say(self, text: str) -> str:
        """Get a text back.

        Args:
            text: The text.
        """
        return text

    @tool
    def echo(self) -> str:
        """Get what is printed on the box."""
        return self.printed

    @tool
    def fail(self) -> str:
        """Always refused."""
        raise ToolError("this never works, however often it is tried")

    def score(self) -> float:
        return min(1.0, self.reads / 1000)

    def state(self) -> str:
        return f"pages read: {self.reads}"

    def subtask(self, with_state: bool) -> str:
        return "read another page"


class Meddler(ContextWrapper):
    stage = Stage.CLEAR_TOOL_RESULTS

    def __init__(self, env: Env, budget: Any = None, seed: int = 0) -> None:
        super().__init__(env, budget, seed=seed)
        self.seed = seed

    def edit(self) -> None:
        rng = random.Random(self.seed * 1_000 + len(self.view.chat.messages))
        if rng.random() < 0.5:
            return
        edits: dict[str, Message | None] = {}
        for message in self.view.chat.messages:
            if rng.random() < 0.2:
                edits[message.id] = None
        self.view.apply("Meddler", edits, at_least=0)


def call(name: str, **arguments: Any) -> str:
    return render(ToolCall(name, arguments), "json")


def read(page: int, size: int = 30) -> str:
    return call("read", page=page, size=size)


memory_calls = st.builds(
    lambda name, text: call("memory", command="create", path=f"/memories/{name}", file_text=text),
    st.sampled_from("abc"),
    st.text("xyz \n", max_size=30),
) | st.just(call("memory", command="view", path="/memories"))
calls = (
    st.builds(read, st.integers(0, 9), st.integers(0, 120))
    | st.builds(lambda text: call("say", text=text), st.text(max_size=60))
    | st.sampled_from([call("fail"), call("nothing"), call("read", page="x")])
    | memory_calls
)
thoughts = st.sampled_from(
    ["", "", "<think>short</think>", f"<think>{'long thought ' * 30}</think>"]
)
replies = st.builds(
    lambda thought, said, made: thought + said + "".join(made),
    thoughts,
    st.sampled_from(["", "I go on. ", "word " * 60]),
    st.lists(calls, max_size=3),
)
token_triggers = st.builds(Tokens, st.integers(200, 900)) | st.builds(
    WindowFraction, st.sampled_from([0.3, 0.5, 0.75, 1.0])
)
triggers = (
    token_triggers
    | st.builds(ToolUses, st.integers(2, 9))
    | st.builds(Turns, st.integers(1, 9))
    | st.builds(
        lambda one, two: AnyOf((one, two)), token_triggers, st.builds(ToolUses, st.integers(2, 9))
    )
)
STRATEGIES: dict[type[ContextWrapper], st.SearchStrategy[dict[str, Any]]] = {
    ClearThinking: st.fixed_dictionaries(
        {"trigger": triggers, "keep": st.sampled_from([1, 1, 2, 4, "all"])}
    ),
    ClearToolResults: st.fixed_dictionaries(
        {
            "trigger": triggers,
            "keep": st.integers(0, 4),
            "exclude": st.sampled_from([(), ("say",), ("read", "memory")]),
            "clear_inputs": st.booleans(),
            "clear_at_least": st.sampled_from([0, 0, 50]),
            "placeholder": st.sampled_from(
                ["[gone]", "", "a placeholder of some length, which a short result must not get"]
            ),
        },
        optional={"ratio": st.sampled_from([0.3, 0.5, 1.0])},
    ),
    Meddler: st.fixed_dictionaries({"seed": st.integers(0, 99)}),
    Compaction: st.fixed_dictionaries(
        {
            "trigger": triggers,
            "keep_last_turns": st.integers(1, 4),
            "summarizer": st.sampled_from(["policy", "policy", "rules"]),
        }
    ),
    Trim: st.fixed_dictionaries(
        {"target": st.builds(WindowFraction, st.sampled_from([0.4, 0.75, 1.0]))}
    ),
    ContextAwareness: st.fixed_dictionaries({"latest_only": st.booleans()}),
}


@dataclass(frozen=True)
class Stack:
    layers: tuple[tuple[type[ContextWrapper], dict[str, Any]], ...]
    window: int = 1_200
    reserve: int = 0
    arm: str = ""
    scope: str = "persistent"
    memory: bool = False

    def bare(self) -> Env:
        env: Env = ToolEnv(ToolBox)
        if self.memory:
            env = MemoryTool(env)
        if "P" in self.arm:
            env = PlanOracle(env, self.scope)
        if "S" in self.arm:
            env = StateOracle(env, self.scope)
        if "H" in self.arm:
            env = HistoryOracle(env)
        return env

    def make(self, probe: Callable[[Env], Env] = lambda env: env) -> Env:
        env = probe(self.bare())
        for place, (strategy, options) in enumerate(self.layers):
            budget = ContextBudget(self.window, self.reserve, "heuristic") if place == 0 else None
            env = strategy(env, budget=budget, **options)
        return env


@st.composite
def stacks(draw: st.DrawFn, need: Sequence[type[ContextWrapper]] = ()) -> Stack:
    memory = draw(st.booleans())
    chosen = {
        *need,
        *draw(
            st.lists(
                st.sampled_from(list(STRATEGIES)),
                min_size=0 if need else 1,
                max_size=4,
                unique=True,
            )
        ),
    }
    return Stack(
        tuple(
            (strategy, draw(options))
            for strategy, options in sorted(STRATEGIES.items(), key=lambda item: item[0].stage)
            if strategy in chosen
        ),
        draw(st.integers(-200, 1_500))
        + (1_200 if memory else 550),  # roughly the size of the pinned messages
        draw(st.sampled_from([0, 0, 100])),
        draw(st.sampled_from(["", "", "", "P", "S", "SP", "SH", "SPH"])),
        draw(st.sampled_from(["persistent", "ephemeral"])),
        memory,
    )
