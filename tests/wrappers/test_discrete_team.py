from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo", reason="PettingZoo is not installed")

with warnings.catch_warnings():  # warnings raised by PettingZoo's own imports
    warnings.simplefilter("ignore")
    from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test
    from pettingzoo.utils.conversions import parallel_to_aec

from agentgym import parallel_env
from agentgym.wrappers import DiscreteTeam

CASES: list[tuple[str, dict[str, Any]]] = [
    ("ListWorld-team", {"items": 3, "removals": 1}),
    ("TreeWorld-team", {"nodes": 4}),
    ("GridWorld-team", {"size": 3}),
    ("CommonsWorld-match", {"rounds": 3}),
    ("PursuitWorld-match", {"size": 4}),
]
each_case = pytest.mark.parametrize(("env_id", "options"), CASES)


@each_case
def test_pettingzoo_finds_nothing_to_say(env_id: str, options: dict[str, Any]) -> None:
    def make() -> DiscreteTeam:
        return DiscreteTeam(parallel_env(env_id, **options))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(make(), num_cycles=30)
        api_test(parallel_to_aec(make()), num_cycles=30)
        parallel_seed_test(make, num_cycles=10)


@each_case
def test_an_action_is_carried_out_if_the_mask_has_it(env_id: str, options: dict[str, Any]) -> None:
    env = DiscreteTeam(parallel_env(env_id, **options))
    for seed in range(3):
        rng, over = np.random.default_rng(seed), False
        observations, infos = env.reset(seed=seed)
        while not over:
            np.testing.assert_array_equal(env.state(), np.concatenate(list(observations.values())))
            assert env.state() in env.state_space
            masked = seed < 2
            actions, expected = {}, {}
            for agent, info in infos.items():
                mask = info["action_mask"]
                np.testing.assert_array_equal(observations[agent][-env.count :], mask)
                assert observations[agent] in env.observation_space(agent)
                legal = np.flatnonzero(mask)
                actions[agent] = rng.choice(legal if masked else np.arange(env.count))
                # Without the tool `wait`, the agent's last action is an empty reply, not a call.
                if not info["waiting"] and actions[agent] < env.count - 1:
                    expected[agent] = bool(mask[actions[agent]])
                if info["waiting"]:
                    assert legal.tolist() == [env.count - 1]
            observations, _, terminations, truncations, infos = env.step(actions)
            over = any(terminations.values()) or any(truncations.values())
            for agent, legal_call in expected.items():
                # In a shared world, another agent's call may have changed the state.
                if agent == next(iter(infos)):
                    assert infos[agent]["valid"] == legal_call


def test_two_agents_solve_a_list_by_numbers() -> None:
    env = DiscreteTeam(parallel_env("ListWorld-team", items=2, removals=1))
    _, infos = env.reset(seed=0)
    world = env.unwrapped.game.team.worlds["actor_0"]
    index = next(
        k for k in (0, 1) if [v for j, v in enumerate(world.items) if j != k] == world.target
    )
    wait = env.count - 1
    assert [info["action_mask"].tolist() for info in infos.values()] == [[1, 1, 0, 1], [0, 0, 1, 1]]
    _, _, _, _, infos = env.step({"actor_0": index, "closer_0": wait})
    assert infos["closer_0"]["action_mask"].tolist() == [0, 0, 0, 1]
    env.step({"actor_0": wait, "closer_0": wait})  # both agents waited, so both must act next
    _, rewards, terminations, _, _ = env.step({"actor_0": wait, "closer_0": 2})
    assert rewards == {"actor_0": 1.0, "closer_0": 1.0}
    assert terminations == {"actor_0": True, "closer_0": True}


def test_the_end_of_the_budget_is_an_end_and_the_limit_of_cycles_is_not() -> None:
    def last(**options: Any) -> Any:
        env = DiscreteTeam(parallel_env("GridWorld-team", **options))
        _, infos = env.reset(seed=0)
        while env.agents:
            actions = {a: int(np.argmax(info["action_mask"])) for a, info in infos.items()}
            if "max_cycles" in options:
                actions = dict.fromkeys(env.agents, env.count - 1)
            *_, terminations, truncations, infos = env.step(actions)
        return {*terminations.values()}, {*truncations.values()}

    assert last(budget_factor=1.0, budget_slack=0) == ({True}, {False})
    assert last(max_cycles=3) == ({False}, {True})


def test_what_has_no_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="agents of a manager team must write text"):
        DiscreteTeam(parallel_env("ListWorld-manager"))
    env = DiscreteTeam(parallel_env("GridWorld-team"))
    env.reset(seed=0)
    for action in (-1, env.count, "up", None, 1.0):
        with pytest.raises(ValueError, match=r"an action must be an integer in \[0, "):
            env.step(dict.fromkeys(env.agents, action))
