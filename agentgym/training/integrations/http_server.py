"""HTTP server with limits on connections, requests and their time, and a token.

It imports `uvicorn` and `starlette`, which `mcp` installs.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from contextlib import suppress
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# hosts that only this machine can reach
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# several times what the clients of an episode use
MAX_CONNECTIONS = 128
# the longest program, behind as many as may wait
REQUEST_SECONDS = 900.0
# the longest call as JSON, which may encode one character as six
MAX_BODY_BYTES = 2 * 2**20
# Time to drain a refused request: closing a connection with unread data resets it, and the response
# may be lost.
LINGER_SECONDS = 2.0
# shorter tokens can be guessed
MIN_TOKEN = 16


def check_access(host: str, token: str) -> None:
    """Reject weak tokens, and public hosts without a token."""
    if token and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable()):
        raise ValueError(
            f"the token must have at least {MIN_TOKEN} printable ASCII characters, got "
            f"{len(token)} characters"
        )
    if token != token.strip():  # a header's value loses them, so it would never match
        raise ValueError("the token must not begin or end with a space; remove it")
    if not token and host not in LOOPBACK:
        raise ValueError(
            f"the host {host!r} is reached from outside, which needs a token (AGENTGYM_TOKEN or "
            f"--token); without one, host must be one of {', '.join(LOOPBACK)}"
        )


class Guarded:
    """App that passes on complete requests of authorized clients, each for a limited time.

    GET is refused: the server sends no unsolicited events, so a stream would only hold a
    connection. Ids already in flight in a session are refused too, because the SDK would answer
    only one of the requests. An empty token admits every client.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = f"Bearer {token}".encode() if token else b""
        self._in_flight: set[tuple[str, bytes, str]] = set()

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
        elif _is_too_long(scope) or (body := await _read_body(receive)) is None:
            await _refuse(receive, send, 413, f"a request has at most {MAX_BODY_BYTES} bytes")
        else:
            await self._pass(scope, body, receive, send)

    def _is_authorized(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        # Compare in constant time, or the token could be guessed character by character.
        return not self._token or (len(given) == 1 and hmac.compare_digest(given[0], self._token))

    async def _pass(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        session = dict(scope["headers"]).get(b"mcp-session-id", b"")
        request = (scope["path"], session, _request_id(body))
        if session and request[2] and request in self._in_flight:
            await _refuse(_no_more, send, 409, f"the request id {request[2]} is in flight")
            return
        self._in_flight.add(request)
        try:
            await _run(self._app, scope, body, receive, send)
        finally:
            self._in_flight.discard(request)


def _is_too_long(scope: Scope) -> bool:
    length = dict(scope["headers"]).get(b"content-length", b"0")
    return length.isdigit() and int(length) > MAX_BODY_BYTES


def _request_id(body: bytes) -> str:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return ""  # the app explains the error
    # The SDK takes 1 and "1" for the same id.
    return str(message.get("id", "")) if isinstance(message, dict) else ""


async def _run(app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
    unread = [body]
    has_started = False

    async def receive_all() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop()}
        return await receive()

    async def send_first(message: Message) -> None:
        nonlocal has_started
        has_started = True
        await send(message)

    async def leave() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    answering = asyncio.ensure_future(app(scope, receive_all, send_first))
    leaving = asyncio.ensure_future(leave())
    try:
        done, _ = await asyncio.wait(
            (answering, leaving),
            timeout=REQUEST_SECONDS,
            return_when=asyncio.FIRST_COMPLETED,
        )
    finally:
        for task in (answering, leaving):
            task.cancel()
    with suppress(asyncio.CancelledError):
        await answering
    if not has_started and leaving not in done:
        await _refuse(_no_more, send, 504, f"the call took more than {REQUEST_SECONDS:g} seconds")


async def _no_more() -> Message:
    return {"type": "http.request", "body": b""}


async def _refuse(
    receive: Receive,
    send: Send,
    status: int,
    message: str,
    header: tuple[bytes, bytes] = (b"cache-control", b"no-store"),
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
            await _read_body(receive)
    await send({"type": "http.response.body"})


async def _read_body(receive: Receive) -> bytes | None:
    parts: list[bytes] = []
    size, more = 0, True
    while more and size <= MAX_BODY_BYTES:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
    return None if size > MAX_BODY_BYTES else b"".join(parts)


def server_config(app: ASGIApp, host: str, port: int, token: str = "") -> Any:
    """Return the uvicorn configuration with all limits."""
    return uvicorn.Config(
        Guarded(app, token),
        host=host,
        port=port,
        http="h11",
        ws="none",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=5,  # for running calls, after an interrupt
        server_header=False,
        log_level="warning",
    )
