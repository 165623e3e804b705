from __future__ import annotations

from typing import Any

import pytest

from agentgym import ARMS, make, teams, worlds
from agentgym.oracles import ControlPolicy, NoisyPolicy, OraclePolicy, RandomPolicy, TeamPolicy
from agentgym.oracles.policies import Deficits
from agentgym.oracles.reading import ParsedChat
from agentgym.text.messages import Chat
from agentgym.text.parsing import DIALECTS
from agentgym.training.rollout import Trajectory, rollout
from tests.sampling import is_office

IDS = [entry.id for entry in worlds()]
DUELS = [entry.id for entry in teams() if entry.options["team"] == "duel"]
STRATEGIES = ["clear_results", "compaction", "awareness"]


def options(env_id: str) -> dict[str, Any]:
    return {"size": 2} if is_office(env_id) else {}


def first_draws(env_id: str, arm: str, seed: int, **more: Any) -> list[float]:
    policy = OraclePolicy(env_id)
    env = make(env_id, oracles=arm, **options(env_id), **more)
    steps = rollout(policy, env, seed).steps
    return [policy.draw(ParsedChat.of(step.chat)).random() for step in steps]


@pytest.mark.family(env_id=IDS)
def test_no_two_instances_and_turns_draw_alike(env_id: str) -> None:
    draws = [draw for seed in range(4) for draw in first_draws(env_id, "", seed)]
    assert len(set(draws)) == len(draws) > 4


@pytest.mark.family(env_id=IDS, arm=[arm for arm in ARMS if arm])
def test_a_moment_draws_alike_in_every_arm(env_id: str, arm: str) -> None:
    bare, helped = first_draws(env_id, "", 1), first_draws(env_id, arm, 1)
    assert bare == helped


@pytest.mark.family(env_id=IDS, context=STRATEGIES)
def test_context_strategies_do_not_change_the_draws(env_id: str, context: str) -> None:
    env = make(env_id, context=context, window=4_000, oracles="S", **options(env_id))
    policy = OraclePolicy(env_id)
    steps = rollout(policy, env, 1).steps
    draws = [policy.draw(ParsedChat.of(step.chat)).random() for step in steps]
    asked = [ParsedChat.of(step.chat).summarize for step in steps]
    played = [draw for draw, summary in zip(draws, asked, strict=True) if not summary]
    whole = first_draws(env_id, "S", 1)
    # If text is hidden, a policy may need extra turns, which also use random draws.
    shared = min(len(played), len(whole))
    assert shared
    assert played[:shared] == whole[:shared]


def test_errors_fall_on_every_turn_and_are_as_many_as_asked() -> None:
    # All office tasks have the same prompt, so draws seeded by the prompt would fail at the same
    # turn for all seeds.
    env = make("NhlB2bAnalysis", size=4, labels=True)
    policy = NoisyPolicy("NhlB2bAnalysis", 0.3)
    slips = [rollout(policy, env, seed).steps[0].info["optimal"] for seed in range(60)]
    assert 5 <= slips.count(False) <= 35, "of 60 first turns, 18 are wrong on average"


def test_a_plain_chat_draws_by_its_text_and_the_replies_in_it() -> None:
    steps = rollout(OraclePolicy("ListWorld"), make("ListWorld"), 0).steps
    policy = NoisyPolicy("ListWorld", 0.5)
    plain = [Chat.from_openai(step.chat.to_openai(), step.chat.tools) for step in steps]
    assert {chat.moment() for chat in plain} == {""}
    draws = [policy.draw(ParsedChat.of(chat)).random() for chat in plain]
    assert len(set(draws)) == len(draws) == len(steps)


@pytest.mark.parametrize("env_id", DUELS)
def test_rivals_draw_each_for_itself(env_id: str) -> None:
    policy = TeamPolicy(env_id, NoisyPolicy(env_id, 0.5))
    reports = []
    for seed in range(12):
        report = rollout(policy, make(env_id), seed).steps[-1].info["detail"]["report"]
        reports.append(tuple(report["team"]["rewards"].values()))
    assert {(1.0, 0.0), (0.0, 1.0)} <= set(reports), "either rival wins now and then"


def solved(trajectory: Trajectory) -> bool:
    return trajectory.reward == 1.0 and all(step.info["valid"] for step in trajectory.steps)


@pytest.mark.family(env_id=IDS, dialect=[*DIALECTS], arm=[*ARMS])
def test_calls_are_written_in_the_dialect_of_the_env(env_id: str, dialect: str, arm: str) -> None:
    env = make(env_id, dialect=dialect, oracles=arm, **options(env_id))
    assert solved(rollout(OraclePolicy(env_id), env, 2))
    assert solved(rollout(ControlPolicy(env_id, Deficits()), env, 2))
    chaos = rollout(RandomPolicy(env_id), env, 2)
    assert not any("no tool call found" in step.chat.messages[-1].text for step in chaos.steps)


@pytest.mark.parametrize("entry", teams(), ids=lambda entry: entry.id)
def test_teams_write_in_the_dialect_of_the_env(entry: Any) -> None:
    if is_office(entry.id):
        pytest.skip("offices take long, and the protocol is the same")
    assert rollout(TeamPolicy(entry.id), make(entry.id, dialect="python"), 0).reward == 1.0


def test_a_dialect_that_is_given_wins() -> None:
    chat, _ = make("ListWorld", dialect="auto").reset(seed=0)
    assert "```python" in OraclePolicy("ListWorld", dialect="python")([chat])[0].text
    assert "<tool_call>" in OraclePolicy("ListWorld")([chat])[0].text
