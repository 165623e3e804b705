"""HTTP server whose clients cannot cost each other anything: limits on connections, on the time of
each part of an exchange, and a token.

The packages `uvicorn` and `starlette`, which come with `mcp`, are imported here.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from contextlib import suppress
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""The hosts that only this machine reaches."""
MAX_CONNECTIONS = 128
"""Open connections: a multiple of what clients of an episode take, and few descriptors."""
EXCHANGE_SECONDS = 30.0
"""Time in which a client has to send a whole request, or to read what waits for it: at the size
that bodies may have, a slow telephone line.
"""
MAX_BODY_BYTES = 2 * 2**20
"""Bytes of a request: the longest call as JSON, which may write one character as six."""
LINGER_SECONDS = 2.0
"""Time in which the rest of a refused request is read and dropped: a connection that is closed with
something unread is reset, and the answer may be lost with it.
"""
MIN_TOKEN = 16
"""Characters of a token; shorter ones can be guessed."""


def check_access(host: str, token: str) -> None:
    """Refuse a token that can be guessed, and a host that others reach without a token.

    Raises:
        ValueError: The host or the token is not right.
    """
    if token and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable()):
        raise ValueError(
            f"the token must have at least {MIN_TOKEN} printable ASCII characters, got "
            f"{len(token)} characters"
        )
    if not token and host not in LOOPBACK:
        raise ValueError(
            f"the host {host!r} is reached from outside, which needs a token (AGENTGYM_TOKEN or "
            f"--token); without one, host must be one of {', '.join(LOOPBACK)}"
        )


class Guarded:
    """App that answers only requests with the token, if there is one, and no GET: nothing is ever
    sent unasked, so a stream of events would only hold a connection.

    Args:
        app: The app behind it.
        token: The token; empty for none.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = f"Bearer {token}".encode() if token else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif not self._is_authorized(scope):
            header = (b"www-authenticate", b"Bearer")
            await _refuse(receive, send, 401, "the token is missing or wrong", header)
        elif scope["method"] == "GET":
            header = (b"allow", b"POST, DELETE")
            await _refuse(receive, send, 405, "there are no events to listen to", header)
        else:
            await self._app(scope, receive, send)

    def _is_authorized(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        # Compared in constant time, so that a token cannot be found out character by character.
        return not self._token or (len(given) == 1 and hmac.compare_digest(given[0], self._token))


async def _refuse(
    receive: Receive, send: Send, status: int, message: str, header: tuple[bytes, bytes]
) -> None:
    body = json.dumps(
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": message}}
    ).encode()
    headers = [
        header,
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            await _drop_body(receive)
    await send({"type": "http.response.body"})


async def _drop_body(receive: Receive) -> None:
    dropped, more = 0, True
    while more and dropped <= MAX_BODY_BYTES:
        message = await receive()
        dropped += len(message.get("body", b""))
        more = message.get("more_body", False)


class BoundedProtocol(H11Protocol):
    """Connection that ends if its client takes too long: to send a whole request, from the first
    moment on, or to read the answer.

    When there are too many connections, the one that has been waiting for its request the longest
    makes room: clients that mean it send theirs at once.
    """

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and wait for its first request."""
        super().connection_made(transport)
        self._start_timer()
        alive = [
            each
            for each in self.connections
            if isinstance(each, BoundedProtocol) and not each.transport.is_closing()
        ]
        if len(alive) > MAX_CONNECTIONS:
            waiting = {each._timer.when(): each for each in alive if each._timer is not None}
            waiting[min(waiting)].transport.abort()  # among them is this one

    def data_received(self, data: bytes) -> None:
        """Take in a part of a request."""
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            if self._timer is None:
                self._start_timer()
        else:
            self._stop_timer()

    def pause_writing(self) -> None:
        """Give the client time to read the whole answer."""
        super().pause_writing()
        if self._timer is None:
            self._start_timer()

    def resume_writing(self) -> None:
        """Go on; the time for the whole answer runs on while there is more of it."""
        super().resume_writing()
        if self.cycle is None or self.cycle.response_complete:
            self._stop_timer()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the client to read the rest."""
        super().on_response_complete()
        if self._timer is None and self.transport.is_closing():
            self._start_timer()
        elif self.transport.get_write_buffer_size() == 0:
            self._stop_timer()

    def timeout_keep_alive_handler(self) -> None:
        """End a connection that is not used any more, even if its client has not read all."""
        super().timeout_keep_alive_handler()
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._stop_timer()
        # Aborted, since closing would wait until the client has read what it does not read.
        self._timer = self.loop.call_later(EXCHANGE_SECONDS, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def run(app: ASGIApp, host: str, port: int, token: str = "") -> None:
    """Serve an app until interrupted.

    Raises:
        ValueError: The host or the token is not right.
    """
    check_access(host, token)
    uvicorn.Server(server_config(app, host, port, token)).run()


def server_config(app: ASGIApp, host: str, port: int, token: str = "") -> Any:
    """Return the configuration of uvicorn with all limits."""
    return uvicorn.Config(
        Guarded(app, token),
        host=host,
        port=port,
        http=BoundedProtocol,
        ws="none",
        limit_concurrency=2 * MAX_CONNECTIONS,  # it counts those too that are being ended
        timeout_graceful_shutdown=5,  # for calls under way, after an interrupt
        server_header=False,
        log_level="warning",
    )
