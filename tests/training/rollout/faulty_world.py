"""World whose tool fails on request, and policies that request it."""

from __future__ import annotations

import asyncio
import os
import random
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium

from agentgym import Chat, Reply, ToolCall, World, render, tool
from agentgym.play.policy import Policy

BARRIERS: dict[str, threading.Barrier] = {}


@dataclass(frozen=True)
class Config:
    turns: int = 3
    broken: bool = False
    uneven: bool = False


class FaultyWorld(World[Config]):
    """Work until the work is done."""

    Config = Config

    def generate(self) -> None:
        if self.config.broken:
            raise OSError("no disk")
        self.number = int(self.rng.integers(4))

    def rules(self) -> str:
        return "Work."

    def task(self) -> str:
        return f"Number {self.number}."

    @tool
    def work(self, how: str) -> str:
        """Work.

        Args:
            how: In which way.
        """
        FAULTS.get(how, lambda: None)()
        turns = 1 + 4 * self.number if self.config.uneven else self.config.turns
        self.done = self.turn >= turns
        return f"worked in process {os.getpid()}" if how == "who" else "worked"

    def score(self) -> float:
        return float(self.done)


def _raise() -> None:
    raise OSError("the disk is full")


FAULTS = {
    "raise": _raise,
    "hang": lambda: time.sleep(600),
    "die": lambda: os._exit(7),
    "die at times": lambda: os._exit(7) if random.SystemRandom().random() < 0.06 else None,
    "meet": lambda: BARRIERS["all"].wait(30) and None,
}

gymnasium.register(
    "tests/FaultyWorld-v0",
    "agentgym.play.env:ToolEnv",
    kwargs={"world": "tests.training.rollout.faulty_world:FaultyWorld"},
)


def make_env(**options: Any) -> gymnasium.Env[Any, Any]:
    # The failure must leave the step, like an exception in a user's wrapper.
    return gymnasium.make(
        "tests/FaultyWorld-v0", disable_env_checker=True, **{"on_fault": "raise", **options}
    )


@dataclass(frozen=True)
class Worker:
    """Works, but differently in the second turn of episodes with a given number."""

    how: str = "well"
    number: int = 0

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        return [self._reply(chat) for chat in chats]

    async def areply(self, chat: Chat) -> Reply:
        return self._reply(chat)

    def _reply(self, chat: Chat) -> Reply:
        found = re.search(r"Number (\d)", chat.to_text())
        assert found is not None
        turn = sum(message.role == "assistant" for message in chat.messages)
        now = turn == 1 and int(found[1]) == self.number
        return Reply(render(ToolCall("work", {"how": self.how if now else "well"})))


@dataclass(frozen=True)
class Mortal:
    """Works in a way that may end the process at any step."""

    how: str = "die at times"

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        return [Reply(render(ToolCall("work", {"how": self.how}))) for _ in chats]


@dataclass(frozen=True)
class Awaiting:
    policy: Policy

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        return self.policy(chats)

    async def areply(self, chat: Chat) -> Reply:
        await asyncio.sleep(0)
        (reply,) = self.policy([chat])
        return reply


class Drawing:
    """Policy with state that its copies must not share."""

    number = -1

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        return [Reply(render(ToolCall("work", {"how": f"as copy {self.number}"}))) for _ in chats]

    def reseed(self, number: int) -> None:
        self.number = number
