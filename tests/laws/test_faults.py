from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from agentgym import ToolCall, ToolEnv, make, render, teams, tool_env, worlds
from agentgym.envs.loca.tasks.filter_low_selling_products import FilterLowSellingProducts
from agentgym.multi.game import Game
from agentgym.office.office import Office
from agentgym.oracles import OraclePolicy, TeamPolicy
from agentgym.play.guard import FAULT
from agentgym.text.tools import ToolError
from agentgym.training.rollout import rollout
from tests.helpers import public_state
from tests.sampling import OFFICE

IDS = [entry.id for entry in worlds()]


def plant(env: ToolEnv, name: str, error: BaseException) -> Any:
    """Make a tool raise after doing its work; return a function that repairs the tool."""
    bound = env._tools[name]
    working = bound.method

    def breaks(**arguments: Any) -> None:
        working(**arguments)
        raise error

    bound.method = breaks
    return lambda: setattr(bound, "method", working)


def break_once(env: ToolEnv, reply: str, names: set[str]) -> None:
    turn, before = env.world.turn, pickle.dumps(public_state(env.world))
    repairs = [plant(env, name, MemoryError("xyzzy")) for name in names]
    chat, reward, terminated, truncated, info = env.step(reply)
    for repair in repairs:
        repair()
    assert pickle.dumps(public_state(env.world)) == before
    assert (reward, terminated, truncated, env.world.turn) == (0.0, False, False, turn + 1)
    assert {fault.tool for fault in info["detail"].faults} <= names
    assert info["detail"].faults
    assert info["detail"].invalid, "memory is the host's"
    assert "xyzzy" not in chat.to_text()


@pytest.mark.family(env_id=IDS)
def test_the_work_of_a_tool_that_breaks_is_undone(env_id: str) -> None:
    env = tool_env(make(env_id, budget_slack=1_000, max_failed_rounds=None))
    policy = OraclePolicy(env_id)
    chat, _ = env.reset(seed=2)
    for number in range(1_000):
        reply = policy([chat])[0].text
        if number % (40 if env_id in OFFICE else 3) == 0:
            twin = copy.deepcopy(env)
            called = {call.name for call in twin.step(reply)[0].messages[len(chat.messages)].calls}
            break_once(env, reply, called)
            chat = env.chat
            reply = policy([chat])[0].text
        chat, reward, terminated, truncated, _ = env.step(reply)
        if terminated or truncated:
            break
    assert reward == 1.0


@pytest.mark.family(env_id=[entry.id for entry in teams()])
def test_a_team_survives_a_tool_that_breaks(env_id: str) -> None:
    env: Any = make(env_id)
    env.reset(seed=1)
    game: Game = env.unwrapped.game
    policy = TeamPolicy(env_id)
    broken = 0
    while not game.over and broken < 5:
        agent = game.due[0]
        agent_env = game.agent_envs[agent]
        reply = policy([game.chats[agent]])[0].text
        world = game.team.worlds[agent]
        before = pickle.dumps(public_state(world)), team_state(game)
        names = list(agent_env._tools)
        repairs = [plant(agent_env, name, KeyError("xyzzy")) for name in names]
        game.play(agent, reply)
        for repair in repairs:
            repair()
        if game.infos[agent]["detail"].faults:
            broken += 1
            assert (pickle.dumps(public_state(game.team.worlds[agent])), team_state(game)) == before
        game.advance()
    assert broken
    assert not any(info["detail"].invalid for info in game.infos.values())


def team_state(game: Game) -> bytes:
    names = ("mail", "idle", "messages", "tasks", "restarting", "faults", "question", "answer")
    return repr([getattr(game.team, name) for name in names]).encode()


@pytest.mark.parametrize(
    "env_id", ["agentgym/ListWorld-v0", "agentgym/FilterLowSellingProducts-v0"]
)
def test_code_that_calls_tools_survives_one_that_breaks(env_id: str) -> None:
    env = make(env_id, context="programmatic")
    inner = tool_env(env)
    env.reset(seed=1)
    first = OraclePolicy(env_id)([inner.chat])[0]
    call = copy.deepcopy(inner).step(first.text)[0].messages[-2].calls[0]
    before = pickle.dumps(public_state(inner.world))
    repair = plant(inner, call.name, RuntimeError("xyzzy"))
    code = (
        f"try:\n    {call.name}(**{call.arguments!r})\nexcept ToolError as error:\n"
        "    print('caught', error)"
    )
    chat, *_, info = env.step(render(ToolCall("run_python", {"code": code})))
    repair()
    assert "caught" in chat.messages[-1].text
    assert "xyzzy" not in chat.messages[-1].text
    assert [fault.tool for fault in info["detail"].faults] == [call.name]
    assert pickle.dumps(public_state(inner.world)) == before
    # The program fails after its calls succeeded, so its calls are undone too.
    repair = plant(inner, "run_python", LookupError("xyzzy"))
    code = f"print({call.name}(**{call.arguments!r}))"
    chat, *_, info = env.step(render(ToolCall("run_python", {"code": code})))
    repair()
    assert chat.messages[-1].text == f"error: {FAULT}"
    assert pickle.dumps(public_state(inner.world)) == before
    assert not info["detail"].invalid


def test_a_server_by_itself_undoes_what_breaks() -> None:
    office = Office(["filesystem", "memory"])
    before = pickle.dumps(office)
    office.call("list_directory", {"path": "/workspace"})
    bound = office._tools["create_entities"]
    working = bound.method

    def breaks(**arguments: Any) -> None:
        working(**arguments)
        office.context.files.write("left.txt", "x")
        office.context.clock.tick()
        office.context.new_id("x")
        raise ZeroDivisionError

    bound.method = breaks
    with pytest.raises(ZeroDivisionError):
        office.call(
            "create_entities",
            {"entities": [{"name": "a", "entityType": "b", "observations": ["c"]}]},
        )
    assert pickle.dumps(office) == before


@pytest.mark.parametrize("target", ["memory", "agentgym/ListWorld-v0"])
def test_an_mcp_client_is_answered(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    episode: Any = pytest.importorskip("agentgym.training.integrations.mcp").open_episode(target, 0)
    name, arguments = ("pop", {"id": 0}) if "List" in target else ("read_graph", {})
    tools = episode._env._tools if "List" in target else episode._tools

    def breaks(**arguments: Any) -> None:
        raise IndexError("xyzzy")

    tools[name].method = breaks
    with pytest.raises(ToolError, match=FAULT):
        episode.call(name, arguments)
    assert "IndexError: xyzzy" in capsys.readouterr().err
    episode.close()


def test_labels_and_rollouts_survive_a_scorer_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(self: FilterLowSellingProducts) -> Iterator[str]:
        if self.turn:
            raise RecursionError("xyzzy")
        yield "nothing is done yet"

    env_id = "agentgym/FilterLowSellingProducts-v0"
    monkeypatch.setattr(FilterLowSellingProducts, "task_failures", breaks)
    played = rollout(OraclePolicy(env_id), make(env_id, labels=True), 0)
    assert played.failure.startswith("the scorer broke (")
    broken = [step for step in played.steps if step.info["detail"]["faults"]]
    assert len(broken) > 1  # one fault for each tool that changed the office, and one at the end
    assert {step.info["optimal"] for step in broken} == {None}
