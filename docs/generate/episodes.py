"""Episodes that the pages show: really played, with a fixed seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import agentgym
from agentgym import Chat, Reply
from agentgym.oracles import OraclePolicy
from agentgym.text.requirements import MissingRequirement

SEED = 0
"""The seed of all episodes on the pages."""


@dataclass(frozen=True, slots=True)
class Played:
    """An episode.

    Attributes:
        env: The env after its end.
        chats: What the policy saw, before each reply and at the end.
        boards: The drawings of the world at the same moments.
        info: The last `info`.
        reward: The last reward.
    """

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
    """Play an episode, or its first turns; return what is missing where the host cannot.

    Args:
        env_id: The world.
        policy: The policy; the oracle's by default.
        turns: The most replies.
        **options: What `agentgym.make` takes.
    """
    try:
        # A page must not show what is a fault of this package or of the host: the build fails.
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
    """Return the drawing of the world; a team has none."""
    world = getattr(env.unwrapped, "world", None)
    return world.board() if world is not None else ""


def script(*texts: str) -> Callable[[list[Chat]], list[Reply]]:
    """Return a policy that writes some texts in turn."""
    rest = iter(texts)
    return lambda chats: [Reply(next(rest)) for _ in chats]
