"""The viewer's HTML page and its local server."""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from agentgym.training.rollout.storage import replacing
from agentgym.training.viewer.run_index import RunIndex

# Parts of the page's script, in dependency order.
_SCRIPTS = (
    "data.js", "address.js", "rows.js", "elements.js", "chart.js", "episode.js",
    "knowledge.js", "compare.js", "list.js", "summary.js", "app.js",
)  # fmt: skip

# JSON escapes of characters that could end a script element or a line of the script.
_ESCAPES = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})

# Higher compression levels take several times as long and save little space.
_LEVEL = 4
# Characters per compressed block, which a browser opens in milliseconds.
_PACK = 1 << 19

HOST = "127.0.0.1"
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def escape_json(data: Any) -> str:
    """Encode data as JSON for a script element."""
    return json.dumps(data, ensure_ascii=False).translate(_ESCAPES)


def asset(name: str) -> str:
    """Return the contents of an asset file."""
    return (files("agentgym.training.viewer") / "assets" / name).read_text(encoding="utf-8")


def script() -> str:
    """Return the script of the page."""
    return "\n".join(map(asset, _SCRIPTS))


def content_policy(script_text: str, style: str) -> str:
    """Return a content security policy that allows only this script and style."""
    return (
        f"default-src 'none'; script-src '{_digest(script_text)}'; style-src '{_digest(style)}'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def render_page(boot: dict[str, Any], episodes: Iterable[str] = ()) -> Iterator[str]:
    """Yield the HTML document in parts, with the initial data and the given episode elements."""
    style, code = asset("style.css"), script()
    head, tail = asset("page.html").split("<!--episodes-->")
    values = {"policy": content_policy(code, style), "style": style, "boot": escape_json(boot)}
    for name, value in values.items():
        head = head.replace(f"<!--{name}-->", value, 1)
    yield head
    yield from episodes
    yield tail.replace("<!--script-->", code, 1)


def write_page(index: RunIndex, out: Path, view_of: Callable[[bytes], dict[str, Any]]) -> int:
    """Write a run as one file with compressed episodes, and return the number of episodes.

    Raises:
        ValueError: The run has no episodes.
        OSError: The file cannot be written; an existing file is unchanged.
    """
    if not index.rows:
        names = ", ".join(map(str, index.runs))
        raise ValueError(f"{names} contains no trajectories; choose another log or folder")
    rows = list(map(asdict, index.rows))
    boot = {"title": index.title, "rows": rows, "files": index.files()}
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as file:
        for part in render_page(boot, _elements(index, view_of)):
            # Models can write lone surrogates, which UTF-8 cannot encode.
            file.write(part.encode("utf-8", "replace"))
    return len(index.rows)


def _elements(index: RunIndex, view_of: Callable[[bytes], dict[str, Any]]) -> Iterator[str]:
    lines: list[str] = []
    for row in index.rows:
        lines.append(json.dumps(episode_or_problem(index, row.number, view_of)))
        if sum(map(len, lines)) >= _PACK or row is index.rows[-1]:
            # Model text in the document is encoded, so the text cannot end the script element.
            packed = gzip.compress("\n".join(lines).encode(), compresslevel=_LEVEL, mtime=0)
            yield (
                f'<script type="application/gzip" id="{row.number + 1 - len(lines)}">'
                f"{base64.b64encode(packed).decode()}</script>\n"
            )
            lines = []


def episode_or_problem(
    index: RunIndex, number: int, view_of: Callable[[bytes], dict[str, Any]]
) -> dict[str, Any]:
    """Return an episode's view, or the error message if the view cannot be built. Raise
    `LookupError` for an unknown episode.
    """
    try:
        return view_of(index.line(number))
    except (OSError, ValueError) as error:
        return {"problem": str(error)}


def run_key(runs: Iterable[Path]) -> str:
    """Return a key that identifies the runs, survives restarts and is secret from other users.

    The key is derived from a secret file in the cache folder; without the file, the key is random.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "agentgym")
    names = "\0".join(str(run.resolve()) for run in runs)
    try:
        secret = _secret(cache / "viewer-key")
    except OSError:
        secret = secrets.token_bytes(32)
    digest = hmac.digest(secret, names.encode("utf-8", "surrogateescape"), "sha256")
    return base64.urlsafe_b64encode(digest[:16]).decode().rstrip("=")


def _secret(path: Path) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        new = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(new, secrets.token_bytes(32))  # one write, so that readers see all 32 bytes
        os.close(new)
    secret = path.read_bytes()
    if len(secret) != 32 or (os.name == "posix" and path.stat().st_mode & 0o077):
        raise PermissionError(f"{path} must contain 32 bytes and be readable only by its owner")
    return secret


class ViewerServer(ThreadingHTTPServer):
    """Server for a run's page, on the loopback address.

    Each address starts with the runs' key, which other users of the machine do not know. A
    request's `Host` header must name this server, because pages from other sites cannot fake the
    header. Episodes are addressed by number.
    """

    daemon_threads = True

    def __init__(
        self, index: RunIndex, view_of: Callable[[bytes], dict[str, Any]], port: int = 0
    ) -> None:
        super().__init__((HOST, port), _Handler)
        self.index, self.view_of = index, view_of
        self.key = run_key(index.runs)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print this server's errors, except those of closed connections."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """Return the address of the page."""
        return f"http://{HOST}:{self.server_port}/{self.key}/"

    def answer(self, path: str, query: dict[str, list[str]]) -> Any:
        """Return a path's data.

        Raises:
            LookupError: The path does not exist.
            ValueError: A query value or a number is malformed.
        """
        if path == "rows":
            return self._rows(int(query["from"][0]), int(query["generation"][0]))
        if path == "files":
            return self.index.files()
        if path == "raw":
            numbers = query["numbers"][0].split(",")
            return b"".join(self.index.line(int(number)) for number in numbers)
        if path == "search":
            return list(self.index.search(query["text"][0], int(query.get("from", ["0"])[0])))
        kind, _, number = path.partition("/")
        if kind != "episodes" or not (number.isascii() and number.isdecimal()):
            raise LookupError(f"there is nothing at {path!r}")
        return episode_or_problem(self.index, int(number), self.view_of)

    def _rows(self, start: int, generation: int) -> dict[str, Any]:
        more = self.index.refresh()
        first = max(0, start) if generation == self.index.generation else 0
        return {
            "generation": self.index.generation,
            "rows": list(map(asdict, self.index.rows[first:])),
            "more": more,
        }


class _Handler(BaseHTTPRequestHandler):
    server: ViewerServer
    protocol_version = "HTTP/1.1"
    # Seconds of inactivity after which a client's thread ends.
    timeout = 30.0

    def do_GET(self) -> None:
        hosts = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        path, _, query = self.path.partition("?")
        key, _, rest = path.removeprefix("/").partition("/")
        if self.headers.get("Host") not in hosts or not secrets.compare_digest(
            key.encode(), self.server.key.encode()
        ):
            self._send(
                HTTPStatus.FORBIDDEN, "text/plain", "open the address that the command printed"
            )
        elif not rest and path.endswith("/"):
            boot = {"title": self.server.index.title, "live": True}
            self._send(HTTPStatus.OK, "text/html", "".join(render_page(boot)))
        else:
            self._send_data(rest, query)

    def _send_data(self, path: str, query: str) -> None:
        try:
            data = self.server.answer(path, parse_qs(query))
        except (LookupError, ValueError) as error:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", f"{error}")
        else:
            text = data if isinstance(data, bytes) else json.dumps(data)
            self._send(HTTPStatus.OK, "application/json", text)

    def _send(self, status: HTTPStatus, kind: str, text: str | bytes) -> None:
        body = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
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
        pass  # print nothing
