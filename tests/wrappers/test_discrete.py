from __future__ import annotations

import json
import pickle
import warnings
from itertools import islice
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec, WrapperSpec
from gymnasium.utils.env_checker import check_env

import agentgym
from agentgym import clone, make, tool_env
from agentgym.oracles import RandomPolicy
from agentgym.oracles.reading import ParsedChat
from agentgym.wrappers.discrete import DiscreteActions, FeatureObservations

HARD = {"difficulty": "hard", "theta": 2}
FREE = {"hole_density": 0.0, "hole_penalty": 0, "budget_factor": 1.0, "budget_slack": 0}
CASES: list[Any] = [
    *(
        (entry.world.__name__, {})
        for entry in agentgym.worlds()
        if entry.world.action_catalog is not agentgym.World.action_catalog
    ),
    ("ListWorld", {"items": 1, "removals": 0}),
    ("ListWorld", {"items": 7, "removals": 7, "dialect": "json"}),
    ("ListWorld", {"items": 12, "removals": 5, "duplicates": True}),
    ("TreeWorld", {"nodes": 1, "revealed": 0, "absent_probability": 0.5}),
    ("TreeWorld", {"nodes": 9, "arity": 2, "revealed": 4, "target": "any", "dialect": "python"}),
    ("TreeWorld", {"nodes": 20, "absent_probability": 0.0, "max_failed_rounds": 2}),
    ("DocumentWorld", {"operations": 1, "dialect": "python"}),
    ("DocumentWorld", {"operations": 4, **HARD, "distractor_documents": 1.0}),
    (
        "CodeWorld",
        {"operations": 5, **HARD, "p": 1.0, "consolidation": "plain", "names": "sequential"},
    ),
    (
        "MultimodalWorld",
        {"operations": 4, "difficulty": "hard", "render": "scene", "counted": 1.0, "pictured": 1.0},
    ),
    ("GridWorld", {"size": 1}),
    ("GridWorld", {"size": 4, "distance": 6, "hole_density": 1.0, "hole_penalty": 9}),
    ("GridWorld", {"size": 9, **FREE}),
]
each_case = pytest.mark.parametrize(("env_id", "options"), CASES)
EXACT = {"budget_factor": 1.0, "budget_slack": 0}


def numbers(env_id: str, **options: Any) -> FeatureObservations:
    return FeatureObservations(DiscreteActions(make(env_id, **options)))


def masks(env: gymnasium.Env[Any, Any]) -> Any:
    return env.get_wrapper_attr("action_masks")()


def walk(env: FeatureObservations, seed: int, legal: bool = True) -> Any:
    """Play random choices; yield the features before each choice."""
    rng = np.random.default_rng(seed)
    features, _ = env.reset(seed=seed)
    yield features
    while not env.world_env.over:
        choices = np.flatnonzero(masks(env)) if legal else np.arange(env.action_space.n)
        features, *_ = env.step(rng.choice(choices))
        yield features


@each_case
def test_gymnasium_finds_nothing_to_say(env_id: str, options: dict[str, Any]) -> None:
    # Only the warning about wrappers is expected; other warnings are errors.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version")
        check_env(numbers(env_id, **options), skip_render_check=True)


@each_case
def test_stable_baselines_finds_nothing_to_say(env_id: str, options: dict[str, Any]) -> None:
    pytest.importorskip("stable_baselines3.common.env_checker").check_env(
        numbers(env_id, **options)
    )


@pytest.mark.rotation(case=CASES)
def test_a_choice_is_carried_out_if_the_mask_has_it_and_else_costs_its_turn(
    case: tuple[str, dict[str, Any]],
) -> None:
    env_id, options = case
    env = numbers(env_id, **options)
    for seed in range(3):
        for _ in islice(walk(env, seed), 12):  # tries every menu choice at each step
            if env.world_env.over:
                break
            mask, world = masks(env), env.world_env.world
            assert (mask.dtype, mask.shape) == (np.bool_, (env.action_space.n,))
            assert len(world.legal_calls()) == mask.sum(), "the menu holds all that is legal"
            for choice, legal in enumerate(mask):
                again: Any = clone(env)
                _, reward, _, truncated, info = again.step(choice)
                assert info["valid"] == legal
                if not legal:
                    assert (info["turn"], reward, truncated) == (world.turn + 1, 0.0, False)
                    left = again.world_env.world.legal_calls()
                    assert list(left) == list(world.legal_calls())


@each_case
def test_features_fit_the_space_and_depend_on_what_was_shown(
    env_id: str, options: dict[str, Any]
) -> None:
    # The shape depends on the configuration, which is not secret.
    env = numbers(env_id, **options)
    policy = RandomPolicy(env_id)
    for seed in range(4):
        for features in walk(env, seed, legal=seed % 2 == 0):
            assert len(env.world_env.world.action_catalog()) == env.action_space.n
            assert features in env.observation_space
            if env.world_env.over:
                break
            hidden, seen = env.world_env.world, policy.recall(ParsedChat.of(env.world_env.chat))
            seen.config = hidden.config
            np.testing.assert_array_equal(seen.features(), features)
            assert list(seen.action_catalog()) == list(hidden.action_catalog())
            before = pickle.dumps(hidden)
            hidden.features(), hidden.action_catalog(), masks(env)
            assert pickle.dumps(hidden) == before, "asking changes nothing"


@pytest.mark.parametrize("choice", [-1, 5, 1.0, "up", None, np.array([1, 2])])
def test_a_choice_that_is_not_in_the_menu_is_refused(choice: Any) -> None:
    env = numbers("GridWorld")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"an action must be an integer in \[0, 5\), got "):
        env.step(choice)
    assert env.world_env.world.turn == 0


def test_the_menus() -> None:
    def action_catalog(env_id: str, **options: Any) -> list[str]:
        env = numbers(env_id, **options)
        env.reset(seed=1)
        return [
            json.dumps([call.name, *call.arguments.values()])
            for call in env.world_env.world.action_catalog()
        ]

    moves = action_catalog("GridWorld")
    assert moves == ['["up"]', '["down"]', '["left"]', '["right"]', '["done"]']
    pops = action_catalog("ListWorld", items=3, removals=1)
    assert pops == ['["pop", 0]', '["pop", 1]', '["pop", 2]', '["done"]']
    env = numbers("TreeWorld", nodes=3, revealed=0)
    env.reset(seed=1)
    (root,) = env.world_env.world.known
    asked = [f'["get_children", "{node}"]' for node in (root, "", "")]
    reported = [f'["found", "{node}"]' for node in (root, "", "")]
    catalog = action_catalog("TreeWorld", nodes=3, revealed=0)
    assert catalog == [*asked, *reported, '["unreachable"]']


def test_the_features_of_a_list() -> None:
    env = numbers("ListWorld", items=3, removals=1, **EXACT)
    env.reset(seed=0)
    world = env.world_env.world
    vars(world).update(items=[50, 20, 99], target=[50, 99])
    expected = [[50 / 99, 20 / 99, 1], [50 / 99, 1, -1], [1, 0, 0], [0, 0, 0], [1, 1, 1]]
    np.testing.assert_allclose(world.features(), [*np.ravel(expected), 1], rtol=1e-6)
    world.pop(1)
    world.turn = 1
    expected = [[50 / 99, 1, -1], [50 / 99, 1, -1], [1, 1, 0], [1, 0, 0], [1, 1, 0]]
    np.testing.assert_allclose(world.features(), [*np.ravel(expected), 0.5], rtol=1e-6)


def test_the_features_of_a_tree() -> None:
    env = numbers("TreeWorld", nodes=3, arity=1, revealed=0, absent_probability=0.0, **EXACT)
    env.reset(seed=0)
    seen = [
        env.world_env.world.features().tolist(),
        *(env.step(slot)[0].tolist() for slot in (0, 1)),
    ]
    assert seen == [
        [1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0.75],
        [1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0.5],
        [1, 1, 1, 0, 0, 1, 0, 0, 1, 0, 0.25],
    ]


def test_the_features_of_a_grid() -> None:
    task = "Board size: 2 x 2\nStart: (0, 0)\nGoal: (1, 1)\nHoles: (0, 1)\nA step into a hole costs 1 more moves.\nMove budget: 3"
    world = tool_env(make("GridWorld")).world_class.read_task(task)
    holes, goal = [[-1, -1, -1], [-1, 0, 1], [-1, 0, 0]], [[0, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert world.features().tolist() == pytest.approx(
        [*np.ravel(holes), *np.ravel(goal), 0.5, 0.5, 0.8]
    )
    world.down()
    world.turn = 1
    holes, goal = [[-1, 0, 1], [-1, 0, 0], [-1, -1, -1]], [[0, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert world.features().tolist() == pytest.approx(
        [*np.ravel(holes), *np.ravel(goal), 0, 0.5, 0.6]
    )


def test_the_end_of_the_budget_is_an_end_and_an_overflow_is_not() -> None:
    # Exhausting the turn budget must terminate the episode, because the budget is one of the
    # features.
    env = numbers("GridWorld", **EXACT)
    env.reset(seed=0)
    over = False
    while not over:
        *_, terminated, truncated, info = env.step(0 if masks(env)[0] else 1)
        over = terminated or truncated
    assert (terminated, truncated, info["detail"].ended) == (True, False, "max_turns")
    env = FeatureObservations(DiscreteActions(make("GridWorld", window=20)))
    env.reset(seed=0)
    *_, terminated, truncated, info = env.step(0)
    assert (terminated, truncated, info["detail"].ended) == (False, True, "context_overflow")


@each_case
def test_a_spec_in_json_rebuilds_the_stack(env_id: str, options: dict[str, Any]) -> None:
    module = "agentgym.wrappers.discrete"
    added = [
        WrapperSpec(name, f"{module}:{name}", {})
        for name in ("DiscreteActions", "FeatureObservations")
    ]
    for env in (numbers(env_id, **options), make(env_id, wrappers=added, **options)):
        again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))
        assert isinstance(again, FeatureObservations)
        assert again.spec == env.spec
        assert again.action_space == env.action_space
        assert again.observation_space == env.observation_space
        np.testing.assert_array_equal(again.reset(seed=3)[0], env.reset(seed=3)[0])


def test_infos_and_masks_pass_through_stable_baselines() -> None:
    env_util = pytest.importorskip("stable_baselines3.common.env_util")
    envs = env_util.make_vec_env(lambda: numbers("ListWorld", items=2, removals=0), 2, seed=0)
    envs.reset()
    assert np.stack(envs.env_method("action_masks")).tolist() == [[True] * 3] * 2
    _, rewards, dones, infos = envs.step([0, 2])
    assert (rewards.tolist(), dones.tolist()) == ([0.0, 1.0], [False, True])
    assert [info["detail"].ended for info in infos] == ["", "world"]
    assert infos[1]["episode"]["r"] == 1.0
