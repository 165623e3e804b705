"""TextArena adapter: worlds and teams as `textarena.Env`, for TextArena's agents and wrappers.

Player `k` of a team is the `k`-th agent; a world has one player.

Example:
    >>> env = LLMObservationWrapper(TextArenaEnv("ListWorld-team"))
    >>> env.reset(num_players=2, seed=0)
    >>> player, text = env.get_observation()
    >>> done, info = env.step(agents[player](text))
"""

from __future__ import annotations

from typing import Any

import gymnasium
import textarena  # type: ignore[import-not-found,import-untyped,unused-ignore]
from textarena import ObservationType  # type: ignore[import-not-found,unused-ignore]

from agentgym.multi.gym import TeamEnv
from agentgym.text.messages import SYSTEM_ID, TASK_ID, Chat
from agentgym.training.integrations.common import growing_spec, refuse_images
from agentgym.training.rollout.models.plain_chat import as_text

_OTHERWISE = "play the env that agentgym.make returns"


class TextArenaEnv(textarena.Env):  # type: ignore[misc,unused-ignore]
    """An episode of a world or a team.

    An observation contains the player's new messages, or a whole chat if the chat is new. `close`
    returns each player's reward and the game's information. `options` are keyword arguments of
    `agentgym.make`; strategies that edit the context are refused.
    """

    def __init__(self, env_id: str, **options: Any) -> None:
        self._env = gymnasium.make(
            growing_spec("TextArena", _OTHERWISE, env_id, options), disable_env_checker=True
        )
        inner = self._env.unwrapped
        self._game = inner.game if isinstance(inner, TeamEnv) else None
        if self._game is None:
            refuse_images("TextArena", self._env)
        self.players = self._game.agents if self._game else ("agent",)
        self.env_id = env_id

    def reset(self, num_players: int, seed: int | None = None) -> None:
        """Start an episode; `ValueError` if `num_players` is not the team's size."""
        if num_players != len(self.players):
            raise ValueError(
                f"num_players must be {len(self.players)} for {self.env_id}, got {num_players}"
            )
        self.state = textarena.State(num_players)
        self.state.standard_resets(role_mapping=dict(enumerate(self.players)))
        self._seen = [Chat()] * num_players
        self._chat, self._last = self._env.reset(seed=seed)
        self.state.current_player_id = self._due()

    def get_observation(self) -> tuple[int, list[tuple[int, str, ObservationType]]]:
        """Return the player to move and its new messages with their senders and types."""
        player = self.state.current_player_id
        known = self._chat.shared_prefix(self._seen[player])
        if known < len(self._seen[player].messages):
            known = 0  # a new chat
        self._seen[player] = self._chat
        new = []
        for message in self._chat.messages[known:]:
            (plain,) = as_text([message]).messages
            if message.role == "assistant":
                new.append((player, plain.text, ObservationType.PLAYER_ACTION))
            else:
                is_prompt = message.id in (SYSTEM_ID, TASK_ID)
                kind = ObservationType.PROMPT if is_prompt else ObservationType.GAME_MESSAGE
                new.append((textarena.GAME_ID, plain.text, kind))
        return player, new

    def step(self, action: str) -> tuple[bool, dict[str, Any]]:
        """Step the env with the current player's reply."""
        player = self.state.current_player_id
        self.state.turn += 1
        self.state.logs.append((player, action))
        self._chat, reward, terminated, truncated, self._last = self._env.step(action)
        self.state.game_info[player]["turn_count"] += 1
        self.state.game_info[player]["invalid_move"] = not self._last["valid"]
        self.state.done = terminated or truncated
        if self.state.done:
            earned = self._game.rewards.values() if self._game else (float(reward),)
            self.state.rewards = dict(enumerate(earned))
            for info in self.state.game_info.values():
                info["success"] = self._last["success"]
        else:
            self.state.current_player_id = self._due()
        return self.state.done, {"valid": self._last["valid"], "detail": self._last["detail"]}

    def _due(self) -> int:
        inner: Any = self._env.unwrapped
        return self.players.index(inner.agent) if self._game else 0
