"""The runs of one workbench are fast after the first, and as isolated as those of different ones."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentgym.sandboxes import Limits
from tests.helpers import needs_workbench

workbench: Any = pytest.importorskip("agentgym.sandboxes.workbench")
File, Workbench, BASH, PYTHON = (
    workbench.File,
    workbench.Workbench,
    "/usr/bin/bash",
    "/python/bin/python3",
)
LIMITS = Limits(seconds=30.0, memory_mb=256, output_chars=20_000)
FILES = {"d": File(None, 1.7e9), "d/a": File(b"x", 1.7e9)}


@pytest.fixture(autouse=True)
def _able() -> None:
    needs_workbench()


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    with Workbench() as made:
        yield made


PROBE = """
import ctypes, os, resource, signal, subprocess, sys, tempfile, time, uuid
print(os.getcwd(), sorted(os.environ.items()), sys.argv, sys.path, len(sys.modules), sys.flags)
for top in ("/workspace", "/tmp", "/run", "/dev", "/python/packages", "/var", "/etc"):
    for folder, folders, files in os.walk(top):
        entries = [os.lstat(os.path.join(folder, name)) for name in sorted(folders + files)]
        print(folder, sorted(folders), sorted(files), [(e.st_ino, e.st_mode, e.st_size, e.st_mtime) for e in entries])
print(os.getpid(), os.getppid(), os.getsid(0), id(object()), id(sys), hash("x"), uuid.uuid4(), tempfile.mkdtemp())
print([resource.getrlimit(k) for k in range(16)], os.nice(0), os.umask(0o22), time.time(), os.urandom(4).hex())
print([signal.getsignal(k) for k in range(1, 32)], ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
print(subprocess.run(["ls", "-lai", "/", "/tmp"], capture_output=True, text=True))
print(os.get_blocking(1), os.get_blocking(2), [k for k in range(40) if os.path.exists("/") and not closed(k)])
print(open("/dev/urandom", "rb").read(4).hex(), os.listdir("/dev"), os.statvfs("/tmp"))
"""
PROBE = f"""
def closed(number):
    import os
    try: os.fstat(number)
    except OSError: return True
{PROBE}"""

LITTER = """
import ctypes, fcntl, os, resource, signal, subprocess, sys, time
import json, decimal, builtins
for top in ("/workspace", "/tmp", "/run/episode", "/dev", "/python/packages", "/usr/bin", "/var", "/"):
    try: open(f"{top}/litter", "w").write("x" * 5_000)
    except OSError: pass
os.makedirs("/workspace/left/behind"); os.symlink("/etc", "/workspace/link"); os.mkfifo("/tmp/pipe")
for name in ("urandom", "random"):
    try: os.remove(f"/run/episode/{name}")
    except OSError: pass
with open("/run/episode/state", "r+b") as file: file.write(b"\\xff" * 32)
for number in (1, 2): os.set_blocking(number, False)
fcntl.fcntl(1, 1031, 4096)  # the size of the pipe
os.environ["LITTER"] = "x"; builtins.LITTER = 1; sys.modules["litter"] = sys; sys.path.insert(0, "/tmp")
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20)); resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
signal.signal(signal.SIGTERM, signal.SIG_IGN); os.umask(0o777); os.nice(5); os.chdir("/tmp")
if os.fork() == 0:
    os.setsid()
    while True:
        time.sleep(0.01)
        try: open("/workspace/late", "w").write("late")
        except OSError: pass
subprocess.Popen(["sleep", "300"], start_new_session=True)
for pid in range(1, 50):
    if pid != os.getpid():
        try: os.kill(pid, signal.SIGSTOP)
        except OSError: pass
sys.stdout.write("litter" * 100); sys.stdout.flush()
os.abort()
"""


def probe(bench: Any) -> Any:
    outcome = bench.run([PYTHON, "-c", PROBE], FILES, limits=LIMITS)
    assert (outcome.code, outcome.stderr) == (0, "")
    return outcome


def sandbox_of(bench: Any) -> int:
    return int(bench._process.pid)


def test_a_run_finds_nothing_of_another() -> None:
    with Workbench() as bench:
        first = probe(bench)
        sandbox = sandbox_of(bench)
        littered = bench.run([PYTHON, "-c", LITTER], FILES, limits=LIMITS)
        assert (littered.code, littered.stdout) == (-signal.SIGABRT, "litter" * 100)
        assert "left/behind" in littered.files
        assert probe(bench) == first
        stopped = bench.run([BASH, "-c", "sleep 99 & sleep 99"], {}, limits=Limits(seconds=0.5))
        assert stopped.timed_out
        assert probe(bench) == first
        assert sandbox_of(bench) == sandbox
    with Workbench() as other:
        assert probe(other) == first


def test_a_sandbox_that_is_old_shows_no_other_times(monkeypatch: pytest.MonkeyPatch) -> None:
    with Workbench() as bench:
        first = probe(bench)
        time.sleep(1.5)  # longer than the kernel's time stamps may lag
        assert probe(bench) == first
        sandbox = sandbox_of(bench)
        monkeypatch.setattr(workbench, "_LIFETIME", 10**9)
        assert probe(bench) == first
        assert sandbox_of(bench) != sandbox


@pytest.mark.parametrize(
    ("command", "stopped"),
    [
        ("kill -9 -1", ""),
        ("f() { f | f & }; f; sleep 9", "stopped because it had more than"),
        ("rm -rf /run/episode/*", ""),
        ("rm -rf --no-preserve-root / 2> /dev/null", ""),
        ("truncate -s 3 /run/episode/state", ""),
        ("rm /run/episode/state; mkdir /run/episode/state", ""),
        ("yes", "stopped after printing more than"),
    ],
)
def test_what_is_wrong_with_one_run_does_not_reach_the_next(
    bench: Any, command: str, stopped: str
) -> None:
    outcome = bench.run([BASH, "-c", command], {}, limits=LIMITS)
    assert outcome.stopped.startswith(stopped)
    assert (outcome.stopped == "") == (stopped == "")
    assert outcome.files is not None, "its files are given back"
    assert bench.run([BASH, "-c", "echo well"], {}, limits=LIMITS).stdout == "well\n"


def test_the_sandbox_outlives_the_thread_that_started_it() -> None:
    sandboxes = set()
    with Workbench() as bench:
        for k in range(3):
            with ThreadPoolExecutor(1) as threads:
                done = threads.submit(bench.run, [BASH, "-c", f"echo {k}"], {})
                assert done.result().stdout == f"{k}\n"
            sandboxes.add(sandbox_of(bench))
    assert len(sandboxes) == 1


def test_threads_take_turns() -> None:
    with Workbench() as bench, ThreadPoolExecutor(4) as threads:
        outcomes = threads.map(lambda k: bench.run([BASH, "-c", f"echo {k}"], {}).stdout, range(8))
        assert list(outcomes) == [f"{k}\n" for k in range(8)]


def test_a_sandbox_that_was_ended_is_started_again() -> None:
    with Workbench() as bench:
        first = probe(bench)
        for pid in (sandbox_of(bench), *workbench_children(sandbox_of(bench))):
            os.kill(pid, signal.SIGKILL)
        assert probe(bench) == first
        bench.close()
        assert probe(bench) == first


def workbench_children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()))


@pytest.mark.rotation
def test_nothing_is_left_when_a_workbench_is_closed_or_forgotten() -> None:
    for end in (lambda bench: bench.close(), lambda bench: None):
        bench = Workbench()
        bench.run([BASH, "-c", "true"], {})
        pids = [sandbox_of(bench), *workbench_children(sandbox_of(bench))]
        assert len(pids) == 2
        end(bench)
        del bench
        gc.collect()
        assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


@pytest.mark.rotation
def test_copies_and_forks_have_a_sandbox_of_their_own() -> None:
    with Workbench() as bench:
        first = probe(bench)
        for other in (copy.deepcopy(bench), pickle.loads(pickle.dumps(bench))):
            assert probe(other) == first
            assert sandbox_of(other) != sandbox_of(bench)
            other.close()
        sandbox = sandbox_of(bench)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = int(probe(bench) != first or sandbox_of(bench) == sandbox)
                bench.close()
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert probe(bench) == first
        assert sandbox_of(bench) == sandbox


@pytest.mark.rotation
def test_where_namespaces_cannot_be_nested_runs_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Workbench() as bench:
        first = probe(bench)
    able = workbench._command()
    where = able.index("CAP_SYS_ADMIN")
    monkeypatch.setattr(workbench, "_command", lambda: able[: where - 1] + able[where + 1 :])
    with Workbench() as bench:
        for _ in range(2):
            assert probe(bench) == first
            assert bench._process is None
        littered = bench.run([PYTHON, "-c", LITTER], FILES, limits=LIMITS)
        assert "left/behind" in littered.files
