"""Generators that are seeded in plain Python draw what NumPy's and Gymnasium's draw."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import seeding
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import MT19937, PCG64, SFC64, Generator, Philox, SeedSequence

from agentgym import ToolEnv, clone, make
from agentgym.seeding import IntegerSeed, draw_seed, make_generator, seed_env

SEEDS = st.one_of(
    st.integers(0, 2**32), st.integers(2**63 - 2, 2**64), st.integers(0, 2**130), st.booleans()
)
COPIES: dict[str, Callable[[Any], Any]] = {
    "pickled": lambda value: pickle.loads(pickle.dumps(value)),
    "copied": copy.deepcopy,
}


def draws(rng: Generator) -> list[Any]:
    numbers = [rng.integers(2**63), rng.random(), *rng.choice(91, size=20, replace=False)]
    return [*numbers, rng.bit_generator.state]


@given(SEEDS)
def test_a_generator_draws_what_that_of_numpy_draws(seed: int) -> None:
    assert draws(make_generator(seed)) == draws(np.random.default_rng(seed))
    (mine, number), (theirs, same) = seed_env(seed), seeding.np_random(seed)
    assert (draws(mine), number, type(number)) == (draws(theirs), same, type(same))


def test_other_seeds_are_those_of_numpy() -> None:
    for seed in ((3, 4), [5], np.int64(6), SeedSequence(7)):
        assert draws(make_generator(seed)) == draws(np.random.default_rng(copy.deepcopy(seed)))
    with pytest.raises(ValueError, match="non-negative"):
        make_generator(-1)


@pytest.mark.parametrize("seed", [-1, 1.0, "1", np.int64(1), (1, 2)])
def test_seeds_of_an_env_are_refused_as_gymnasium_does(seed: Any) -> None:
    with pytest.raises(gymnasium.error.Error) as expected:
        seeding.np_random(seed)
    with pytest.raises(gymnasium.error.Error) as error:
        make("ListWorld").reset(seed=seed)
    assert str(error.value) == str(expected.value)


@given(st.integers(0, 2**128 - 1), st.integers(1, 9), st.sampled_from([np.uint32, np.uint64]))
def test_a_seed_gives_the_words_and_children_of_numpy(seed: int, words: int, dtype: Any) -> None:
    mine, theirs = IntegerSeed(seed), SeedSequence(seed)
    assert (mine.generate_state(words, dtype) == theirs.generate_state(words, dtype)).all()
    assert (mine.generate_state(words) == theirs.generate_state(words)).all()
    for count in (2, 1):
        assert list(map(str, mine.spawn(count))) == list(map(str, theirs.spawn(count)))


@pytest.mark.parametrize("kind", COPIES)
def test_a_copied_generator_goes_on_with_numbers_and_children(kind: str) -> None:
    mine, theirs = make_generator(8), np.random.default_rng(8)
    children = [rng.spawn(2) for rng in (mine, theirs)]
    assert [draws(rng) for rng in children[0]] == [draws(rng) for rng in children[1]]
    assert draws(mine) == draws(theirs)
    copied = COPIES[kind](mine)
    for rng in (mine, copied):
        assert draws(rng.spawn(1)[0]) == draws(copy.deepcopy(theirs).spawn(1)[0])
    assert draws(copied) == draws(mine) == draws(theirs)


@pytest.mark.parametrize("bits", [PCG64, MT19937, Philox, SFC64])
def test_a_seed_is_drawn_as_an_integer_below_2_63(bits: Any) -> None:
    mine, theirs = Generator(bits(9)), Generator(bits(9))
    for _ in range(50):  # a draw of 32 bits leaves the other half for the next such draw
        assert draw_seed(mine) == int(theirs.integers(2**63))
        assert mine.integers(5, dtype=np.uint32) == theirs.integers(5, dtype=np.uint32)


def expected_instances(seed: int, count: int) -> list[int]:
    rng = seeding.np_random(seed)[0]
    return [int(rng.integers(2**63)) for _ in range(count)]


def reset(env: Any, **seed: int) -> int:
    env.reset(**seed)
    return int(env.unwrapped.world.instance_seed)


def test_an_env_draws_instances_as_one_that_gymnasium_seeds() -> None:
    env = make("ListWorld", items=5, removals=2)
    first, second, third = expected_instances(4, 3)
    assert [reset(env, seed=4), env.unwrapped.np_random_seed] == [first, 4]
    assert reset(env) == second
    theirs = seeding.np_random(4)[0]
    theirs.integers(2**63, size=2)
    assert env.unwrapped.np_random.bit_generator.state == theirs.bit_generator.state
    pickled, cloned = COPIES["pickled"](env), clone(env)
    inner = env.unwrapped
    assert isinstance(inner, ToolEnv)
    snapshot = inner.snapshot()
    assert [reset(each) for each in (env, pickled, cloned)] == [third] * 3
    inner.restore(snapshot)
    assert [reset(env), reset(env, seed=4), reset(env)] == [third, first, second]


def test_a_world_draws_from_the_generator_of_its_seed() -> None:
    world = make("ListWorld").unwrapped.world_class  # type: ignore[attr-defined]
    for seed in (0, 2**62 + 1, (1, 2)):
        assert draws(world(world.Config(), seed).rng) == draws(np.random.default_rng(seed))


def test_an_env_that_is_never_seeded_draws_at_random() -> None:
    assert len({reset(make("ListWorld")) for _ in range(3)}) == 3


def test_a_vector_env_seeds_each_of_its_envs() -> None:
    envs = gymnasium.make_vec("agentgym/ListWorld-v0", 3, vectorization_mode="sync")
    envs.reset(seed=[1, 2, 3])
    inner = [env.unwrapped.world.instance_seed for env in envs.envs]  # type: ignore[attr-defined]
    assert inner == [expected_instances(seed, 1)[0] for seed in (1, 2, 3)]
