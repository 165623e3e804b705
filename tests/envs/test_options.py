"""Test contradictory options, and configurations for a given number of turns.

The bounds of single options are tested for every world in `tests/world/test_config.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from agentgym import make, worlds
from tests.helpers import play_optimally, start

WORLDS = {entry.world.__name__: entry.world for entry in worlds()}
LORE = ("CodeWorld", "DocumentWorld", "MultimodalWorld")
PLAIN = {"operations": 1_001, "consolidation": "plain"}
THINKING = {"setting": "static", "tools": "think"}

REFUSED: list[tuple[str, Mapping[str, Any], str]] = [
    ("ListWorld", {"items": 3, "removals": 4}, "removals must be an integer in [0, 3], got 4"),
    ("GridWorld", {"size": 4, "distance": 7}, "distance must be an integer in [0, 6], got 7"),
    ("TreeWorld", {"nodes": 3, "revealed": 4}, "revealed must be an integer in [0, 3], got 4"),
    ("DocumentWorld", {"min_arity": 4, "max_arity": 3}, "max_arity must be an integer in [4, 10]"),
    ("CodeWorld", PLAIN, "operations with consolidation='plain' must be an integer in [0, 1000]"),
    ("PuzzleWorld", {"items": 1026}, "items must be an integer in [8, 1025], got 1026"),
    (
        "SearchWorld",
        THINKING,
        "setting='static' does not support searches; omit min_rounds=0 and tools='thin",
    ),
    ("SearchWorld", {"search_by": "chroma"}, "search_by must be words, wordllama or package.modu"),
]


@pytest.mark.parametrize(("env_id", "options", "why"), REFUSED)
def test_options_that_contradict_each_other_are_refused(
    env_id: str, options: Mapping[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(why)}"):
        make(env_id, **options)


def turns(env_id: str, seed: int, options: Mapping[str, Any]) -> int:
    env = start(env_id, seed=seed, **options)
    # Reading the length of a LORE task from the graph is faster than playing the task.
    if env_id in LORE:
        return int(env.world.graph.needed) + 1
    outcome = play_optimally(env)
    assert outcome.reward == 1.0
    return outcome.turn


@pytest.mark.parametrize(
    ("env_id", "horizons", "share", "options"),
    [
        ("GridWorld", (1, 2, 9, 60), 0, {"hole_density": 0.0}),
        ("ListWorld", (1, 2, 17, 300), 0, {}),
        ("TreeWorld", (2, 9, 100), 0, {"absent_probability": 1}),
        ("DocumentWorld", (2, 30, 400), 0.15, {}),
        ("CodeWorld", (2, 10, 30, 100, 400), 0.15, {}),
        ("PuzzleWorld", (2, 4, 10, 64, 400), 0.15, {}),
        ("SearchWorld", (2, 5, 30), 0.35, {}),
    ],
)
def test_a_configuration_for_a_horizon_takes_about_that_many_turns(
    env_id: str, horizons: tuple[int, ...], share: float, options: Mapping[str, Any]
) -> None:
    for steps in horizons:
        config = {**WORLDS[env_id].config_for_horizon(steps), **options}
        seeds = range(40 if env_id in LORE else max(3, 80 // steps) if share else 1)
        mean = sum(turns(env_id, seed, config) for seed in seeds) / len(seeds)
        assert abs(mean - steps) <= (max(1, share * steps) if share else 0)


@pytest.mark.parametrize(
    ("env_id", "least", "most"),
    [
        ("GridWorld", 1, 3_999),
        ("ListWorld", 1, 5_000),
        ("TreeWorld", 2, 100_000),
        ("DocumentWorld", 2, 425_000),
        ("CodeWorld", 2, 229_999),
        ("PuzzleWorld", 2, 380_000),
        ("SearchWorld", 2, 10_000),
    ],
)
def test_a_horizon_that_no_configuration_takes_is_refused(
    env_id: str, least: int, most: int
) -> None:
    why = rf"horizon must be an integer in \[{least}, {most}\], got "
    for steps in (least - 1, most + 1):
        with pytest.raises(ValueError, match=why):
            WORLDS[env_id].config_for_horizon(steps)
