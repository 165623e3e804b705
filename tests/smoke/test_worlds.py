"""Every world and team once: solved from the chat alone, worth 0 without actions, deterministic."""

from __future__ import annotations

import pytest

from agentgym import Reply, make, teams, worlds
from agentgym.oracles import NoisyPolicy, OraclePolicy, TeamPolicy
from agentgym.training.rollout.rollouts import rollout
from agentgym.training.rollout.trajectory import Trajectory
from tests.sampling import is_office

WORLDS = [entry.id for entry in worlds()]
# One office task represents all, because they are split by one rule.
TEAMS = [entry.id for entry in teams() if not is_office(entry.id) or "CourseAssistant" in entry.id]


@pytest.mark.parametrize("env_id", WORLDS)
def test_a_world_is_solved_from_the_chat(env_id: str) -> None:
    trajectory = rollout(make(env_id, oracles="SP", labels=True), OraclePolicy(env_id), 1)
    assert (trajectory.reward, trajectory.terminated) == (1.0, True)
    assert all(step.info["optimal"] and step.info["valid"] for step in trajectory.steps)
    assert Trajectory.from_json(trajectory.to_json()) == trajectory


@pytest.mark.parametrize("env_id", WORLDS)
def test_doing_nothing_scores_0(env_id: str) -> None:
    trajectory = rollout(
        make(env_id), lambda chats: [Reply("I would rather not.") for _ in chats], 0
    )
    assert (trajectory.reward, trajectory.terminated, trajectory.truncated) == (0.0, False, True)


@pytest.mark.parametrize("env_id", [env_id for env_id in WORLDS if not is_office(env_id)])
def test_equal_seeds_give_equal_episodes(env_id: str) -> None:
    one, two = (rollout(make(env_id, labels=True), NoisyPolicy(env_id, 0.3), 2) for _ in range(2))
    assert one == two


@pytest.mark.parametrize("env_id", TEAMS)
def test_a_team_solves_it_from_the_chats(env_id: str) -> None:
    trajectory = rollout(make(env_id, oracles="S"), TeamPolicy(env_id), 0)
    assert (trajectory.reward, trajectory.terminated) == (1.0, True)
