from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgym.training.viewer import RunIndex, ViewerServer, build_view, page
from tests.helpers import PATIENCE
from tests.training.viewer.episodes import played, write_run


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ViewerServer]:
    (tmp_path / "secret.txt").write_text("not for you")
    run = tmp_path / "run"
    run.mkdir()
    serving = ViewerServer(RunIndex(write_run(run)), build_view)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    yield serving
    serving.shutdown()
    serving.server_close()
    thread.join()


def ask(
    server: ViewerServer, path: str, host: str = "", method: str = "GET"
) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE)
    try:
        headers = {"Host": host or f"127.0.0.1:{server.server_port}"}
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def test_the_page_and_its_data(server: ViewerServer) -> None:
    status, headers, page = ask(server, f"/{server.key}/")
    assert status == 200
    assert "script-src 'sha256-" in headers["Content-Security-Policy"]
    assert '"live": true' in page
    status, _, text = ask(server, f"/{server.key}/rows?from=0&generation=0")
    rows = json.loads(text)
    assert len(rows["rows"]) == 5
    assert rows["more"] is False
    assert json.loads(ask(server, f"/{server.key}/episodes/0")[2])["world"] == "ListWorld"
    assert json.loads(ask(server, f"/{server.key}/search?text=target")[2]) == [0, 1, 2, 3, 4]
    assert server.server_address[0] == "127.0.0.1"


def test_new_episodes_come_with_the_next_question(server: ViewerServer) -> None:
    ask(server, f"/{server.key}/rows?from=0&generation=0")
    log = server.index.runs[0] / "later.jsonl"
    line = played(seed=9).to_json() + "\n"
    log.write_text(line[:500])
    assert json.loads(ask(server, f"/{server.key}/rows?from=5&generation=0")[2])["rows"] == []
    log.write_text(line)
    (row,) = json.loads(ask(server, f"/{server.key}/rows?from=5&generation=0")[2])["rows"]
    assert (row["number"], row["seed"]) == (5, 9)
    log.unlink()
    news = json.loads(ask(server, f"/{server.key}/rows?from=6&generation=0")[2])
    assert news["generation"] == 1
    assert len(news["rows"]) == 5


def test_a_link_survives_a_restart_and_is_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    key = page.run_key([one])
    secret = tmp_path / "cache" / "agentgym" / "viewer-key"
    assert (key, secret.stat().st_mode & 0o077) == (page.run_key([one]), 0)
    assert len({key, page.run_key([other]), page.run_key([one, other])}) == 3
    secret.chmod(0o644)
    assert len({key, page.run_key([one]), page.run_key([one])}) == 3, "others can read the secret"
    secret.unlink()
    assert page.run_key([one]) != key, "the key follows from the secret"


def test_lines_of_the_log_and_files_of_the_run(server: ViewerServer) -> None:
    ask(server, f"/{server.key}/rows?from=0&generation=0")
    (run,) = server.index.runs
    (run / "summary.md").write_text("# Summary")
    (run / "arms.png").write_bytes(b"picture")
    (run / "secret.md").write_text("not for you")
    (run / "ablation.json").symlink_to(run.parent / "secret.txt")
    lines = (run / "trajectories.jsonl").read_text().splitlines(keepends=True)
    assert ask(server, f"/{server.key}/raw?numbers=3,1")[2] == lines[3] + lines[1]
    assert json.loads(ask(server, f"/{server.key}/files")[2]) == [
        {"run": "run", "name": "summary.md", "text": "# Summary"},
        {"run": "run", "name": "arms.png", "image": "data:image/png;base64,cGljdHVyZQ=="},
    ]


@pytest.mark.parametrize(
    "path",
    (
        "../secret.txt %2e%2e/secret.txt episodes/../../secret.txt episodes/-1 episodes/5 episodes/٣ "
        "episodes/ trajectories.jsonl rows rows?from=x&generation=0 search raw raw?numbers=0,5 "
        "raw?numbers=../secret.txt assets/app.js /etc/passwd"
    ).split(),
)
def test_nothing_else_can_be_read(server: ViewerServer, path: str) -> None:
    ask(server, f"/{server.key}/rows?from=0&generation=0")
    status, _, text = ask(server, f"/{server.key}/{path}".replace("٣", "%D9%A3"))
    assert status == 404
    assert "not for you" not in text


@pytest.mark.parametrize("path", ["/", "/wrong/", "/wrong/rows?from=0&generation=0", "/ü/", "//"])
def test_an_address_without_the_key_is_refused(server: ViewerServer, path: str) -> None:
    assert ask(server, path.replace("ü", "%C3%BC"))[0] == 403


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "evil.example:80", "127.0.0.1:1"])
def test_a_page_of_another_site_is_refused(server: ViewerServer, host: str) -> None:
    assert ask(server, f"/{server.key}/", host)[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(server: ViewerServer, method: str) -> None:
    assert ask(server, f"/{server.key}/", method=method)[0] == 501


MALFORMED = [
    b"GET x",
    b"GET *",
    b"GET http://[",
    b"GET /?" + b"&" * 2_000,
    b"GET \xff/\xfe",
    b"GET",
    b"",
    b"\x00",
]
MALFORMED += [b"GET /" + b"a/" * 9_000, b"GET //[/rows?from=" + b"9" * 9_000, b"POST http://[/x"]


@pytest.mark.parametrize("keyed", [False, True])
def test_no_request_prints_a_traceback(
    server: ViewerServer, keyed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    host = f"Host: 127.0.0.1:{server.server_port}\r\n".encode() if keyed else b""
    paths = [f"GET /{server.key}/".encode() + path[4:] for path in MALFORMED] if keyed else []
    for line in (*MALFORMED, *paths):
        with connect(server) as connection:
            connection.sendall(line + b" HTTP/1.1\r\n" + host + b"Connection: close\r\n\r\n")
            connection.recv(100)
    assert ask(server, f"/{server.key}/")[0] == 200
    assert capsys.readouterr() == ("", "")


def connect(server: ViewerServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE)


def test_idle_connections_end(server: ViewerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page._Handler, "timeout", 0.2)
    for part in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"):
        with connect(server) as connection:
            connection.sendall(part)
            while connection.recv(10_000):
                pass
