from __future__ import annotations

import asyncio
import json
import pickle
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym import Message
from agentgym.training.evaluation.provenance import provenance
from agentgym.training.rollout import (
    EndpointConfig,
    EndpointError,
    ModelOptions,
    PolicyConfig,
    collect,
    replay,
    rollout,
)
from agentgym.training.rollout.endpoints.answers import MAX_REPLIES, KeptReplies
from agentgym.training.rollout.trajectory import Trajectory
from tests.helpers import PATIENCE
from tests.training.rollout.endpoint_kinds import (
    ASK,
    KINDS,
    LONG,
    Kind,
    environment,  # noqa: F401 - a fixture
    kinds,
    playing,
)
from tests.training.rollout.endpoint_server import Answer, serving

HARD = {"items": 4, "removals": 2, "max_failed_rounds": 1}


# Recorded and sent options.

VALUES: dict[str, Any] = {"temperature": 0.25, "top_p": 0.5, "max_tokens": 77, "seed": 5}


@kinds
@pytest.mark.parametrize("name", [*VALUES, "nothing"])
def test_the_record_says_what_the_wire_received(kind: Kind, name: str) -> None:
    with serving(kind.said("hi"), kind.path) as server:
        policy = PolicyConfig(
            f"{kind.factory}:model=m:base_url={kind.url(server)}"
            + (f":{name}={str(VALUES[name]).lower()}" if name in VALUES else "")
        )
        if name in VALUES and name not in kind.names:
            with pytest.raises(ValueError, match=name):
                policy.make("ListWorld")
            return
        player = policy.make("ListWorld")
        player([ASK])
    (sent,) = server.requests
    record = provenance(policy, ["ListWorld"], player)
    for option, place in kind.names.items():
        assert sent.get(place) == record[option], option
    assert name == "nothing" or record[name] == VALUES[name]


@kinds
def test_model_options_reach_the_wire_or_are_refused(kind: Kind) -> None:
    given: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": 64}
    refused: dict[str, Any] = {
        "device": "cpu",
        "dtype": "float32",
        "batch_size": 3,
        "template": {"x": 1},
        "native_tools": True,
    }
    assert {option.name for option in fields(ModelOptions)} == given.keys() | refused.keys()
    with serving(kind.said("hi"), kind.path) as server:
        name = f"{kind.factory}:model=m:base_url={kind.url(server)}"
        PolicyConfig(name, model=ModelOptions(**given)).make("ListWorld")([ASK])
    assert server.requests[0]["temperature"] == 0.0
    assert server.requests[0][kind.names["max_tokens"]] == 64
    for option, value in refused.items():
        with pytest.raises(ValueError, match=f"has no option '{option}'"):
            PolicyConfig(name, model=ModelOptions(**{option: value})).make("ListWorld")
    with pytest.raises(ValueError, match="temperature is set twice"):
        PolicyConfig(f"{name}:temperature=1", model=ModelOptions(temperature=0.5)).make("ListWorld")


@kinds
def test_the_environment_names_the_model_and_the_server(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = "ANTHROPIC" if kind.path == "/v1/messages" else "OPENAI"
    config = PolicyConfig(kind.factory)
    with pytest.raises(ValueError, match=f"set {prefix}_MODEL"):
        config.make("ListWorld")
    with serving(kind.said("hi"), kind.path) as server:
        monkeypatch.setenv(f"{prefix}_BASE_URL", kind.url(server))
        monkeypatch.setenv(f"{prefix}_MODEL", "tiny")
        config.make("ListWorld")([ASK])
    assert server.requests[0]["model"] == "tiny"
    assert server.keys == ["Bearer sk-test"]


@pytest.mark.parametrize("option", ["temperature", "max_tokens", "model", "stream"])
def test_an_option_is_not_set_behind_its_back(option: str) -> None:
    with pytest.raises(ValueError, match=f"extra_body must not set '{option}'"):
        EndpointConfig("m", extra_body={option: 1})


WRITTEN = ("<tool_call>", "```python", "code block", "as JSON", "act by calling")


@pytest.mark.family(env_id=[entry.id for entry in agentgym.worlds()], kind=list(KINDS))
def test_a_prompt_has_native_tools_or_written_calls(env_id: str, kind: str) -> None:
    api = KINDS[kind]
    for dialect in ("auto", "json", "python"):
        for tools in ("native", "text"):
            env = agentgym.make(env_id, dialect=dialect)
            chat, _ = env.reset(seed=0)
            env.close()
            request = api.policy("http://127.0.0.1:1/v1", tools=tools).request(chat)
            said = "\n".join(api.prompt_texts(request))
            assert bool(request.get("tools")) == (tools == "native")
            assert any(phrase in said for phrase in WRITTEN) == (tools == "text")
            assert chat.messages[-1].text.strip()[:200] in said


# Play.


@kinds
@pytest.mark.parametrize(
    ("dialect", "tools", "context"),
    [
        ("auto", "native", "none"),
        ("json", "text", "none"),
        ("python", "text", "clear_results+clear_thinking+compaction"),
        ("python", "native", "clear_results+clear_thinking+compaction"),
    ],
)
def test_a_world_is_solved(kind: Kind, dialect: Any, tools: str, context: str) -> None:
    options: dict[str, Any] = {**HARD, "dialect": dialect, "context": context, "window": 3_000}
    solved = rollout(
        PolicyConfig("oracle").make("ListWorld"), agentgym.make("ListWorld", **options), 5
    )
    plan = [one for message in solved.last.messages for one in message.calls]

    def script(request: dict[str, Any], number: int) -> Answer:
        call = plan[number - 1]
        if tools == "text":
            return kind.said(agentgym.render(call, dialect))
        return kind.said("next", (call.name, dict(call.arguments)))

    with playing(kind, script, tools=tools) as (policy, server):
        trajectory = rollout(policy, agentgym.make("ListWorld", **options), 5)
    assert trajectory.reward == 1.0
    assert replay(trajectory) == trajectory
    assert len(server.requests) == len(plan)
    assert policy.usage.prompt_tokens == 10 * len(plan)


@kinds
@pytest.mark.parametrize("refusal", LONG)
def test_a_chat_over_the_window_ends_its_episode(kind: Kind, refusal: Any) -> None:
    def script(request: dict[str, Any], number: int) -> Answer:
        return kind.said("", ("pop", {"id": 99})) if number == 1 else kind.refused(*refusal)

    with playing(kind, script) as (policy, _):
        trajectory = rollout(policy, agentgym.make("ListWorld"), 0)
    read = Trajectory.from_json(trajectory.to_json())
    last = read.steps[-1]
    assert (read.failure, read.truncated, read.reward) == ("", True, 0.0)
    assert (last.info["detail"]["ended"], last.info["success"]) == ("over_window", False)
    assert len(read.steps) == 2
    assert replay(read) == read == trajectory


@pytest.mark.parametrize("engine", ["lockstep", "threads", "asyncio", "processes"])
def test_every_engine_keeps_episodes_over_the_window(engine: str) -> None:
    kind = KINDS["chat"]
    with playing(kind, kind.refused(*LONG[0])) as (policy, _):
        played = list(collect(policy, "ListWorld", range(3), 2, engine=engine))
        ends = [t.steps[-1].info["detail"]["ended"] for t in played if not t.failure]
        assert ends == ["over_window"] * 3


@kinds
def test_threads_and_tasks_share_the_limit_of_requests(kind: Kind) -> None:
    together = threading.Barrier(8)  # waits for eight concurrent requests

    def script(request: dict[str, Any], number: int) -> Answer:
        together.wait(PATIENCE)
        return kind.said("hi")

    with playing(kind, script, timeout=600.0, concurrency=8) as (policy, server):

        async def tasks() -> None:
            await asyncio.gather(*(policy.areply(ASK) for _ in range(14)))

        with ThreadPoolExecutor(12) as pool:
            threads = [pool.submit(policy, [ASK]) for _ in range(10)]
            threads += [pool.submit(policy, [ASK] * 16), pool.submit(asyncio.run, tasks())]
            for thread in threads:
                thread.result()
    assert server.most == 8
    assert server.connections <= 9
    assert policy.usage.replies == policy.usage.requests == 40


# Failures.


@kinds
@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_temporary_failures_are_retried(kind: Kind, status: int) -> None:
    script = lambda request, number: (  # noqa: E731
        kind.refused(status, "not now") if number <= 2 else kind.said("at last")
    )
    with playing(kind, script, retries=2) as (policy, server):
        assert policy([ASK])[0].text == "at last"
    used = policy.usage
    assert (used.replies, used.requests, used.retries, len(server.requests)) == (1, 3, 2, 3)


FAILURES: dict[str, tuple[Any, str]] = {
    "server": ((500, "boom"), r"2 requests.* answered 500: .*boom.*; check the server.s log"),
    "limit": ((429, "slow down"), r"answered 429: .*slow down.*; lower concurrency"),
    "key": ((401, "no key"), r"1 request.* answered 401: .*_API_KEY to the key"),
    "model": ((404, "no model"), r"answered 404: .*check model and base_url"),
    "filter": ((400, "content_filter"), r"answered 400: .*content_filter.*; correct the options"),
    "hang": (Answer(hang=True), r"took over 0.5 s; raise timeout"),
    "drip": (Answer(body="{}" + " " * 1_000, drips=True), r"took over 0.5 s; raise timeout"),
    "html": (Answer(body="<html>"), "returned no "),
    "empty": (Answer(body=""), "returned no "),
    "no content": (Answer(body="", status=204), "returned no "),
    "list": (Answer(body="[]"), "returned no "),
    "object": (Answer(body="{}"), "returned no "),
    "null": (Answer(body="null"), "returned no "),
    "error": (Answer(body='{"error": {"message": "upstream is down"}}'), "returned no "),
    "deep": (Answer(body="[" * 100_000), "returned no "),
    "digits": (Answer(body="9" * 5_000), "returned no "),
    "bytes": (Answer(body=b"\xff\xfe"), "returned no "),
    "no choices": (Answer(body='{"choices": [], "output": 5, "content": 5}'), "returned no "),
    "cut short": (
        Answer(body="{}", headers={"Content-Length": "99", "Connection": "close"}),
        "cannot be reached",
    ),
    "redirect": (Answer(status=302, headers={"Location": "/elsewhere"}), "."),
}


@kinds
@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_one_error_that_names_the_remedy(kind: Kind, name: str) -> None:
    failure, message = FAILURES[name]
    answer = kind.refused(*failure) if isinstance(failure, tuple) else failure
    slow = failure if isinstance(failure, Answer) and (failure.hang or failure.drips) else None
    options = {"timeout": 0.5, "retries": 0} if slow else {"retries": 1}
    with (
        playing(kind, answer, **options) as (policy, server),
        pytest.raises(EndpointError, match=message) as caught,
    ):
        policy([ASK])
    said = str(caught.value)
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (str(copied), copied.status) == (said, caught.value.status)
    assert policy.usage.requests == policy.usage.retries + 1
    # On a busy host, a request may time out before the server reads it.
    assert slow or policy.usage.requests == len(server.requests)
    assert server.url.removesuffix("/v1") in said
    assert len(said) < 1_500
    assert "sk-test" not in said
    assert caught.value.status == (failure[0] if isinstance(failure, tuple) else None) or name in (
        "redirect",
    )


@kinds
def test_a_refused_connection_names_the_address(kind: Kind) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with (
            closing(kind.policy(url, retries=0)) as policy,
            pytest.raises(EndpointError, match=f"{url}.*cannot be reached: .*start the server"),
        ):
            policy([ASK])


@kinds
def test_a_truncated_reply_is_counted(kind: Kind) -> None:
    with playing(kind, kind.said("a", usage=(7, 3), cut=True)) as (policy, _):
        assert policy([ASK])[0].text == "a"
    used = policy.usage
    assert (used.cut, used.unmetered, used.prompt_tokens, used.completion_tokens) == (1, 0, 7, 3)


@kinds
@pytest.mark.parametrize("engine", ["lockstep", "processes"])
def test_each_step_records_its_usage(kind: Kind, engine: str) -> None:
    with playing(kind, kind.said("nothing", usage=(7, 3))) as (policy, _):
        for trajectory in collect(policy, "ListWorld", range(2), 2, engine=engine):
            used = [step.info["usage"] for step in trajectory.steps]
            assert {(each["prompt_tokens"], each["completion_tokens"]) for each in used} == {(7, 3)}
            assert all(each["seconds"] > 0 for each in used)
            again = replay(Trajectory.from_json(trajectory.to_json()))
            assert again.to_json() == trajectory.to_json()


@kinds
@pytest.mark.parametrize("usage", [None, "12 tokens", [1], {}, -1, True, 2.5, float("nan"), 1e15])
def test_unreadable_token_counts_are_unmetered(kind: Kind, usage: Any) -> None:
    body = kind.body("a", (), (1, 1), False)
    wrong = usage if not isinstance(usage, (int, float)) else dict.fromkeys(body["usage"], usage)
    with playing(kind, Answer(body=json.dumps({**body, "usage": wrong}))) as (policy, _):
        assert policy([ASK])[0].text == "a"
    assert (policy.usage.unmetered, policy.usage.prompt_tokens) == (1, 0)


# Reasoning.

REASONING: dict[str, Any] = {
    "responses": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VjcmV0"},
        {"type": "function_call", "id": "fc_1", "call_id": "srv_1", "name": "pop", "arguments": "{}"},
        {
            "type": "reasoning",
            "id": "rs_2",
            "summary": [{"type": "summary_text", "text": "Now this."}],
            "encrypted_content": "bW9yZQ==",
        },
        {"type": "function_call", "id": "fc_2", "call_id": "srv_2", "name": "pop", "arguments": "{}"},
    ],
    "messages": [
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
        {"type": "tool_use", "id": "srv_1", "name": "pop", "input": {}},
        {"type": "redacted_thinking", "data": "ZW5j"},
        {"type": "tool_use", "id": "srv_2", "name": "pop", "input": {}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in REASONING if name in KINDS])
def test_reasoning_is_sent_back_across_tool_calls(name: str, tmp_path: Path) -> None:
    kind, items = KINDS[name], REASONING[name]
    field = "output" if name == "responses" else "content"
    answer = kind.said(**{field: items})
    with serving(answer, kind.path) as server:
        for _ in range(2):  # the second reply comes from the cache
            with closing(kind.policy(kind.url(server), cache=str(tmp_path))) as policy:
                message = agentgym.parse(policy([ASK])[0].text, turn=1)
                results = [Message("tool", "ok", call_id=call.id) for call in message.calls]
                policy([ASK.add(message, *results)])
                assert len(message.calls) == 2
                ids = [call.id for call in message.calls]
        assert len(server.requests) == 2
        cleared = ASK.add(Message("assistant", message.text, calls=message.calls), *results)
        with closing(kind.policy(kind.url(server))) as policy:
            policy([cleared])
    sent = server.requests[1]
    history = sent["input"][1:] if name == "responses" else sent["messages"][1]["content"]
    place = "call_id" if name == "responses" else "id"
    expected = [dict(item) for item in items]
    expected[1][place], expected[3][place] = ids
    assert history[:4] == expected
    if name == "responses":
        assert sent["include"] == ["reasoning.encrypted_content"]
        assert sent["store"] is False
        assert [item["call_id"] for item in history[4:]] == ids
    types = {item.get("type") for item in _flat(server.requests[2])}
    assert not types & {"reasoning", "thinking", "redacted_thinking"}


def test_the_memory_of_reasoning_is_bounded() -> None:
    kept = KeptReplies("tool_use", "id")
    for k in range(MAX_REPLIES + 5):
        kept.keep(str(k), [{"type": "thinking", "thinking": str(k), "signature": "s"}])
    found = [kept.find(Message("assistant", "", raw=raw)) for raw in ("4", "5", "")]
    assert [bool(items) for items in found] == [False, True, False]


def _flat(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (dict, list)):
            yield from _flat(item)
