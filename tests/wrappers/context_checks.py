"""Invariants of every view at every step, checked without access to the wrappers' internals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import gymnasium

from agentgym import Chat, Message, ToolEnv, clone, tool_env
from agentgym.assemble.wrapper_order import layers
from agentgym.wrappers import (
    Compaction,
    ContextAwareness,
    ContextRecord,
    ContextWrapper,
    MemoryTool,
    Trim,
)
from tests.wrappers.context_worlds import Env, Stack

USAGE = re.compile(r"Token usage: (\d+)/(\d+); (\d+) remaining</system_warning>\s*$")


class Probe(gymnasium.ObservationWrapper[Chat, str, Chat]):
    def observation(self, observation: Chat) -> Chat:
        self.chat, self.copy = observation, list(observation.messages)
        return observation


class Checked:
    def __init__(self, stack: Stack, seed: int = 0) -> None:
        self.stack = stack
        self.env = stack.make(Probe)
        self.strategies = [
            layer for layer in layers(self.env) if isinstance(layer, ContextWrapper)
        ][::-1]
        self.probe = next(layer for layer in layers(self.env) if isinstance(layer, Probe))
        self.view = self.strategies[0].view
        self.base: ToolEnv = tool_env(self.env)
        self.log: list[Message] = []
        self.played: list[str] = []
        self.rewards: list[float] = []
        self.chat, self.info = self.env.reset(seed=seed)
        self.chats = [self.chat]
        self.over = False
        self.check(0)

    def play(self, actions: Sequence[str]) -> Checked:
        for action in actions:
            if self.over:
                break
            before = self.info["context"].tokens
            self.chat, reward, terminated, truncated, self.info = self.env.step(action)
            self.over = terminated or truncated
            self.chats.append(self.chat)
            if self.info["context"].phase == "act":
                self.played.append(action)
                self.rewards.append(float(reward))
            else:
                assert reward == 0
                assert not self.over
            self.check(before)
        return self

    def check(self, before: int) -> None:
        record: ContextRecord = self.info["context"]
        shown = list(self.chat.messages)
        assert self.chat is self.view.chat
        assert list(self.probe.chat.messages) == self.probe.copy, "the input is not changed"
        log = list(self.base.chat.messages)
        assert log[: len(self.log)] == self.log, "the log is append-only"
        self.log = log
        check_form(shown)
        self.check_pinned(shown)
        self.check_accounts(shown, record, before)
        self.check_again()

    def check_pinned(self, shown: list[Message]) -> None:
        inner = self.probe.chat
        for mine, theirs in zip(shown, inner.messages[: inner.pinned()], strict=False):
            assert mine.id == theirs.id, "the pinned messages come first, in order"
            assert mine.text.startswith(theirs.text)
        assert len(shown) >= inner.pinned()

    def check_accounts(self, shown: list[Message], record: ContextRecord, before: int) -> None:
        assert record.tokens == sum(map(self.view.counter.count, shown))
        assert record.tokens == before + record.appended - record.removed + record.inserted
        assert min(record.appended, record.removed, record.inserted, record.reused) >= 0
        assert all(edit.inserted < edit.removed for edit in record.edits), (
            "an edit never makes the view longer"
        )
        assert record.overflow or record.tokens <= self.view.budget.usable or not self.has(Trim)
        if record.overflow and self.has(Trim) and len(self.chats) > 1:
            assert self.over
        usage = USAGE.search(shown[-1].text)
        if self.has(ContextAwareness) and self.base.world.turn and self.view.request is None:
            assert usage
            used, usable, left = map(int, usage.groups())
            assert (used, usable, left) == (
                record.tokens,
                self.view.budget.usable,
                max(0, usable - used),
            )
        if len(self.chats) > 1:
            past, now = (list(chat.messages) for chat in self.chats[-2:])
            common = next(
                (k for k, (a, b) in enumerate(zip(past, now, strict=False)) if a != b),
                min(len(past), len(now)),
            )
            assert record.reused == sum(map(self.view.counter.count, now[:common]))

    def check_again(self) -> None:
        """Check that repeating the edits, or rebuilding from the log, gives the same view."""
        other = clone(self.env)
        strategies = [layer for layer in layers(other) if isinstance(layer, ContextWrapper)][::-1]
        view = strategies[0].view
        view._source = Chat()
        view.update(self.probe.chat)
        assert view.chat == self.chat, "the view is what its overlay makes of the log"
        assert view.tokens == self.info["context"].tokens
        quiet = not any(
            isinstance(layer, MemoryTool) or type(layer).__name__ == "Meddler"
            for layer in layers(other)
        )
        # A pending warning, request or usage line counts as new text, not as an edit.
        asks = any(
            isinstance(strategy, Compaction) and strategy.summarizer is None
            for strategy in strategies
        )
        if quiet and not asks and not self.has(ContextAwareness):
            for strategy in strategies:
                strategy.edit()
            assert view.chat == self.chat, "to edit twice is to edit once"
        assert self.view.chat is self.chat, "a clone is independent"

    def has(self, kind: type[ContextWrapper]) -> bool:
        return any(isinstance(strategy, kind) for strategy in self.strategies)


def episode(
    *layers: tuple[Any, dict[str, Any]], window: int = 100_000, memory: bool = False
) -> Checked:
    return Checked(Stack(layers, window, memory=memory))


def check_form(shown: list[Message]) -> None:
    ids = [message.id for message in shown]
    assert len(set(ids)) == len(ids)
    assert shown[0].role == "system"
    assert shown[1].role == "user"
    assert shown[-1].role != "assistant"
    open_calls: list[str] = []
    for before, message in pairwise(shown):
        assert (before.role, message.role) not in {
            ("assistant", "assistant"),
            ("user", "user"),
            ("user", "tool"),
        }
        if message.role == "tool":
            assert message.call_id == open_calls.pop(0), (
                "results follow their reply, in the order of its calls"
            )
        else:
            assert not open_calls
            open_calls = [call.id for call in message.calls]
    assert not open_calls


def played_without(
    stack: Stack, actions: Sequence[str], seed: int = 0
) -> tuple[list[Any], list[float]]:
    env: Env = stack.bare()
    env.reset(seed=seed)
    rewards = []
    for action in actions:
        _, reward, terminated, truncated, _ = env.step(action)
        rewards.append(float(reward))
        if terminated or truncated:
            break
    return [message.to_dict() for message in tool_env(env).chat.messages], rewards
