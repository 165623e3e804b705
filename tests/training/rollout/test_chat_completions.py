"""Malformed answers of a chat completions server: readable ones are accepted, others cost only
their own episode and name the reason.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

import agentgym
from agentgym import Chat, Message, parse
from agentgym.training.rollout import EndpointUsage, collect
from agentgym.training.rollout.endpoints.chat_completions import (
    MAX_DIGITS,
    AnswerError,
    load_answer,
    to_reply,
    to_usage,
)
from agentgym.training.rollout.endpoints.endpoint import EndpointError, retry_after
from tests.training.rollout.endpoint_server import Answer, call, playing

LONG = "9" * 5_000
DEEP = "[" * 100_000 + "]" * 100_000
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def completion(message: str, choice: str = "", rest: str = "") -> str:
    """Return an answer's body as text, so that it may contain what Python's JSON cannot write."""
    return f'{{"choices": [{{"message": {message}{choice}}}]{rest}}}'


READ = {
    "parts": ('{"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}', "ab"),
    "bare parts": ('{"content": ["a", {"text": "b"}]}', "ab"),
    "a part": ('{"content": {"type": "output_text", "text": "a"}}', "a"),
    "text object": ('{"content": [{"type": "text", "text": {"value": "a"}}]}', "a"),
    "no parts": ('{"content": []}', ""),
    "null": ('{"content": null, "tool_calls": null, "refusal": null}', ""),
    "refusal part": ('{"content": [{"type": "refusal", "refusal": "no"}]}', "no"),
    "thought": (
        '{"content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "a"}]}',
        "<think>\nt\n</think>\na",
    ),
    "thought in parts": (
        '{"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}, "a"]}',
        "<think>\nt\n</think>\na",
    ),
    "reasoning in parts": (
        '{"content": "a", "reasoning_content": [{"type": "text", "text": "t"}]}',
        "<think>\nt\n</think>\na",
    ),
    "arguments as an object": (
        '{"tool_calls": [{"function": {"name": "f", "arguments": {}}}]}',
        CALL,
    ),
    "one call": ('{"tool_calls": {"function": {"name": "f", "arguments": "{}"}}}', CALL),
    "older form": ('{"function_call": {"name": "f", "arguments": "{}"}}', CALL),
    "flat call": ('{"tool_calls": [{"name": "f", "arguments": "{}"}]}', CALL),
    "no arguments": ('{"tool_calls": [{"function": {"name": "f"}}]}', CALL),
    "half a pair": (r'{"content": "a\ud800b"}', "a\ufffdb"),
    "a pair": (r'{"content": "\ud83d\ude00"}', "\U0001f600"),
    "control characters": (r'{"content": "a\u0000\u001b\u2028"}', "a\x00\x1b\u2028"),
    "huge number elsewhere": (f'{{"content": "a", "created": {LONG}}}', "a"),
}


@pytest.mark.parametrize("name", READ)
def test_what_is_plain_is_read(name: str) -> None:
    message, text = READ[name]
    assert to_reply(load_answer(completion(message)), "json").text == text


UNREADABLE = {
    "empty": "",
    "html": "<html>a proxy</html>",
    "cut short": completion('{"content": "a"}')[:-3],
    "deep": DEEP,
    "deep part": completion(f'{{"content": {DEEP}}}'),
    "stream": 'data: {"choices": [{"delta": {"content": "a"}}]}\n\ndata: [DONE]\n\n',
    "null": "null",
    "list": "[]",
    "text": '"hello"',
    "number": LONG,
    "no choices": '{"choices": []}',
    "null choices": '{"choices": null}',
    "choices by name": '{"choices": {"0": {"message": {"content": "a"}}}}',
    "no message": '{"choices": [{"text": "a"}]}',
    "message is text": completion('"a"'),
    "error object": '{"error": {"message": "overloaded", "code": 529}}',
    "error text": '{"error": "overloaded"}',
    "error beside an answer": completion('{"content": "a"}', rest=', "error": {"message": "cut"}'),
    "error in the choice": completion('{"content": "a"}', choice=', "error": {"code": 502}'),
    "finished by error": completion('{"content": "a"}', choice=', "finish_reason": "error"'),
    "content is a number": completion('{"content": 5}'),
    "content is true": completion('{"content": true}'),
    "picture": completion('{"content": [{"type": "image_url", "image_url": {"url": "x"}}]}'),
    "tool_calls is a number": completion('{"tool_calls": 5}'),
    "tool_calls is text": completion('{"tool_calls": "f()"}'),
    "tool_calls is true": completion('{"tool_calls": true}'),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_not_plain_is_one_error(name: str) -> None:
    with pytest.raises(AnswerError) as caught:
        to_reply(load_answer(UNREADABLE[name]), "json")
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    "function",
    [
        '{"arguments": "{}"}',
        '{"name": null}',
        '{"name": 5, "arguments": {}}',
        '{"name": ["f"]}',
        f'{{"name": "f", "arguments": {{"x": {LONG}}}}}',
        '{"name": "f", "arguments": {"x": NaN}}',
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": 1e999}',
        f'{{"name": "f", "arguments": "{{\\"x\\": {LONG}}}"}}',
    ],
)
def test_a_call_without_sense_is_for_the_env_to_refuse(function: str) -> None:
    message = f'{{"content": "so", "tool_calls": [{{"function": {function}}}]}}'
    text = to_reply(load_answer(completion(message)), "json").text
    assert "<tool_call>" in text
    assert not parse(text).calls
    env = agentgym.make("ListWorld")
    env.reset(seed=0)
    chat, _, terminated, _, info = env.step(text)
    assert (terminated, info["valid"]) == (False, False)
    assert chat.messages[-1].text.startswith("error: ")


def logprobs(*values: str) -> str:
    tokens = ", ".join(f'{{"token": "a", "logprob": {value}}}' for value in values)
    return completion('{"content": "a"}', f', "logprobs": {{"content": [{tokens}]}}')


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("-0.5", "0", "-1e300"), (-0.5, 0.0, -1e300)),
        (('"-0.25"', "-9999.0"), (-0.25, -9999.0)),
        (("1e-7", "0.003"), (0.0, 0.0)),  # a certain token, as rounded by bfloat16
    ],
)
def test_log_probabilities_are_read(values: tuple[str, ...], expected: tuple[float, ...]) -> None:
    assert to_reply(load_answer(logprobs(*values)), "json", logprobs=True).logprobs == expected


@pytest.mark.parametrize(
    "value",
    ["null", "NaN", "-Infinity", "Infinity", "-1e999", "0.5", '"NaN"', "true", "[]", LONG],
)
def test_no_log_probability_is_none(value: str) -> None:
    answer = load_answer(logprobs("-0.5", value))
    with pytest.raises(AnswerError, match="has no valid log-probability"):
        to_reply(answer, "json", logprobs=True)
    assert to_reply(answer, "json").logprobs == (), "they were not asked for"


@pytest.mark.parametrize(
    "choice", ["", *(f', "logprobs": {v}' for v in ("null", "5", '{"content": null}', "[]"))]
)
def test_missing_log_probabilities_are_not_missed_in_silence(choice: str) -> None:
    with pytest.raises(AnswerError, match=r"the answer has no log-probabilities.*logprobs=False"):
        to_reply(load_answer(completion('{"content": "a"}', choice)), "json", logprobs=True)
    calls = completion('{"content": null, "tool_calls": [{"name": "f"}]}')
    assert to_reply(load_answer(calls), "json", logprobs=True).logprobs == ()


@pytest.mark.parametrize(
    ("usage", "counts", "unmetered"),
    [
        ('{"prompt_tokens": 7, "completion_tokens": 2}', (7, 2), 0),
        ('{"prompt_tokens": "7", "completion_tokens": 2.0}', (7, 2), 0),
        ('{"prompt_tokens": 7}', (7, 0), 1),
        ('{"prompt_tokens": -1, "completion_tokens": 2}', (0, 2), 1),
        ('{"prompt_tokens": true, "completion_tokens": 2}', (0, 2), 1),
        ('{"prompt_tokens": NaN, "completion_tokens": 2.5}', (0, 0), 1),
        (f'{{"prompt_tokens": {LONG}, "completion_tokens": 1e999}}', (0, 0), 1),
        ('"12 tokens"', (0, 0), 1),
        ("12", (0, 0), 1),
        ("[1, 2]", (0, 0), 1),
        ("null", (0, 0), 1),
        ('{"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": "x"}', (1, 1), 0),
    ],
)
def test_usage_is_counted_or_said_to_be_missing(
    usage: str, counts: tuple[int, int], unmetered: int
) -> None:
    answer = load_answer(completion('{"content": "a"}', rest=f', "usage": {usage}'))
    read = to_usage(answer)
    assert (read.prompt_tokens, read.completion_tokens) == counts
    assert read.unmetered == unmetered


WHOLE: dict[str, Any] = {
    "id": "x",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {
                "role": "assistant",
                "content": [{"type": "text", "text": "a"}],
                "refusal": None,
                "reasoning": "r",
                "reasoning_content": "r",
                "function_call": None,
                "tool_calls": [call("f", '{"x": 1}'), call("g", {"x": 1})],
            },
            "logprobs": {"content": [{"token": "a", "logprob": -0.5, "top_logprobs": []}]},
        }
    ],
    "usage": {
        "prompt_tokens": 1,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 1},
    },
}
HOSTILE = [
    None, True, 0, 5, -1, 0.5, math.nan, math.inf, -math.inf, 10**MAX_DIGITS, "", "x", "\ud800",
    "</think><tool_call>", [], [None], [[]], [5], {}, {"x": 1}, {"type": 5}, {"text": 5},
    [{"type": [], "text": {"value": []}}], {"text": [[{"text": "a"}]]}, json.loads("[" * 400 + "]" * 400),
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items: Any = ()
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield from places(item, (*path, key))


def changed(path: tuple[Any, ...], value: Any) -> Any:
    """Return the complete answer with another value at a path."""
    answer = {"": copy.deepcopy(WHOLE)}
    inner: Any = answer
    for key in ("", *path)[:-1]:
        inner = inner[key]
    inner[("", *path)[-1]] = value
    return answer[""]


@pytest.mark.parametrize("dialect", ["json", "python"])
def test_any_value_at_any_place_is_read_or_one_error(dialect: Any) -> None:
    outcomes = []
    for path in places(WHOLE):
        for value in HOSTILE:
            answer = changed(path, value)
            usage = to_usage(answer)
            assert all(
                0 <= count < math.inf for count in (usage.prompt_tokens, usage.cached_tokens)
            )
            try:
                reply = to_reply(load_answer(json.dumps(answer)), dialect, logprobs=True)
            except AnswerError:
                outcomes.append("error")
                continue
            outcomes.append("reply")
            reply.text.encode()
            assert all(math.isfinite(value) and value <= 0 for value in reply.logprobs)
            parse(reply.text)
    assert outcomes.count("reply") > 500, "most places do not matter"
    assert outcomes.count("error") > 150


ASK = Chat((Message("user", "hello", id="0:1"),))
BODY = completion('{"content": "fine"}')
ON_THE_WIRE: dict[str, tuple[Answer, str | None]] = {
    "invalid bytes": (Answer(body=b'{"choices": [{"message": {"content": "a\xff"}}]}'), "a\ufffd"),
    "wrong type": (Answer(body=BODY, headers={"Content-Type": "text/html"}), "fine"),
    "no type": (Answer(body=BODY, headers={"Content-Type": ""}), "fine"),
    "wrong charset": (Answer(body=BODY, headers={"Content-Type": "x/y; charset=utf-16"}), "fine"),
    "no charset": (Answer(body=BODY, headers={"Content-Type": "x/y; charset=hex"}), "fine"),
    "byte order mark": (Answer(body=b"\xef\xbb\xbf" + BODY.encode()), "fine"),
    "wrong encoding": (Answer(body=BODY, headers={"Content-Encoding": "gzip"}), None),
    "cut short": (
        Answer(body=BODY, headers={"Content-Length": "9999", "Connection": "close"}),
        None,
    ),
    "cut chunk": (
        Answer(
            body=b"ffff\r\n" + BODY.encode(),
            headers={"Transfer-Encoding": "chunked", "Connection": "close"},
        ),
        None,
    ),
    "empty": (Answer(body=""), None),
    "no content": (Answer(body="", status=204), None),
    "drips": (Answer(body=BODY, drips=True), None),
    "loop": (Answer(status=307, headers={"Location": "/v1/chat/completions"}), None),
    "redirect to nowhere": (Answer(status=302, headers={"Location": "/elsewhere"}), None),
    "redirect to no web": (Answer(status=307, headers={"Location": "ftp://x/"}), None),
    "choices of places": (Answer(status=300, body="{}"), None),
    "teapot in html": (Answer(status=418, body="<html>"), None),
    "deep error": (Answer(status=500, body=f'{{"error": {DEEP}}}'), None),
    "huge error": (Answer(status=400, body=f'{{"error": {{"code": {LONG}}}}}'), None),
    "error in a charset": (
        Answer(status=400, body="{}", headers={"Content-Type": "x/y; charset=hex"}),
        None,
    ),
    "list of errors": (Answer(status=503, body='[{"error": 1}]'), None),
}  # fmt: skip


@pytest.mark.parametrize("name", ON_THE_WIRE)
def test_what_goes_wrong_on_the_wire_is_read_or_one_error(name: str) -> None:
    answer, text = ON_THE_WIRE[name]
    with playing(answer, retries=0, timeout=0.5 if answer.drips else 60.0) as (policy, _):
        if text is not None:
            assert policy([ASK])[0].text == text
            return
        with pytest.raises(EndpointError) as caught:
            policy([ASK])
    assert len(str(caught.value)) < 1_500


STRANGE = ("-5", "nan", "-inf", "soon", "", "5, 10", "Mon, 99 Foo 9999 99:99:99", "\xb2", "0x10")
STRANGE += (
    "Sun, 31 Dec 9999 23:59:59 -9999",
    "Mon, 01 Jan 0001 00:00:00 +2359",
    "Mon,",
    LONG + "x",
)


@pytest.mark.parametrize("header", STRANGE)
def test_a_strange_retry_after_is_none(header: str) -> None:
    assert retry_after(header, 1e9) == 0.0 or "9999 23" in header
    once = lambda request, number: (  # noqa: E731
        Answer(status=429, error={"message": "no"}, headers={"Retry-After": header})
        if number == 1
        else Answer({"content": "ok"})
    )
    if retry_after(header, 1e9) == 0.0:
        with playing(once) as (policy, server):
            assert policy([ASK])[0].text == "ok"
        assert len(server.requests) == 2


@pytest.mark.parametrize("body", [LONG, DEEP, completion('{"tool_calls": 5}'), logprobs("NaN")])
def test_what_may_pass_is_asked_again(body: str) -> None:
    script = lambda request, number: (  # noqa: E731
        Answer(body=body) if number <= 2 else Answer(body=logprobs("-0.5"))
    )
    with playing(script, retries=2, logprobs=True) as (policy, _):
        assert policy([ASK])[0].logprobs == (-0.5,)
        assert policy.usage.retries == 2


def test_half_a_pair_in_a_chat_does_not_stop_a_request() -> None:
    with playing(Answer({"content": "fine"})) as (policy, server):
        assert policy([Chat((Message("user", "a\ud800b"),))])[0].text == "fine"
    assert server.requests[0]["messages"][0]["content"] == "a?b"


@pytest.mark.parametrize("engine", ["lockstep", "threads", "asyncio", "processes"])
def test_a_malformed_answer_costs_its_episode_alone(engine: str) -> None:
    spec = agentgym.spec("ListWorld", max_failed_rounds=2)
    firsts = [agentgym.make(spec.id).reset(seed=seed)[0].to_openai() for seed in range(4)]
    doomed = firsts[2][-1]["content"]

    def script(request: dict[str, Any], number: int) -> Answer:
        asked = [message["content"] for message in request["messages"]]
        later = any(message["role"] == "assistant" for message in request["messages"])
        if doomed in asked and later:
            return Answer({"tool_calls": 5})
        return Answer({"content": "what?"})

    with playing(script, retries=1) as (policy, _):
        played = {t.seed: t for t in collect(policy, spec, range(4), 4, engine=engine)}
    assert sorted(played) == [0, 1, 2, 3]
    assert [seed for seed, t in played.items() if t.failure] == [2]
    assert "returned no chat completion: tool_calls is 5, which is not a list" in played[2].failure
    assert len(played[2].steps) == 1, "what was played before is kept"
    assert all(len(played[seed].steps) == 2 for seed in (0, 1, 3))


def test_a_batch_in_which_one_chat_gets_no_reply_has_the_others() -> None:
    script = lambda request, number: (  # noqa: E731
        Answer(body="[]")
        if request["messages"][0]["content"] == "1"
        else Answer({"content": "fine"})
    )
    with playing(script, retries=0) as (policy, _):
        with pytest.raises(EndpointError, match="returned no chat completion") as caught:
            policy([Chat((Message("user", str(k)),)) for k in range(3)])
        assert [getattr(reply, "text", "error") for reply in caught.value.replies] == [
            "fine",
            "error",
            "fine",
        ]
        assert policy.usage == EndpointUsage(
            2, requests=3, seconds=policy.usage.seconds, unmetered=2
        )
