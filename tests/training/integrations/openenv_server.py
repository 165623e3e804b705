"""Test servers on a local port, run in this process or by a command."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.helpers import PATIENCE


@contextmanager
def serving(app: Any) -> Iterator[str]:
    import uvicorn  # noqa: PLC0415 - an extra

    server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", 0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def serving_command(command: str, python: str = sys.executable) -> Iterator[str]:
    """Run an `agentgym serve` command with a free port instead of 8000, and yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = shlex.split(command.replace(":8000", f":{port}"))[1:]
    line = [python, "-m", "agentgym", *words]
    with subprocess.Popen(line, stderr=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + PATIENCE
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                if server.poll() is not None or time.monotonic() > deadline:
                    raise TimeoutError(f"{line} did not open port {port}")
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
