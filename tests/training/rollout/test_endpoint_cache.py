"""Caches of endpoint policies."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym import Chat, Message
from agentgym.training.rollout import (
    EndpointError,
    collect,
)
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


def numbered(kind: Kind) -> Any:
    return lambda request, number: kind.said(f"reply {number}", usage=(10 * number, 5))


@kinds
def test_a_second_run_sends_no_request_and_gives_the_same_bytes(kind: Kind, tmp_path: Path) -> None:
    def script(request: dict[str, Any], number: int) -> Answer:
        if kind.turns(request) > 1 and number % 3 == 0:
            return kind.refused(*LONG[0])
        return kind.said(f"step {number}", ("pop", {"id": number % 7}), usage=(number, 5))

    runs: list[Any] = []
    with serving(script, kind.path) as server:
        for engine in ("lockstep", "asyncio"):
            policy = kind.policy(kind.url(server), cache=str(tmp_path / "cache"))
            with closing(policy):
                played = collect(policy, "ListWorld", range(4), 4, engine=engine)
                runs.append(sorted(trajectory.to_json() for trajectory in played))
            runs.append(policy.usage)
            sent = len(server.requests)
            assert sent == runs[1].requests
    first, paid, again, free = runs
    assert first == again
    assert any("over_window" in line for line in first)
    assert paid.replies == free.cached_replies < sent
    assert (free.requests, free.seconds, paid.cached_replies) == (0, 0.0, 0)
    assert free.prompt_tokens == paid.prompt_tokens


@kinds
def test_repeated_samples_of_a_prompt_stay_different(kind: Kind, tmp_path: Path) -> None:
    with serving(numbered(kind), kind.path) as server:
        url, cache = kind.url(server), str(tmp_path)
        for _ in range(2):
            with closing(kind.policy(url, cache=cache)) as policy:
                texts = [reply.text for reply in policy([ASK, ASK])] + [policy([ASK])[0].text]
            assert len(set(texts)) == 3
        assert len(server.requests) == 3
        for sample in ("0.1", "1.0"):
            with closing(kind.policy(url, cache=cache, sample=sample)) as policy:
                policy([ASK])
        assert len(server.requests) == 5


@kinds
def test_whatever_changes_the_answer_changes_the_key(kind: Kind, tmp_path: Path) -> None:
    tool = agentgym.make("ListWorld").reset(seed=0)[0].tools[0]
    other = Chat((Message("user", "hullo"),))
    asked: list[tuple[Chat, dict[str, Any]]] = [
        (ASK, {}),
        (other, {}),
        (Chat(ASK.messages, (tool,)), {}),
        (ASK, {"temperature": 0.5}),
        (ASK, {"top_p": 0.5}),
        (ASK, {"max_tokens": 9}),
        (ASK, {"extra_body": {"top_k": 3}}),
        (ASK, {"base": "/"}),
    ]
    with serving(numbered(kind), "") as server:
        for _ in range(2):
            for chat, options in asked:
                given = dict(options)
                url = kind.url(server) + given.pop("base", "")
                with closing(kind.policy(url, cache=str(tmp_path), **given)) as policy:
                    policy([chat])
            assert len(server.requests) == len(asked)
        for transport in ({"timeout": 5.0}, {"retries": 0}, {"concurrency": 2}):
            with closing(kind.policy(kind.url(server), cache=str(tmp_path), **transport)) as policy:
                policy([ASK])
        assert len(server.requests) == len(asked)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "torn": lambda data: data[: len(data) // 2],
    "noise": lambda data: b"\xff" * 50,
    "deep": lambda data: b"[" * 100_000,
    "list": lambda data: b"[]",
    "other text": lambda data: data.replace(b"reply 1", b"reply 9"),
    "other digest": lambda data: b'{"digest": "x", "answer": {}}',
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_missing(damage: str, tmp_path: Path) -> None:
    kind = KINDS["chat"]
    with serving(numbered(kind), kind.path) as server:
        for expected in ("reply 1", "reply 2", "reply 2"):
            with closing(kind.policy(server.url, cache=str(tmp_path))) as policy:
                assert policy([ASK])[0].text == expected
            if expected == "reply 1":
                (entry,) = tmp_path.rglob("*.json")
                entry.write_bytes(DAMAGE[damage](entry.read_bytes()))


def test_a_failure_is_not_cached(tmp_path: Path) -> None:
    kind = KINDS["chat"]
    script = lambda request, number: (  # noqa: E731
        [kind.refused(400, "no"), Answer(body="{}"), kind.said("fine")][number - 1]
    )
    with playing(kind, script, cache=str(tmp_path)) as (policy, _):
        for _ in range(2):
            with pytest.raises(EndpointError):
                policy([ASK])
        assert not list(tmp_path.rglob("*.json"))
        assert policy([ASK])[0].text == "fine"


def _ask_in_process(url: str, cache: str, results: Any) -> None:
    with closing(KINDS["chat"].policy(url, cache=cache)) as policy:
        chats = [Chat((Message("user", str(k)),)) for k in range(20)]
        results.put([reply.text for reply in policy(chats)])


@pytest.mark.rotation
def test_processes_share_a_cache(tmp_path: Path) -> None:
    kind = KINDS["chat"]
    echo = lambda request, number: kind.said(request["messages"][0]["content"])  # noqa: E731
    context = multiprocessing.get_context("spawn")
    with serving(echo, kind.path) as server:
        results = context.Queue()
        arguments = (server.url, str(tmp_path), results)
        processes = [context.Process(target=_ask_in_process, args=arguments) for _ in range(3)]
        for process in processes:
            process.start()
        answers = [results.get(timeout=120) for _ in processes]
        for process in processes:
            process.join()
    assert answers == [[str(k) for k in range(20)]] * 3
    assert len(list(tmp_path.rglob("*.json"))) == 20
    assert not list(tmp_path.rglob("*.new"))
