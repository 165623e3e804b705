"""A scripted server, and a program that serves a tiny model through the Chat Completions API."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar


@dataclass
class Answer:
    """Response to a request; `hang` sends no response, and `drips` sends single bytes slowly."""

    message: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    error: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    usage: Mapping[str, Any] | None = None
    choice: Mapping[str, Any] = field(default_factory=dict)
    body: str | bytes | None = None
    drips: bool = False
    delay: float = 0.0
    hang: bool = False

    def data(self, model: str) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return (self.text(model) if self.body is None else self.body).encode()

    def text(self, model: str) -> str:
        if self.error is not None:
            return json.dumps({"error": self.error})
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": None, **self.message},
            "finish_reason": "stop",
        }
        answer = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [choice | self.choice],
        }
        return json.dumps(answer | ({"usage": self.usage} if self.usage else {}))


Script = Callable[[dict[str, Any], int], Answer]


class ScriptedServer(ThreadingHTTPServer):
    """Server that answers request k with `script(request, k)`, and counts concurrent requests."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, script: Script, path: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script, self.path = script, path
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.connections = self.now = self.most = 0
        self.ending = threading.Event()
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(
            sys.exc_info()[1], (ConnectionError, json.JSONDecodeError)
        ):  # the client disconnected early
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm: ClassVar[bool] = True
    server: ScriptedServer

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def do_POST(self) -> None:
        server = self.server
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not server.path:
            request["path"] = self.path
        with server.lock:
            server.requests.append(request)
            server.keys.append(self.headers["Authorization"] or self.headers["x-api-key"])
            number = len(server.requests)
            server.now += 1
            server.most = max(server.most, server.now)
        try:
            answer = (
                server.script(request, number)
                if server.path in ("", self.path)
                else Answer(status=404, error="no such path")
            )
            server.ending.wait(60 if answer.hang else answer.delay)
        finally:
            with server.lock:
                server.now -= 1
        self.answer(answer, request.get("model", ""))

    def answer(self, answer: Answer, model: str) -> None:
        body = answer.data(model)
        try:
            self.send_response(answer.status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
                **({} if answer.status < 400 else {"Retry-After-Ms": "1"}),
                **answer.headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            while answer.drips and not self.server.ending.wait(0.05):
                self.wfile.write(b" ")
            self.wfile.write(body)
        except ConnectionError:  # the client has disconnected
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving(
    script: Script | Answer, path: str = "/v1/chat/completions"
) -> Iterator[ScriptedServer]:
    answer = script
    server = ScriptedServer(
        (lambda request, number: answer) if isinstance(answer, Answer) else answer, path
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.ending.set()
        server.shutdown()
        thread.join()
        server.server_close()


def call(name: str, arguments: Any, call_id: str = "srv_1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


@contextmanager
def transformers_serve(folder: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = [sys.executable, __file__, str(folder), str(port)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(line, stdout=log, stderr=log, env=environment) as process,
    ):
        try:
            for _ in range(600):
                assert process.poll() is None, (folder / "log").read_text()
                with (
                    suppress(OSError),
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60),
                ):
                    break
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()


TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
    "{{ c.function.arguments | tojson }}{% endfor %}\n{% endfor %}{% if tools %}{{ tools | length }} tools\n{% endif %}assistant: "
)


def serve_tiny_model(folder: Path, port: int) -> None:
    # Imported here, because the scripted server does not use these libraries.
    import torch  # noqa: PLC0415
    from transformers.cli.serve import Serve  # noqa: PLC0415

    from agentgym.training.rollout import make_model, make_tokenizer  # noqa: PLC0415

    torch.set_num_threads(1)
    tokenizer = make_tokenizer(["assistant: tool_call name arguments user system error"], 300)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    make_model(tokenizer, 32, context=16_384).save_pretrained(folder)
    Serve(str(folder), host="127.0.0.1", port=port, device="cpu")


if __name__ == "__main__":
    serve_tiny_model(Path(sys.argv[1]), int(sys.argv[2]))
