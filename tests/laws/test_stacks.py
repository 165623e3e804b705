from __future__ import annotations

import json
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

from agentgym import STRATEGIES, Chat, ToolCall, ToolEnv, make, render, spec, worlds
from agentgym.assemble.wrapper_order import layers
from agentgym.oracles import (
    HistoryOracle,
    InContextExamples,
    NoisyPolicy,
    OraclePolicy,
    PlanOracle,
    StateOracle,
)
from agentgym.training.rollout import Trajectory, replay, rollout, usage
from agentgym.wrappers import (
    ClearThinking,
    ClearToolResults,
    Compaction,
    ContextAwareness,
    ContextBudget,
    MemoryTool,
    Trim,
    WindowFraction,
)
from tests.sampling import few, is_office
from tests.wrappers.context_checks import check_form
from tests.wrappers.context_worlds import Env, ToolBox

IDS = [entry.id for entry in worlds()]
ALL = "+".join(STRATEGIES)
CONTEXTS = ["none", *STRATEGIES, "clear_results+memory", ALL]


@pytest.mark.parametrize(
    ("outer", "inner", "message"),
    [
        (
            ClearThinking,
            ClearToolResults,
            r"ClearThinking \(clear_thinking\) must go inside ClearToolResults",
        ),
        (ClearToolResults, Compaction, "ClearToolResults .* must go inside Compaction"),
        (Compaction, Trim, "Compaction .* must go inside Trim"),
        (Trim, ContextAwareness, "Trim .* must go inside ContextAwareness"),
        (MemoryTool, ClearThinking, r"MemoryTool \(tools\) must go inside ClearThinking"),
        (PlanOracle, ClearThinking, r"PlanOracle \(hints\) must go inside ClearThinking"),
        (MemoryTool, StateOracle, "MemoryTool .* must go inside StateOracle"),
    ],
)
def test_a_wrong_order_names_the_right_one(outer: Any, inner: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        outer(inner(ToolEnv(ToolBox)))
    assert (
        "tools -> hints -> history -> examples -> clear_thinking -> clear_tool_results -> compaction"
        in str(caught.value)
    )


def test_history_and_examples_go_inside_too() -> None:
    env = ClearToolResults(StateOracle(make("ListWorld")))
    with pytest.raises(ValueError, match=r"HistoryOracle .* must go inside ClearToolResults"):
        HistoryOracle(env)
    with pytest.raises(ValueError, match=r"InContextExamples .* must go inside ClearToolResults"):
        InContextExamples(env)


def test_the_innermost_strategy_sets_the_budget_of_all() -> None:
    env = Compaction(ClearToolResults(ToolEnv(ToolBox), ContextBudget(5_000)))
    assert env.view.budget == ContextBudget(5_000)
    assert Compaction(ToolEnv(ToolBox)).view.budget == ContextBudget(128_000, 0, "cl100k_base")
    with pytest.raises(
        ValueError,
        match=r"Compaction has ContextBudget.*9000.*but ClearToolResults inside it has ContextBudget.*5000",
    ):
        Compaction(ClearToolResults(ToolEnv(ToolBox), ContextBudget(5_000)), ContextBudget(9_000))


class Shout(gymnasium.ObservationWrapper[Chat, str, Chat]):
    def observation(self, observation: Chat) -> Chat:
        return Chat((*observation.messages,), observation.tools)


def test_a_wrapper_between_strategies_may_not_change_the_chat() -> None:
    env: Env = Compaction(Shout(ClearToolResults(ToolEnv(ToolBox))))
    with pytest.raises(
        ValueError,
        match="a wrapper between Compaction and the context strategies inside it changes the chat",
    ):
        env.reset(seed=0)
    timed: Env = Compaction(
        gymnasium.wrappers.TimeLimit(ClearToolResults(Shout(ToolEnv(ToolBox))), 10)
    )
    timed.reset(seed=0)


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_spec_with_strategies_is_json(context: str) -> None:
    options = (
        {"clear_results": {"trigger": {"fraction": 0.5}, "keep": 2}}
        if "clear_results" in context
        else {}
    )
    options["budget"] = {"reserve_output": 100}
    asked = spec(
        "ListWorld", oracles="S", shots=1, context=context, window=6_000, context_options=options
    )
    env = gymnasium.make(EnvSpec.from_json(asked.to_json()))
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))  # type: ignore[union-attr]
    names = [type(layer).__name__ for layer in layers(env)]
    assert names == [type(layer).__name__ for layer in layers(again)]
    first, _ = env.reset(seed=3)
    assert first == again.reset(seed=3)[0]
    for layer in layers(again):
        if type(layer) is ClearToolResults:
            assert (layer.trigger, layer.keep, layer.view.budget) == (
                WindowFraction(0.5),
                2,
                ContextBudget(6_000, 100),
            )


def tight(env_id: str, context: str, room: int = 350, **options: Any) -> Env:
    env = make(env_id, context=context, window=10**6, **options)
    tokens = max(env.reset(seed=seed)[1]["context"].tokens for seed in range(2))
    return make(env_id, context=context, window=tokens + room, **options)


def check(trajectory: Trajectory) -> None:
    before = None
    for step in trajectory.steps:
        record = step.info["context"]
        assert (
            before is None
            or record["tokens"]
            == before + record["appended"] - record["removed"] + record["inserted"]
        )
        before = record["tokens"]
        check_form(list(step.chat.messages))


# The simulation in `tests/wrappers/specification.py` covers the other arms.
@pytest.mark.family(env_id=IDS, arm=["", "P", "SH", "SPH"], context=CONTEXTS)
def test_every_strategy_works_on_every_world_and_hint(env_id: str, arm: str, context: str) -> None:
    scope = "ephemeral" if len(context) % 2 else "persistent"
    env = tight(env_id, context, oracles=arm, hint_scope=scope, labels=True, shots=len(arm) % 2)
    for seed in range(2):
        trajectory = rollout(NoisyPolicy(env_id, 0.3), env, seed)
        check(trajectory)
        assert Trajectory.from_json(trajectory.to_json()) == trajectory
        assert usage(trajectory) is not None
        if seed == 1:  # a new env must give the same episode as an env that has already played one
            assert replay(trajectory) == trajectory


@pytest.mark.family(env_id=IDS, context=CONTEXTS)
def test_with_room_enough_the_oracle_policy_solves_every_world(env_id: str, context: str) -> None:
    for arm in ("", "SPH"):
        env = make(env_id, context=context, oracles=arm)
        assert all(rollout(OraclePolicy(env_id), env, seed).reward == 1.0 for seed in range(3))


@pytest.mark.rotation(env_id=IDS)
def test_the_oracle_policy_sums_up_what_it_knows(env_id: str) -> None:
    try:
        sizes = next(entry.world for entry in worlds() if entry.id == env_id).config_for_horizon(64)
    except ValueError as error:  # an office plan may take the same number of steps at every size
        pytest.skip(str(error))
    # Results that do not fit beside the newest result are trimmed before a summary, so the window
    # must hold several results.
    steps = rollout(OraclePolicy(env_id), make(env_id, window=10**6, **sizes), 0).steps
    room = max(2_000, 6 * max(step.info["context"]["appended"] for step in steps))
    env = tight(
        env_id,
        "compaction",
        room=room,
        context_options={"compaction": {"max_summary": 10**6}},
        **sizes,
    )
    summaries = 0
    for seed in few(env_id, 4):
        trajectory = rollout(OraclePolicy(env_id), env, seed)
        summaries += sum(step.info["context"]["phase"] == "summary" for step in trajectory.steps)
        ended = trajectory.steps[-1].info["detail"]["ended"]
        assert trajectory.reward == 1.0 or ended == "context_overflow"
    # An office task may end before the env shows six of its longest results.
    assert summaries or is_office(env_id)


def test_a_chain_of_all_strategies_survives_a_thousand_turns() -> None:
    env = make("GridWorld", size=8, budget_slack=100_000, context=ALL, window=4_000)
    _, info = env.reset(seed=0)
    seen = set()
    while info["turn"] < 1_000:
        turn = info["turn"]
        move = render(ToolCall("right" if turn % 2 else "left", {}))
        chat, _, terminated, truncated, info = env.step(
            f"<think>{turn}: to and fro, and no thought is the same.</think>{move}"
        )
        record = info["context"]
        seen |= {edit.strategy for edit in record.edits} | {record.phase}
        assert record.tokens <= 4_000
        assert not terminated
        assert not truncated
    check_form(list(chat.messages))
    assert seen >= {"ClearThinking", "Compaction", "act", "summary"}


def test_usage_is_what_the_chats_say() -> None:
    # The tokens of each message count once, with the length at which the policy first saw it.
    for context in ("none", "clear_results", "clear_thinking+compaction", "awareness"):
        env = tight("TreeWorld", context, oracles="S")
        trajectory = rollout(NoisyPolicy("TreeWorld", 0.2), env, 1)
        found = usage(trajectory)
        assert found is not None
        counter = next(layer for layer in layers(env) if isinstance(layer, Trim)).view.counter
        first: dict[str, int] = {}
        chats = [*(step.chat for step in trajectory.steps), trajectory.last]
        for chat in chats:
            for message in chat.messages:
                if not message.id.startswith("compaction"):
                    first.setdefault(message.id, counter.count(message))
        assert found.prompt_tokens == sum(
            counter.count(m) for chat in chats[:-1] for m in chat.messages
        )
        assert found.peak_tokens == max(
            sum(map(counter.count, chat.messages)) for chat in chats[:-1]
        )
        assert found.policy_tokens == sum(
            counter.length(step.reply.text) for step in trajectory.steps
        )
        assert found.edits > 0 or context in ("none", "awareness")
        if context != "none":  # without a strategy, some trimmed messages are never counted
            assert found.trajectory_tokens == sum(first.values())
        assert found.hidden_tool_tokens == 0
        assert (found.summary_tokens > 0) == ("compaction" in context)
        assert (
            json.loads(trajectory.to_json())["steps"][0]["info"]["context"]["counter"]
            == "cl100k_base"
        )
