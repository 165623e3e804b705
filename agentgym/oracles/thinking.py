"""A teacher that thinks aloud: what a small model cannot work out in one step, it learns to write down."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym.messages import Chat
from agentgym.oracles.policies import ParsedChat, ScriptedPolicy
from agentgym.parsing import render
from agentgym.policy import Reply


class ThinkingPolicy:
    """Plays as another scripted policy does, and writes the reasoning of the world before each call.

    Where the plan and the state are both told, the next call is told with them: there it does not think.

    Args:
        policy: Chooses the calls.

    Example:
        >>> teacher = ThinkingPolicy(NoisyPolicy("ListWorld", 0.2))
    """

    def __init__(self, policy: ScriptedPolicy) -> None:
        self.policy = policy

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Write one call for each chat."""
        return [self._reply(chat) for chat in chats]

    def _reply(self, chat: Chat) -> Reply:
        reading = ParsedChat.of(chat)
        if reading.summarize or {"plan", "state"} <= reading.hints.keys():
            return self.policy([chat])[0]
        call = self.policy.act(reading)
        thought = self.policy.recall(reading).reasoning(call)
        return Reply(f"<think>{thought}</think>{render(call, self.policy.dialect)}")
