"""Train and test splits of a world's instances.

An instance's split depends only on `World.split_keys`, so splits never overlap.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, NamedTuple

import numpy as np

from agentgym.text.validation import check_choice
from agentgym.world.world import SplitName, World

SPLITS: tuple[SplitName, ...] = ("train", "test")

# With this share, a training reset draws 1.25 instances on average.
TEST_SHARE = 0.2

# With fewer instances, the test split would contain at most about twenty.
MIN_INSTANCES = 100

# 64 draws contain about 47 different instances out of 100, and about 62 out of 1,000.
_PROBES = 64

_MIN_DISTINCT = MIN_INSTANCES * (1 - math.exp(-_PROBES / MIN_INSTANCES))

_MAX_DRAWS = 500  # P(all draws miss a fifth of the instances) = 10^-48

# A remembered seed takes about 100 bytes.
_MAX_SEEDS = 10_000

# Seeds whose instances are not in the split, by world, configuration and split. An
# evaluation resets to the same seeds for each policy, so the cache saves repeated draws.
_rejected: dict[tuple[type[World[Any]], str, str], set[int]] = {}

# Whether `_PROBES` draws contain enough different instances, by world and configuration.
_enough: dict[tuple[type[World[Any]], str], bool] = {}


class Instance(NamedTuple):
    """A generated instance; `key` is empty without a split."""

    world: World[Any]
    seed: int
    key: str


def split_of(key: str) -> SplitName:
    """Return the split of a digest."""
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
    return "test" if number < TEST_SHARE * 2**64 else "train"


def config_for_split(world: type[World[Any]], config: Any, split: SplitName | None) -> Any:
    """Return the configuration for drawing a split's instances, or raise ValueError."""
    if split is None:
        return config
    check_choice("split", split, SPLITS)
    drawn = world.config_for_split(config, split)
    if not _has_enough(world, drawn):
        raise ValueError(
            f"split={split!r} requires at least {MIN_INSTANCES} different instances, and {config} has "
            f"fewer; make {world.__name__} larger or leave split=None"
        )
    return drawn


def draw_instance(
    world: type[World[Any]], config: Any, rng: np.random.Generator, split: str | None = None
) -> Instance:
    """Draw until an instance is in the split, or raise ValueError; without a split, draw once."""
    if split is None:
        seed = int(rng.integers(2**63))
        return Instance(draw(world, config, seed), seed, "")
    rejected = _rejected.setdefault((world, repr(config), split), set())
    for _ in range(_MAX_DRAWS):
        seed = int(rng.integers(2**63))
        if seed in rejected:
            continue
        instance = draw(world, config, seed)
        if {split_of(key) for key in instance.split_keys()} == {split}:
            return Instance(instance, seed, instance.instance_key())
        if len(rejected) == _MAX_SEEDS:
            rejected.clear()
        rejected.add(seed)
    raise ValueError(
        f"split={split!r} contains none of {_MAX_DRAWS} instances drawn with {config}; make "
        f"{world.__name__} larger or leave split=None"
    )


def draw(world: type[World[Any]], config: Any, seed: int) -> World[Any]:
    """Return the instance for a configuration and a seed."""
    instance = world(config, seed)
    instance.generate()
    return instance


def _has_enough(world: type[World[Any]], config: Any) -> bool:
    count = world.instance_count(config)
    if count is not None:
        return count >= MIN_INSTANCES
    if (world, repr(config)) not in _enough:
        keys: set[str] = set()
        for seed in range(_PROBES):
            keys.add(draw(world, config, seed).instance_key())
            if len(keys) >= _MIN_DISTINCT:
                break
        _enough[world, repr(config)] = len(keys) >= _MIN_DISTINCT
    return _enough[world, repr(config)]
