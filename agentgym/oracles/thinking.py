"""A scripted teacher that thinks aloud: what a small model cannot work out in one step, it learns
to write down.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentgym.messages import Chat
from agentgym.oracles.policies import ScriptedPolicy
from agentgym.policy import Reply


class ThinkingPolicy:
    """Policy that plays as another scripted one does, and writes the reasoning of the world before
    each call.

    Where both the plan and the state are shown, the next call is shown with them: there it does not
    think.

    Args:
        policy: The policy that chooses the calls.

    Example:
        >>> teacher = ThinkingPolicy(NoisyPolicy("ListWorld", 0.2))
    """

    def __init__(self, policy: ScriptedPolicy) -> None:
        self.policy = policy

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Write one call for each chat."""
        return [self._reply(chat) for chat in chats]

    def _reply(self, chat: Chat) -> Reply:
        with self.policy.read(chat) as parsed:
            if parsed.summarize or {"plan", "state"} <= parsed.hints.keys():
                return Reply(self.policy.write(parsed))
            call = self.policy.act(parsed)
            thought = self.policy.recall(parsed).reasoning(call)
            return Reply(f"<think>{thought}</think>{parsed.render(call, self.policy.dialect)}")
