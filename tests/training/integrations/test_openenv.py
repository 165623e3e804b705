from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from agentgym import Chat, Image, Message, make, parse
from agentgym.assemble.registry import worlds
from agentgym.cli import app
from agentgym.oracles import NoisyPolicy, OraclePolicy
from tests.training.integrations.openenv_server import serving

pytest.importorskip(
    "openenv", reason="openenv needs an older mcp, so an environment of its own: make adapters"
)

import requests
from openenv import GenericEnvClient
from openenv.cli._validation import validate_running_environment

from agentgym.training.integrations.openenv import (
    TASKS,
    RemoteEnv,
    Stack,
    WorldAction,
    WorldEnvironment,
    _SentChat,
    create_app,
)

IDS = [entry.id for entry in worlds()]
SMALL: dict[str, Any] = {"items": 5, "removals": 2}
# A scripted policy cannot see pixels.
OPTIONS = {"agentgym/MultimodalWorld-v0": {"render": "scene"}}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(create_app([Stack("ListWorld", {**SMALL, "oracles": "SP"})])) as url:
        yield url


def play(env: Any, policy: Any, seed: int) -> tuple[float, list[Any]]:
    chat, _ = env.reset(seed=seed)
    chats, total = [chat], 0.0
    while True:
        (reply,) = policy([chat])
        chat, reward, terminated, truncated, _ = env.step(reply.text)
        chats.append(chat)
        total += reward
        if terminated or truncated:
            return total, chats


@pytest.mark.family(world=IDS)
def test_the_oracle_policy_solves_every_world(world: str) -> None:
    with serving(create_app([Stack(world, OPTIONS.get(world, {}))])) as url:
        env = RemoteEnv(url)
        assert play(env, OraclePolicy(world), seed=3)[0] == 1.0
        env.close()


@pytest.mark.parametrize(
    "options",
    [
        {"oracles": "SPH"},
        {"oracles": "P", "hint_scope": "ephemeral"},
        {"context": "clear_results:trigger=3uses:keep=1"},
        {"context": "compaction:trigger=2turns:keep_last_turns=1"},
        {"context": "memory", "window": 4_000},
        {"split": "test", "shots": 1},
    ],
    ids=str,
)
def test_a_stack_looks_the_same_on_a_server(options: dict[str, Any]) -> None:
    world = "TreeWorld"
    with serving(create_app([Stack(world, options)])) as url:
        env = RemoteEnv(url)
        policy = NoisyPolicy(world, p=0.3)
        assert play(env, policy, 5) == play(make(world, **options), policy, 5)
        env.close()


def test_chat_completions_dicts_add_up_to_the_chat(address: str) -> None:
    env = make("ListWorld", oracles="SP", **SMALL)
    policy = OraclePolicy("ListWorld")
    chat, _ = env.reset(seed=4)
    with GenericEnvClient(base_url=address).sync() as client:
        result = client.reset(seed=4)
        seen: list[Any] = []
        while True:
            observation = result.observation
            seen[observation["keep"] :] = observation["messages"]
            assert seen == chat.to_openai()
            if result.done:
                break
            (reply,) = policy([chat])
            chat, *_ = env.step(reply.text)
            result = client.step({"text": reply.text})
    assert result.reward == 1.0


def test_an_observation_does_not_grow_with_the_history() -> None:
    with serving(create_app([Stack("ListWorld", {"items": 60, "removals": 40})])) as url:
        with GenericEnvClient(base_url=url).sync() as client:
            client.reset(seed=0)
            sizes = []
            for _ in range(8):
                result = client.step({"text": "I am thinking."})
                sizes.append(len(json.dumps(result.observation)))
        assert max(sizes) < 2 * min(sizes)


def test_the_server_passes_openenvs_validation(address: str) -> None:
    report = validate_running_environment(address)
    assert report["passed"], report


def test_sessions_are_isolated(address: str) -> None:
    outcomes: dict[int, Any] = {}
    ready = threading.Barrier(64)

    def run(seed: int) -> None:
        env = RemoteEnv(address)
        env.reset(seed=seed)
        ready.wait(timeout=60)
        outcomes[seed] = play(env, NoisyPolicy("ListWorld", p=0.3), seed)
        env.close()

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = make("ListWorld", oracles="SP", **SMALL)
    policy = NoisyPolicy("ListWorld", p=0.3)
    for seed in range(64):
        assert outcomes[seed] == play(alone, policy, seed)


def test_a_session_too_many_is_refused() -> None:
    with serving(create_app([Stack("ListWorld", SMALL)], max_sessions=1)) as url:
        first = RemoteEnv(url)
        first.reset(seed=0)
        with pytest.raises(RuntimeError, match="CAPACITY_REACHED"):
            RemoteEnv(url).reset(seed=0)
        first.close()


def test_tasks_are_the_instances_of_a_split(address: str) -> None:
    name = requests.get(f"{address}/list_environments", timeout=5).json()[0]
    splits = requests.get(f"{address}/{name}/splits", timeout=5).json()
    assert [each["name"] for each in splits] == ["all", "train", "test"]
    body = {"split": "test", "index": 12}
    count = requests.post(f"{address}/{name}/num_tasks", json={"split": "test"}, timeout=5)
    assert count.json() == {"num_tasks": TASKS}
    task = requests.post(f"{address}/{name}/task", json=body, timeout=5).json()["task"]
    assert task == {"id": "agentgym/ListWorld-v0/test/12", **body}
    bad = requests.post(f"{address}/{name}/task", json={**body, "index": TASKS}, timeout=5)
    assert bad.status_code == 400
    env = RemoteEnv(address)
    chat, _ = env.reset(options={"split": task["split"], "index": task["index"]})
    expected, _ = make("ListWorld", split="test", oracles="SP", **SMALL).reset(seed=12)
    assert chat == expected
    env.close()


@pytest.mark.family(world=IDS)
def test_only_the_chat_distinguishes_instances(world: str) -> None:
    options = {**OPTIONS.get(world, {}), "oracles": "SP"}
    shown: list[list[Any]] = []
    for seed in (1, 2):
        served = WorldEnvironment(Stack(world, options))
        local = make(world, **options)
        chat, _ = local.reset(seed=seed)
        observation = served.reset(seed=seed, index=None)
        fields = [served.get_metadata().model_dump(), served.get_task("all", 0)]
        for _ in range(3):
            text = OraclePolicy(world)([chat])[0].text
            chat, _, terminated, truncated, _ = local.step(text)
            if terminated or truncated:
                break
            observation = served.step(WorldAction(text=text))
            rest = observation.model_dump(exclude={"keep", "messages", "tools"})
            fields += [served.state.model_dump(), rest]
        served.close()
        shown.append(fields)
    steps = min(map(len, shown))
    assert shown[0][:steps] == shown[1][:steps]
    assert set(observation.metadata) <= {"turn", "valid", "success", "truncated", "invalid"}


@pytest.mark.parametrize("as_records", [True, False])
def test_images_are_sent_without_their_descriptions(as_records: bool) -> None:
    image = Image(b"png", "the answer")
    sent = _SentChat(as_records).observe(Chat((Message("user", "Look.", images=(image,)),)))
    assert "Look." in sent.model_dump_json()
    assert "answer" not in sent.model_dump_json()


def test_mistakes_get_an_error_and_change_nothing(address: str) -> None:
    env = RemoteEnv(address)
    with pytest.raises(RuntimeError, match="call reset before step"):
        env.step("not reset")
    with pytest.raises(RuntimeError, match="split must be one of"):
        env.reset(seed=1, options={"split": "validation"})
    chat, _ = env.reset(seed=1)
    for action in ({"text": 3}, {"text": "x", "stop": "perhaps"}):
        with pytest.raises(RuntimeError, match="Invalid message"):
            env._client.step(action)
    total, chats = play(env, OraclePolicy("ListWorld"), 1)
    assert (total, chats[0]) == (1.0, chat)
    env.close()


@pytest.mark.parametrize("reply", ["\ud800", "\ud800<tool_call>", "\x00", "\U0010ffff"], ids=ascii)
def test_no_reply_ends_a_session(reply: str, address: str) -> None:
    env, local = RemoteEnv(address), make("ListWorld", oracles="SP", **SMALL)
    local.reset(seed=1)
    env.reset(seed=1)
    shown, expected = env.step(reply)[0], local.step(reply)[0]
    assert [message.text for message in shown.messages] == [m.text for m in expected.messages]
    env.close()


def test_a_bare_json_call_is_a_reply(address: str) -> None:
    with GenericEnvClient(base_url=address).sync() as client:
        client.reset(seed=1)
        result = client.step({"name": "remove", "arguments": {"index": 0}})
        assert result.metadata["turn"] == 1


def test_a_policy_that_stops_keeps_its_score(address: str) -> None:
    env = RemoteEnv(address)
    env.reset(seed=1)
    _, reward, terminated, truncated, info = env.truncate("stopped")
    assert (reward, terminated, truncated, info["success"]) == (0.0, False, True, False)
    env.close()


def test_a_token_is_required_of_requests_and_sessions() -> None:
    token = "a-token-of-some-length"
    with serving(create_app([Stack("ListWorld", SMALL)], token=token)) as url:
        assert requests.get(f"{url}/metadata", timeout=5).status_code == 401
        with pytest.raises(ConnectionError):
            RemoteEnv(url).reset(seed=0)
        env = RemoteEnv(url, token)
        assert play(env, OraclePolicy("ListWorld"), 0)[0] == 1.0
        env.close()


def test_several_stacks_share_a_server() -> None:
    with serving(create_app([Stack("ListWorld", SMALL), Stack("TreeWorld")])) as url:
        for number, world in enumerate(("ListWorld", "TreeWorld")):
            env = RemoteEnv(f"{url}/{number}")
            assert play(env, OraclePolicy(world), 0)[0] == 1.0
            env.close()


def test_a_team_is_refused() -> None:
    with pytest.raises(
        ValueError, match="is a team, and this bridge plays one agent; name its seat"
    ):
        Stack("ListWorld-team")
    with pytest.raises(ValueError, match="there are no stacks to serve"):
        create_app([])


def test_trl_calls_the_tools_of_a_served_stack(address: str) -> None:
    bridge = pytest.importorskip("agentgym.training.integrations.trl")
    environment = bridge.remote_environment(address)()
    assert "Initial list:" in environment.reset(seed=1)
    while not environment._over:
        (reply,) = OraclePolicy("ListWorld")([environment._chat])
        (call,) = parse(reply.text, "auto").calls
        shown = getattr(environment, call.name)(**call.arguments)
        assert shown == environment._chat.messages[-1].text
    assert environment.get_reward() == 1.0
    environment.reset(seed=2)
    assert environment.get_reward() == 0.0, "an episode that is left keeps its score"
    environment._env.close()


@pytest.mark.parametrize(
    "words",
    [
        ["ListWorld", "--stdio"],
        ["ListWorld", "--http", "127.0.0.1:1", "--seed", "3"],
        ["ListWorld-team", "--http", "127.0.0.1:1"],
        ["ListWorld", "--http", "0.0.0.0:1"],
    ],
)
def test_options_that_do_not_apply_are_refused(words: list[str]) -> None:
    result = CliRunner().invoke(app, ["serve", "--openenv", *words])
    assert result.exit_code == 2
    assert result.output.startswith("error: ")
