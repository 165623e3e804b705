"""Every arm, context strategy and adapter once, on a small world of its benchmark."""

from __future__ import annotations

import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from agentgym import ARMS, STRATEGIES, ToolCall, make, render
from agentgym.oracles import ControlPolicy, NoisyPolicy, OraclePolicy, RandomPolicy
from agentgym.oracles.policies import Deficits
from agentgym.sandboxes import SANDBOXES, make_sandbox
from agentgym.training.rollout.rollouts import replay, rollout
from agentgym.wrappers import DiscreteActions, FeatureObservations


@pytest.mark.parametrize("scope", ["persistent", "ephemeral"])
@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_shows_its_hints_and_its_spec_rebuilds_it(arm: str, scope: str) -> None:
    env = make("TreeWorld", nodes=8, oracles=arm, hint_scope=scope, shots=1, labels=True)
    trajectory = rollout(env, OraclePolicy("TreeWorld"), 1)
    assert trajectory.reward == 1.0
    newest = trajectory.steps[-1].chat.messages[-1].text
    assert (("<state>" in newest), ("<plan>" in newest)) == ("S" in arm, "P" in arm)
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))  # type: ignore[union-attr]
    assert again.reset(seed=1) == env.reset(seed=1)


@pytest.mark.parametrize("context", [*STRATEGIES, "+".join(STRATEGIES)])
def test_a_strategy_keeps_its_window_and_its_accounts(context: str) -> None:
    # The tools of all strategies double the size.
    window = 1_400 if context in STRATEGIES else 2_800
    env = make(
        "ListWorld", items=30, removals=12, context=context, window=window, oracles="S", labels=True
    )
    trajectory = rollout(env, NoisyPolicy("ListWorld", 0.2), 1)
    records = [step.info["context"] for step in trajectory.steps]
    for before, record in itertools.pairwise(records):
        assert (
            record["tokens"]
            == before["tokens"] + record["appended"] - record["removed"] + record["inserted"]
        )
        assert record["tokens"] <= window
    assert any(record["removed"] for record in records) or context in (
        "awareness",
        "memory",
        "programmatic",
    )
    assert replay(trajectory) == trajectory


def test_a_classical_agent_sees_numbers() -> None:
    env = FeatureObservations(DiscreteActions(make("GridWorld", size=4)))
    features, _ = env.reset(seed=0)
    assert features in env.observation_space
    action = int(np.flatnonzero(env.get_wrapper_attr("action_masks")())[0])
    assert env.step(action)[4]["valid"]


@pytest.mark.parametrize(
    "policy", [RandomPolicy("ListWorld"), ControlPolicy("ListWorld", Deficits(planning=0.3))]
)
def test_other_policies_play(policy: RandomPolicy | ControlPolicy) -> None:
    trajectory = rollout(make("ListWorld", items=6), policy, 0)
    assert trajectory.terminated or trajectory.truncated


@pytest.mark.parametrize("dialect", ["json", "python"])
def test_a_dialect_is_read(dialect: str) -> None:
    env = make("ListWorld", items=3, removals=0, dialect=dialect)
    env.reset(seed=0)
    assert env.step(render(ToolCall("done", {}), dialect))[4]["valid"]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SANDBOXES)
def test_a_sandbox_runs_code_that_calls(name: str) -> None:
    try:
        sandbox = make_sandbox(name)
    except (ImportError, RuntimeError) as error:
        pytest.skip(str(error))
    result = sandbox.run("print(add(1, 2) + '!')", {"add": lambda a, b: str(a + b)})
    assert result.stdout == "3!\n"


def test_the_workbench_runs_programs() -> None:
    workbench = pytest.importorskip("agentgym.sandboxes.workbench")
    try:
        result = workbench.run(
            ["/usr/bin/bash", "-c", "tr a-z A-Z < in > out"], {"in": workbench.File(b"abc", 0)}
        )
    except RuntimeError as error:
        pytest.skip(str(error))
    assert result.files["out"] == b"ABC"
