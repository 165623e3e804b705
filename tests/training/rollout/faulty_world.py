"""World whose tool fails on request, and policies that request the failure."""

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
from agentgym.training.rollout import Collector, Engine, Trajectory, collect

BARRIERS: dict[str, threading.Barrier] = {}


@dataclass(frozen=True)
class Config:
    turns: int = 3
    broken: bool = False
    uneven: bool = False


class FaultyWorld(World[Config]):
    """Call the tool `work` until the episode ends."""

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
    # `step` must raise the failure, like an exception in a user's wrapper.
    return gymnasium.make(
        "tests/FaultyWorld-v0", disable_env_checker=True, **{"on_fault": "raise", **options}
    )


@dataclass(frozen=True)
class Worker:
    """Policy that calls `work`; in turn 2 of the episodes with number `number`, the call has fault `how`."""

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
    """Policy whose calls may end the process at any step."""

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


# Regular expressions that match the reported cause of each kind of failure.
CAUSES = {
    "raise": "OSError: the disk is full",
    "die": "ended with exit code 7|died|exit|unavailable",
    "hang": "timeout: no answer in 8 seconds",
}


def check_fault(engine: str | Engine, how: str, slots: int = 2) -> int:
    """Check that faults affect only their own episodes; return the number of restored episodes."""
    fine = {t.seed: t for t in collect(Worker(), make_env, range(12))}
    struck = [seed for seed, t in fine.items() if "Number 0" in t.last.to_text()]
    # If a second worker hung, the test would wait for the full start-up time of a worker.
    struck = struck[: 1 if how == "hang" else 2]
    seeds = sorted([*struck, *(s for s, t in fine.items() if "Number 0" not in t.last.to_text())])
    # A slow worker on a busy machine must not count as hung.
    options = {"timeout": 8.0 if how == "hang" else None, "retries": 0 if how == "hang" else 1}
    with Collector(make_env, slots, engine=engine, **options) as collector:  # type: ignore[arg-type]
        played = {t.seed: t for t in collector.collect(Worker(how), seeds)}
    assert sorted(played) == seeds
    for seed, trajectory in played.items():
        if seed in struck:
            assert (trajectory.truncated, trajectory.terminated) == (True, False)
            assert trajectory.steps == fine[seed].steps[:1], "what was played before is kept"
            assert re.search(CAUSES[how], trajectory.failure)
            assert Trajectory.from_json(trajectory.to_json()) == trajectory
        else:
            assert trajectory.to_json() == fine[seed].to_json()
    assert collector.retried == options["retries"] * len(struck)
    return collector.recovered
