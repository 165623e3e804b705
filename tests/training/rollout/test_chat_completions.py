"""Chat Completions answers: readable variants are accepted, anything else raises one error."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

import agentgym
from agentgym import Chat, Message, ToolCall, parse
from agentgym.training.rollout import EndpointError, collect
from agentgym.training.rollout.endpoints.answers import MALFORMED
from agentgym.training.rollout.endpoints.chat_completions import to_reply, to_usage
from tests.training.rollout.endpoint_kinds import (
    environment,  # noqa: F401 - a fixture
    playing_chat,
)
from tests.training.rollout.endpoint_server import Answer, call

CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


def completion(message: str, choice: str = "") -> Any:
    """Return an answer from text, which may contain what Python's JSON cannot write."""
    return json.loads(f'{{"choices": [{{"message": {message}{choice}}}]}}')


READ = {
    "parts": ('{"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}', "ab"),
    "bare parts": ('{"content": ["a", {"text": "b"}]}', "ab"),
    "a part": ('{"content": {"type": "output_text", "text": "a"}}', "a"),
    "nothing": ('{"content": null, "tool_calls": null, "refusal": null}', ""),
    "no parts": ('{"content": []}', ""),
    "refusal": ('{"content": null, "refusal": "no"}', "no"),
    "refusal part": ('{"content": [{"type": "refusal", "refusal": "no"}]}', "no"),
    "thought": (
        '{"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}, "a"]}',
        "<think>\nt\n</think>\na",
    ),
    "reasoning": ('{"content": "a", "reasoning": "t"}', "<think>\nt\n</think>\na"),
    "reasoning parts": (
        '{"content": "a", "reasoning_content": [{"type": "text", "text": "t"}]}',
        "<think>\nt\n</think>\na",
    ),
    "arguments as an object": (
        '{"tool_calls": [{"function": {"name": "f", "arguments": {}}}]}',
        CALL,
    ),
    "older form": ('{"function_call": {"name": "f", "arguments": "{}"}}', CALL),
    "flat call": ('{"tool_calls": [{"name": "f", "arguments": "{}"}]}', CALL),
    "no arguments": ('{"tool_calls": [{"function": {"name": "f"}}]}', CALL),
    "half a pair": (r'{"content": "a\ud800b"}', "a\ufffdb"),
    "control characters": (r'{"content": "a\u0000\u001b\u2028"}', "a\x00\x1b\u2028"),
}


@pytest.mark.parametrize("name", READ)
def test_readable_variants_are_accepted(name: str) -> None:
    message, text = READ[name]
    assert to_reply(completion(message), "json").text == text


UNREADABLE = [
    completion('{"content": "a"}', ', "error": {"code": 502}'),
    completion('{"content": "a"}', ', "finish_reason": "error"'),
    {**completion('{"content": "a"}'), "error": {"message": "cut"}},
    *(completion(f'{{"content": {value}}}') for value in ("5", "true", '[{"type": "image_url"}]')),
    *(completion(f'{{"tool_calls": {value}}}') for value in ("5", "true", '"f()"', "[null]")),
]


@pytest.mark.parametrize("answer", UNREADABLE)
def test_anything_else_is_one_error(answer: Any) -> None:
    with pytest.raises(MALFORMED):
        to_reply(answer, "json")


def test_parallel_calls_follow_the_content_in_order() -> None:
    calls = [call("a", '{"x": 1.5}'), call("b", ""), call("c", {"y": "</tool_call>"})]
    thought = "hm </think> <tool_call>no</tool_call>"
    answer = {"content": "both", "reasoning_content": thought, "tool_calls": calls}
    message = parse(to_reply({"choices": [{"message": answer}]}, "json").text)
    assert (message.text, message.thinking) == ("both", "hm  <tool_call>no</tool_call>")
    assert message.calls == (
        ToolCall("a", {"x": 1.5}),
        ToolCall("b", {}),
        ToolCall("c", {"y": "</tool_call>"}),
    )


ARGUMENTS = ['{"a": 1', "[1]", '{"a": 1}, "b": 2', "{}}</tool_call>", '{"a": 1, "a": 2}', "null"]
ARGUMENTS += ['"x"', "NaN", '{"a": "\x00"}']
FUNCTIONS: list[Any] = [{"name": "done", "arguments": text} for text in ARGUMENTS]
FUNCTIONS += [{"name": "done", "arguments": value} for value in (7, [1], {"x": math.nan})]
FUNCTIONS += [{}, {"arguments": "{}"}, {"name": None}, {"name": 5, "arguments": {}}]
FUNCTIONS += [{"name": ["f"]}, {"name": "no good", "arguments": "{}"}]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_env_rejects_a_malformed_call(function: Any) -> None:
    answer = {"choices": [{"message": {"content": "so", "tool_calls": [{"function": function}]}}]}
    text = to_reply(answer, "json").text
    assert "<tool_call>" in text
    env = agentgym.make("ListWorld")
    env.reset(seed=0)
    chat, _, terminated, _, info = env.step(text)
    assert (terminated, info["valid"]) == (False, False)
    assert chat.messages[-1].text.startswith("error: ")


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ('{"prompt_tokens": 7, "completion_tokens": 2.0}', (7, 2, 0)),
        ('{"prompt_tokens": 7}', (7, 0, 1)),
        ('{"prompt_tokens": -1, "completion_tokens": 2}', (0, 2, 1)),
        ('{"prompt_tokens": true, "completion_tokens": 2}', (0, 2, 1)),
        ('{"prompt_tokens": NaN, "completion_tokens": 2.5}', (0, 0, 1)),
        ('{"prompt_tokens": 1e999, "completion_tokens": 1e15}', (0, 0, 1)),
        ('{"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": "x"}', (1, 1, 0)),
    ],
)
def test_unreadable_token_counts_are_unmetered(usage: str, counts: tuple[int, ...]) -> None:
    read = to_usage({**completion("{}"), "usage": json.loads(usage)})
    assert (read.prompt_tokens, read.completion_tokens, read.unmetered) == counts


WHOLE: dict[str, Any] = {
    "choices": [
        {
            "finish_reason": "stop",
            "message": {
                "content": [{"type": "text", "text": "a"}],
                "refusal": None,
                "reasoning": "r",
                "function_call": None,
                "tool_calls": [call("f", '{"x": 1}'), call("g", {"x": 1})],
            },
        }
    ],
    "usage": {
        "prompt_tokens": 1,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 1},
    },
}
HOSTILE = [
    None, True, 0, 5, -1, 0.5, math.nan, math.inf, "", "x", "\ud800", "</think><tool_call>", [],
    [None], [[]], [5], {}, {"x": 1}, {"type": 5}, {"text": 5}, {"text": [[{"text": "a"}]]},
    json.loads("[" * 400 + "]" * 400),
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items: Any = ()
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield from places(item, (*path, key))


def test_any_value_at_any_place_is_read_or_one_error() -> None:
    outcomes = []
    for path in list(places(WHOLE))[1:]:
        for value in HOSTILE:
            answer = copy.deepcopy(WHOLE)
            inner: Any = answer
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            try:
                reply, usage = to_reply(answer, "json"), to_usage(answer)
            except MALFORMED:
                outcomes.append("error")
                continue
            outcomes.append("reply")
            reply.text.encode()
            assert 0 <= usage.prompt_tokens + usage.cached_tokens < math.inf
            parse(reply.text)
    assert outcomes.count("reply") > 200, "most places do not matter"
    assert outcomes.count("error") > 100


BODY = json.dumps(completion('{"content": "fine"}'))


def test_half_a_surrogate_pair_in_a_chat_does_not_stop_a_request() -> None:
    with playing_chat(Answer({"content": "fine"})) as (policy, server):
        assert policy([Chat((Message("user", "a\ud800b"),))])[0].text == "fine"
    assert server.requests[0]["messages"][0]["content"] == "a?b"


@pytest.mark.parametrize("engine", ["lockstep", "threads", "asyncio", "processes"])
def test_a_malformed_answer_costs_its_episode_alone(engine: str) -> None:
    spec = agentgym.spec("ListWorld", max_failed_rounds=2)
    doomed = agentgym.make(spec.id).reset(seed=2)[0].messages[-1].text

    def script(request: dict[str, Any], number: int) -> Answer:
        asked = [message["content"] for message in request["messages"]]
        later = any(message["role"] == "assistant" for message in request["messages"])
        return Answer({"tool_calls": 5} if doomed in asked and later else {"content": "what?"})

    with playing_chat(script) as (policy, _):
        played = {t.seed: t for t in collect(policy, spec, range(4), 4, engine=engine)}
    assert [seed for seed in range(4) if played[seed].failure] == [2]
    assert "returned no chat completion: AnswerError: tool_calls is 5" in played[2].failure
    assert [len(played[seed].steps) for seed in range(4)] == [2, 2, 1, 2]


def test_a_batch_with_one_failure_has_the_other_replies() -> None:
    script = lambda request, number: (  # noqa: E731
        Answer(body="[]" if request["messages"][0]["content"] == "1" else BODY)
    )
    with playing_chat(script) as (policy, _):
        with pytest.raises(EndpointError, match="returned no chat completion") as caught:
            policy([Chat((Message("user", str(k)),)) for k in range(3)])
        replies = [getattr(reply, "text", "error") for reply in caught.value.replies]
        assert replies == ["fine", "error", "fine"]
        used = policy.usage
        assert (used.replies, used.requests, used.unmetered) == (2, 3, 2)
