"""Check that prompts with the structure of the paper's appendix are parsed correctly."""

from __future__ import annotations

import pytest

from agentgym import make, tool_env
from agentgym.oracles import ControlPolicy, OraclePolicy
from agentgym.oracles.policies import Deficits
from agentgym.training.rollout import rollout

WORLDS = ["ListWorld", "TreeWorld", "GridWorld"]
SEPARATOR = "=== Starting new task ===\n"


@pytest.mark.parametrize("world", WORLDS)
def test_a_prompt_has_the_parts_of_the_paper_in_its_order(world: str) -> None:
    chat, _ = make(world, prompts="paper", dialect="python").reset(seed=1)
    system, task = (message.text for message in chat.messages)
    assert system.startswith("You are a")
    assert system.index("eason") < system.index("# Tools") < system.index("# How to reply")
    assert "```python" in system
    assert task.startswith(SEPARATOR)
    plain, _ = make(world).reset(seed=1)
    body, _, reminder = task.removeprefix(SEPARATOR).rpartition("\n\n")
    assert body == plain.messages[1].text, "the same instance, and the same facts"
    assert len(reminder) > 40
    assert system != plain.messages[0].text


@pytest.mark.parametrize("arm", ["", "SPH"])
@pytest.mark.parametrize("world", WORLDS)
def test_it_is_the_same_game_in_every_arm(world: str, arm: str) -> None:
    policy = ControlPolicy(world, Deficits(planning=0.2, tracking=0.1), seed=2)
    for seed in range(4):
        plain, paper = (
            rollout(policy, make(world, oracles=arm, prompts=prompts, labels=True), seed)
            for prompts in ("own", "paper")
        )
        assert [step.reply.text for step in plain.steps] == [
            step.reply.text for step in paper.steps
        ]
        assert plain.reward == paper.reward
        assert rollout(OraclePolicy(world), make(world, oracles=arm, prompts="paper"), seed).reward


@pytest.mark.parametrize("world", WORLDS)
def test_examples_begin_like_the_task(world: str) -> None:
    env = make(world, prompts="paper", shots=2, oracles="SPH")
    chat, _ = env.reset(seed=1)
    tasks = [m.text for m in chat.messages if m.role == "user" and m.text.startswith(SEPARATOR)]
    assert len(tasks) >= 3
    assert "eason" in chat.messages[0].text
    assert tool_env(env).world.read_task(tasks[-1].partition("\n\n<")[0])
