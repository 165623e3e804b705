"""Transcripts: what a policy that knows a world only through its chat has seen of an episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from agentgym.messages import Chat, ToolCall
from agentgym.tools import Tool

Exchange = Sequence[tuple[ToolCall, str]]
"""The calls of a reply with their results."""


@dataclass(frozen=True)
class Transcript:
    """Chat of an episode, split up.

    Attributes:
        task: The text of the task.
        tools: The tools on offer.
        turns: The calls of each reply with their results, errors included.
    """

    task: str
    tools: Sequence[Tool]
    turns: Sequence[Exchange]

    @classmethod
    def of(cls, chat: Chat) -> Transcript:
        """Read a chat without examples."""
        turns: list[list[tuple[ToolCall, str]]] = []
        calls: dict[str, ToolCall] = {}
        for message in chat.messages[2:]:
            if message.role == "assistant":
                calls = {call.id: call for call in message.calls}
                turns.append([])
            elif message.call_id in calls:
                turns[-1].append((calls[message.call_id], message.text))
        return cls(chat.messages[1].text, chat.tools, turns)

    @cached_property
    def last_result(self) -> str:
        """The results of the last reply."""
        return "\n".join(result for _, result in self.turns[-1]) if self.turns else ""

    @property
    def final_call(self) -> ToolCall | None:
        """The last call of the last reply; None if it has none."""
        return self.turns[-1][-1][0] if self.turns and self.turns[-1] else None

    def before(self, turn: int) -> Transcript:
        """Return the transcript as it was before a turn, counted from 0."""
        return Transcript(self.task, self.tools, self.turns[:turn])


def is_error(result: str) -> bool:
    """Report whether a result is that of a call that was refused."""
    return result.startswith("error:")
