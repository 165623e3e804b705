from __future__ import annotations

from typing import Any

import pytest

import agentgym
from agentgym.oracles import NoisyPolicy, TeamPolicy
from agentgym.training.rollout import rollout

pytest.importorskip("textarena", reason="TextArena is not installed: pip install textarena")

from textarena.wrappers import LLMObservationWrapper

from agentgym.training.integrations.textarena import TextArenaEnv

CASES: list[tuple[str, dict[str, Any]]] = [
    ("ListWorld", {"items": 4}),
    ("TreeWorld", {"oracles": "SP"}),
    ("ListWorld-team", {"oracles": "C"}),
    ("DocumentWorld-manager", {}),
    ("PuzzleWorld-duel", {}),
    ("CommonsWorld-match", {"rounds": 4}),
]


@pytest.mark.parametrize(("env_id", "options"), CASES)
def test_an_episode_is_the_one_of_make(env_id: str, options: dict[str, Any]) -> None:
    is_team = "-" in env_id
    player = NoisyPolicy(env_id, 0.3)
    policy = TeamPolicy(env_id, player) if is_team else player
    played = rollout(policy, agentgym.make(env_id, **options), 3)
    env = LLMObservationWrapper(TextArenaEnv(env_id, **options))
    players = env.env.players
    env.reset(num_players=len(players), seed=3)
    for number, step in enumerate(played.steps):
        player_id, text = env.get_observation()
        assert players[player_id] == step.info.get("agent", "agent")
        position = 0
        for message in step.chat.messages:
            position = text.index(message.raw or message.text, position)
        assert env.get_observation()[1] == text, "nothing is shown twice"
        done, info = env.step(step.reply.text)
        assert info["valid"] == step.info["valid"]
        assert done == (number == len(played.steps) - 1)
    rewards, game_info = env.close()
    if is_team:
        expected = played.steps[-1].info["detail"]["report"]["team"]["rewards"]
    else:
        expected = {"agent": played.reward}
    assert rewards == dict(enumerate(expected.values()))
    turns = [len(steps) for _, steps in sorted(played.by_agent().items())]
    assert sorted(info["turn_count"] for info in game_info.values()) == sorted(turns)


def test_what_textarena_cannot_show_is_refused() -> None:
    with pytest.raises(
        ValueError, match="TextArena keeps the history, so compaction cannot be used"
    ):
        TextArenaEnv("ListWorld", context="compaction")
    with pytest.raises(ValueError, match="num_players must be 2 for ListWorld-team, got 3"):
        TextArenaEnv("ListWorld-team").reset(num_players=3)
