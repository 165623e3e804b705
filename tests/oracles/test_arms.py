from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from typing import Any

import gymnasium
import pytest

from agentgym import Chat, make, render, spec, teams, tool_env, worlds
from agentgym.envs.lumina.tree_world import TreeWorld
from agentgym.oracles import (
    CommunicationOracle,
    ControlPolicy,
    HistoryOracle,
    PlanOracle,
    RandomPolicy,
    StateOracle,
    TeamPolicy,
)
from agentgym.oracles.choices import best_call, wrong_calls
from agentgym.oracles.hints import split_hints
from agentgym.oracles.policies import Deficits
from agentgym.text.tokens import counter
from agentgym.training.rollout import rollout
from tests.sampling import few

IDS = [entry.id for entry in worlds()]
TOKENS = counter("cl100k_base").length
# Maximum difference in tokens between a placebo and its hint. The tags differ, and line ends merge
# with neighbouring tokens.
MOST_MORE = 2
# Maximum difference in tokens between two announcements of hints.
MOST_MORE_ANNOUNCED = 8


def lockstep(env_id: str, arms: list[str], seed: int, **options: Any) -> Iterator[Any]:
    envs = [make(env_id, oracles=arm, hint_scope="ephemeral", **options) for arm in arms]
    chats = [env.reset(seed=seed)[0] for env in envs]
    inner = [tool_env(env) for env in envs]
    while not inner[0].over:
        yield [each.world for each in inner], chats
        reply = render(best_call(inner[0].world))
        chats = [env.step(reply)[0] for env in envs]
    assert all(each.over for each in inner)


def hints(chat: Chat) -> dict[str, str]:
    return split_hints(chat.messages[-1].text)[1]


@pytest.mark.family(env_id=IDS)
def test_a_placebo_is_as_long_as_its_hint_and_depends_on_nothing_else(env_id: str) -> None:
    texts: dict[int, list[str]] = {}
    for seed in few(env_id, 2):
        for shown, (right, placebo) in lockstep(env_id, ["SP", "S_P_"], seed):
            said, empty = hints(right), hints(placebo)
            assert list(empty) == ["note", "remark"]
            for tag, other in (("plan", "note"), ("state", "remark")):
                assert TOKENS(empty[other]) == TOKENS(said[tag])
                texts.setdefault(shown[0].turn, []).append(empty[other])
            whole = [TOKENS(chat.messages[-1].text) for chat in (right, placebo)]
            assert abs(whole[0] - whole[1]) <= MOST_MORE
            system = [TOKENS(chat.messages[0].text) for chat in (right, placebo)]
            assert abs(system[0] - system[1]) <= 2 * MOST_MORE_ANNOUNCED
    for same_turn in texts.values():  # the texts for one instance, state and hint
        longest = max(same_turn, key=len)
        assert all(longest.startswith(text) for text in same_turn)


@pytest.mark.family(env_id=IDS)
def test_a_wrong_plan_is_never_optimal_and_reads_like_a_right_one(env_id: str) -> None:
    for arms, seed in ((["P0", "P"], 1), (["SP0", "SP"], 2)):
        for shown, (wrong, right) in lockstep(env_id, arms, seed):
            world, hint = shown[0], hints(wrong)["plan"]
            call = world.read_subtask(hint)
            assert call not in world.optimal_calls()
            assert hint
            assert hint != hints(right)["plan"]
            if call is not None:
                assert call in world.legal_calls()
            else:  # every wrong call that a plan hint can express is illegal
                assert all(
                    world.read_subtask(world.subtask_for(each, False)) != each
                    for each in wrong_calls(world)
                )


@pytest.mark.family(env_id=IDS)
def test_a_wrong_state_is_that_of_another_instance(env_id: str) -> None:
    for shown, (wrong, right) in lockstep(env_id, ["S0", "S"], 1):
        state = hints(wrong)["state"]
        assert state
        assert state != hints(right)["state"]
        assert hints(right)["state"] == shown[0].brief_state()
    assert wrong.messages[0] == right.messages[0], "nothing tells that it is wrong"


def test_a_wrong_state_shows_nothing_that_is_hidden() -> None:
    env = make("TreeWorld", oracles="S0", nodes=20)
    chat, _ = env.reset(seed=4)
    world = tool_env(env).world
    assert isinstance(world, TreeWorld)
    hidden = set(re.findall(r"[a-z]{6,}", " ".join(world.children)))
    assert len(hidden) >= 10
    while not tool_env(env).over:
        shown = set(re.findall(r"id=([a-z]+)", hints(chat)["state"]))
        assert shown
        assert not shown & hidden
        chat, *_ = env.step(render(best_call(world)))


@pytest.mark.family(env_id=IDS)
def test_hints_that_are_right_at_times_are_right_or_wrong_ones(env_id: str) -> None:
    seen = set()
    for letter, tag in (("P", "plan"), ("S", "state")):
        arms = [letter, *(f"{letter}{dose}" for dose in (0, 0.3, 0.7))]
        for seed in few(env_id, 3):
            for _, (right, wrong, *drawn) in lockstep(env_id, arms, seed):
                texts = [hints(chat)[tag] for chat in (wrong, right)]
                places = [texts.index(hints(chat)[tag]) for chat in drawn]
                assert places == sorted(places), "right at 0.3 is right at 0.7"
                seen.update(places)
    assert seen <= {0, 1}


def test_doses_are_what_they_say() -> None:
    right = turns = 0
    for seed in range(40):
        for _, (sure, drawn) in lockstep("ListWorld", ["P", "P0.3"], seed, items=12, removals=5):
            turns += 1
            right += hints(sure) == hints(drawn)
    assert turns == 240
    assert 0.2 < right / turns < 0.4  # 0.3 ± more than three standard errors


@pytest.mark.family(env_id=IDS)
def test_a_hint_that_is_surely_right_is_the_oracle_itself(env_id: str) -> None:
    assert spec(env_id, oracles="P1S1.0") == spec(env_id, oracles="PS")
    assert spec(env_id, oracles="P0.50") == spec(env_id, oracles="P0.5")
    options: dict[str, Any] = {"oracle_options": {"P": {"accuracy": 1.0}, "S": {"accuracy": 1.0}}}
    plain, sure = (make(env_id, oracles="SP", **extra) for extra in ({}, options))
    policy = RandomPolicy(env_id, 3)
    assert rollout(policy, plain, 5).steps == rollout(policy, sure, 5).steps


@pytest.mark.family(arm=["P0.5S0.5", "S0H", "P_S_", "P0SH"], env_id=IDS)
def test_every_arm_is_played_alike_again_and_survives_a_copy(env_id: str, arm: str) -> None:
    env = make(env_id, oracles=arm)
    policy = ControlPolicy(env_id, Deficits(planning=0.2, tracking=0.2), seed=1)
    trajectory = rollout(policy, env, 9)
    assert rollout(policy, env, 9).steps == trajectory.steps, "what is left over changes nothing"
    chat, _ = env.reset(seed=9)
    for step in trajectory.steps[:2]:
        assert chat == step.chat
        env = pickle.loads(pickle.dumps(env))
        if tool_env(env).over:
            break
        chat, *_ = env.step(step.reply.text)


@pytest.mark.family(env_id=IDS)
def test_a_placebo_does_not_move_an_agent_that_needs_information(env_id: str) -> None:
    policy = ControlPolicy(env_id, Deficits(planning=0.3, tracking=0.2), seed=1)
    bare, placebo = (rollout(policy, make(env_id, oracles=arm), 3) for arm in ("", "P_S_"))
    assert [step.reply.text for step in bare.steps] == [step.reply.text for step in placebo.steps]


def test_what_makes_no_sense_is_refused() -> None:
    bare = gymnasium.make("agentgym/ListWorld-v0")
    with pytest.raises(ValueError, match=r"accuracy must be a number in \[0.0, 1.0\], got 2.0"):
        PlanOracle(bare, accuracy=2.0)
    with pytest.raises(ValueError, match="a placebo is neither right nor wrong"):
        StateOracle(bare, accuracy=0.5, placebo=True)
    with pytest.raises(ValueError, match="needs a StateOracle inside"):
        HistoryOracle(StateOracle(gymnasium.make("agentgym/ListWorld-v0"), placebo=True))
    for arm, message in {
        "S_H": "H needs S",
        "PH": "H needs S",
        "SS": "at most once",
        "S P": "may contain each of P",
        "SH_": r"H \(history\) has no placebo",
        "SH0": r"H \(history\) has no wrong hints",
        "P2": "P0.5 gives correct hints",
        "P.5": "P0.5 gives correct hints",
        "C": "communication is for teams",
    }.items():
        with pytest.raises(ValueError, match=message):
            make("ListWorld", oracles=arm)
    with pytest.raises(ValueError, match=r"C \(communication\) has no wrong hints"):
        make("ListWorld-team", oracles="C0.5")
    with pytest.raises(ValueError, match="agents that share a world"):
        CommunicationOracle(gymnasium.make("agentgym/ListWorld-v0"))
    with pytest.raises(ValueError, match="agents that share a world"):
        make("PuzzleWorld-duel", oracles="C")


def test_a_single_instance_has_no_wrong_state() -> None:
    env = make("SearchWorld", oracles="S0", tasks=30, task=3)
    with pytest.raises(ValueError, match="wrong state hints need another instance of SearchWorld"):
        env.reset(seed=0)


TEAMS = [entry.id for entry in teams() if entry.id.endswith("-team-v0")]


@pytest.mark.family(env_id=TEAMS)
def test_the_log_of_a_team_is_what_the_others_did(env_id: str) -> None:
    env, policy = make(env_id, oracles="C"), TeamPolicy(env_id)
    chat, _ = env.reset(seed=2)
    inner: Any = env.unwrapped
    cycle, before, entries, over = -1, 0, 0, False
    while not over:
        if inner.game.cycle != cycle:  # events become visible at the end of their cycle
            cycle, before = inner.game.cycle, len(inner.game.team.actions)
        others = [each for each in inner.game.team.actions[:before] if each.agent != inner.agent]
        logs = (split_hints(message.text)[1].get("team", "") for message in chat.messages)
        shown = "\n".join(filter(None, logs))
        assert shown == "\n".join(describe(each) for each in others), "each once, and all"
        entries += len(others)
        (reply,) = policy([chat])
        chat, reward, terminated, truncated, _ = env.step(reply.text)
        over = terminated or truncated
    assert reward == 1.0
    acting = [agent for agent, tools in inner.game.protocol.agents.items() if tools]
    assert entries or len(acting) == 1


def describe(action: Any) -> str:
    arguments = json.dumps(dict(action.call.arguments), ensure_ascii=False)
    return (
        f"{action.agent} called {action.call.name} with {arguments} and was shown:\n{action.result}"
    )


def test_the_log_of_a_team_is_recorded_as_it_was_asked_for() -> None:
    env: Any = make("ListWorld-team", oracles="C_", hint_scope="ephemeral")
    env.reset(seed=1)
    oracle = env.unwrapped.game.stacks["closer_0"]
    assert isinstance(oracle, CommunicationOracle)
    assert oracle._saved_kwargs == {"placebo": True}
    (recorded,) = gymnasium.make(spec("ListWorld", oracles="P0.5")).spec.additional_wrappers  # type: ignore[union-attr]
    assert recorded.kwargs == {"hint_scope": "persistent", "with_state": False, "accuracy": 0.5}
