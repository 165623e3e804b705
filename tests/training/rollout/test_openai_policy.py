"""Tests of the OpenAI policy with real servers and with variants of Chat Completions answers."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import math
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym import Chat, Image, Message, ToolCall, parse
from agentgym.training.rollout import (
    EndpointConfig,
    EndpointError,
    EndpointPolicy,
    EndpointUsage,
    collect,
    rollout,
)
from agentgym.training.rollout.endpoints.answers import MALFORMED, KeptReplies
from agentgym.training.rollout.endpoints.chat_completions import to_reply, to_usage
from agentgym.training.rollout.event_loop import ENDPOINTS
from agentgym.training.rollout.openai_policy import responses_reply
from tests.helpers import run_python
from tests.training.rollout.endpoint_kinds import (
    ASK,
    environment,  # noqa: F401 - a fixture
    playing_chat,
)
from tests.training.rollout.endpoint_server import Answer, call, serving, transformers_serve


@pytest.fixture(autouse=True)
def _no_strays() -> Iterator[None]:
    yield
    assert sum(thread.name == ENDPOINTS for thread in threading.enumerate()) <= 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"base_url": "localhost:8000"}, "base_url must begin with http"),
        ({"concurrency": 0}, "concurrency must be"),
        ({"retries": -1}, "retries must be"),
        ({"timeout": 0}, "timeout must be"),
        ({"base_url": "http://"}, "and a host"),
        ({"tools": "xml"}, "tools must be one of native, text"),
        ({"api": "soap"}, "api must be one of chat, responses"),
        ({"api": "responses", "seed": 1}, "the Responses API does not accept seed"),
        ({"temperature": float("nan")}, "temperature must be"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        EndpointConfig("m", **options)


HISTORY = Chat(
    (
        Message("system", "rules"),
        Message("user", "task", images=(Image(b"png"),)),
        parse("<think>a</think>go <tool_call>{bad", turn=1),
        Message("user", "error: bad"),
        parse(
            '<think>b</think>do <tool_call>{"name": "f"}</tool_call><tool_call>{"name": "g"}</tool_call>',
            turn=2,
        ),
        Message("tool", "one", call_id="call_2_0"),
        Message("tool", "two", call_id="call_2_1", images=(Image(b"dot"),)),
        Message("assistant", "by hand", calls=(ToolCall("h", {}),)),
    )
)


def test_native_history_keeps_pairs_and_shows_unreadable_replies() -> None:
    with playing_chat(Answer({"content": "x"})) as (policy, server):
        policy([HISTORY])
    sent = server.requests[0]["messages"]
    roles = "system user assistant user assistant tool tool user assistant"
    assert [m["role"] for m in sent] == roles.split()
    assert sent[2] == {"role": "assistant", "content": "<think>a</think>go <tool_call>{bad"}
    assert sent[4]["reasoning_content"] == "b"
    assert [one["id"] for one in sent[4]["tool_calls"]] == [
        sent[5]["tool_call_id"],
        sent[6]["tool_call_id"],
    ]


def test_text_history_alternates_and_is_exact() -> None:
    with playing_chat(Answer({"content": "x"}), tools="text") as (policy, server):
        policy([HISTORY])
    sent = server.requests[0]["messages"]
    roles = "system user assistant user assistant user assistant"
    assert [m["role"] for m in sent] == roles.split()
    assert [sent[2]["content"], sent[4]["content"]] == [
        HISTORY.messages[2].raw,
        HISTORY.messages[4].raw,
    ]
    assert [part["type"] for part in sent[5]["content"]] == ["text", "image_url"]
    assert sent[5]["content"][0]["text"] == "one\n\ntwo"
    assert parse(sent[6]["content"]).calls == (ToolCall("h", {}),)


def test_usage_is_read_and_summed() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    with playing_chat(
        Answer({"content": "x"}, usage=usage, choice={"finish_reason": "length"}, delay=0.02)
    ) as (policy, _):
        policy([ASK] * 3)
        assert policy.usage.seconds >= 3 * 0.02
        assert policy.usage == EndpointUsage(3, 3, 3, 0, 300, 180, 60, 15, policy.usage.seconds)


def test_a_call_after_closing_starts_anew() -> None:
    with playing_chat(Answer({"content": "x"})) as (policy, server):
        for _ in range(2):
            assert policy([ASK])[0].text == "x"
            policy.close()
            policy.close()
        assert server.connections == 2


def test_a_reply_that_is_not_awaited_any_more_is_given_up() -> None:
    async def main(policy: EndpointPolicy) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(policy.areply(ASK), 0.2)

    with playing_chat(
        lambda request, number: Answer({"content": "ok"}, hang=number == 1), concurrency=1
    ) as (policy, _):
        asyncio.run(main(policy))
        assert policy([ASK])[0].text == "ok"


@pytest.mark.rotation
def test_a_dropped_policy_and_a_forked_one_leave_nothing_behind() -> None:
    with serving(Answer({"content": "x"})) as server:
        policy = EndpointPolicy(EndpointConfig("m", server.url))
        assert policy([ASK])[0].text == "x"
        if (child := os.fork()) == 0:
            os._exit(0 if policy([ASK])[0].text == "x" and not policy.close() else 1)  # type: ignore[func-returns-value]
        assert os.waitpid(child, 0)[1] == 0
        assert policy([ASK])[0].text == "x"
        client = policy.connection.open().client
        assert not client.is_closed()
        del policy
        gc.collect()
        assert client.is_closed()


@pytest.mark.rotation
def test_a_program_that_forgets_to_close_ends_cleanly() -> None:
    code = (
        "import sys\nfrom agentgym import *\nfrom agentgym.training.rollout.openai_policy import *\n"
        "policy = EndpointPolicy(EndpointConfig('m', sys.argv[1]))\nprint(policy([Chat((Message('user', 'hi'),))])[0].text)"
    )
    with serving(Answer({"content": "x"})) as server:
        done = run_python("-W", "default", "-c", code, server.url)
    assert (done.stdout, done.stderr, done.returncode) == ("x\n", "", 0)


@pytest.mark.rotation
def test_a_model_behind_transformers_serve_plays_a_world(tmp_path: Path) -> None:
    for name in ("fastapi", "uvicorn", "torch", "accelerate"):
        pytest.importorskip(name)
    with transformers_serve(tmp_path) as url:
        for tools in ("native", "text"):
            config = EndpointConfig(
                str(tmp_path), url, temperature=1.0, max_tokens=12, seed=1, tools=tools
            )
            env = agentgym.make("ListWorld", max_failed_rounds=3)
            with closing(EndpointPolicy(config)) as policy:
                trajectory = rollout(policy, env, 0)
            assert len(trajectory.steps) == policy.usage.replies == 3
            assert policy.usage.prompt_tokens > policy.usage.completion_tokens > 0
            assert any(step.reply.text for step in trajectory.steps)
        wrong = EndpointConfig("elsewhere", url, retries=0)
        with (
            closing(EndpointPolicy(wrong)) as policy,
            pytest.raises(EndpointError, match=r"400.*correct the options"),
        ):
            policy([ASK])


CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


def completion(message: str, choice: str = "") -> Any:
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


@pytest.mark.parametrize("name", ["parts", "no parts", "refusal part"])
def test_responses_and_chat_completions_read_the_same_parts(name: str) -> None:
    message, text = READ[name]
    content = [*json.loads(message)["content"], {"type": "output_text", "text": ""}]
    output = [{"type": "message", "content": content}]
    answer = {"status": "completed", "output": output}
    assert responses_reply(answer, "json", KeptReplies("", "")).text == text


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
    assert (
        "returned no chat completion: AnswerError: tool_calls must be a list, got 5"
        in played[2].failure
    )
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
