from __future__ import annotations

from pathlib import Path

import pytest

from agentgym import ARMS, make
from agentgym.oracles import ControlPolicy, OraclePolicy
from agentgym.oracles.policies import Deficits
from agentgym.training.evaluation import (
    Ablation,
    Result,
    differences,
    effects,
    run_ablation,
    summarize,
)
from agentgym.training.rollout import PolicyConfig, rollout

WORLDS = ("ListWorld", "TreeWorld", "GridWorld")
DEFICITS = {
    "P": "control:planning=0.15",
    "S": "control:tracking=0.1",
    "H": "control:distraction=0.02",
}
# A plan hint may name a node or a cell, so the agent also needs less state tracking.
SPARED = {"S": {"P"}}


CASES = {"letter": list(DEFICITS), "world": WORLDS}


def planted(letter: str, world: str, out: Path) -> list[Result]:
    ablation = Ablation(
        worlds=(world,),
        horizons=(16,),
        seeds=25,
        policy=PolicyConfig(DEFICITS[letter]),
        options={"": {"budget_factor": 1.0}},
    )
    return run_ablation(ablation, out, workers=1)


@pytest.mark.rotation(**CASES)
def test_the_planted_deficit_is_found_and_the_matching_hint_removes_it(
    letter: str, world: str, tmp_path: Path
) -> None:
    rows = planted(letter, world, tmp_path)
    for metric in ("success", "step_accuracy"):
        found = effects(rows, ("world",), metric)
        assert found[world, letter].low > 0, (
            "the planted deficit has an effect whose interval excludes 0"
        )
        for other in {"P", "S", "H"} - {letter} - SPARED.get(letter, set()):
            assert found[world, other].low <= 0 <= found[world, other].high
    rates = summarize(rows, ("arm",), "success")
    accuracy = summarize(rows, ("arm",), "step_accuracy")
    gains = differences(rows, (), "success")
    for arm in ARMS:
        if letter in arm:
            assert rates[arm,].value == accuracy[arm,].value == 1.0
            assert gains[arm,].low > 0
    assert rates["",].value < 0.9


def rate(deficits: Deficits, horizon: int, arm: str = "") -> float:
    env = make("ListWorld", items=2 * horizon, removals=horizon - 1, oracles=arm, labels=True)
    policy = ControlPolicy("ListWorld", deficits)
    infos = [
        step.info
        for seed in range(15)
        for step in rollout(policy, env, seed).steps
        if step.info["alive"]
    ]
    return sum(info["optimal"] for info in infos) / len(infos)


def test_an_agent_without_deficits_is_optimal() -> None:
    for world in WORLDS:
        env = make(world, oracles="")
        control = rollout(ControlPolicy(world, Deficits()), env, 3)
        assert control.steps == rollout(OraclePolicy(world), env, 3).steps


def first_error(deficits: Deficits, turn_count: int) -> list[int]:
    env = make("ListWorld", items=60, removals=40, labels=True)
    turns = []
    for seed in range(60):
        infos = [
            step.info for step in rollout(ControlPolicy("ListWorld", deficits), env, seed).steps
        ]
        turns += (
            [next(info["turn"] for info in infos if not info["optimal"])]
            if not all(i["optimal"] for i in infos)
            else []
        )
    return [turn for turn in turns if turn <= turn_count]


@pytest.mark.rotation
def test_tracking_and_distraction_grow_with_the_episode_and_planning_does_not() -> None:
    # With a constant hazard, many first errors fall in the first half of a window; with a growing
    # hazard, few do. The rates give each deficit about the same number of errors in 20 turns.
    early = {}
    for name, rate_ in (("planning", 0.05), ("tracking", 0.006), ("distraction", 0.006)):
        turns = first_error(Deficits(**{name: rate_}), 20)
        assert len(turns) > 10
        early[name] = sum(turn <= 10 for turn in turns) / len(turns)
    assert early["planning"] > 0.5 > max(early["tracking"], early["distraction"])


def test_a_state_hint_helps_tracking_only_while_it_is_shown() -> None:
    assert rate(Deficits(tracking=0.05), 12, "S") == 1.0
    assert rate(Deficits(tracking=0.05), 12, "P") < 1.0, (
        "the plan tells a place in the initial list, which has to be tracked"
    )
    assert rate(Deficits(planning=0.3), 12, "S") < 1.0


def test_deficits_are_probabilities() -> None:
    with pytest.raises(ValueError, match=r"tracking must be a number in \[0.0, 1.0\], got 2"):
        Deficits(tracking=2)
