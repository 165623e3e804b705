"""Instance keys, which show whether evaluation and training instances overlap."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache

from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.seeding import np_random

from agentgym.training.rollout import Trajectory
from agentgym.world.config import make_config
from agentgym.world.splits import config_for_split, draw_instance
from agentgym.world.world import load_world

# Number of cached keys; all arms of an ablation request the same keys.
_MEMORY = 4_096


def instance_key(trajectory: Trajectory) -> str:
    """Return an episode's recorded instance key, or compute the key from the spec and the seed."""
    recorded = trajectory.steps[-1].info["detail"].get("instance") if trajectory.steps else ""
    return recorded or _drawn_key(trajectory.spec, trajectory.seed)


@lru_cache(_MEMORY)
def _drawn_key(spec: str, seed: int) -> str:
    kwargs = EnvSpec.from_json(spec).kwargs
    world = load_world(kwargs.get("world", ""))
    options = {field.name for field in fields(world.Config)}
    config = make_config(world, {name: kwargs[name] for name in kwargs if name in options})
    split = kwargs.get("split")
    config = config_for_split(world, config, split)
    drawn = draw_instance(world, config, np_random(seed)[0], split)
    return drawn.key or drawn.world.instance_key()
