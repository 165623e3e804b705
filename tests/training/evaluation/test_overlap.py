"""Overlap of evaluation with training."""

from __future__ import annotations

from agentgym import make
from agentgym.oracles import NoisyPolicy, OraclePolicy
from agentgym.training.evaluation import overlap_table
from agentgym.training.rollout import Trajectory, rollout


def played(seeds: range, env_id: str = "ListWorld", **options: object) -> list[Trajectory]:
    env = make(env_id, **options)  # type: ignore[arg-type]
    return [rollout(OraclePolicy(env_id), env, seed) for seed in seeds]


def test_shared_instances_are_counted_once_for_each_world() -> None:
    evaluated = [
        *played(range(10)),
        *played(range(10), oracles="S"),
        *played(range(3), "GridWorld"),
    ]
    training = [*played(range(8, 30), budget_factor=3.0), *played(range(3), "TreeWorld")]
    title, header, rows = overlap_table(evaluated, training)
    assert title == "Overlap with training"
    assert header[1:] == ["evaluated instances", "also in training", "%"]
    assert rows == [["GridWorld", "3", "0", "0.0"], ["ListWorld", "10", "2", "20.0"]]


def test_splits_do_not_overlap_and_a_split_alone_does() -> None:
    train, test = played(range(30), split="train"), played(range(30), split="test")
    assert overlap_table(test, train)[2] == [["ListWorld", "30", "0", "0.0"]]
    assert overlap_table(played(range(10)), played(range(10)))[2][0][2:] == ["10", "100.0"]


def test_the_policy_does_not_matter() -> None:
    other = rollout(NoisyPolicy("ListWorld", 1.0), make("ListWorld"), 4)
    assert overlap_table([other], played(range(4, 5)))[2][0][2] == "1"
