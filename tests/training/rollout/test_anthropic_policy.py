"""The policy for the Anthropic Messages API, against a scripted server."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

import agentgym
from agentgym import Chat, Image, Message, ToolCall, parse
from agentgym.training.rollout import (
    AnthropicConfig,
    AnthropicPolicy,
    ContextLengthError,
    EndpointError,
    Episode,
    PolicyConfig,
    collect,
)
from tests.helpers import PATIENCE
from tests.training.rollout.endpoint_server import Answer, Script, ScriptedServer, serving

ASK = Chat((Message("system", "Be brief."), Message("user", "hi", id="0:1")))
THOUGHT = {"type": "thinking", "thinking": "Let me see.", "signature": "c2lnbmVk"}
HIDDEN = {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"}


def said(*content: Any, **fields: Any) -> Answer:
    blocks = [{"type": "text", "text": x} if isinstance(x, str) else x for x in content]
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": blocks}
    return Answer(body=json.dumps(message | {"stop_reason": "end_turn"} | fields))


def use(name: str, arguments: Any, call_id: str = "toolu_1") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def refused(status: int, kind: str, message: str, **headers: str) -> Answer:
    body = {"type": "error", "error": {"type": kind, "message": message}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status=status, body=json.dumps(body), headers=named)


@contextmanager
def playing(
    script: Script | Answer, **options: Any
) -> Iterator[tuple[AnthropicPolicy, ScriptedServer]]:
    options = {"timeout": 20.0} | options
    with serving(script, "/v1/messages") as server:
        config = AnthropicConfig("m", server.url.removesuffix("/v1"), **options)
        with closing(AnthropicPolicy(config)) as policy:
            yield policy, server


def test_a_request_has_system_tools_turns_and_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    tools = agentgym.make("ListWorld").unwrapped.tools  # type: ignore[attr-defined]
    calls = (ToolCall("pop", {"id": 1}, "call_1_0"), ToolCall("pop", {"id": 2}, "call_1_1"))
    chat = Chat(
        (
            *ASK.messages,
            Message("assistant", "both", calls=calls, id="1:0"),
            Message("tool", "done", call_id="call_1_0", images=(Image(b"png", "a dot"),)),
            Message("tool", "error: no", call_id="call_1_1"),
            Message("user", "go on"),
            Message("assistant", "", raw="", id="2:0"),
            Message("tool", "of a call that is gone", call_id="call_9_9"),
        ),
        tools,
    )
    with playing(said("x"), temperature=0.5, extra_body={"metadata": {"user_id": "u"}}) as (
        policy,
        server,
    ):
        assert policy([chat])[0].text == "x"
    (request,) = server.requests
    assert server.keys == ["secret"]
    kept = {"type": "ephemeral"}
    assert request["system"] == [{"type": "text", "text": "Be brief.", "cache_control": kept}]
    assert [tool["name"] for tool in request["tools"]] == [tool.name for tool in tools]
    assert request["tools"][0]["input_schema"] == dict(tools[0].parameters)
    picture = {"type": "base64", "media_type": "image/png", "data": "cG5n"}
    assert request["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "both"},
                use("pop", {"id": 1}, "call_1_0"),
                use("pop", {"id": 2}, "call_1_1"),
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "call_1_0",
                    "content": [
                        {"type": "text", "text": "done"},
                        {"type": "image", "source": picture},
                    ],
                },
                {
                    "type": "tool_result",
                    "tool_use_id": "call_1_1",
                    "content": [{"type": "text", "text": "error: no"}],
                    "is_error": True,
                },
                {"type": "text", "text": "go on"},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "(empty)"}]},
        {
            "role": "user",
            "content": [{"type": "text", "text": "of a call that is gone", "cache_control": kept}],
        },
    ]
    assert (request["max_tokens"], request["temperature"]) == (16_000, 0.5)
    assert request["metadata"] == {"user_id": "u"}
    assert not {"thinking", "top_p"} & request.keys()


def test_what_the_api_refuses_is_not_sent() -> None:
    """The API accepts no empty text, no lone surrogate, and only some characters in names."""
    calls = (ToolCall("fly to", {"x": "\ud800"}, "call_1_0"),)
    chat = ASK.add(
        Message("assistant", " \n", calls=calls),
        Message("tool", "", call_id="call_1_0"),
        Message("assistant", "done  \n"),
        Message("user", " "),
    )
    with playing(said("x")) as (policy, server):
        policy([chat])
    first, result, second, last = (
        message["content"] for message in server.requests[0]["messages"][1:]
    )
    assert first == [use("fly_to", {"x": "?"}, "call_1_0")]
    assert result == [{"type": "tool_result", "tool_use_id": "call_1_0"}]
    assert second == [{"type": "text", "text": "done"}]
    assert [block["text"] for block in last] == ["(empty)"]


def test_thinking_goes_back_with_its_signature_until_a_strategy_clears_it() -> None:
    answer = said(THOUGHT, HIDDEN, "Both.", use("f", {"x": 1}), use("f", {"x": 2}, "toolu_2"))
    with playing(answer, thinking_budget=2_000) as (policy, server):
        (reply,) = policy([ASK])
        message = replace(parse(reply.text), id="1:0")
        assert (message.thinking, message.text) == ("Let me see.", "Both.")
        assert [call.arguments for call in message.calls] == [{"x": 1}, {"x": 2}]
        results = [Message("tool", "ok", call_id=call.id) for call in message.calls]
        policy([ASK.add(message, *results)])
        policy([ASK.add(replace(message, thinking="", raw=""), *results)])
        other = pickle.loads(pickle.dumps(policy))
        with closing(other):
            other([ASK.add(message, *results)])
    assert server.requests[0]["thinking"] == {"type": "enabled", "budget_tokens": 2_000}
    shown, cleared, forgotten = (
        request["messages"][1]["content"] for request in server.requests[1:]
    )
    assert shown[:2] == [THOUGHT, HIDDEN]
    assert [block["type"] for block in shown[2:]] == ["text", "tool_use", "tool_use"]
    assert cleared == forgotten == shown[2:]


def test_thinking_that_the_api_does_not_show_is_found_again() -> None:
    omitted = {"type": "thinking", "thinking": "", "signature": "c2ln"}
    with playing(said(omitted, "a")) as (policy, server):
        (reply,) = policy([ASK])
        policy([ASK.add(parse(reply.text), Message("user", "more"))])
    assert server.requests[1]["messages"][1]["content"][0] == omitted
    assert parse(reply.text).text == "a"


def test_the_memory_of_thinking_is_bounded() -> None:
    signed = SignedThinking()
    for k in range(MAX_SIGNED + 5):
        signed.remember([{"type": "thinking", "thinking": str(k), "signature": "s"}])
    assert not signed.find("4")
    assert signed.find("5")
    assert not signed.find("")


def test_a_reply_without_a_readable_call_is_shown_as_it_was_written() -> None:
    text = "<tool_call>{'no json'}</tool_call>"
    with playing(said(THOUGHT, text)) as (policy, server):
        message = parse(policy([ASK])[0].text)
        assert not message.calls
        policy([ASK.add(message, Message("user", "error: what?"))])
    content = server.requests[1]["messages"][1]["content"]
    assert content == [THOUGHT, {"type": "text", "text": text}]


@pytest.mark.parametrize("tools", ["native", "text"])
@pytest.mark.parametrize("context", ["none", "clear_results+clear_thinking+compaction"])
def test_a_world_is_solved_through_the_api(tools: str, context: str) -> None:
    env = agentgym.make("ListWorld", items=6, removals=3, context=context, window=3_000)
    episode = Episode(env, 0)
    plan: list[ToolCall] = []
    world = env.unwrapped.world  # type: ignore[attr-defined]

    def script(request: dict[str, Any], number: int) -> Answer:
        call = world.optimal_calls()[0]
        plan.append(call)
        if tools == "text":
            return said(agentgym.render(call))
        return said(THOUGHT, use(call.name, dict(call.arguments)), stop_reason="tool_use")

    with playing(script, tools=tools) as (policy, server):
        while not episode.over:
            episode.play(policy([episode.chat])[0])
    assert episode.trajectory().steps[-1].info["success"]
    assert ("tools" in server.requests[0]) == (tools == "native")
    assert len(server.requests) == len(plan)


def test_usage_counts_cached_and_cut_replies() -> None:
    counts = {
        "input_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 7,
        "output_tokens": 3,
    }
    cut = said("a", use("f", {}), usage=counts, stop_reason="max_tokens")
    with playing(lambda request, number: cut if number == 1 else said("b")) as (policy, _):
        assert policy([ASK])[0].text == "a"  # the truncated call is omitted
        assert policy.last is not None
        first = policy.last
        policy([ASK])
    assert (first.prompt_tokens, first.cached_tokens, first.completion_tokens) == (112, 100, 3)
    assert (first.cut, first.unmetered, policy.usage.cut, policy.usage.unmetered) == (1, 0, 1, 1)
    assert policy.usage.replies == 2


@pytest.mark.parametrize(("status", "kind"), [(429, "rate_limit_error"), (529, "overloaded_error")])
def test_what_may_pass_is_asked_for_again(status: int, kind: str) -> None:
    def script(request: dict[str, Any], number: int) -> Answer:
        return refused(status, kind, "not now", retry_after="0.05") if number < 3 else said("x")

    with playing(script) as (policy, server):
        assert policy([ASK])[0].text == "x"
    assert len(server.requests) == 3
    assert (policy.usage.requests, policy.usage.retries) == (3, 2)


def test_a_wait_that_is_too_long_is_not_waited_for() -> None:
    with (
        playing(refused(429, "rate_limit_error", "tomorrow", retry_after="86400")) as (
            policy,
            server,
        ),
        pytest.raises(EndpointError, match=r"answered 429: tomorrow; lower concurrency"),
    ):
        policy([ASK])
    assert len(server.requests) == 1


def test_a_prompt_that_is_too_long_is_an_error_of_its_own() -> None:
    long = refused(
        400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"
    )
    with playing(long) as (policy, _), pytest.raises(ContextLengthError, match="context strategy"):
        policy([ASK])
    with (
        playing(refused(401, "authentication_error", "invalid x-api-key")) as (policy, _),
        pytest.raises(EndpointError, match="variable ANTHROPIC_API_KEY"),
    ):
        policy([ASK])


BAD = (
    Answer(body="<html>"),
    Answer(body="[" * 100_000),
    Answer(body='{"type": "error", "error": {"type": "overloaded_error"}}'),
    Answer(body='{"type": "message", "content": "text"}'),
    said({"type": "server_tool_use", "name": "web_search"}),
    said({"type": "text", "text": 5}),
    said({"type": "thinking", "thinking": 5}),
    said(7),
    Answer(body=b"\xff\xfe"),
)


@pytest.mark.parametrize("answer", BAD)
def test_a_malformed_answer_is_a_failure_of_its_episode(answer: Answer) -> None:
    with playing(answer, retries=1) as (policy, server):
        (trajectory,) = collect(policy, agentgym.spec("ListWorld"), [0])
    assert "returned no message" in trajectory.failure
    assert len(server.requests) == 2


@pytest.mark.parametrize("name", [None, 5, "", "no such tool", "pop"])
@pytest.mark.parametrize("arguments", [None, [], "{", {"id": "x"}, 7])
def test_a_call_without_sense_goes_to_the_env(name: Any, arguments: Any) -> None:
    episode = Episode(agentgym.make("ListWorld"), 0)
    with playing(said(use(name, arguments))) as (policy, _):
        episode.play(policy([episode.chat])[0])
    assert episode.chat.messages[-1].text.startswith("error:")


@pytest.mark.rotation
def test_the_command_line_plays_through_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    config = PolicyConfig("agentgym.training.rollout.anthropic_policy:from_environment")
    monkeypatch.delenv("ANTHROPIC_MODEL", raising=False)
    with pytest.raises(ValueError, match="set ANTHROPIC_MODEL"):
        config.make("ListWorld")
    with serving(said("what?"), "/v1/messages") as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url.removesuffix("/v1"))
        monkeypatch.setenv("ANTHROPIC_MODEL", "tiny")
        monkeypatch.setenv("ANTHROPIC_THINKING_BUDGET", "many")
        with pytest.raises(ValueError, match="a number of tokens, got 'many'"):
            config.make("ListWorld")
        monkeypatch.setenv("ANTHROPIC_THINKING_BUDGET", "1024")
        line = ["rollout", "ListWorld", "--policy", config.name, "--set", "max_failed_rounds=2"]
        line = [sys.executable, "-m", "agentgym", *line]
        done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert "solved 0 of 1" in done.stdout, done.stderr
    assert [request["max_tokens"] for request in server.requests] == [17_024, 17_024]
    with pytest.raises(ValueError, match="thinking_budget 9 leaves no room"):
        AnthropicConfig("m", max_tokens=9, thinking_budget=9)
