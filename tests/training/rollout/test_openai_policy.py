"""The OpenAI policy against real servers on the loopback interface."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
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
    rollout,
)
from agentgym.training.rollout.event_loop import ENDPOINTS
from tests.helpers import PATIENCE
from tests.training.rollout.endpoint_kinds import (
    ASK,
    environment,  # noqa: F401 - a fixture
    playing_chat,
)
from tests.training.rollout.endpoint_server import Answer, serving, transformers_serve


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
        ({"api": "responses", "seed": 1}, "the Responses API has no seed"),
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
        line = [sys.executable, "-W", "default", "-c", code, server.url]
        done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False)
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
