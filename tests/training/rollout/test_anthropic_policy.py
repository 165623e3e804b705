from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

import agentgym
from agentgym import Chat, Image, Message, ToolCall, parse
from agentgym.training.rollout import collect
from tests.training.rollout import endpoint_kinds
from tests.training.rollout.endpoint_kinds import KINDS, environment  # noqa: F401 - a fixture
from tests.training.rollout.endpoint_server import Answer

pytest.importorskip("anthropic")
from agentgym.training.rollout import AnthropicConfig

ASK = Chat((Message("system", "Be brief."), Message("user", "hi", id="0:1")))
THOUGHT = {"type": "thinking", "thinking": "Let me see.", "signature": "c2lnbmVk"}


KIND = KINDS["messages"]
playing = partial(endpoint_kinds.playing, KIND)


def said(*content: Any, **fields: Any) -> Answer:
    blocks = [{"type": "text", "text": x} if isinstance(x, str) else x for x in content]
    message = KIND.body("", (), (0, 0), False)
    return Answer(body=json.dumps({**message, "usage": None, "content": blocks, **fields}))


def use(name: str, arguments: Any, call_id: str = "toolu_1") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def text(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": each} for each in texts]


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
    assert server.keys == ["Bearer secret"]
    assert request["system"] == "Be brief."
    assert request["cache_control"] == {"type": "ephemeral"}
    assert [tool["name"] for tool in request["tools"]] == [tool.name for tool in tools]
    assert request["tools"][0]["input_schema"] == dict(tools[0].parameters)
    picture = {"type": "base64", "media_type": "image/png", "data": "cG5n"}
    seen = [*text("done"), {"type": "image", "source": picture}]
    results: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": "call_1_0", "content": seen},
        {
            "type": "tool_result",
            "tool_use_id": "call_1_1",
            "content": text("error: no"),
            "is_error": True,
        },
    ]
    used = [use("pop", {"id": 1}, "call_1_0"), use("pop", {"id": 2}, "call_1_1")]
    assert request["messages"] == [
        {"role": "user", "content": text("hi")},
        {"role": "assistant", "content": [*text("both"), *used]},
        {"role": "user", "content": [*results, *text("go on")]},
        {"role": "assistant", "content": text("(empty)")},
        {"role": "user", "content": text("of a call that is gone")},
    ]
    assert (request["max_tokens"], request["temperature"]) == (16_000, 0.5)
    assert request["metadata"] == {"user_id": "u"}
    assert not {"thinking", "top_p"} & request.keys()


def test_what_the_api_refuses_is_not_sent() -> None:
    """The API rejects empty texts, lone surrogates, and some characters in names."""
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


def test_a_reply_without_a_readable_call_is_shown_as_it_was_written() -> None:
    text = "<tool_call>{'no json'}</tool_call>"
    with playing(said(THOUGHT, text)) as (policy, server):
        message = parse(policy([ASK])[0].text)
        assert not message.calls
        policy([ASK.add(message, Message("user", "error: what?"))])
    content = server.requests[1]["messages"][1]["content"]
    assert content == [THOUGHT, {"type": "text", "text": text}]


def test_thinking_needs_room() -> None:
    assert AnthropicConfig("m", thinking_budget=1_024).max_tokens == 17_024
    with pytest.raises(ValueError, match="thinking_budget must be below max_tokens"):
        AnthropicConfig("m", max_tokens=9, thinking_budget=9)


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
        first = policy.usage
        policy([ASK])
    assert (first.prompt_tokens, first.cached_tokens, first.completion_tokens) == (112, 100, 3)
    assert (first.cut, first.unmetered, policy.usage.cut, policy.usage.unmetered) == (1, 0, 1, 1)
    assert policy.usage.replies == 2


BAD: tuple[Any, ...] = (
    {"type": "server_tool_use", "name": "web_search"},
    {"type": "text", "text": 5},
    {"type": "thinking", "thinking": 5},
    {"type": "thinking"},
    {"type": "tool_use"},
    {},
    7,
)


@pytest.mark.parametrize("block", BAD)
def test_a_malformed_block_is_a_failure_of_its_episode(block: Any) -> None:
    with playing(said(block)) as (policy, _):
        (trajectory,) = collect(policy, agentgym.spec("ListWorld"), [0])
    assert "returned no message" in trajectory.failure
