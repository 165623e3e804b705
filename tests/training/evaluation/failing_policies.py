"""Policies that fail, wait for each other or keep state."""

from __future__ import annotations

import asyncio
import os

import gymnasium

from agentgym import Chat
from agentgym.oracles import OraclePolicy
from agentgym.training.evaluation import Ablation
from agentgym.training.rollout import PolicyLike
from tests.training.rollout.own_policies import AsyncOne, Remembering, fails_on, returns_none

TOGETHER = 64
# environment variable that lists the seeds for which `raise_on_some` raises
SEEDS = "AGENTGYM_TEST_SEEDS"


class Meeting:
    """Policy that holds back its first replies until `TOGETHER` requests are waiting."""

    met: asyncio.Event | None = None
    waiting = 0

    def __init__(self, env_id: str) -> None:
        self.policy = OraclePolicy(env_id)

    async def __call__(self, chat: Chat) -> str:
        cls = type(self)
        cls.met = cls.met or asyncio.Event()
        cls.waiting += 1
        if cls.waiting >= TOGETHER:
            cls.met.set()
        await asyncio.wait_for(cls.met.wait(), 60)
        return self.policy([chat])[0].text


def remember(env_id: str) -> PolicyLike:
    return Remembering()


class AsyncRemembering(Remembering):
    async def __call__(self, chat: Chat) -> str:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().__call__(chat)


SHARED = AsyncRemembering()


def remember_async(env_id: str) -> PolicyLike:
    return AsyncRemembering()


def share_memory(env_id: str) -> PolicyLike:
    return SHARED


def await_replies(env_id: str) -> PolicyLike:
    return AsyncOne()


def policy(chat: Chat) -> str:
    return OraclePolicy("ListWorld")([chat])[0].text


def raise_on_some(env_id: str) -> PolicyLike:
    env = gymnasium.make(
        Ablation(arms=("",), horizons=(3,), seeds=1).spec("ListWorld", "", "none", 3)
    )
    return fails_on(*map(int, os.environ.get(SEEDS, "").split()), env=env)


def forget_to_return(env_id: str) -> PolicyLike:
    return returns_none(env_id)


def forget_the_policy(env_id: str) -> None:
    pass
