"""Laws that hold in every registered world; a new world is under them before its author writes
a test.
"""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

import agentgym
from agentgym import ARMS, Chat, Reply, clone, make, tool_env, worlds
from agentgym.oracles import NoisyPolicy, OraclePolicy, RandomPolicy
from agentgym.oracles.policies import ScriptedPolicy
from agentgym.oracles.reading import ParsedChat
from agentgym.training.rollout import Trajectory, rollout
from tests.helpers import compare
from tests.sampling import OFFICE, few

IDS = [entry.id for entry in worlds()]
LONG = {entry.id for entry in worlds(presets=True) if entry.id in OFFICE and entry.options}
QUICK = [
    e.id
    for e in worlds(presets=True)
    if "long" not in e.id and "extreme" not in e.id and e.id not in LONG
]
SLOW = [entry.id for entry in worlds(presets=True) if entry.id not in QUICK]
ALL = [*QUICK, *(pytest.param(env_id, marks=pytest.mark.exhaustive) for env_id in SLOW)]

ONE_OFFICE = [env_id for env_id in IDS if env_id not in OFFICE or env_id == min(OFFICE)]

DIGEST = """
import sys, agentgym
from agentgym.oracles import NoisyPolicy
from agentgym.training.rollout import rollout
for env_id in sys.argv[1:]:
    env = agentgym.make(env_id, oracles="SP", labels=True)
    print(*(rollout(env, NoisyPolicy(env_id, 0.2), seed).to_json() for seed in range(3)), sep="\\n")
"""


def noisy(env_id: str, seed: int, **options: Any) -> Trajectory:
    return rollout(make(env_id, labels=True, **options), NoisyPolicy(env_id, 0.3), seed)


@pytest.mark.family(env_id=ALL)
def test_gymnasium_finds_nothing_to_say(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(env_id).unwrapped)


def test_same_seed_same_bytes_in_another_process() -> None:
    outputs = set()
    for hash_seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        shown = subprocess.run(
            [sys.executable, "-c", DIGEST, *ONE_OFFICE],
            capture_output=True,
            check=True,
            env=environment,
        )
        outputs.add(hashlib.sha256(shown.stdout).hexdigest())
    lines = []
    for env_id in ONE_OFFICE:
        env = make(env_id, oracles="SP", labels=True)
        lines += [rollout(env, NoisyPolicy(env_id, 0.2), seed).to_json() for seed in range(3)]
    outputs.add(hashlib.sha256("".join(line + "\n" for line in lines).encode()).hexdigest())
    assert len(outputs) == 1


@pytest.mark.family(env_id=IDS)
def test_envs_do_not_disturb_each_other(env_id: str) -> None:
    alone = noisy(env_id, 3)
    other = make(env_id)

    def meddling(chats: Any) -> list[Reply]:
        other.reset(seed=len(chats[0].messages))
        other.step(other.action_space.sample())
        return NoisyPolicy(env_id, 0.3)(chats)

    assert rollout(make(env_id, labels=True), meddling, 3) == alone


@pytest.mark.family(env_id=IDS)
def test_the_global_generators_are_not_touched(env_id: str) -> None:
    before = random.getstate(), pickle.dumps(np.random.get_state())  # noqa: NPY002 - it is what must not change
    for arm in ARMS:
        noisy(env_id, 1, oracles=arm, shots=1)
    make(env_id).action_space.sample()
    assert (random.getstate(), pickle.dumps(np.random.get_state())) == before  # noqa: NPY002


@pytest.mark.family(env_id=QUICK)
def test_legal_random_walks_stay_in_the_spaces(env_id: str) -> None:
    env = make(env_id)
    policy = RandomPolicy(env_id)
    env.action_space.seed(0)
    assert not any(
        env.action_space.contains(value) or env.observation_space.contains(value)
        for value in (None, 3, b"x", ["x"])
    )
    for seed in range(5):
        chat, info = env.reset(seed=seed)
        over = False
        while not over:
            action = env.action_space.sample() if seed % 2 else policy([chat])[0].text
            assert env.action_space.contains(action)
            chat, reward, terminated, truncated, info = env.step(action)
            assert env.observation_space.contains(chat)
            assert seed % 2 or info["valid"], "what legal_calls offers is carried out"
            assert set(info) == {"turn", "valid", "success", "detail"}
            assert reward == 0.0 or terminated or truncated
            over = terminated or truncated
        assert 0.0 <= reward <= 1.0


@pytest.mark.family(env_id=IDS, scope=["persistent", "ephemeral"], arm=ARMS)
def test_the_oracle_policy_solves_every_instance_from_the_chat_alone(
    env_id: str, arm: str, scope: str
) -> None:
    env = make(env_id, oracles=arm, hint_scope=scope, labels=True)
    for seed in few(env_id, 10):
        trajectory = rollout(env, OraclePolicy(env_id), seed)
        assert trajectory.reward == 1.0
        assert trajectory.terminated
        assert all(
            step.info["optimal"] and step.info["alive"] and step.info["valid"]
            for step in trajectory.steps
        )


@pytest.mark.family(env_id=[env_id for env_id in (*QUICK, *SLOW) if env_id not in LONG])
def test_every_preset_is_solved_within_a_budget_without_slack(env_id: str) -> None:
    env = make(env_id, labels=True, budget_factor=1.0, budget_slack=0)
    inner = tool_env(env)
    env.reset(seed=2)
    over = False
    while not over:
        best = inner.world.optimal_calls()
        assert best
        _, reward, terminated, truncated, info = env.step(agentgym.render(next(iter(best))))
        assert info["optimal"]
        over = terminated or truncated
    assert reward == 1.0


@pytest.mark.family(env_id=IDS, dialect=["auto", "json", "python"])
def test_every_dialect_is_played(env_id: str, dialect: Any) -> None:
    env = make(env_id, dialect=dialect)
    assert rollout(env, OraclePolicy(env_id, dialect=dialect), 0).reward == 1.0


@pytest.mark.family(env_id=QUICK)
def test_doing_nothing_scores_0(env_id: str) -> None:
    for seed in range(3):
        trajectory = rollout(
            make(env_id), lambda chats: [Reply("I would rather not.") for _ in chats], seed
        )
        assert trajectory.reward == 0.0
        assert trajectory.truncated
        assert not trajectory.terminated


@pytest.mark.family(env_id=IDS)
def test_copies_in_mid_episode_go_on_alike(env_id: str) -> None:
    policy = NoisyPolicy(env_id, 0.3)
    for arm in ("", "SP", "SPH"):
        env = make(env_id, oracles=arm, shots=1)
        chat, _ = env.reset(seed=6)
        chat, *_ = env.step(policy([chat])[0].text)
        if tool_env(env).over:
            continue
        copies = [env, clone(env), copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
        ends = [list(play_on(each, policy, chat)) for each in copies]
        assert ends[0] == ends[1] == ends[2] == ends[3]
        assert len({id(tool_env(each).world) for each in copies}) == 4


def play_on(env: gymnasium.Env[Any, Any], policy: ScriptedPolicy, chat: Chat) -> Iterator[Any]:
    over = False
    while not over:
        result = env.step(policy([chat])[0].text)
        chat, over = result[0], result[2] or result[3]
        yield result
    yield env.reset()


def reachable(value: object) -> Iterator[object]:
    """Everything that an observation holds on to."""
    yield value
    if is_dataclass(value) and not isinstance(value, type):
        children: Any = [getattr(value, item.name) for item in fields(value)]
    elif isinstance(value, dict):
        children = [*value, *value.values()]
    elif isinstance(value, (list, tuple, agentgym.messages.Messages)):
        children = list(value)
    else:
        children = []
    for child in children:
        yield from reachable(child)


@pytest.mark.family(env_id=IDS)
def test_observations_are_plain_data(env_id: str) -> None:
    for step in noisy(env_id, 2, oracles="SP", shots=1).steps:
        plain = (str, int, float, bytes, bool, type(None), dict, list, tuple)
        for value in reachable(step.chat):
            assert isinstance(value, plain) or type(value).__module__ in (
                "agentgym.messages",
                "agentgym.tools",
            )
        assert pickle.loads(pickle.dumps(step.chat)) == step.chat


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


@pytest.mark.family(env_id=IDS)
def test_hints_are_functions_of_what_was_shown(env_id: str) -> None:
    """A world rebuilt from the text of the chat alone gives the same hints as the hidden one,
    so hints use nothing hidden.
    """
    policy = RandomPolicy(env_id)
    env = make(env_id, budget_slack=5)
    compared = 0
    for seed in few(env_id, 25):
        chat, _ = env.reset(seed=seed)
        mixed = NoisyPolicy(env_id, 0.4, seed)
        while not tool_env(env).over:
            hidden, seen = tool_env(env).world, policy.recall(ParsedChat.of(chat))
            compare(hidden, seen)
            from_state = policy.recall(
                ParsedChat(ParsedChat.of(chat).task, {"state": hidden.state()})
            )
            assert (from_state.state(), from_state.subtask(True)) == (
                hidden.state(),
                hidden.subtask(True),
            )
            assert list(from_state.optimal_calls() or ()) == list(hidden.optimal_calls() or ())
            compared += 1
            unreadable = seed % 5 == 0 and compared % 3 == 0
            chat, *_ = env.step("hm" if unreadable else mixed([chat])[0].text)
    assert compared > 60 or env_id in OFFICE


@pytest.mark.family(env_id=IDS)
def test_hints_change_nothing(env_id: str) -> None:
    env = make(env_id)
    env.reset(seed=4)
    world = tool_env(env).world
    before = pickle.dumps(world)
    for _ in range(2):
        (
            world.state(),
            world.subtask(True),
            world.subtask(False),
            world.legal_calls(),
            list(world.optimal_calls() or ()),
        )
    assert pickle.dumps(world) == before


@pytest.mark.family(env_id=IDS)
def test_vector_envs_give_what_single_envs_give(env_id: str) -> None:
    count, policy = 3, NoisyPolicy(env_id, 0.2)
    singles = [gymnasium.make(env_id) for _ in range(count)]
    chats = tuple(env.reset(seed=10 + k)[0] for k, env in enumerate(singles))
    made = [
        gymnasium.make_vec(env_id, num_envs=count, vectorization_mode="sync"),
        gymnasium.make_vec(
            env_id,
            num_envs=count,
            vectorization_mode="async",
            vector_kwargs={"shared_memory": False},
        ),
    ]
    try:
        assert all(envs.reset(seed=10)[0] == chats for envs in made)
        for _ in range(3):
            actions = tuple(reply.text for reply in policy(chats))
            if any(tool_env(env).over for env in singles):
                break
            results = [env.step(action) for env, action in zip(singles, actions, strict=True)]
            chats = tuple(result[0] for result in results)
            for envs in made:
                observed, rewards, terminated, truncated, infos = envs.step(actions)
                assert observed == chats
                assert [list(part) for part in (rewards, terminated, truncated)] == [
                    [r[k] for r in results] for k in (1, 2, 3)
                ]
                assert list(infos["turn"]) == [result[4]["turn"] for result in results]
    finally:
        for envs in made:
            envs.close()


def test_shared_memory_is_refused_with_a_clear_error() -> None:
    with pytest.raises(ValueError, match="shared_memory=False"):
        gymnasium.make_vec("agentgym/ListWorld-v0", num_envs=2, vectorization_mode="async")


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
    with pytest.raises(ValueError, match=r"has no option 'itmes'; options: .*budget_factor"):
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
