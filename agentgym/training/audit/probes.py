"""Probes of one moment of an episode: copies that must go on alike, and replies whose work must
grow with their length.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from agentgym.env import Snapshot, ToolEnv, clone
from agentgym.messages import Chat, ToolCall
from agentgym.parsing import render
from agentgym.tools import Tool
from agentgym.training.audit.checks import StepResult, describe_result
from agentgym.training.audit.replies import ReplyGenerator
from agentgym.training.audit.states import differences, state_of

GROWTH_UNITS = (
    "a",
    " ",
    "a ",
    "\n",
    "a\n",
    "é",
    "字",
    "\U0001f600",
    "e\u0301",
    "1",
    "1+",
    "-",
    "(",
    "()",
    "[",
    "{",
    '"',
    "'",
    "\\",
    "\\u0041",
    "`",
    "<",
    "</think>",
    "<think>",
    "<tool_call>",
    "```",
    "```python\n",
    '"a": 1, ',
    "a=1, ",
    "=",
    ",",
    ";",
    "/",
    "../",
    "%s",
    "{}",
    "*",
    ".*",
    "a@b.c, ",
    "OR 1=1 ",
    "<b>",
    "&amp;",
    "|",
    ":",
    "\t",
    "\u202e",
    "<|im_end|>",
)
"""What long replies are made of."""

_SMALL, _FACTOR = 8_000, 4
"""Characters of the shorter reply, and how much longer the other is."""
_DRAWS = 4
"""Calls that are drawn for one that takes a text."""
_STEEPEST = 9.0
"""Ratio of the processor times above which growth is not linear: 4 is linear, 16 quadratic."""
_MEASURABLE = 0.25
"""Processor seconds of the longer reply below which a ratio says nothing."""


@dataclass(frozen=True, slots=True)
class Twin:
    """A copy of an env at one moment: another env, or a snapshot for the same one."""

    how: str
    env: gymnasium.Env[Any, Any] | None
    snapshot: Snapshot | None = None


def copy_for(env: gymnasium.Env[Any, Any], way: int) -> Twin:
    """Return a copy of an env.

    Args:
        env: The env.
        way: 0 for a clone, 1 for a pickle, 2 for a snapshot, which wrappers are no part of, so that
            a stack is pickled.
    """
    if way == 2 and isinstance(env, ToolEnv):
        return Twin("restored from a snapshot", None, env.snapshot())
    if way:
        copied: gymnasium.Env[Any, Any] = pickle.loads(pickle.dumps(env))
        return Twin("unpickled", copied)
    return Twin("cloned", clone(env))


def compare_copy(
    env: gymnasium.Env[Any, Any], twin: Twin, chat: Chat, action: str, result: StepResult
) -> str:
    """Play a reply in a copy too, and return what comes out otherwise; empty if nothing does.

    Args:
        env: The env, which has played the reply.
        twin: The copy of the env before that.
        chat: The chat before it.
        action: The reply.
        result: What the env returned.
    """
    state = state_of(env)
    if twin.snapshot is not None and isinstance(env, ToolEnv):
        env.restore(twin.snapshot)
    other = env if twin.env is None else twin.env
    again = other.step(action)
    if (one := describe_result(chat, result)) != (two := describe_result(chat, again)):
        k = next((k for k, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]), 0)
        return (
            f"an env that was {twin.how} goes on otherwise: {one[max(0, k - 60) : k + 60]!r} "
            f"became {two[max(0, k - 60) : k + 60]!r}"
        )
    changes = differences(state, state_of(other))
    return f"an env that was {twin.how} has another state: {'; '.join(changes)}" if changes else ""


def growth_reply(
    tools: Sequence[Tool], unit: str, rng: np.random.Generator, generator: ReplyGenerator
) -> tuple[str, str]:
    """Return a reply with a long text in it, and a longer one: in an argument of a legal call if
    one takes texts, else as it is.
    """
    texts = [unit * (size // len(unit)) for size in (_SMALL, _FACTOR * _SMALL)]
    for _ in range(_DRAWS):
        call = generator.legal_call(tools)
        names = [name for name, value in call.arguments.items() if isinstance(value, str)]
        if names:
            break
    if not names or rng.random() < 0.3:
        prefix = ("", "<tool_call>", "```python\n", "<think>")[int(rng.integers(4))]
        return prefix + texts[0], prefix + texts[1]
    name = names[int(rng.integers(len(names)))]
    calls = [ToolCall(call.name, {**call.arguments, name: text}) for text in texts]
    return render(calls[0], generator.dialect), render(calls[1], generator.dialect)


def measure_growth(env: gymnasium.Env[Any, Any], smaller: str, larger: str) -> str:
    """Return what is wrong with the work of two replies at this moment; empty if it grows with
    their length.
    """
    long = _seconds(env, larger)
    if long < _MEASURABLE:
        return ""
    # Twice each, since a first time may load a library, and a busy machine slow one down; with
    # another text, since the same one may be in a cache.
    short = max(_seconds(env, smaller), _seconds(env, _varied(smaller)))
    long = min(long, _seconds(env, _varied(larger)))
    ratio = long / max(short, 1e-4)
    if long < _MEASURABLE or ratio <= _STEEPEST * len(larger) / max(1, len(smaller)) / _FACTOR:
        return ""
    return (
        f"{len(smaller)} characters took {short:.3f} s of processor time, {len(larger)} of the "
        f"same took {long:.3f} s"
    )


def _varied(text: str) -> str:
    """Return a text with a character in its middle twice."""
    middle = len(text) // 2
    return text[:middle] + text[middle : middle + 1] + text[middle:]


def _seconds(env: gymnasium.Env[Any, Any], action: str) -> float:
    """Return the processor time of a reply, played in a copy."""
    copied = clone(env)
    begin = time.process_time()
    copied.step(action)
    return time.process_time() - begin
