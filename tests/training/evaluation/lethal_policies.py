"""Policies that kill their process or do not reply, on about one instance in three."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from agentgym import Chat, Reply
from agentgym.oracles import OraclePolicy
from agentgym.play.policy import Policy, PolicyError


def hash_text(text: str) -> int:
    return sum(text.split("\n\n<", maxsplit=1)[0].encode())


def die_always(env_id: str) -> Policy:
    policy = OraclePolicy(env_id)

    def play(chats: Sequence[Chat]) -> list[Reply]:
        if hash_text(chats[0].messages[1].text) % 3 == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return policy(chats)

    return play


def be_silent(env_id: str) -> Policy:
    policy = OraclePolicy(env_id)

    def play(chats: Sequence[Chat]) -> list[Reply]:
        if hash_text(chats[0].messages[1].text) % 3 == 0:
            raise PolicyError("server error 500")
        return policy(chats)

    return play
