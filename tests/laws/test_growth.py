"""Work grows at most linearly with a reply's length.

Work is measured as the number of function calls, at two lengths. A call to a C function counts
once, so the texts are also tested at full length, where quadratic time would take minutes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from agentgym import ToolCall, ToolEnv, make, render, tool_env
from agentgym.text.parsing import MAX_REPLY_CHARS, explain, parse
from agentgym.text.tokens import counter
from agentgym.wrappers import (
    ClearThinking,
    ClearToolResults,
    Compaction,
    ContextAwareness,
    ContextBudget,
    MemoryTool,
    Tokens,
    Trim,
)
from benchmarks.hostile_texts import REPLIES, TEXTS
from tests import sampling
from tests.helpers import calls_of
from tests.wrappers.context_worlds import Env, ToolBox

SHORT, LONG = 8_000, 64_000
# Maximum ratio of the work for a text that is eight times as long. The text may be read a second
# time to explain a rejection. Quadratic growth would give a ratio of 64.
STEEPEST = 20
# Additional function calls allowed, because some strategies act only on the long text.
MARGIN = 5_000
BUDGET = ContextBudget(2_000, 0, "heuristic")
DIALECTS: list[Any] = ["auto", "json", "python"]
STACKS: dict[str, Callable[[Env], Env]] = {
    "none": lambda env: env,
    "thinking": lambda env: ClearThinking(env, BUDGET),
    "results": lambda env: ClearToolResults(env, BUDGET, trigger=Tokens(900), clear_inputs=True),
    "summary": lambda env: Compaction(env, BUDGET, trigger=Tokens(900)),
    "rules": lambda env: Compaction(env, BUDGET, trigger=Tokens(900), summarizer="rules"),
    "trim": lambda env: Trim(env, BUDGET),
    "awareness": lambda env: ContextAwareness(env, BUDGET),
    "all": lambda env: ContextAwareness(
        Compaction(
            ClearToolResults(ClearThinking(MemoryTool(env), BUDGET), trigger=Tokens(1_500), keep=0),
            trigger=Tokens(1_800),
        )
    ),
}
WORLDS = ("PuzzleWorld", "LongContextQA", "SearchWorld", "DocumentWorld", "GridWorld", "TreeWorld")


def replies(name: str, size: int, dialect: str) -> Iterator[str]:
    """Yield replies that contain one kind of hostile text: plain, as a thought, and as a tool
    argument.
    """
    if name in REPLIES:
        yield REPLIES[name]("say", "text", size)
        return
    text = TEXTS[name](size)
    yield text
    yield f"<think>{text}</think>"
    yield render(ToolCall("say", {"text": text}), "python" if dialect == "python" else "json")


def play(env: Env, actions: list[str]) -> None:
    for action in actions:
        for reply in (action, render(ToolCall("echo", {}), "json"), "I go on."):
            _, _, terminated, truncated, _ = env.step(reply)
            if terminated or truncated:
                env.reset(seed=0)


def sample(kinds: list[str], family: str) -> list[str]:
    """Return the sampled kinds, or all kinds in exhaustive runs."""
    drawn = sampling.current
    if drawn.whole or drawn.one_in == 1:
        return kinds
    rng = random.Random(f"{drawn.seed} {family}")
    return rng.sample(kinds, len(kinds) // (3 * drawn.one_in))


def too_steep(cost: Callable[[int], int]) -> str:
    short, long = cost(SHORT), cost(LONG)
    return f"{short} calls, then {long}" if long > STEEPEST * short + MARGIN else ""


def steep_kinds(make_env: Callable[[], Env], dialect: str, kinds: list[str]) -> list[str]:
    def cost(name: str, size: int) -> int:
        counter.cache_clear()  # prevents reuse of counts from earlier tests
        env = make_env()
        env.reset(seed=0)
        return calls_of(play, env, list(replies(name, size, dialect)))

    return [f"{name}: {counts}" for name in kinds if (counts := too_steep(partial(cost, name)))]


@pytest.mark.parametrize("stack", STACKS)
def test_work_grows_no_faster_than_a_reply(stack: str) -> None:
    def make_env() -> Env:
        return STACKS[stack](ToolEnv(ToolBox, dialect=dialect))

    for dialect in DIALECTS if stack == "none" else DIALECTS[:1]:
        kinds = sample([*TEXTS, *REPLIES], f"growth {stack} {dialect}")
        assert steep_kinds(make_env, dialect, kinds) == []


@pytest.mark.parametrize("env_id", WORLDS)
def test_work_of_worlds_grows_no_faster_than_a_reply(env_id: str) -> None:
    def cost(name: str, size: int) -> int:
        env = tool_env(make(env_id))
        env.reset(seed=0)
        return calls_of(env.step, TEXTS[name](size))

    steep = {
        name: counts
        for name in sample(list(TEXTS), f"growth {env_id}")
        if (counts := too_steep(partial(cost, name)))
    }
    assert steep == {}


def test_replies_of_full_length_are_read_and_counted_at_once() -> None:
    # A pattern or a token merge that takes quadratic time would need minutes.
    for name in sample([*TEXTS, *REPLIES], "full length"):
        text = (
            REPLIES[name]("say", "text", MAX_REPLY_CHARS)
            if name in REPLIES
            else TEXTS[name](MAX_REPLY_CHARS)
        )
        for dialect in DIALECTS:
            assert bool(parse(text, dialect).calls) != bool(explain(text, dialect)), name
        for vocabulary in ("cl100k_base", "heuristic"):
            assert counter(vocabulary).length(text) > 0, name
