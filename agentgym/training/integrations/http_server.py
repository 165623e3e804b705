"""HTTP server that checks a token and limits connections, request sizes and durations."""

from __future__ import annotations

import asyncio
import hmac
import json
from typing import Any

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Hosts that only this machine can reach.
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Maximum number of connections; an episode's clients need far fewer.
MAX_CONNECTIONS = 128
# Time limit of a request, which may wait in a full queue before its program runs.
REQUEST_SECONDS = 900.0
# The longest call must fit, even if JSON escapes expand each character to six.
MAX_BODY_BYTES = 2 * 2**20
# Shorter tokens can be guessed.
MIN_TOKEN = 16


def check_access(host: str, token: str) -> None:
    """Reject weak tokens, and non-loopback hosts without a token."""
    if token and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable()):
        raise ValueError(
            f"the token must have at least {MIN_TOKEN} printable ASCII characters, got "
            f"{len(token)} characters"
        )
    if token != token.strip():  # HTTP strips outer spaces, so the token would never match
        raise ValueError("the token must not begin or end with a space; remove it")
    if not token and host not in LOOPBACK:
        raise ValueError(
            f"the host {host!r} is not local, which requires a token (AGENTGYM_TOKEN or "
            f"--token); without one, host must be one of {', '.join(LOOPBACK)}"
        )


class RequireToken:
    """App that refuses requests and connections without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._expected = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward or refuse a request."""
        given = b"".join(
            value for name, value in scope.get("headers", ()) if name == b"authorization"
        )
        # Compare in constant time, or the token could be guessed character by character.
        if scope["type"] == "lifespan" or hmac.compare_digest(given, self._expected):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            header = {"www-authenticate": "Bearer"}
            refusal = JSONResponse({"detail": "the token is missing or wrong"}, 401, header)
            await refusal(scope, receive, send)


class OneAnswerEach:
    """MCP app that answers each request once, within a limited time.

    GET is refused, because the server sends no unsolicited events. A request is also refused if its
    id is still in flight in the session. A request's body must arrive in one message, as
    `RequestBodyLimitMiddleware` sends it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._in_flight: set[tuple[str, bytes, str]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        first = await receive()
        session = dict(scope["headers"]).get(b"mcp-session-id", b"")
        request = (scope["path"], session, _request_id(first.get("body", b"")))
        refusal = None
        if scope["method"] == "GET":
            refusal = JSONResponse({"detail": "there are no events to listen to"}, 405)
        elif session and request[2] and request in self._in_flight:
            refusal = JSONResponse({"detail": f"the request id {request[2]} is in flight"}, 409)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        self._in_flight.add(request)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                await self._app(scope, _preceded(first, receive), send)
        except TimeoutError:
            detail = f"the call took more than {REQUEST_SECONDS:g} seconds"
            await JSONResponse({"detail": detail}, 504)(scope, receive, send)
        finally:
            self._in_flight.discard(request)


def _preceded(first: Message, receive: Receive) -> Receive:
    unread = [first]

    async def receive_all() -> Message:
        return unread.pop() if unread else await receive()

    return receive_all


def _request_id(body: bytes) -> str:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return ""  # the MCP app reports malformed requests
    # The SDK treats 1 and "1" as the same id.
    return str(message.get("id", "")) if isinstance(message, dict) else ""


def server_config(app: ASGIApp, host: str, port: int) -> Any:
    """Return the uvicorn configuration with limits on connections."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http="h11",
        ws="none",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=5,  # running calls may finish
        server_header=False,
        log_level="warning",
    )
