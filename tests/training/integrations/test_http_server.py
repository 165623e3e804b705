from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from agentgym import Content
from agentgym.text.tools import Tool
from tests.helpers import PATIENCE
from tests.training.integrations.openenv_server import serving as serving_app

httpx2: Any = pytest.importorskip("httpx2")  # comes with mcp
serving: Any = pytest.importorskip("agentgym.training.integrations.mcp")
http_server: Any = pytest.importorskip("agentgym.training.integrations.http_server")

TOKEN = "correct horse battery"
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
LISTING = ("list_directory", {"path": "."})


def request(name: str, arguments: Mapping[str, Any], number: Any = 1) -> Mapping[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


class Site:
    def __init__(self, url: str) -> None:
        self.url = url

    def send(self, method: str, episode: int = 0, session: str = "", **named: Any) -> Any:
        headers = {**JSON, **named.pop("headers", {})}
        if session:
            headers["mcp-session-id"] = session
        address = f"{self.url}/episodes/{episode}/mcp"
        # Without TLS, no request needs the certificates, which take 20 ms to load.
        options = {"headers": headers, "timeout": PATIENCE, "verify": False, **named}
        return httpx2.request(method, address, **options)

    def post(self, message: Mapping[str, Any], episode: int = 0, session: str = "") -> Any:
        return self.send("POST", episode, session, json=message)

    def open(self, episode: int = 0) -> Any:
        return self.send("POST", episode, json=INITIALIZE)

    def call(self, name: str, arguments: Mapping[str, Any], episode: int = 0) -> str:
        session = self.open(episode).headers["mcp-session-id"]
        answer = self.post(request(name, arguments), episode, session)
        self.send("DELETE", episode, session)
        return str(answer.text)


@contextmanager
def site(episodes: Sequence[Any] = (), **limits: Any) -> Iterator[Site]:
    episodes = episodes or [serving.open_episode("filesystem", k) for k in range(2)]
    with serving_app(serving.http_app(episodes, **limits)) as url:
        yield Site(url)


def test_a_token_is_asked_for() -> None:
    with site(token=TOKEN) as server:
        for given, status in (("", 401), ("Bearer wrong", 401), (TOKEN, 401)):
            answer = server.send("POST", json=INITIALIZE, headers={"authorization": given})
            assert (answer.status_code, "token is missing or wrong" in answer.text) == (
                status,
                True,
            )
        right = {"authorization": f"Bearer {TOKEN}"}
        assert server.send("POST", json=INITIALIZE, headers=right).status_code == 200


@pytest.mark.parametrize(
    ("host", "token", "message"),
    [
        ("0.0.0.0", "", "is not local, which requires a token"),
        ("example.com", "", "is not local"),
        ("127.0.0.1", "x" * 15, "at least 16 printable ASCII characters, got 15"),
        ("0.0.0.0", "x" * 16 + "\n", "printable ASCII"),
        ("0.0.0.0", "x" * 16 + " ", "must not begin or end with a space"),
    ],
)
def test_what_is_unsafe_is_refused(host: str, token: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        serving.serve_http([serving.open_episode("filesystem", 0)], host, 8_000, token)
    http_server.check_access("0.0.0.0", TOKEN)
    http_server.check_access("::1", "")


def test_streams_and_oversize_bodies_are_refused() -> None:
    with site() as server:
        assert server.send("GET").status_code == 405
        body = b" " * (http_server.MAX_BODY_BYTES + 1)
        assert server.send("POST", content=iter([body])).status_code == 413
        assert '"isError":false' in server.call(*LISTING)


def test_sessions_have_a_cap() -> None:
    with site(max_sessions=3) as server:
        sessions = [server.open().headers["mcp-session-id"] for _ in range(3)]
        assert len(set(sessions)) == 3
        refused = server.open()
        assert (refused.status_code, "Too many open sessions" in refused.text) == (503, True)
        assert '"isError":false' in server.call(*LISTING, episode=1)
        server.send("DELETE", 0, sessions[0])
        assert server.open().status_code == 200


def test_sessions_expire() -> None:
    with site(max_sessions=1, idle_seconds=0.5) as server:
        first = server.open().headers["mcp-session-id"]
        while server.open().status_code == 503:
            time.sleep(0.05)
        gone = server.post(request(*LISTING), session=first)
        assert (gone.status_code, "Session not found" in gone.text) == (404, True)


class Reader:
    """Episode with a tool that waits for a signal."""

    name = "reader"
    instructions = ""
    tools: Sequence[Tool] = (Tool("wait", "", {"type": "object"}),)

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.waiting = threading.Event()

    def call(self, name: str, arguments: Mapping[str, Any]) -> Content:
        self.waiting.set()
        self.may_go_on.wait(PATIENCE)
        return Content("done")

    def close(self) -> None:
        self.may_go_on.set()


def test_a_slow_tool_holds_up_its_own_episode_only() -> None:
    # Use more readers than the default number of threads in a pool.
    readers = [Reader() for _ in range(45)]
    with (
        site([*readers, serving.open_episode("filesystem", 0)]) as server,
        ThreadPoolExecutor(60) as pool,
    ):
        calls = [pool.submit(server.call, "wait", {}, k) for k in range(len(readers))]
        for reader in readers:
            assert reader.waiting.wait(PATIENCE)
        assert '"isError":false' in server.call(*LISTING, episode=len(readers))
        for reader in readers:
            reader.may_go_on.set()
        assert all("done" in call.result(PATIENCE) for call in calls)


def test_calls_that_wait_for_another_are_few() -> None:
    reader = Reader()
    with site([reader]) as server, ThreadPoolExecutor(30) as pool:
        first = pool.submit(server.call, "wait", {})
        assert reader.waiting.wait(PATIENCE)
        others = [pool.submit(server.call, "wait", {}) for _ in range(20)]
        refused = 20 - serving.MAX_WAITING
        while sum(call.done() for call in others) < refused:
            time.sleep(0.02)
        reader.may_go_on.set()
        answers = [call.result(PATIENCE) for call in others]
        assert sum("too many calls of this episode" in each for each in answers) == refused
        assert "done" in first.result(PATIENCE)


@pytest.mark.parametrize("twin", [1, "1"])
def test_a_request_id_in_flight_is_refused(twin: object) -> None:
    """The SDK treats 1 and "1" as the same id."""
    reader = Reader()
    with site([reader]) as server, ThreadPoolExecutor(1) as pool:
        session = server.open().headers["mcp-session-id"]
        first = pool.submit(server.post, request("wait", {}), 0, session)
        assert reader.waiting.wait(PATIENCE)
        again = request("wait", {}, twin)
        answer = server.post(again, session=session)
        assert (answer.status_code, "request id 1 is in flight" in answer.text) == (409, True)
        reader.may_go_on.set()
        assert "done" in first.result(PATIENCE).text
        assert "done" in server.post(again, session=session).text


def test_a_request_that_takes_too_long_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()
    with site([reader]) as server:
        session = server.open().headers["mcp-session-id"]
        monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.3)
        assert server.post(request("wait", {}), session=session).status_code == 504
        monkeypatch.undo()
        reader.may_go_on.set()
        assert "done" in server.call("wait", {})
