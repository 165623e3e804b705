"""What a server sends is read up to a bound, by the policies of both APIs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from agentgym import Chat, Message
from agentgym.training.rollout import AnthropicConfig, AnthropicPolicy
from agentgym.training.rollout.endpoints import answer_size
from agentgym.training.rollout.endpoints.endpoint import EndpointError
from agentgym.training.rollout.openai_policy import EndpointConfig, EndpointPolicy
from tests.training.rollout.endpoint_server import Answer, serving

ASK = Chat((Message("user", "hello", id="0:1"),))
OPENAI = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}]}
ANTHROPIC = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
}
BOUND = 10_000


@contextmanager
def asking_openai(answer: Answer) -> Iterator[Callable[[], str]]:
    with (
        serving(answer) as server,
        closing(EndpointPolicy(EndpointConfig("m", server.url, retries=0))) as policy,
    ):
        yield lambda: policy([ASK])[0].text


@contextmanager
def asking_anthropic(answer: Answer) -> Iterator[Callable[[], str]]:
    with serving(answer, "/v1/messages") as server:
        url = server.url.removesuffix("/v1")
        with closing(AnthropicPolicy(AnthropicConfig("m", url, retries=0))) as policy:
            yield lambda: policy([ASK])[0].text


APIS = [
    pytest.param(asking_openai, OPENAI, id="openai"),
    pytest.param(asking_anthropic, ANTHROPIC, id="anthropic"),
]


@pytest.mark.parametrize(("asking", "body"), APIS)
def test_an_answer_is_read_up_to_the_bound(
    asking: Any, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_size, "MAX_BODY_BYTES", BOUND)
    text = json.dumps(body)
    with asking(Answer(body=text.ljust(BOUND))) as ask:
        assert ask() == "hi"
    with (
        asking(Answer(body=text.ljust(BOUND + 1))) as ask,
        pytest.raises(EndpointError, match="longer than 10000 bytes"),
    ):
        ask()


@pytest.mark.parametrize(("asking", "body"), APIS)
def test_an_answer_is_not_unpacked(asking: Any, body: dict[str, Any]) -> None:
    packed = gzip.compress(json.dumps(body).encode())
    with (
        asking(Answer(body=packed, headers={"Content-Encoding": "gzip"})) as ask,
        pytest.raises(EndpointError, match="compressed"),
    ):
        ask()
