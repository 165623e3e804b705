"""Laws of all endpoint policies, through the vendors' SDKs against servers on the loopback
interface.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import agentgym
from agentgym import Chat, Message
from agentgym.cli import app
from agentgym.training.rollout import (
    BudgetError,
    EndpointConfig,
    EndpointError,
    ModelOptions,
    PolicyConfig,
    collect,
    replay,
    rollout,
)
from agentgym.training.rollout.endpoints.config import TRANSPORT
from agentgym.training.rollout.endpoints.kept_replies import MAX_REPLIES, KeptReplies
from agentgym.training.rollout.policies import provenance
from agentgym.training.rollout.trajectory import Trajectory
from tests.training.rollout.endpoint_kinds import KINDS, Kind, playing
from tests.training.rollout.endpoint_server import Answer, serving

ASK = Chat((Message("user", "hello", id="0:1"),))
HARD = {"items": 4, "removals": 2, "max_failed_rounds": 1}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", "sk-test")
        monkeypatch.delenv(f"{name}_BASE_URL", raising=False)
        monkeypatch.delenv(f"{name}_MODEL", raising=False)


# The record and the wire.

VALUES: dict[str, Any] = {
    "temperature": 0.25,
    "top_p": 0.5,
    "max_tokens": 77,
    "seed": 5,
    "logprobs": True,
}


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
        try:
            player([ASK])
        except EndpointError:
            assert name == "logprobs"  # this server returns none
    (sent,) = server.requests
    record = provenance(policy, player)
    for option, place in kind.names.items():
        default = False if option == "logprobs" else None
        assert sent.get(place, default) == record[option], option
    assert name == "nothing" or record[name] == VALUES[name]


@kinds
def test_model_options_reach_the_wire_or_are_refused(kind: Kind) -> None:
    given = {"temperature": 0.0, "max_new_tokens": 64}
    refused = {
        "device": "cpu",
        "dtype": "float32",
        "batch_size": 3,
        "template": {"x": 1},
        "native_tools": True,
    }
    assert {option.name for option in fields(ModelOptions)} == given.keys() | refused.keys()
    with serving(kind.said("hi"), kind.path) as server:
        name = f"{kind.factory}:model=m:base_url={kind.url(server)}"
        policy = PolicyConfig(name, model=ModelOptions(**given))  # type: ignore[arg-type]
        policy.make("ListWorld")([ASK])
    assert server.requests[0]["temperature"] == 0.0
    assert server.requests[0][kind.names["max_tokens"]] == 64
    for option, value in refused.items():
        with pytest.raises(ValueError, match=f"has no option '{option}'"):
            PolicyConfig(name, model=ModelOptions(**{option: value})).make("ListWorld")
    with pytest.raises(ValueError, match="temperature is set twice"):
        PolicyConfig(f"{name}:temperature=1", model=ModelOptions(temperature=0.5)).make("ListWorld")


SAMPLES: dict[str, Any] = {
    "model": "other", "base_url": "http://h:1/v1", "api_key_env": "KEY", "concurrency": 3,
    "timeout": 2.5, "retries": 1, "temperature": 0.5, "top_p": 0.5, "max_tokens": 99_000,
    "tools": "text", "extra_body": {"top_k": 3, "x": {"y": [1]}}, "cache": "runs/cache",
    "sample": "s", "max_cost": 2.0, "prompt_price": 1.0, "reply_price": 2.0, "ledger": "runs/l",
    "api": "chat", "seed": 3, "logprobs": True, "thinking_budget": 2_000,
}  # fmt: skip


@kinds
def test_every_option_can_follow_the_policy_s_name(kind: Kind) -> None:
    factory = kind.factory.removesuffix(":api=responses")
    names = [option.name for option in fields(type(kind.policy("http://h").config))]
    assert set(TRANSPORT) <= set(names) <= SAMPLES.keys()
    for name in names:
        value = SAMPLES[name]
        text = json.dumps(value) if isinstance(value, dict) else str(value)
        text = text.lower() if isinstance(value, bool) else text
        more = ":prompt_price=1" if name == "max_cost" else ""
        model = "" if name == "model" else ":model=m"
        made: Any = PolicyConfig(f"{factory}{model}:{name}={text}{more}").make("ListWorld")
        assert getattr(made.config, name) == value


@pytest.mark.parametrize("option", ["temperature", "max_tokens", "model", "stream"])
def test_an_option_is_not_set_behind_its_back(option: str) -> None:
    with pytest.raises(ValueError, match=f"extra_body sets '{option}'"):
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
            policy = api.policy("http://127.0.0.1:1/v1", tools=tools)
            request = policy.request(chat)
            said = "\n".join(api.prompt_texts(request))
            assert bool(request.get("tools")) == (tools == "native")
            assert any(phrase in said for phrase in WRITTEN) == (tools == "text")
            assert chat.messages[-1].text.strip()[:200] in said


# Play.


@kinds
@pytest.mark.parametrize("dialect", ["auto", "json", "python"])
@pytest.mark.parametrize("tools", ["native", "text"])
@pytest.mark.parametrize("context", ["none", "clear_results+clear_thinking+compaction"])
def test_a_world_is_solved(kind: Kind, dialect: Any, tools: str, context: str) -> None:
    options: dict[str, Any] = {**HARD, "dialect": dialect, "context": context, "window": 3_000}
    solved = rollout(
        agentgym.make("ListWorld", **options), PolicyConfig("oracle").make("ListWorld"), 5
    )
    plan = [one for message in solved.last.messages for one in message.calls]

    def script(request: dict[str, Any], number: int) -> Answer:
        call = plan[number - 1]
        if tools == "text":
            return kind.said(agentgym.render(call, dialect))
        return kind.said("next", (call.name, dict(call.arguments)))

    with playing(kind, script, tools=tools) as (policy, server):
        trajectory = rollout(agentgym.make("ListWorld", **options), policy, 5)
    assert trajectory.reward == 1.0
    assert replay(trajectory) == trajectory
    assert len(server.requests) == len(plan)
    assert policy.usage.prompt_tokens == 10 * len(plan)


LONG = [
    (400, "This model's maximum context length is 4096 tokens.", "context_length_exceeded"),
    (400, "the request exceeds the available context size", "exceed_context_size_error"),
    (400, "prompt is too long: 210000 tokens > 200000 maximum", "invalid_request_error"),
    (413, "Input is too long for requested model", "request_too_large"),
]


@kinds
@pytest.mark.parametrize("refusal", LONG)
def test_a_chat_over_the_window_ends_its_episode(kind: Kind, refusal: Any) -> None:
    def script(request: dict[str, Any], number: int) -> Answer:
        return kind.said("", ("pop", {"id": 99})) if number == 1 else kind.refused(*refusal)

    with playing(kind, script) as (policy, _):
        trajectory = rollout(agentgym.make("ListWorld"), policy, 0)
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
        for replicate in {False, engine == "processes"}:
            options = {"engine": engine, "replicate": replicate}
            played = list(collect(policy, "ListWorld", range(3), 2, **options))
            ends = [t.steps[-1].info["detail"]["ended"] for t in played if not t.failure]
            assert ends == ["over_window"] * 3


@kinds
def test_concurrent_requests_of_threads_and_tasks(kind: Kind) -> None:
    with playing(kind, replace(kind.said("hi"), delay=1.0)) as (
        policy,
        server,
    ):

        async def tasks() -> None:
            await asyncio.gather(*(policy.areply(ASK) for _ in range(20)))

        with ThreadPoolExecutor(24) as pool:
            threads = [pool.submit(policy, [ASK]) for _ in range(20)]
            threads += [pool.submit(policy, [ASK] * 24), pool.submit(asyncio.run, tasks())]
            for thread in threads:
                thread.result()
    assert server.most == 64
    assert policy.usage.replies == policy.usage.requests == 64


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
@pytest.mark.parametrize("usage", [None, 5, "12 tokens", [1], {}, {"input_tokens": "x"}])
def test_missing_token_counts_are_counted(kind: Kind, usage: Any) -> None:
    body = {**kind.body("a", (), (1, 1), False), "usage": usage}
    with playing(kind, Answer(body=json.dumps(body))) as (policy, _):
        assert policy([ASK])[0].text == "a"
    assert (policy.usage.unmetered, policy.usage.prompt_tokens) == (1, 0)


# The cache.


def numbered(kind: Kind) -> Any:
    return lambda request, number: kind.said(f"reply {number}", usage=(10 * number, 5))


@kinds
def test_a_second_run_sends_no_request_and_gives_the_same_bytes(kind: Kind, tmp_path: Path) -> None:
    def script(request: dict[str, Any], number: int) -> Answer:
        if kind.turns(request) > 1 and number % 3 == 0:
            return kind.refused(*LONG[0])
        return kind.said(f"step {number}", ("pop", {"id": number % 7}), usage=(number, 5))

    runs = []
    with serving(script, kind.path) as server:
        for engine in ("lockstep", "asyncio"):
            policy = kind.policy(kind.url(server), cache=str(tmp_path / "cache"))
            with closing(policy):
                played = collect(policy, "ListWorld", range(4), 4, engine=engine)
                runs.append(sorted(trajectory.to_json() for trajectory in played))
            runs.append(policy.usage)  # type: ignore[arg-type]
            sent = len(server.requests)
            assert sent == runs[1].requests  # type: ignore[attr-defined]
    first, paid, again, free = runs
    assert first == again
    assert any("over_window" in line for line in first)
    assert paid.replies == free.cached_replies < sent  # type: ignore[attr-defined]
    assert (free.requests, free.seconds, paid.cached_replies) == (0, 0.0, 0)  # type: ignore[attr-defined]
    assert free.prompt_tokens == paid.prompt_tokens  # type: ignore[attr-defined]


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
    asked = [
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


DAMAGE = {
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


# The budget.

PRICES: dict[str, Any] = {"prompt_price": 1_000.0, "reply_price": 0.0}


@kinds
@pytest.mark.parametrize("limit", [0.0, 0.005, 0.01, 0.035, 0.1])
def test_no_request_is_sent_beyond_the_budget(kind: Kind, limit: float, tmp_path: Path) -> None:
    """Each request costs 0.01, and all arrive at once."""
    with playing(kind, kind.said("a"), max_cost=limit, **PRICES) as (policy, server):
        with pytest.raises(BudgetError, match=r"the budget is spent: .*; raise max_cost"):
            policy([ASK] * 40)
        with pytest.raises(BudgetError):
            asyncio.run(policy.areply(ASK))
        # The first request is the only one whose cost is unknown.
        assert len(server.requests) == (max(int(limit / 0.01 + 1e-9), 1) if limit else 0)


@kinds
def test_cached_replies_cost_nothing(kind: Kind, tmp_path: Path) -> None:
    with serving(kind.said("a"), kind.path) as server:
        for limit in (0.03, 0.0):
            options = {"max_cost": limit, "cache": str(tmp_path), **PRICES}
            with closing(kind.policy(kind.url(server), **options)) as policy:
                assert len(policy([ASK] * 3)) == 3
    assert len(server.requests) == 3


def test_a_ledger_sums_over_runs(tmp_path: Path) -> None:
    kind = KINDS["chat"]
    options = {"ledger": str(tmp_path / "new" / "ledger"), **PRICES}
    with serving(kind.said("a"), kind.path) as server:
        for limit, total in ((0.025, 2), (0.025, 2), (0.045, 4)):
            with (
                closing(kind.policy(server.url, max_cost=limit, **options)) as policy,
                pytest.raises(BudgetError),
            ):
                policy([ASK] * 9)
            assert len(server.requests) == total


def test_a_budget_needs_prices_and_counts() -> None:
    with pytest.raises(ValueError, match="max_cost 1 requires prices"):
        EndpointConfig("m", max_cost=1.0)
    with (
        playing(KINDS["chat"], Answer({"content": "a"}), max_cost=1.0, **PRICES) as (
            policy,
            server,
        ),
        pytest.raises(BudgetError, match="the server reports no token counts"),
    ):
        policy([ASK] * 5)
    assert len(server.requests) == 1


@pytest.mark.parametrize("engine", ["lockstep", "threads", "asyncio", "processes"])
def test_a_spent_budget_stops_the_run_and_a_larger_one_resumes(engine: str, tmp_path: Path) -> None:
    kind = KINDS["chat"]
    log, options = tmp_path / "log.jsonl", {"engine": engine, "replicate": False, "log": None}
    options["log"] = log  # type: ignore[assignment]
    spec = agentgym.spec("ListWorld", max_failed_rounds=2)
    with serving(kind.said("what?"), kind.path) as server:
        with closing(kind.policy(server.url, max_cost=0.05, **PRICES)) as policy:
            with pytest.raises(RuntimeError, match="the budget is spent"):
                list(collect(policy, spec, range(6), 2, **options))
            assert len(server.requests) == 5
        with closing(kind.policy(server.url)) as policy:
            played = list(collect(policy, spec, range(6), 2, **options))
    assert sorted(trajectory.seed for trajectory in played) == list(range(6))
    assert not any(trajectory.failure for trajectory in played)


@pytest.mark.rotation
@kinds
def test_the_command_line_sends_records_and_stops(kind: Kind, tmp_path: Path) -> None:
    out = tmp_path / "study"
    line = ["ablate", "--world", "ListWorld", "--oracles", "none,P", "--horizons", "2"]
    line += ["--episodes", "2", "--workers", "1", "--out", str(out), "--price", "1000,0"]
    line += ["--temperature", "0.7", "--max-new-tokens", "64"]
    with serving(kind.said("what?", usage=(5_000, 5)), kind.path) as server:
        name = f"{kind.factory}:model=m:base_url={kind.url(server)}"
        line += ["--policy", f"m={name}", "--endpoint", f"cache={tmp_path / 'cache'}"]
        stopped = CliRunner().invoke(app, [*line, "--max-cost", "12"])
        assert (stopped.exit_code, len(server.requests)) == (1, 2), stopped.output
        assert stopped.stderr.startswith("the budget is exhausted; rerun with a larger one")
        done = CliRunner().invoke(app, [*line, "--max-cost", "1000", "--endpoint", "timeout=9"])
        assert done.exit_code == 0, done.output
        total = len(server.requests)
        again = [str(tmp_path / "again") if part == str(out) else part for part in line]
        assert CliRunner().invoke(app, again).exit_code == 0
        assert len(server.requests) == total
        logs = [(folder / "results.jsonl").read_bytes() for folder in (out, tmp_path / "again")]
    assert logs[0] == logs[1]
    study = json.loads((out / "ablation.json").read_text())
    assert study["runs"][0]["policy"]["model"]["temperature"] == 0.7
    record = study["policies"]["m"]
    for sent in server.requests:
        for option, place in kind.names.items():
            default = False if option == "logprobs" else None
            assert sent.get(place, default) == record[option]
    assert (record["temperature"], record["max_tokens"]) == (0.7, 64)


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
        for _ in range(2):  # the second time from the cache
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
