from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentgym import ToolCall, make, render
from agentgym.multi.game import Game
from agentgym.oracles import TeamPolicy


def call(name: str, /, **arguments: Any) -> str:
    return render(ToolCall(name, arguments))


def cycle(game: Game, *replies: str) -> None:
    assert len(replies) == len(game.due)
    for agent, reply in zip(list(game.due), replies, strict=True):
        game.play(agent, reply)
    game.end_cycle()


def newest(game: Game, agent: str) -> str:
    return game.chats[agent].messages[-1].text


def play_match(
    env_id: str, seed: int, reply_of: Callable[[Game, str], str] | None = None, **options: Any
) -> Game:
    """Play a match in turns; the scripted policy replaces an empty or missing reply."""
    env, policy = make(env_id, **options), TeamPolicy(env_id)
    env.reset(seed=seed)
    game: Game = env.unwrapped.game
    while not game.over:
        (agent,) = game.due
        own = reply_of(game, agent) if reply_of else ""
        cycle(game, own or policy([game.chats[agent]])[0].text)
    return game
