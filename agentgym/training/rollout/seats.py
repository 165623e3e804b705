"""Policies of a team's seats."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat
from agentgym.training.rollout.user_policy import PolicyLike, adapt

_SEAT = re.compile(r"\n# [A-Z][a-z]+\nYou are ([a-z]+_[0-9]+)[.,]")


class SeatPolicy:
    """Policy that asks each agent's own policy."""

    def __init__(self, policies: Mapping[str, PolicyLike]) -> None:
        self.policies = {seat: adapt(policy) for seat, policy in policies.items()}

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Reply to each chat."""
        replies = [Reply("")] * len(chats)
        seats = [_SEAT.findall(chat.messages[0].text)[-1] for chat in chats]
        for seat, policy in self.policies.items():
            numbers = [k for k, name in enumerate(seats) if name == seat]
            answers = policy([chats[k] for k in numbers]) if numbers else []
            for k, reply in zip(numbers, answers, strict=True):
                replies[k] = reply
        return replies


def seats_of(make_env):
    env = make_env()
    try:
        return env.spec.id, env.unwrapped.game.agents
    finally:
        env.close()
