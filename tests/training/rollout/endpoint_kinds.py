"""Kinds of endpoints, each with its policy and its wire format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import pytest

from agentgym import Chat, Message
from agentgym.training.rollout import EndpointConfig, EndpointPolicy
from tests.training.rollout.endpoint_server import Answer, Script, ScriptedServer, serving

# Name and arguments.
Call = tuple[str, Any]


def _chat(text: str, calls: Sequence[Call], usage: tuple[int, int], cut: bool) -> dict[str, Any]:
    function = [
        {
            "id": f"srv_{k}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for k, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": text or None, "tool_calls": function or None}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "length" if cut else "stop"}],
        "usage": {
            "prompt_tokens": usage[0],
            "completion_tokens": usage[1],
            "total_tokens": sum(usage),
        },
    }


def _responses(
    text: str, calls: Sequence[Call], usage: tuple[int, int], cut: bool
) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if text:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        output.append({"type": "message", "id": "msg_1", "role": "assistant", "content": content})
    for k, (name, arguments) in enumerate(calls):
        call = {"name": name, "arguments": json.dumps(arguments)}
        output.append({"type": "function_call", "id": f"fc_{k}", "call_id": f"srv_{k}", **call})
    return {
        "id": "resp_1",
        "object": "response",
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": output,
        "usage": {"input_tokens": usage[0], "output_tokens": usage[1]},
    }


def _message(text: str, calls: Sequence[Call], usage: tuple[int, int], cut: bool) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    content += [
        {"type": "tool_use", "id": f"srv_{k}", "name": name, "input": arguments}
        for k, (name, arguments) in enumerate(calls)
    ]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": "max_tokens" if cut else "end_turn",
        "usage": {"input_tokens": usage[0], "output_tokens": usage[1]},
    }


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, dict) else value:
        if not isinstance(value, str):
            yield from _texts(item) if isinstance(item, (dict, list, str)) else ()


@dataclass(frozen=True)
class Kind:
    """A kind of endpoint.

    Attributes:
        body: Returns the body of an answer with the given text, calls, token counts and truncation.
        names: The request field for each policy option.
        given: Policy options that select this kind of endpoint.
    """

    path: str
    body: Callable[[str, Sequence[Call], tuple[int, int], bool], dict[str, Any]]
    names: Mapping[str, str]
    given: Mapping[str, Any]
    factory: str

    def said(
        self,
        text: str = "",
        *calls: Call,
        usage: tuple[int, int] = (10, 5),
        cut: bool = False,
        **fields: Any,
    ) -> Answer:
        return Answer(body=json.dumps({**self.body(text, calls, usage, cut), **fields}))

    def refused(self, status: int, message: str, code: str = "", **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        error = {"message": message, "type": code, "code": code}
        return Answer(
            status=status, body=json.dumps({"type": "error", "error": error}), headers=named
        )

    def url(self, server: ScriptedServer) -> str:
        return server.url.removesuffix("/v1" if self.path == "/v1/messages" else "")

    def policy(self, url: str, **options: Any) -> Any:
        options = {"timeout": 20.0} | dict(self.given) | options
        if self.path == "/v1/messages":
            from agentgym.training.rollout import AnthropicConfig, AnthropicPolicy  # noqa: PLC0415 - an extra

            return AnthropicPolicy(AnthropicConfig("m", url, **options))
        return EndpointPolicy(EndpointConfig("m", url, **options))

    def turns(self, request: Mapping[str, Any]) -> int:
        items = request.get("messages") or request["input"]
        replies = [
            i for i in items if i.get("role") == "assistant" or i.get("type") == "function_call"
        ]
        return len(replies)

    def prompt_texts(self, request: Mapping[str, Any]) -> list[str]:
        """Return a request's texts, except replies and tool schemas."""
        items = request.get("messages") or request["input"]
        shown = [item for item in items if item.get("role") in ("system", "user", "tool")]
        return [*_texts(shown), *_texts(request.get("system", []))]


_SAMPLING = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens"}
_OPENAI = "agentgym.training.rollout.openai_policy:from_environment"
KINDS = {
    "chat": Kind(
        "/v1/chat/completions",
        _chat,
        {**_SAMPLING, "seed": "seed"},
        {},
        _OPENAI,
    ),
    "responses": Kind(
        "/v1/responses",
        _responses,
        {**_SAMPLING, "max_tokens": "max_output_tokens"},
        {"api": "responses"},
        f"{_OPENAI}:api=responses",
    ),
    "messages": Kind(
        "/v1/messages",
        _message,
        _SAMPLING,
        {},
        "agentgym.training.rollout.anthropic_policy:from_environment",
    ),
}

if find_spec("anthropic") is None:
    del KINDS["messages"]
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
ASK = Chat((Message("user", "hello", id="0:1"),))
LONG = [
    (400, "This model's maximum context length is 4096 tokens.", "context_length_exceeded"),
    (400, "the request exceeds the available context size", "exceed_context_size_error"),
    (400, "prompt is too long: 210000 tokens > 200000 maximum", "invalid_request_error"),
    (413, "Input is too long for requested model", "request_too_large"),
]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", "sk-test")
        monkeypatch.delenv(f"{name}_BASE_URL", raising=False)
        monkeypatch.delenv(f"{name}_MODEL", raising=False)


@contextmanager
def playing(
    kind: Kind, script: Script | Answer, **options: Any
) -> Iterator[tuple[Any, ScriptedServer]]:
    with (
        serving(script, kind.path) as server,
        closing(kind.policy(kind.url(server), **options)) as policy,
    ):
        yield policy, server


def numbered(kind: Kind) -> Script:
    return lambda request, number: kind.said(f"reply {number}", usage=(10 * number, 5))


playing_chat = partial(playing, KINDS["chat"])
