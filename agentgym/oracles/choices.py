"""Selection of calls, plausible wrong hints, and placebos."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from agentgym.play.env import ToolEnv
from agentgym.play.spaces import sample_call
from agentgym.text.messages import ToolCall
from agentgym.text.parsing import render
from agentgym.text.tokens import counter
from agentgym.world.splits import draw
from agentgym.world.world import World, has_hook, phrase

_READ_BACK = 16  # maximum attempts to find a wrong hint that can be parsed
_SAMPLES = 64
_DECOYS = 8  # instances to draw; some may equal the current instance or have its state
_AHEAD = 8  # extra turns to reach another state; all offices start with the same empty state

_COUNTER = "cl100k_base"  # each word and period below is one token
_TEXT = (
    "This note says nothing about the task. It is here to fill some space in the text. "
    "There is no need to read it, and no need to reply to it. It holds no plan, no state and no "
    "hint of any kind. The words in it are the same for every task and for every day. "
    "Some notes are long and some are short, and that has no meaning for you. "
    "You may go on with your work as if this note were not here. "
)
_UNITS = re.findall(r" ?[A-Za-z]+|[.,]", f" {_TEXT.rstrip()}")
_STARTS = [0, *(place + 1 for place, unit in enumerate(_UNITS[:-1]) if unit == ".")]


def best_call(world: World[object]) -> ToolCall:
    """Return an optimal call, or else a legal call; raise ValueError if optimality is undefined."""
    calls = world.optimal_calls()
    if calls is None:
        # Falling back to a legal call would give the oracle a wrong score.
        raise ValueError(
            f"{type(world).__name__} has no oracle for this chat, because the chat omits the path "
            "of the data; run the oracle in the process that made the env, or use another policy"
        )
    return next(iter(calls or world.legal_calls()))


def wrong_calls(world: World[object]) -> list[ToolCall]:
    """List the legal calls that are not optimal."""
    best = world.optimal_calls() or ()
    return [call for call in world.legal_calls() if call not in best]


def wrong_call(world: World[object], rng: np.random.Generator) -> ToolCall:
    """Return a random non-optimal legal call, or an optimal call if there is none."""
    return choose(wrong_calls(world) or world.legal_calls(), rng)


def choose(calls: Sequence[ToolCall], rng: np.random.Generator) -> ToolCall:
    """Return one of the calls at random."""
    return calls[int(rng.integers(len(calls)))]


def wrong_plan(env: ToolEnv, with_state: bool, rng: np.random.Generator) -> str:
    """Return a plan hint for a non-optimal call."""
    world = env.world
    calls = wrong_calls(world) if has_hook(type(world), "legal_calls") else []
    for place in rng.permutation(len(calls))[:_READ_BACK]:
        words = world.subtask_for(calls[place], with_state)
        # Scripted policies that parse hints must also be able to parse wrong hints.
        if not has_hook(type(world), "read_subtask") or world.read_subtask(words) == calls[place]:
            return words
    best = world.optimal_calls() or ()
    drawn = (sample_call(env.tools, rng) for _ in range(_SAMPLES))
    return next((phrase(call) for call in [*calls, *drawn] if call not in best), "")


class Decoys:
    """Wrong states, taken from other instances that were played optimally up to the same turn.

    Raises ValueError if the configuration has only one instance.
    """

    def __init__(self, env: ToolEnv) -> None:
        self._env = env
        self._drawn: list[ToolEnv] = []
        world = env.world
        self._instance = world.instance
        # `instance_key` is valid only at turn 0, so a running world is generated again.
        first = world if world.turn == 0 else draw(type(world), env.config, world.instance_seed)
        self._key = first.instance_key()
        self._draws = 0
        if next(self._others(), None) is None:
            raise ValueError(
                f"wrong state hints need another instance of {type(world).__name__}, but all "
                f"{_DECOYS} draws with {env.config} gave this instance; change the configuration "
                "to allow more instances, or omit the probability after S"
            )

    def state(self, describe: Callable[[World[Any]], str]) -> str:
        """Return a different state from another instance; empty if all states are equal."""
        right, turn = describe(self._env.world), self._env.world.turn
        for decoy in self._others():
            while decoy.world.turn < turn and not decoy.over:
                _advance(decoy)
            ahead = 0
            while (state := describe(decoy.world)) == right and ahead < _AHEAD and not decoy.over:
                _advance(decoy)
                ahead += 1
            if state != right:
                return state
        return ""

    def _others(self) -> Iterator[ToolEnv]:
        yield from self._drawn
        while self._draws < _DECOYS:
            decoy = ToolEnv(
                self._env.world_class, split=self._env.split, **asdict(self._env.config)
            )
            decoy.reset(seed=zlib.crc32(f"{self._instance}:decoy:{self._draws}".encode()))
            self._draws += 1
            if decoy.world.instance_key() != self._key:
                self._drawn.append(decoy)
                yield decoy


def _advance(env: ToolEnv) -> None:
    world = env.world
    calls = world.optimal_calls() or ()
    if not calls and has_hook(type(world), "legal_calls"):
        calls = world.legal_calls()
    drawn = sample_call(env.tools, np.random.default_rng(world.turn))
    env.step(render(next(iter(calls), drawn), env.dialect))


def placebo_for(hint: str, turn: int) -> str:
    """Return uninformative text with the same token count as a hint."""
    start = _STARTS[turn % len(_STARTS)]
    units = range(start, start + counter(_COUNTER).length(hint))
    return "".join(_UNITS[k % len(_UNITS)] for k in units).lstrip()
