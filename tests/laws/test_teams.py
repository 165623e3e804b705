from __future__ import annotations

import copy
import json
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import agentgym
from agentgym import ARMS, aec_env, make, parallel_env, teams

with warnings.catch_warnings():  # warnings raised by PettingZoo's own imports
    warnings.simplefilter("ignore")
    from pettingzoo.test import (
        api_test,
        max_cycles_test,
        parallel_api_test,
        parallel_seed_test,
        seed_test,
    )
    from pettingzoo.utils.conversions import (
        aec_to_parallel,
        parallel_to_aec,
        parallel_to_aec_wrapper,
        turn_based_aec_to_parallel,
    )

from agentgym.oracles import TeamPolicy
from agentgym.oracles.hints import split_hints
from agentgym.oracles.optimality import TASK_FOLLOWS

IDS = [entry.id for entry in teams()]
UNAVOIDABLE = (  # observations are chats, and actions are strings
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be",
    "Action space for each agent probably should be",
)


@contextmanager
def only_unavoidable_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        for start in UNAVOIDABLE:
            warnings.filterwarnings("ignore", start)
        yield


def play(env: Any, policy: Any, seed: int) -> Any:
    chat, _ = env.reset(seed=seed)
    over = False
    while not over:
        result = env.step(policy([chat])[0].text)
        chat, over = result[0], result[2] or result[3]
    return result


def test_every_world_has_a_split_team_and_a_managed_one() -> None:
    for entry in agentgym.worlds():
        name = entry.id.removesuffix("-v0")
        assert {f"{name}-team-v0", f"{name}-manager-v0"} <= set(IDS)


@pytest.mark.family(env_id=IDS)
def test_pettingzoo_finds_nothing_to_say(env_id: str) -> None:
    with only_unavoidable_warnings():
        api_test(aec_env(env_id), num_cycles=12)
        parallel_api_test(parallel_env(env_id), num_cycles=12)
        seed_test(lambda: aec_env(env_id), num_cycles=12)
        parallel_seed_test(lambda: parallel_env(env_id), num_cycles=12)


@pytest.mark.family(env_id=IDS)
def test_the_conversions_pass_too(env_id: str) -> None:
    aec, parallel = aec_env(env_id), parallel_env(env_id)
    assert aec_to_parallel(aec).unwrapped is aec
    assert parallel_to_aec(parallel) is parallel.aec_env
    with only_unavoidable_warnings():
        parallel_api_test(aec_to_parallel(aec), num_cycles=6)
        parallel_api_test(turn_based_aec_to_parallel(aec_env(env_id)), num_cycles=6)
        api_test(parallel_to_aec_wrapper(parallel), num_cycles=6)


@pytest.mark.family(env_id=IDS)
def test_the_limit_of_cycles_is_kept(env_id: str) -> None:
    def forms(seed: int) -> Any:
        # PettingZoo's test does not seed tasks or random calls, and some calls end a task early.
        def seeded(env: Any) -> Any:
            env.reset = partial(env.reset, seed=0)
            for agent in env.possible_agents:
                env.action_space(agent).seed(seed)
            return env

        def parallel(max_cycles: int) -> Any:
            return seeded(parallel_env(env_id, max_cycles=max_cycles, **lenient))

        def aec(max_cycles: int) -> Any:
            return seeded(aec_env(env_id, max_cycles=max_cycles, **lenient))

        lenient = {"max_failed_rounds": None, "budget_slack": 99}
        return SimpleNamespace(parallel_env=parallel, env=aec)

    def lasts(seed: int) -> bool:
        env = forms(seed).parallel_env(9)
        env.reset(seed=0)
        for _ in range(4):
            if env.agents:
                env.step({agent: env.action_space(agent).sample() for agent in env.agents})
        return bool(env.agents)

    seed = next(seed for seed in range(500) if lasts(seed))
    max_cycles_test(forms(seed))


@pytest.mark.family(env_id=IDS, arm=ARMS)
def test_a_scripted_team_solves_it_from_the_chats_alone(env_id: str, arm: str) -> None:
    env, policy = make(env_id, oracles=arm), TeamPolicy(env_id)
    for seed in range(3):
        _, reward, terminated, _, info = play(env, policy, seed)
        assert (reward, terminated, info["success"]) == (1.0, True, True)
        assert info["detail"].ended == "world"
        share = 0.5 if "-duel-" in env_id else 1.0  # equally good rivals win in the same cycle
        shares = dict.fromkeys(env.unwrapped.game.agents, share)
        assert info["detail"].report["team"]["rewards"] == shares


PRESETS = {
    entry.id: entry
    for entry in agentgym.worlds(presets=True)
    if entry.options and not entry.id.endswith("long-v0")
}
FAST = [
    env_id
    if env_id.endswith(("-easy-v0", "-hard-v0"))
    else pytest.param(env_id, marks=pytest.mark.exhaustive)
    for env_id in PRESETS
    if not env_id.endswith("extreme-v0")
]


@pytest.mark.family(preset=FAST, kind=["team", "manager"])
def test_a_scripted_team_solves_presets(preset: str, kind: str) -> None:
    entry = PRESETS[preset]
    team = f"{entry.world.__name__}-{kind}"
    env = make(team, **entry.options, max_message=131_072)
    env.reset(seed=1)
    if env.unwrapped.game.team.worlds[env.unwrapped.game.agents[0]].max_turns > 800:
        pytest.skip("every reply is written from the whole chat, which takes too long here")
    assert play(env, TeamPolicy(team), 1)[1] == 1.0


@pytest.mark.family(env_id=IDS, scope=["persistent", "ephemeral"])
def test_hints_are_all_that_a_seat_shows_besides_its_chat(env_id: str, scope: str) -> None:
    # A chat remains complete regardless of how often it has been read since the last reply.
    env, policy = make(env_id, oracles="SP", hint_scope=scope), TeamPolicy(env_id)
    chat, _ = env.reset(seed=2)
    game, over, began, states = env.unwrapped.game, False, -1, {}
    while not over:
        if game.cycle != began:
            began = game.cycle
            states = {name: world.state() for name, world in game.team.worlds.items()}
        agent = env.unwrapped.agent
        agent_env = game.agent_envs[agent]
        assert [m.id for m in chat.messages] == [m.id for m in agent_env.chat.messages]
        shown, plain = (
            [split_hints(m.text)[0] for m in each.messages[2:]] for each in (chat, agent_env.chat)
        )
        assert shown == plain
        assert chat.messages[-1].text.endswith(f"<state>\n{states[agent]}\n</state>")
        hinted = sum("\n\n<state>\n" in m.text for m in chat.messages[2:-1])
        assert hinted == 0 or scope == "persistent"
        result = env.step(policy([chat])[0].text)
        chat, over = result[0], result[2] or result[3]
    assert result[1] == 1.0


@pytest.mark.family(env_id=IDS, dialect=["json", "python"])
def test_every_dialect_is_played(env_id: str, dialect: Any) -> None:
    assert play(make(env_id, dialect=dialect), TeamPolicy(env_id, dialect=dialect), 5)[1] == 1.0


@pytest.mark.family(env_id=IDS)
def test_doing_nothing_scores_0(env_id: str) -> None:
    for reply in ("I would rather not.", ""):
        _, reward, terminated, truncated, info = play(
            make(env_id), lambda chats, say=reply: [agentgym.Reply(say)], 0
        )
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert info["detail"].ended in ("max_turns", "max_cycles")


@pytest.mark.family(env_id=IDS)
def test_all_forms_play_the_same_episode(env_id: str) -> None:
    policy = TeamPolicy(env_id)
    single, aec, parallel = (form(env_id, labels=True) for form in (make, aec_env, parallel_env))
    *_, last = play(single, policy, 3)
    game = single.unwrapped.game
    aec.reset(seed=3)
    earned: dict[str, float] = {}
    for agent in aec.agent_iter():
        chat, reward, terminated, truncated, info = aec.last()
        earned[agent] = earned.get(agent, 0.0) + reward
        over = terminated or truncated
        aec.step(None if over else "" if info["waiting"] else policy([chat])[0].text)
    chats, infos = parallel.reset(seed=3)
    while parallel.agents:
        actions = {
            a: "" if infos[a]["waiting"] else policy([chats[a]])[0].text for a in parallel.agents
        }
        chats, rewards, terminations, _, infos = parallel.step(actions)
    assert aec.game.chats == parallel.unwrapped.game.chats == game.chats == chats
    assert earned == rewards == game.rewards
    assert set(terminations.values()) == {True}
    assert {k: v for k, v in infos[last["agent"]].items() if k != "waiting"} == last


@pytest.mark.family(env_id=IDS, arm=["", "SP"])
def test_copies_in_mid_episode_go_on_alike(env_id: str, arm: str) -> None:
    policy, env = TeamPolicy(env_id), make(env_id, oracles=arm, context="memory", labels=True)
    chat, _ = env.reset(seed=4)
    for _ in range(2):
        chat, *_ = env.step(policy([chat])[0].text)
    copies = [env, copy.deepcopy(env), agentgym.clone(env), pickle.loads(pickle.dumps(env))]
    ends = []
    for each in copies:
        steps, shown, over = [], chat, False
        while not over and len(steps) < 12:
            steps.append(each.step(policy([shown])[0].text))
            shown, over = steps[-1][0], steps[-1][2] or steps[-1][3]
        ends.append([*steps, each.reset()])
    assert ends[0] == ends[1] == ends[2] == ends[3]


@pytest.mark.family(env_id=IDS)
def test_a_central_critic_sees_what_is_hidden_from_the_chats(env_id: str) -> None:
    env, parallel = aec_env(env_id), parallel_env(env_id)
    for each in (env, parallel):
        each.reset(seed=1)
    state = env.state()
    assert parallel.state() == state
    assert state in env.state_space
    assert parallel.state_space == env.state_space
    hidden = json.loads(state.messages[0].text)
    world = env.game.team.worlds[env.agents[0]]
    (names, shown), *others = hidden["worlds"].items()
    assert names.split(", ")[0] == env.agents[0]
    assert len(others) == len({id(each) for each in env.game.team.worlds.values()}) - 1
    assert shown["turn"] == world.turn == 0
    assert shown["instance_seed"] == world.instance_seed
    assert hidden["due"] == env.game.due
    again = aec_env(env_id)
    again.reset(seed=2)
    assert again.state() != state


@pytest.mark.family(env_id=IDS)
def test_solved_examples_are_an_agents_own_chat_of_another_instance(env_id: str) -> None:
    env, plain = make(env_id, shots=1, oracles="S"), make(env_id, oracles="S")
    for each in (env, plain):
        each.reset(seed=1)
    policy = TeamPolicy(env_id)
    for agent, chat in env.unwrapped.game.chats.items():
        bare = plain.unwrapped.game.chats[agent]
        shown = [m for m in chat.messages if m.id.startswith("examples:0:")]
        assert chat.messages == (bare.messages[0], *shown, *bare.messages[1:])
        assert shown[0].role == "user"
        assert shown[-1].text.endswith(TASK_FOLLOWS)
        assert any(m.role == "assistant" for m in shown)
        tools = {tool.name for tool in bare.tools}
        assert all(call.name in tools for m in shown for call in m.calls)
        assert not any(m.text.startswith("error:") for m in shown)
    assert play(env, policy, 1)[1] == 1.0


@pytest.mark.family(env_id=IDS)
def test_a_zoo_env_pickles_in_mid_cycle(env_id: str) -> None:
    policy, env = TeamPolicy(env_id), aec_env(env_id)
    env.reset(seed=1)
    env.step(policy([env.last()[0]])[0].text)
    again = pickle.loads(pickle.dumps(env))
    for each in (env, again):
        for _ in each.agent_iter():
            chat, _, terminated, truncated, info = each.last()
            action = "" if info["waiting"] else policy([chat])[0].text
            each.step(None if terminated or truncated else action)
    assert env.game.chats == again.game.chats
    assert env.game.score == again.game.score == 1.0
