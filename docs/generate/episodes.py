"""Play the episodes shown on documentation pages, with a fixed seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import agentgym
from agentgym import Chat, Reply
from agentgym.oracles import OraclePolicy
from agentgym.text.requirements import MissingRequirement

# the seed of every episode
SEED = 0


@dataclass(frozen=True, slots=True)
class Played:
    """Snapshots of an episode's chat and board, before each reply and at the end."""

    env: Any
    chats: Sequence[Chat]
    boards: Sequence[str]
    info: dict[str, Any]
    reward: float


def play(
    env_id: str,
    policy: Callable[[list[Chat]], list[Reply]] | None = None,
    turns: int | None = None,
    **options: Any,
) -> Played | MissingRequirement:
    """Play an episode, or return a note if the host lacks a requirement."""
    try:
        # A fault of the package or the host stops the build instead of appearing on a page.
        env: Any = agentgym.make(env_id, on_fault="raise", **options)
    except MissingRequirement as error:
        return error
    policy = policy or OraclePolicy(env_id)
    chat, info = env.reset(seed=SEED)
    chats, boards, reward, over = [chat], [_board(env)], 0.0, False
    while not over and (turns is None or len(chats) <= turns):
        (reply,) = policy([chat])
        chat, reward, terminated, truncated, info = env.step(reply.text)
        chats.append(chat)
        boards.append(_board(env))
        over = terminated or truncated
    env.close()
    return Played(env, chats, boards, info, float(reward))


def _board(env: Any) -> str:
    world = getattr(env.unwrapped, "world", None)
    return world.board() if world is not None else ""


def script(*texts: str) -> Callable[[list[Chat]], list[Reply]]:
    rest = iter(texts)
    return lambda chats: [Reply(next(rest)) for _ in chats]
