"""Policies that kill their process, for the ablation tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from agentgym import Chat, Reply
from agentgym.oracles import OraclePolicy
from agentgym.play.policy import Policy, PolicyError

# environment variable with the folder that records each death
GRAVES = "AGENTGYM_TEST_GRAVES"


class _Lethal:
    """Policy that plays optimally, but kills its process on about one instance in three."""

    def __init__(self, env_id: str, deaths: int) -> None:
        self.policy, self.deaths = OraclePolicy(env_id), deaths

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        graves = Path(os.environ[GRAVES])
        for chat in chats:
            name = str(hash_text(chat.messages[1].text))
            died = len(list(graves.glob(f"{name}-*")))
            if hash_text(chat.messages[1].text) % 3 == 0 and died < self.deaths:
                (graves / f"{name}-{died}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return self.policy(chats)


def hash_text(text: str) -> int:
    """Return a hash that is equal in all processes."""
    return sum(text.split("\n\n<", maxsplit=1)[0].encode())


def die_once(env_id: str) -> Policy:
    return _Lethal(env_id, 1)


def die_always(env_id: str) -> Policy:
    return _Lethal(env_id, 1_000)


class _Silent(_Lethal):
    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        if hash_text(chats[0].messages[1].text) % 3 == 0:
            raise PolicyError("the server said 5")
        return self.policy(chats)


def be_silent(env_id: str) -> Policy:
    return _Silent(env_id, 0)
