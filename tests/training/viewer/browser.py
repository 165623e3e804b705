"""A headless Chromium driven through chromedriver's WebDriver protocol."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import PATIENCE

# keys in WebDriver's notation
ENTER, ESCAPE, DOWN = "\ue007", "\ue00c", "\ue015"
# the key of an element reference in the WebDriver protocol
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    def __init__(self, port: int, profile: Path) -> None:
        self._port, self._path = port, ""
        arguments = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--disable-dev-shm-usage", f"--user-data-dir={profile}",
        ]  # fmt: skip
        options = {"goog:chromeOptions": {"args": arguments, "binary": CHROMIUM}}
        options["goog:loggingPrefs"] = {"browser": "ALL"}
        session = self._send("POST", "/session", {"capabilities": {"alwaysMatch": options}})
        self._path = f"/session/{session['sessionId']}"

    def open(self, url: str) -> None:
        self._send("POST", "/url", {"url": url})

    def run(self, script: str) -> Any:
        return self._send("POST", "/execute/sync", {"script": script, "args": []})

    def wait(self, condition: str) -> Any:
        end = time.monotonic() + PATIENCE
        while not (value := self.run(f"return {condition}")):
            if time.monotonic() > end:
                raise TimeoutError(condition)
            time.sleep(0.02)
        return value

    def keys(self, *keys: str) -> None:
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        source = {"type": "key", "id": "keyboard", "actions": actions}
        self._send("POST", "/actions", {"actions": [source]})

    def click(self, selector: str) -> None:
        element = self._send("POST", "/element", {"using": "css selector", "value": selector})
        self._send("POST", f"/element/{element[_ELEMENT]}/click", {})

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._devtools("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", {"features": [scheme]})

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._send("GET", "/screenshot", None)))

    def errors(self) -> list[str]:
        return [
            entry["message"]
            for entry in self._send("POST", "/se/log", {"type": "browser"})
            if entry["level"] == "SEVERE" and "favicon" not in entry["message"]
        ]

    def close(self) -> None:
        with suppress(OSError):
            self._send("DELETE", "", None)

    def _devtools(self, command: str, values: dict[str, Any]) -> None:
        self._send("POST", "/goog/cdp/execute", {"cmd": command, "params": values})

    def _send(self, method: str, path: str, data: Any) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        try:
            body = None if data is None else json.dumps(data)
            connection.request(method, self._path + path, body)
            value = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(value, dict) and "error" in value:
            raise RuntimeError(f"{value['error']}: {value['message']}")
        return value


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")

needs_browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="there is no chromium with chromedriver (apt-get install chromium chromium-driver)",
)


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert DRIVER is not None
    driver = subprocess.Popen(
        [DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    browser = None
    try:
        end = time.monotonic() + PATIENCE
        while browser is None:
            try:
                browser = Browser(port, folder)
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        yield browser
    finally:
        if browser is not None:
            browser.close()
        driver.terminate()
        driver.wait()
