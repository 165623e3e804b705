from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

import agentgym
from agentgym import ARMS, Reply, make, teams, tool_env, worlds
from agentgym.oracles import NoisyPolicy, RandomPolicy
from agentgym.testing import laws
from agentgym.training.rollout import PolicyConfig, Trajectory, rollout
from tests.sampling import OFFICE, few

IDS = [entry.id for entry in worlds()]
LONG = {entry.id for entry in worlds(presets=True) if entry.id in OFFICE and entry.options}
QUICK = [
    e.id
    for e in worlds(presets=True)
    if "long" not in e.id and "extreme" not in e.id and e.id not in LONG
]
SLOW = [entry.id for entry in worlds(presets=True) if entry.id not in QUICK]
ONE_OFFICE = [env_id for env_id in IDS if env_id not in OFFICE or env_id == min(OFFICE)]


def noisy(env_id: str, seed: int, **options: Any) -> Trajectory:
    return rollout(NoisyPolicy(env_id, 0.3), make(env_id, labels=True, **options), seed)


@pytest.mark.rotation(env_id=IDS)
def test_gymnasium_finds_nothing_to_say(env_id: str) -> None:
    laws.check_gymnasium(env_id)


def test_same_seed_same_bytes_in_another_process() -> None:
    laws.check_same_bytes(ONE_OFFICE)


@pytest.mark.family(env_id=IDS)
def test_envs_do_not_disturb_each_other(env_id: str) -> None:
    alone = noisy(env_id, 3)
    other = make(env_id)

    def meddling(chats: Any) -> list[Reply]:
        other.reset(seed=len(chats[0].messages))
        other.step(other.action_space.sample())
        return NoisyPolicy(env_id, 0.3)(chats)

    assert rollout(meddling, make(env_id, labels=True), 3) == alone


@pytest.mark.family(env_id=IDS)
def test_the_global_generators_are_not_touched(env_id: str) -> None:
    laws.check_global_generators(env_id, ARMS)


@pytest.mark.family(env_id=QUICK)
def test_legal_random_walks_stay_in_the_spaces(env_id: str) -> None:
    laws.check_spaces(env_id)


@pytest.mark.family(env_id=IDS, scope=["persistent", "ephemeral"], arm=ARMS)
def test_the_oracle_policy_solves_every_instance_from_the_chat_alone(
    env_id: str, arm: str, scope: str
) -> None:
    laws.check_oracle(env_id, arm, scope, few(env_id, 5))


@pytest.mark.family(env_id=[env_id for env_id in (*QUICK, *SLOW) if env_id not in LONG])
def test_every_preset_is_solved_within_a_budget_without_slack(env_id: str) -> None:
    env = make(env_id, labels=True, budget_factor=1.0, budget_slack=0)
    inner = tool_env(env)
    env.reset(seed=2)
    while not inner.over:
        best = inner.world.optimal_calls()
        assert best
        _, reward, *_, info = env.step(agentgym.render(next(iter(best))))
        assert info["optimal"]
    assert reward == 1.0


@pytest.mark.family(env_id=IDS, dialect=["auto", "json", "python"])
def test_every_dialect_is_played(env_id: str, dialect: Any) -> None:
    laws.check_dialect(env_id, dialect)


@pytest.mark.family(env_id=QUICK)
def test_doing_nothing_scores_0(env_id: str) -> None:
    laws.check_doing_nothing(env_id)


@pytest.mark.family(env_id=IDS)
def test_copies_and_snapshots_in_mid_episode_go_on_alike(env_id: str) -> None:
    laws.check_copies(env_id)
    laws.check_copies(env_id, ("", "SP", "SPH"), shots=1)


@pytest.mark.family(env_id=IDS)
def test_observations_are_plain_data(env_id: str) -> None:
    laws.check_plain_data(env_id, oracles="SP", shots=1)


def test_the_hidden_part_of_a_tree_is_not_in_the_chat() -> None:
    env = make("TreeWorld", nodes=60, oracles="SP")
    for seed in range(5):
        chat, _ = env.reset(seed=seed)
        world: Any = tool_env(env).world
        for _ in range(5):
            shown = pickle.dumps(chat).decode("latin-1")
            assert not [
                node for node in world.children if node not in world.known and node in shown
            ]
            if tool_env(env).over:
                break
            chat, *_ = env.step(RandomPolicy("TreeWorld", seed)([chat])[0].text)


@pytest.mark.rotation(env_id=IDS)
def test_hints_are_functions_of_what_was_shown(env_id: str) -> None:
    # A world rebuilt from the chat alone gives the same hints, so hints reveal nothing hidden.
    assert laws.check_hints(env_id, few(env_id, 25)) > 60 or env_id in OFFICE


@pytest.mark.family(env_id=IDS)
def test_hints_change_nothing(env_id: str) -> None:
    laws.check_hints_change_nothing(env_id)


@pytest.mark.rotation(env_id=[*IDS, *(entry.id for entry in teams())])
def test_vector_envs_give_what_single_envs_give(env_id: str) -> None:
    count, policy = 3, PolicyConfig("noisy:p=0.2").make(env_id)
    singles = [gymnasium.make(env_id) for _ in range(count)]
    chats = tuple(env.reset(seed=10 + k)[0] for k, env in enumerate(singles))
    made = [
        gymnasium.make_vec(env_id, num_envs=count, vectorization_mode="sync"),
        gymnasium.make_vec(env_id, num_envs=count, vectorization_mode="async"),
    ]
    try:
        assert all(envs.reset(seed=10)[0] == chats for envs in made)
        for _ in range(3):
            actions = tuple(reply.text for reply in policy(chats))
            results = [env.step(action) for env, action in zip(singles, actions, strict=True)]
            chats = tuple(result[0] for result in results)
            for envs in made:
                observed, rewards, terminated, truncated, infos = envs.step(actions)
                assert observed == chats
                assert [list(part) for part in (rewards, terminated, truncated)] == [
                    [r[k] for r in results] for k in (1, 2, 3)
                ]
                assert list(infos["turn"]) == [result[4]["turn"] for result in results]
            if any(result[2] or result[3] for result in results):
                break
    finally:
        for envs in made:
            envs.close()


@pytest.mark.family(env_id=IDS, arm=ARMS)
def test_a_spec_in_json_rebuilds_the_whole_stack(env_id: str, arm: str) -> None:
    env = make(
        env_id,
        oracles=arm,
        hint_scope="ephemeral",
        shots=1,
        labels=True,
        dialect="python",
        budget_slack=7,
    )
    assert env.spec is not None
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))
    assert stack(again) == stack(env)
    assert again.spec == env.spec
    assert again.reset(seed=9) == env.reset(seed=9)


def stack(env: Any) -> list[str]:
    return [type(env).__name__, *(stack(env.env) if isinstance(env, gymnasium.Wrapper) else [])]


@pytest.mark.family(env_id=IDS)
def test_options_are_checked(env_id: str) -> None:
    with pytest.raises(ValueError, match=r"has no option 'itmes'; .*options: .*budget_factor"):
        gymnasium.make(env_id, itmes=3)
    with pytest.raises(
        ValueError, match=r"budget_factor must be a number in \[1.0, 100.0\], got '2'"
    ):
        make(env_id, budget_factor="2")
    with pytest.raises(
        ValueError, match=r"budget_slack must be an integer in \[0, 1000000\], got True"
    ):
        make(env_id, budget_slack=True)
    with pytest.raises(ValueError, match="dialect must be one of auto, json, python, got 'yaml'"):
        make(env_id, dialect="yaml")
