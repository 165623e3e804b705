from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agentgym.training.rollout import (
    DamagedFileError,
    RunLock,
    RunLockedError,
    TrajectoryLog,
    storage,
)
from agentgym.training.rollout.storage import append_text, filling, replacing, write_text
from tests.helpers import PATIENCE
from tests.training.rollout.disk import full_disk

HOLD = """
import os, sys, time
from pathlib import Path
from agentgym.training.rollout import RunLock
with RunLock(Path(sys.argv[1])):
    child = os.fork() if "fork" in sys.argv else 1
    if child:
        print(child, flush=True)
    time.sleep(600)
"""


@contextmanager
def holder(target: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a process that holds a lock until killed; yield the process and the number that it
    prints.
    """
    line = [sys.executable, "-c", HOLD, str(target), *options]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def in_fork(function: Callable[[], bool]) -> bool:
    if (child := os.fork()) == 0:
        status = 2
        with suppress(BaseException):
            status = 0 if function() else 1
        os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def is_free(target: Path) -> bool:
    try:
        RunLock(target).check()
    except RunLockedError:
        return False
    return True


def test_the_second_is_told_who_the_first_is_and_a_kill_frees_the_lock(tmp_path: Path) -> None:
    with holder(tmp_path) as (process, _):
        with pytest.raises(RunLockedError) as caught, RunLock(tmp_path):
            pass
        said = str(caught.value)
        assert f"{tmp_path} is being written by process {process.pid}" in said
        assert f" on {socket.gethostname()} since 20" in said
        assert "wait until that process has ended, stop it, or choose another place" in said
        assert not is_free(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
    assert (tmp_path / ".lock").exists(), "a killed process leaves its file, which locks nobody out"
    assert is_free(tmp_path)
    with RunLock(tmp_path):
        assert json.loads((tmp_path / ".lock").read_bytes())["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_a_forked_process_that_outlives_the_holder_does_not_hold(tmp_path: Path) -> None:
    with holder(tmp_path, "fork") as (process, child):
        assert not is_free(tmp_path)
        process.kill()
        process.wait(PATIENCE)
        os.kill(child, 0)  # raises if it died
        try:
            # On a busy host, the child may not have started running yet.
            for _ in range(3_000):
                if is_free(tmp_path):
                    break
                time.sleep(0.01)
            assert is_free(tmp_path)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_forked_process_releases_nothing(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    with lock:

        def leave() -> bool:
            lock.__exit__()
            return not is_free(tmp_path) and lock.path.exists()

        assert in_fork(leave)
        assert not is_free(tmp_path)
    assert is_free(tmp_path)


def test_a_lock_is_entered_again_by_itself_alone(tmp_path: Path) -> None:
    lock, other = RunLock(tmp_path), RunLock(tmp_path)
    with lock, lock, pytest.raises(RunLockedError, match="this process"), other:
        pass
    with other:
        pass


def test_locks_of_files_of_a_folder_are_apart(tmp_path: Path) -> None:
    with RunLock(tmp_path), TrajectoryLog(tmp_path / "a").writing() as log:
        with TrajectoryLog(tmp_path / "b").writing():
            log.append("x")
        with pytest.raises(RunLockedError, match="a is being written by process"):
            TrajectoryLog(tmp_path / "a").append("y")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.rotation
def test_writers_in_turn_lose_nothing(tmp_path: Path) -> None:
    # Each writer deletes the lock file, and a lock on a deleted file has no effect.
    number = tmp_path / "number"
    number.write_text("0")

    def count() -> None:
        for _ in range(100):
            while True:
                with suppress(RunLockedError), RunLock(tmp_path):
                    number.write_text(str(int(number.read_text()) + 1))
                    break

    children = []
    for _ in range(4):
        if (child := os.fork()) == 0:
            count()
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert number.read_text() == "400"


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(storage, "_try_lock", refuse)
    with pytest.raises(
        OSError, match=r"does not support locks .*choose a folder on another file system"
    ) as caught:
        RunLock(tmp_path).__enter__()
    assert not isinstance(caught.value, RunLockedError)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_text(path, "old")
    with full_disk(1_000), pytest.raises(OSError, match="too large"):
        write_text(path, "x" * 2_000)
    with suppress(KeyError), replacing(path) as file:
        file.write(b"half")
        raise KeyError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_append_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "f"
    append_text(path, "first\n")
    with full_disk(1_000), pytest.raises(OSError, match="too large"):
        append_text(path, "x" * 2_000 + "\n")
    append_text(path, "second\n", sync=True)
    assert path.read_text() == "first\nsecond\n"


def test_files_that_belong_together_are_there_when_the_last_one_is(tmp_path: Path) -> None:
    (tmp_path / ".new").mkdir()
    (tmp_path / ".new" / "of a killed writer").write_text("")
    with suppress(KeyError), filling(tmp_path, last="a") as part:
        (part / "a").write_text("1")
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with filling(tmp_path, last="a") as part:
        for name in "abc":
            (part / name).write_text(name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_what_a_run_writes_goes_through_the_storage() -> None:
    writes = re.compile(r"\.write_(text|bytes)\(|open\([^)]*\"[wax]b?\"|os\.replace")
    # Only `storage.py` may write files, except for exports, from which no run resumes.
    elsewhere = ("storage.py", "datasets.py")
    files = Path(storage.__file__).parents[1].rglob("*.py")
    assert [f for f in files if f.name not in elsewhere and writes.search(f.read_text())] == []


LINE = '{"spec": {"id": "x"}, "seed": 1, "labels": {}, "terminated": true, "truncated": false, "steps": [], "last": LAST}'
GOOD = LINE.replace("LAST", '{"kept": 0, "messages": []}')


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"",
        b"5",
        b"\xff\xfe",
        b"\x00" * 50,
        b"[" * 100_000,
        b'{"steps": []}',
        GOOD.replace("[]", "[{}]", 1).encode(),
        GOOD.replace(": 1,", ': "1",').encode(),
        GOOD.replace("true", "1").encode(),
        GOOD.replace('"id"', '"kwargs"').encode(),
        LINE.replace("LAST", '{"kept": 0, "messages": ["x"]}').encode(),
    ],
)
def test_a_damaged_line_is_named_with_its_file_and_number(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(GOOD.encode() + b"\n" + line + b"\n" + GOOD.encode() + b"\n")
    with pytest.raises(DamagedFileError) as caught:
        list(TrajectoryLog(path))
    assert f"{path}, line 2: " in str(caught.value)
    assert f"agentgym doctor {path} --repair" in str(caught.value)
