from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

import agentgym
from agentgym import clone, make, tool_env
from agentgym.oracles import OraclePolicy, TeamPolicy
from agentgym.training.rollout import collect, replay, rollout
from agentgym.world import splits
from agentgym.world.splits import TEST_SHARE, config_for_split, draw_instance, split_of
from agentgym.world.world import COMMON
from tests.helpers import start
from tests.world.guess_world import GuessWorld


@dataclass(frozen=True)
class FewConfig:
    instances: int = 10
    highest: int = 1_000_000


class FewWorld(GuessWorld):
    """World with a configured number of equally likely instances, and default hooks."""

    Config = FewConfig  # type: ignore[assignment]

    def generate(self) -> None:
        self.number = int(self.rng.integers(self.config.instances))  # type: ignore[attr-defined]


@pytest.mark.parametrize("most", [3, 10_000])
@pytest.mark.parametrize("split", ["train", "test"])
def test_an_instance_of_the_other_split_is_drawn_only_once(
    split: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class World(FewWorld):
        drawn = 0

        def generate(self) -> None:
            super().generate()
            World.drawn += 1

    def reset(seed: int) -> tuple[int, str]:
        rng = np.random.default_rng(seed)
        instance = draw_instance(World, FewConfig(10_000), rng, split)
        assert split_of(instance.key) == split
        return instance.seed, str(rng.bit_generator.state)

    monkeypatch.setattr(splits, "_MAX_SEEDS", most)
    fresh = [reset(seed) for seed in range(20)]
    first, World.drawn = World.drawn, 0
    assert [reset(seed) for seed in range(20)] == fresh
    rejected = first - 20
    assert rejected > 2
    assert World.drawn == 20 or most < rejected
    assert len(splits._rejected[World, repr(FewConfig(10_000)), split]) <= most


def test_the_split_of_a_key_is_a_function_of_it() -> None:
    keys = [str(number) for number in range(10_000)]
    tests = [key for key in keys if split_of(key) == "test"]
    assert abs(len(tests) / len(keys) - TEST_SHARE) < 0.02
    assert split_of("0") == split_of("0")


def test_what_every_world_has_is_no_part_of_the_key() -> None:
    assert set(vars(FewWorld(FewConfig(), 0))) == COMMON


@pytest.mark.parametrize("count", [1, 2, 10, 40])
def test_a_world_with_few_instances_is_refused(count: int) -> None:
    for split in ("train", "test"):
        why = rf"split='{split}' requires at least 100 .* FewConfig\(instances={count},"
        with pytest.raises(ValueError, match=why):
            config_for_split(FewWorld, FewConfig(count), split)
    config_for_split(FewWorld, FewConfig(count), None)
    config_for_split(FewWorld, FewConfig(40 * count + 400), "test")


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("ListWorld", {"items": 1, "removals": 0}),
        ("ListWorld-team", {"items": 1, "removals": 0}),
        ("GridWorld", {"size": 2, "hole_density": 0.0}),
        ("SearchWorld", {"task": 5}),
    ],
)
def test_a_tiny_configuration_is_refused_when_the_env_is_made(
    env_id: str, options: dict[str, Any]
) -> None:
    with pytest.raises(
        ValueError, match=r"split='test' requires at least 100 .*or leave split=None"
    ):
        make(env_id, split="test", **options)
    with pytest.raises(ValueError, match="split='train' requires at least 100"):
        gymnasium.make(agentgym.resolve(env_id), split="train", **options)
    make(env_id, **options)


def test_an_unknown_split_is_refused() -> None:
    for name in ("dev", "", "Train", 1):
        with pytest.raises(ValueError, match=f"split must be one of train, test, got {name!r}"):
            make("ListWorld", split=name)


def test_a_reset_that_finds_nothing_says_so() -> None:
    # A reset must not hang if a world overstates its number of instances.
    class Boaster(FewWorld):
        @classmethod
        def instance_count(cls, config: Any) -> float:
            return 1e9

    env = agentgym.ToolEnv(Boaster, instances=1, split=_other(Boaster))
    with pytest.raises(ValueError, match=r"contains none of 500 instances drawn with FewConfig"):
        env.reset(seed=0)


def _other(world: Any) -> Any:
    instance = world(FewConfig(1), 0)
    instance.generate()
    return "test" if split_of(instance.instance_key()) == "train" else "train"


def test_the_split_is_recorded_and_replayed() -> None:
    env = make("ListWorld", split="test", oracles="SP", shots=1)
    trajectory = rollout(OraclePolicy("ListWorld"), env, 5)
    detail = trajectory.steps[-1].info["detail"]
    assert detail["split"] == "test"
    assert split_of(detail["instance"]) == "test"
    assert all(not step.info["detail"]["instance"] for step in trajectory.steps[:-1])
    assert json.loads(trajectory.spec)["kwargs"]["split"] == "test"
    assert replay(trajectory) == trajectory
    again = gymnasium.make(EnvSpec.from_json(trajectory.spec))
    assert again.reset(seed=5)[0] == trajectory.steps[0].chat


def test_a_seed_whose_first_instance_fits_plays_it() -> None:
    plain, train = make("GridWorld"), make("GridWorld", split="train")
    same = 0
    for seed in range(40):
        plain.reset(seed=seed)
        key = tool_env(plain).world.instance_key()
        chat, _ = train.reset(seed=seed)
        same += chat == tool_env(plain).chat
        assert (chat == tool_env(plain).chat) == (split_of(key) == "train")
    assert 20 < same < 40


def test_snapshots_clones_and_pickles_keep_the_split() -> None:
    env = make("TreeWorld", split="test")
    env.reset(seed=1)
    inner = tool_env(env)
    key, snapshot = inner.instance_key, inner.snapshot()
    for copy in (clone(env), pickle.loads(pickle.dumps(env))):
        assert tool_env(copy).instance_key == key
        copy.reset(seed=2)
        assert split_of(tool_env(copy).instance_key) == "test"
    env.reset(seed=3)
    assert inner.instance_key != key
    inner.restore(snapshot)
    assert inner.instance_key == key


def test_workers_draw_the_same_instances() -> None:
    spec = agentgym.spec("ListWorld", split="test")
    policy = OraclePolicy("ListWorld")
    played = [
        {t.seed: t for t in collect(policy, spec, range(4), 2, engine=engine)}
        for engine in ("lockstep", "processes")
    ]
    assert played[0] == played[1]


@pytest.mark.parametrize("kind", ["team", "manager"])
def test_teams_play_a_split(kind: str) -> None:
    env_id = f"ListWorld-{kind}"
    policy = TeamPolicy(env_id, OraclePolicy(env_id))
    for split in ("train", "test"):
        trajectory = rollout(policy, make(env_id, split=split), 4)
        detail = trajectory.steps[-1].info["detail"]
        assert detail["split"] == split
        assert split_of(detail["instance"]) == split
        assert trajectory.reward == 1.0
        assert replay(trajectory) == trajectory


def test_an_instance_has_one_split_under_every_budget() -> None:
    for env_id in ("ListWorld", "GridWorld", "TreeWorld"):
        keys = []
        for factor in (1.0, 5.0):
            world = start(env_id, seed=3, budget_factor=factor).world
            keys.append(world.instance_key())
        assert keys[0] == keys[1]
