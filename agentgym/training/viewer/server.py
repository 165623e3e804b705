"""Server of the page, for the user of this machine alone."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agentgym.training.viewer.page import (
    asset,
    content_policy,
    episode_or_problem,
    render_page,
    script,
)
from agentgym.training.viewer.run_index import RunIndex, row_data

HOST = "127.0.0.1"


class ViewerServer(ThreadingHTTPServer):
    """Server of a run, on this machine's own address.

    Addresses begin with a key, so that other users of the machine cannot read the run, and the
    `Host` of a request has to be this server, so that no page of another site can. Episodes are
    named by number, never by path.

    Args:
        index: The run.
        view_of: Makes the view of an episode from its line.
        port: The port; 0 for any that is free.

    Attributes:
        key: The first part of each path.

    Raises:
        OSError: The port is taken.
    """

    daemon_threads = True

    def __init__(
        self, index: RunIndex, view_of: Callable[[bytes], dict[str, Any]], port: int = 0
    ) -> None:
        super().__init__((HOST, port), _Handler)
        self.index, self.view_of = index, view_of
        self.key = secrets.token_urlsafe(16)

    @property
    def url(self) -> str:
        """Return the address of the page."""
        return f"http://{HOST}:{self.server_port}/{self.key}/"

    def answer(self, path: str, query: dict[str, list[str]]) -> Any:
        """Return the data of a path.

        Raises:
            LookupError: There is none.
            ValueError: A value of the query or a number is malformed.
        """
        if path == "rows":
            return self._rows(int(query["from"][0]), int(query["generation"][0]))
        if path == "search":
            return list(self.index.search(query["text"][0]))
        kind, _, number = path.partition("/")
        if kind != "episodes" or not (number.isascii() and number.isdecimal()):
            raise LookupError(f"there is nothing at {path!r}")
        return episode_or_problem(self.index, int(number), self.view_of)

    def _rows(self, start: int, generation: int) -> dict[str, Any]:
        more = self.index.refresh()
        first = max(0, start) if generation == self.index.generation else 0
        rows = [row_data(row) for row in self.index.rows[first:]]
        return {"generation": self.index.generation, "rows": rows, "more": more}


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: ViewerServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a request for the page or for data."""
        hosts = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        url = urlsplit(self.path)
        _, key, *rest = url.path.split("/")
        if self.headers.get("Host") not in hosts or not secrets.compare_digest(
            key.encode(), self.server.key.encode()
        ):
            self._send(
                HTTPStatus.FORBIDDEN, "text/plain", "open the address that the command printed"
            )
        elif rest == [""]:
            boot = {"title": self.server.index.run.name, "live": True}
            self._send(HTTPStatus.OK, "text/html", "".join(render_page(boot)))
        else:
            self._send_data("/".join(rest), parse_qs(url.query))

    def _send_data(self, path: str, query: dict[str, list[str]]) -> None:
        try:
            data = self.server.answer(path, query)
        except (LookupError, ValueError) as error:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", f"{error}")
        else:
            self._send(HTTPStatus.OK, "application/json", json.dumps(data))

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode("utf-8", "replace")
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": content_policy(script(), asset("style.css")),
            **_HEADERS,
        }
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *values: object) -> None:
        """Keep the terminal free of requests."""


_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
