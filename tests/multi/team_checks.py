"""Shared helpers of the team tests."""

from __future__ import annotations

from typing import Any

from agentgym import ToolCall, render
from agentgym.multi.game import Game


def call(name: str, /, **arguments: Any) -> str:
    return render(ToolCall(name, arguments))


def cycle(game: Game, *replies: str) -> None:
    assert len(replies) == len(game.due)
    for agent, reply in zip(list(game.due), replies, strict=True):
        game.play(agent, reply)
    game.end_cycle()


def newest(game: Game, agent: str) -> str:
    return game.chats[agent].messages[-1].text
