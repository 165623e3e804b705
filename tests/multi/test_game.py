from __future__ import annotations

import copy
import hashlib
import json
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
from gymnasium.error import ResetNeeded

from agentgym import Chat, aec_env, make, teams
from agentgym.multi.game import Game
from agentgym.oracles import NoisyPolicy, TeamPolicy
from agentgym.training.rollout import rollout
from tests.helpers import public_state
from tests.multi.team_checks import call, cycle, newest

IDS = [entry.id for entry in teams()]

DIGEST = """
import sys
from agentgym import make
from agentgym.oracles import NoisyPolicy, TeamPolicy
from agentgym.training.rollout import rollout
for env_id in sys.argv[1:]:
    for seed in range(2):
        env = make(env_id, oracles="SP", labels=True)
        print(rollout(TeamPolicy(env_id, NoisyPolicy(env_id, 0.2)), env, seed).to_json())
"""


def lists(**options: Any) -> Game:
    env = make("ListWorld-team", **options).unwrapped
    env.reset(seed=0)
    return env.game


def state_of(game: Game) -> dict[str, Any]:
    team = {name: value for name, value in vars(game.team).items() if name != "worlds"}
    return {**public_state(game.team.worlds[game.agents[0]]), **copy.deepcopy(team)}


def test_agents_see_their_own_calls_and_what_they_are_told() -> None:
    game = lists()
    assert list(game.chats) == ["actor_0", "closer_0"]
    assert [tool.name for tool in game.chats["actor_0"].tools] == ["pop", "tell", "wait"]
    assert [tool.name for tool in game.chats["closer_0"].tools] == ["done", "tell", "wait"]
    assert game.chats["actor_0"].messages[1] == game.chats["closer_0"].messages[1], (
        "both have the task"
    )
    before = game.chats["closer_0"]
    cycle(game, call("pop", id=0), call("wait"))
    assert game.team.worlds["closer_0"] is game.team.worlds["actor_0"]
    new = game.chats["closer_0"].messages[len(before.messages) :]
    assert [message.role for message in new] == ["assistant", "tool"]
    assert game.due == ["actor_0"]
    cycle(game, call("tell", agent="closer_0", text="I popped 0."))
    assert newest(game, "closer_0") == "actor_0 tells you (11 characters):\nI popped 0."
    assert game.chats["closer_0"].messages[-1].role == "user"
    assert game.due == ["actor_0", "closer_0"]


def test_telling_and_waiting_take_no_turn_and_anything_else_does() -> None:
    game = lists()
    world = game.team.worlds["actor_0"]
    cycle(game, call("tell", agent="closer_0", text="hello"), call("wait"))
    assert world.turn == 0
    cycle(game, "prose", call("nonsense"))
    assert world.turn == 2
    cycle(game, call("tell", agent="nobody_9", text="hello"), call("pop", id=0))
    assert world.turn == 3, "the closer has no pop, and its call is a turn all the same"
    assert newest(game, "closer_0") == 'error: there is no tool "pop"; tools: done, tell, wait'


def tell(text: Any, agent: Any = "closer_0", **more: Any) -> str:
    return call("tell", agent=agent, text=text, **more)


NOBODY = "to send this to; agents: closer_0"
LONG = "the reply is longer than 1000000 characters"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (tell("x", "nobody_0"), f'there is no agent "nobody_0" {NOBODY}'),
        (tell("x", "actor_0"), f'there is no agent "actor_0" {NOBODY}'),
        (tell(" \n"), "the text is empty; write a message"),
        (
            tell("x" * 101),
            "closer_0 can receive 100 more characters in this cycle, got 101; shorten",
        ),
        (
            call("tell", agent="closer_0"),
            "argument 'text' is missing; arguments: agent, text, wait",
        ),
        (tell("x", 3), "tell: argument 'agent': input should be a valid string, got 3"),
        (tell("x", wait="yes"), "tell: argument 'wait': input should be a valid boolean"),
        (call("wait", agent="closer_0"), "wait: no argument is called 'agent'; arguments: none"),
        (call("delegate", task="x"), 'there is no tool "delegate"; tools: pop, tell, wait'),
        (tell("x" * 300_000), "may have at most 262144 characters, got"),
        (tell("x" * 10_000_000), LONG),
        ("x" * 10_000_000, LONG),
    ],
)
def test_what_is_refused_says_why_and_changes_nothing(reply: str, error: str) -> None:
    game = lists(max_message=100)
    before = state_of(game)
    game.play("actor_0", reply)
    assert newest(game, "actor_0").startswith("error: ")
    assert error in newest(game, "actor_0")
    assert state_of(game) == before
    assert game.infos["actor_0"]["valid"] is False


def test_the_limit_is_for_all_that_is_told_in_a_cycle() -> None:
    game = lists(max_message=100, roles={"a": ["pop"], "b": ["done"], "c": []})
    assert game.agents == ("a_0", "b_0", "c_0")
    game.play("a_0", call("tell", agent="c_0", text="x" * 90))
    game.play("b_0", call("tell", agent="c_0", text="y" * 90))
    assert "c_0 can receive 10 more characters in this cycle" in newest(game, "b_0")
    game.play("c_0", call("wait"))
    game.end_cycle()
    assert newest(game, "c_0") == f"a_0 tells you (90 characters):\n{'x' * 90}"
    game.play("b_0", "x")
    cycle(game, call("wait"), call("tell", agent="a_0", text="z" * 90))
    assert newest(game, "a_0") == f"c_0 tells you (90 characters):\n{'z' * 90}"


def test_mail_of_several_comes_in_one_message() -> None:
    game = lists(roles={"a": ["pop"], "b": ["done"], "c": []})
    cycle(game, tell("one", "c_0"), tell("two", "c_0"), call("wait"))
    mail = "a_0 tells you (3 characters):\none\n\nb_0 tells you (3 characters):\ntwo"
    assert newest(game, "c_0") == mail


def test_if_all_wait_all_are_woken() -> None:
    game = lists(max_cycles=3)
    cycle(game, call("wait"), call("wait"))
    assert game.due == ["actor_0", "closer_0"]
    assert newest(game, "closer_0").startswith("Everyone was waiting")
    cycle(game, call("wait"), call("wait"))
    cycle(game, call("wait"), call("wait"))
    assert game.over
    assert not game.terminated
    assert game.infos["actor_0"]["detail"].ended == "max_cycles"


def test_the_end_reaches_all_with_the_cycle_and_nobody_is_asked_before() -> None:
    game = lists(roles={"closer": ["done"], "actor": ["pop"]})
    game.play("closer_0", call("done"))
    assert not game.over
    assert game.due == []
    with pytest.raises(ValueError, match="'actor_0' must not act now; agents to act: none"):
        game.play("actor_0", call("pop", id=0))
    game.end_cycle()
    assert game.over
    assert game.terminated
    assert game.infos["actor_0"]["detail"].ended == "world"
    with pytest.raises(ResetNeeded, match="there is no running episode"):
        game.play("actor_0", call("pop", id=0))


def test_the_budget_is_shared_and_ends_the_episode_at_once() -> None:
    game = lists(items=4, removals=1, budget_factor=1.0, budget_slack=1)
    assert game.team.worlds["actor_0"].max_turns == 3
    cycle(game, "a", "b")
    game.play("actor_0", "c")
    assert game.due == []
    game.end_cycle()
    assert game.infos["closer_0"]["detail"].ended == "max_turns"
    assert not game.terminated
    assert game.team.worlds["actor_0"].turn == 3


def test_failed_rounds_in_a_row_of_one_agent_end_the_episode() -> None:
    env = make("DocumentWorld-team").unwrapped
    env.reset(seed=0)
    bad = call("read_document", file_id="nowhere")
    for _ in range(2):
        cycle(env.game, bad, call("tell", agent="reader_0", text="go on"))
    env.game.play("reader_0", bad)
    env.game.end_cycle()
    assert env.game.over
    assert env.game.terminated
    assert env.game.infos["writer_0"]["detail"].ended == "failed_rounds"


def test_the_reward_is_shared_or_by_role() -> None:
    for reward, earned in (
        ("shared", {"actor_0": 1.0, "closer_0": 1.0}),
        ({"actor": 0.25, "closer_0": -1}, {"actor_0": 0.25, "closer_0": -1.0}),
        ({"closer": 1.0}, {"actor_0": 0.0, "closer_0": 1.0}),
    ):
        env = make("ListWorld-team", reward=reward)
        assert rollout(TeamPolicy("ListWorld-team"), env, 0).reward == 1.0, "the score of the team"
        assert env.unwrapped.game.rewards == earned


def test_misuse_of_the_pettingzoo_env_is_an_error_and_changes_nothing() -> None:
    env = aec_env("ListWorld-team")
    with pytest.raises(ResetNeeded, match="all agents are done: call reset"):
        env.step("x")
    env.reset(seed=0)
    before = pickle.dumps(env.game)
    with pytest.raises(TypeError, match=r"an action must be the agent's reply \(str\), got int"):
        env.step(3)
    assert pickle.dumps(env.game) == before
    env.step(call("tell", agent="closer_0", text="x", wait=True))
    env.step(call("done"))
    assert env.agent_selection == "actor_0"
    assert env.terminations == {"actor_0": True, "closer_0": True}
    with pytest.raises(ValueError, match="when an agent is dead, the only valid action is None"):
        env.step(call("pop", id=0))
    env.step(None)
    env.step(None)
    assert env.agents == []
    with pytest.raises(ResetNeeded, match="all agents are done"):
        env.step(None)


def test_what_a_waiting_agent_writes_is_passed_over() -> None:
    for reply in (call("done"), "x" * 1_000_000, "", None):
        env = aec_env("ListWorld-team")
        env.reset(seed=0)
        env.step(call("pop", id=0))
        env.step(call("wait"))
        assert env.infos["closer_0"]["waiting"]
        env.step(call("pop", id=0))
        before = env.observe("closer_0")
        env.step(reply)
        assert env.observe("closer_0") is before
        assert not any(env.terminations.values())
    env.step(call("pop", id=0))
    with pytest.raises(TypeError, match=r"must be the agent's reply \(str\) or None, got bytes"):
        env.step(b"x")


def test_what_is_observed_before_a_reset_or_of_a_stranger_is_an_error() -> None:
    env = aec_env("ListWorld-team")
    with pytest.raises(ResetNeeded, match="this env has no episode yet: call reset"):
        env.observe("actor_0")
    env.reset(seed=0)
    with pytest.raises(ValueError, match="no agent 'x' in this team; agents: actor_0, closer_0"):
        env.observe("x")


def test_the_report_counts_what_the_team_did() -> None:
    game = lists(items=3, removals=0)
    cycle(game, tell("done?"), tell("me?"))
    cycle(game, call("wait"), call("done"))
    report = game.infos["actor_0"]["detail"].report["team"]
    assert (report["cycles"], report["messages"], report["faults"]) == (2, 1, 0)
    assert report["rewards"] == {"actor_0": 1.0, "closer_0": 1.0}


def test_a_context_that_does_not_fit_truncates_the_episode_of_all() -> None:
    env = make("DocumentWorld-team", agents={"writer_0": {"window": 700}})
    _chat, _ = env.reset(seed=0)
    over = False
    while not over:
        _, reward, terminated, truncated, info = env.step(tell("x " * 5_000, "writer_0"))
        over = terminated or truncated
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["detail"].ended == "context_overflow"


def test_render_shows_all_chats() -> None:
    for env in (
        make("ListWorld-team", render_mode="ansi"),
        aec_env("ListWorld-team", render_mode="ansi"),
    ):
        env.reset(seed=0)
        shown = env.render()
        assert shown.startswith("=== actor_0 ===\n[system]\n")
        assert "\n=== closer_0 ===\n[system]\n" in shown
        env.close()
    assert make("ListWorld-team").unwrapped.render() is None
    with pytest.raises(ValueError, match="render_mode must be one of ansi, got 'human'"):
        aec_env("ListWorld-team", render_mode="human")


@pytest.mark.family(env_id=IDS)
def test_hostile_replies_of_any_agent_raise_nothing(env_id: str) -> None:
    env = make(env_id, max_failed_rounds=None, budget_slack=500, max_cycles=300)
    hostile = ["", "\0", "\ud800", "<tool_call>", call("tell"), call("report"), "a" * 300_000]
    hostile += [call("delegate", task=3), tell("x", "\ud800"), call("report", text="")]
    hostile += ['{"role": "tool"}', "<state>\nYou won.\n</state>"]
    policy = TeamPolicy(env_id)
    chat, _ = env.reset(seed=1)
    game = env.unwrapped.game
    for number in range(3 * len(hostile)):
        before = state_of(game)
        agent = env.unwrapped.agent
        chat, reward, terminated, truncated, info = env.step(hostile[number % len(hostile)])
        after = state_of(game)
        assert (reward, terminated, truncated, info["valid"]) == (0.0, False, False, False)
        assert after == before
        assert game.chats[agent].messages[-1].text.startswith("error: ")
    over = False
    while not over:
        chat, reward, terminated, truncated, _ = env.step(policy([chat])[0].text)
        over = terminated or truncated
    assert reward == 1.0


@pytest.mark.rotation
def test_same_seed_same_bytes_in_another_process() -> None:
    ids = [*IDS[:2], "agentgym/GridWorld-team-v0", "agentgym/TreeWorld-manager-v0"]
    outputs = set()
    for hash_seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        shown = subprocess.run(
            [sys.executable, "-c", DIGEST, *ids], capture_output=True, check=True, env=environment
        )
        outputs.add(hashlib.sha256(shown.stdout).hexdigest())
    policies = {env_id: TeamPolicy(env_id, NoisyPolicy(env_id, 0.2)) for env_id in ids}
    played = [
        rollout(policies[i], make(i, oracles="SP", labels=True), seed).to_json()
        for i in ids
        for seed in range(2)
    ]
    outputs.add(hashlib.sha256("".join(line + "\n" for line in played).encode()).hexdigest())
    assert len(outputs) == 1
    assert all(json.loads(line)["seed"] in (0, 1) for line in played)


def test_observations_hold_no_hidden_state() -> None:
    for chat in lists(oracles="SP").chats.values():
        assert isinstance(chat, Chat)
        assert pickle.loads(pickle.dumps(chat)) == chat
        assert b"multi" not in pickle.dumps(chat)
