"""The MCP HTTP server on real sockets: no client can harm the others."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple

import pytest

from agentgym import Content
from agentgym.text.tools import Tool
from tests.helpers import PATIENCE

serving: Any = pytest.importorskip("agentgym.training.integrations.mcp")
http_server: Any = pytest.importorskip("agentgym.training.integrations.http_server")
uvicorn: Any = pytest.importorskip("uvicorn")

TOKEN = "correct horse battery"
LARGE = "x" * 1_000_000


class Answer(NamedTuple):
    status: int
    session: str
    body: str


class Site:
    def __init__(self, server: Any, port: int) -> None:
        self.server = server
        self.port = port

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def send(
        self, method: str, body: bytes | None, headers: Mapping[str, str], episode: int = 0
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, f"/episodes/{episode}/mcp", body, {**JSON, **headers})
            answer = connection.getresponse()
            text = answer.read().decode()
            return Answer(answer.status, answer.headers.get("mcp-session-id", ""), text)
        finally:
            connection.close()

    def post(self, message: Mapping[str, Any], episode: int = 0, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.send("POST", json.dumps(message).encode(), named, episode)

    def open(self, episode: int = 0, **headers: str) -> Answer:
        return self.post(INITIALIZE, episode, **headers)

    def call(self, name: str, arguments: Mapping[str, Any], episode: int = 0) -> Answer:
        session = self.open(episode).session
        assert session
        answer = self.post(_call(name, arguments), episode, mcp_session_id=session)
        self.send("DELETE", None, {"mcp-session-id": session}, episode)
        return answer


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


def _call(name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@contextmanager
def site(episodes: Sequence[Any] = (), token: str = "", **limits: Any) -> Iterator[Site]:
    episodes = episodes or [serving.open_episode("filesystem", k) for k in range(2)]
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        port = listener.getsockname()[1]
        app = serving.http_app(episodes, **limits)
        server = uvicorn.Server(http_server.server_config(app, "127.0.0.1", port, token))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.02)
            yield Site(server, port)
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
    assert not thread.is_alive()


def listing(site: Site, episode: int = 0) -> None:
    """Check that a well-behaved client is served."""
    answer = site.call("list_directory", {"path": "."}, episode)
    assert (answer.status, '"isError":false' in answer.body) == (200, True), answer


def until_closed(connection: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionError):
        while data := connection.recv(65_536):
            received += data
    return received


def test_a_token_is_asked_for() -> None:
    with site(token=TOKEN) as server:
        for header in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}):
            answer = server.open(**header)
            assert answer.status == 401
            assert json.loads(answer.body)["error"]["message"] == "the token is missing or wrong"
        assert server.open(authorization=f"Bearer {TOKEN}").status == 200
        with server.connect() as connection:  # rejected before anything is read
            connection.sendall(
                b"POST /episodes/0/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 999999\r\n\r\n"
            )
            assert until_closed(connection).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("body", [1_000, 200_000, http_server.MAX_BODY_BYTES])
@pytest.mark.parametrize(("method", "status"), [("POST", 401), ("DELETE", 401), ("GET", 405)])
def test_who_is_refused_is_told_so_whatever_was_sent(method: str, status: int, body: int) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"} if status == 405 else {}
    with site(token=TOKEN) as server:
        for _ in range(5):
            assert server.send(method, b"x" * body, headers).status == status


@pytest.mark.parametrize(
    ("host", "token", "message"),
    [
        ("0.0.0.0", "", "reached from outside, which needs a token"),
        ("::", "", "reached from outside"),
        ("example.com", "", "reached from outside"),
        ("127.0.0.1", "x" * 15, "at least 16 printable ASCII characters, got 15"),
        ("0.0.0.0", "x" * 16 + "\n", "printable ASCII"),
        ("0.0.0.0", " " * 16, "must not begin or end with a space"),
        ("0.0.0.0", "x" * 16 + " ", "must not begin or end with a space"),
    ],
)
def test_what_is_unsafe_is_refused(host: str, token: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        serving.serve_http([serving.open_episode("filesystem", 0)], host, 8_000, token)
    http_server.check_access("0.0.0.0", TOKEN)
    http_server.check_access("::1", "")


def test_sessions_have_a_cap() -> None:
    with site(max_sessions=3) as server:
        sessions = [server.open().session for _ in range(3)]
        assert len(set(sessions)) == 3
        refused = server.open()
        assert (refused.status, "Too many open sessions" in refused.body) == (503, True)
        listing(server, episode=1)
        server.send("DELETE", None, {"mcp-session-id": sessions[0]})
        assert server.open().status == 200


def test_sessions_expire() -> None:
    with site(max_sessions=1, idle_seconds=0.5) as server:
        first = server.open().session
        while (answer := server.open()).status == 503:
            time.sleep(0.05)
        assert answer.session not in ("", first)
        gone = server.post(_call("list_directory", {"path": "."}), mcp_session_id=first)
        assert (gone.status, "Session not found" in gone.body) == (404, True)


@pytest.mark.parametrize("chunked", [False, True])
def test_an_oversize_body_is_refused_and_not_kept(chunked: bool) -> None:
    with site() as server:
        size = http_server.MAX_BODY_BYTES + 1
        length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % size
        with server.connect() as connection:
            lines = [b"POST /episodes/0/mcp HTTP/1.1", b"Host: 127.0.0.1", length]
            lines += [f"{name}: {value}".encode() for name, value in JSON.items()]
            connection.sendall(b"\r\n".join(lines) + b"\r\n\r\n")
            with suppress(ConnectionError):
                if chunked:
                    connection.sendall(b"%x\r\n" % size + b" " * size + b"\r\n0\r\n\r\n")
            assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")
        listing(server)


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
    # More than a pool's default number of threads.
    readers = [Reader() for _ in range(45)]
    with (
        site([*readers, serving.open_episode("filesystem", 0)]) as server,
        ThreadPoolExecutor(60) as pool,
    ):
        calls = [pool.submit(server.call, "wait", {}, k) for k in range(len(readers))]
        for reader in readers:
            assert reader.waiting.wait(PATIENCE)
        listing(server, episode=len(readers))
        for reader in readers:
            reader.may_go_on.set()
        assert all("done" in call.result(PATIENCE).body for call in calls)


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
        answers = [call.result(PATIENCE).body for call in others]
        assert (
            sum("too many calls of this episode are waiting" in each for each in answers) == refused
        )
        assert "done" in first.result(PATIENCE).body


@pytest.mark.parametrize("twin", [1, "1"])
def test_a_request_id_in_flight_is_refused(twin: object) -> None:
    """The SDK takes 1 and "1" for the same id."""
    reader = Reader()
    with site([reader]) as server, closing(reader), ThreadPoolExecutor(20) as pool:
        session = server.open().session
        first = pool.submit(server.post, _call("wait", {}), mcp_session_id=session)
        assert reader.waiting.wait(PATIENCE)
        again = {**_call("wait", {}), "id": twin}
        twins = [pool.submit(server.post, again, mcp_session_id=session) for _ in range(10)]
        answers = [each.result(PATIENCE) for each in twins]
        assert {each.status for each in answers} == {409}
        assert "the request id 1 is in flight" in answers[0].body
        reader.may_go_on.set()
        assert "done" in first.result(PATIENCE).body
        assert "done" in server.post(again, mcp_session_id=session).body


def test_a_client_that_leaves_starves_no_other() -> None:
    """The client's requests end with it, although its episode is busy."""
    reader = Reader()
    episodes = [reader, serving.open_episode("filesystem", 0)]
    with site(episodes) as server, closing(reader), ThreadPoolExecutor(16) as pool:
        session = server.open().session

        def leave(number: int) -> None:
            body = json.dumps({**_call("wait", {}), "id": number}).encode()
            headers = {**JSON, "mcp-session-id": session}
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=0.2)
            connection.request("POST", "/episodes/0/mcp", body, headers)
            with suppress(TimeoutError):
                connection.getresponse()
            connection.close()

        list(pool.map(leave, [k // 2 for k in range(300)]))
        for answer in pool.map(lambda _: server.open(1), range(16)):
            assert answer.status == 200
        while len(server.server.server_state.tasks) > 1:
            time.sleep(0.02)
        reader.may_go_on.set()


def test_a_request_that_takes_too_long_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()
    with site([reader]) as server, closing(reader):
        session = server.open().session
        monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.3)
        assert server.post(_call("wait", {}), mcp_session_id=session).status == 504
        monkeypatch.undo()
        reader.may_go_on.set()
        assert "done" in server.call("wait", {}).body
