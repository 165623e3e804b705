from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym.sandboxes import Limits, SandboxUnavailable
from tests.helpers import PATIENCE, needs_workbench, run_python

workbench: Any = pytest.importorskip("agentgym.sandboxes.workbench")
program_run: Any = pytest.importorskip("agentgym.sandboxes.program_run")
File, BASH, PYTHON = workbench.File, "/usr/bin/bash", "/python/bin/python3"
LONG = Limits(seconds=30.0, memory_mb=256, output_chars=2_000)


@pytest.fixture(autouse=True)
def _able() -> None:
    needs_workbench()


def sh(
    command: str,
    files: Mapping[str, bytes | None] | None = None,
    limits: Limits = LONG,
    cwd: str = "/workspace",
) -> Any:
    held = {name: File(data, 1_736_931_600.0) for name, data in (files or {}).items()}
    return workbench.run([BASH, "-c", command], held, cwd, limits)


def py(code: str, files: Mapping[str, bytes | None] | None = None, limits: Limits = LONG) -> Any:
    held = {name: File(data, 1_736_931_600.0) for name, data in (files or {}).items()}
    return workbench.run([PYTHON, "-c", code], held, "/workspace", limits)


def test_files_go_in_and_come_back() -> None:
    files = {
        "a": None,
        "a/b": None,
        "a/b/c.bin": bytes(range(256)),
        "é ü.txt": "né".encode(),
        "empty": b"",
    }
    outcome = sh(
        "pwd; cat 'é ü.txt'; rm empty; mkdir d; echo new > d/n; ls a/b; date -r a/b/c.bin +%F",
        files,
    )
    assert (outcome.stdout, outcome.stderr, outcome.code) == (
        "/workspace\nné" + "c.bin\n2025-01-15\n",
        "",
        0,
    )
    kept = {name: files[name] for name in ("a", "a/b", "a/b/c.bin", "é ü.txt")}
    assert dict(outcome.files) == {**kept, "d": None, "d/n": b"new\n"}
    assert sh("pwd; ls", files, cwd="/workspace/a/b").stdout == "/workspace/a/b\nc.bin\n"
    big = {"big": os.urandom(3 * 2**20)}
    assert dict(sh("true", big).files) == big


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("exit 3", 3),
        ("kill -9 $$", -9),
        ("nonsense", 127),
        ("exec /workspace/none", 126),
        ("false; true", 0),
    ],
)
def test_the_exit_status_is_told_and_what_was_done_stays(command: str, code: int) -> None:
    outcome = sh(f"echo x > x; {command}")
    assert (outcome.stopped, dict(outcome.files)) == ("", {"x": b"x\n"})
    assert outcome.code in (code, 127)


@pytest.mark.parametrize(
    "command",
    [
        "(sleep 3000; echo late > late) &",
        "setsid nohup bash -c 'sleep 3000; echo late > late' & disown",
    ],
)
def test_processes_end_with_the_program(command: str) -> None:
    outcome = sh(f"{command}\necho x > x")
    assert (dict(outcome.files), outcome.code, outcome.stopped) == ({"x": b"x\n"}, 0, "")


THREADS = "import time\nfrom threading import Thread, stack_size"
SMALL = "stack_size(2**16)\nfor k in range(180): Thread(target=time.sleep, args=(9,)).start()"
MANY = "x = bytearray(2 * 10**8); import time; time.sleep(60)"
# For each program: the host resource that it tries to exhaust, and the reason why it is stopped, or
# "" if it only gets errors.
RESOURCES = {
    "processes": (py, "import os\nwhile True: os.fork()", "processes"),
    "processes by shell": (sh, "f() { f | f & }; f; sleep 60", "processes"),
    "threads": (py, f"{THREADS}\nwhile True: Thread(target=time.sleep, args=(1,)).start()", ""),
    "small threads": (py, f"{THREADS}\n{SMALL}", "threads"),
    "memory": (py, "x = bytearray(10**10)", ""),
    "memory of many": (sh, f"for i in 1 2 3 4 5; do python3 -c '{MANY}' & done; wait", "memory"),
    "time": (sh, "while :; do :; done", "after 3 s"),
    "sleep": (sh, "sleep 3000", "after 3 s"),
    "output": (sh, "yes", "printing"),
    "errors": (sh, "yes >&2", "printing"),
    "randomness": (sh, "cat /dev/urandom > /dev/null & cat /dev/random | yes", "printing"),
    "files": (py, "for k in range(10**6): open(f'/tmp/{k}', 'w')", "files"),
    "hard links": (py, "import os\nopen('f', 'w').close()\nfor k in range(10**6): os.link('f', f'{k}')", "files"),
    "folders": (py, "import os\nfor k in range(10**6):\n    os.mkdir('d'); os.chdir('d')", "files"),
    "links": (py, "import os\nfor k in range(10**6): os.symlink('x' * 4_000, f'{k}')", "files"),
    "room": (sh, "cat /dev/zero > big; cat /dev/zero > /tmp/big; true", ""),
    "attributes": (py, "import os\nos.setxattr('/tmp', 'user.x', b'x')", ""),
    "shared memory": (py, "import ctypes\nassert ctypes.CDLL(None).shmget(0, 10**9, 0o1600) > 0", ""),
    "memory files": (py, "import os\nos.memfd_create('x')", ""),
    "open files": (py, "x = [open('/dev/null') for _ in range(10**6)]", ""),
    "pipes": (py, "import os\nx = [os.pipe() for _ in range(10**6)]", ""),
    "locked memory": (py, "import ctypes, mmap\nx = mmap.mmap(-1, 10**9)\nassert not ctypes.CDLL(None).mlockall(3)", ""),
}  # fmt: skip


@pytest.mark.parametrize(("run", "code", "reason"), RESOURCES.values(), ids=RESOURCES.keys())
def test_a_program_cannot_exhaust_the_host(run: Any, code: str, reason: str) -> None:
    before = memory_of_files()
    seconds = 3.0 if reason.startswith("after") else 30.0
    outcome = run(code, limits=Limits(seconds=seconds, memory_mb=256, output_chars=2_000))
    assert reason in outcome.stopped
    assert bool(reason) == bool(outcome.stopped)
    if reason:  # the program's progress depends on the host's speed
        left = (outcome.stdout, outcome.stderr, outcome.code, outcome.files)
        assert left == ("", "", None, None)
    elif "true" not in code:
        assert outcome.code == 1
    assert len(outcome.stdout) + len(outcome.stderr) < 5_000
    # Tests in other processes may also run such programs for a few seconds.
    deadline = time.monotonic() + PATIENCE
    while (kept := memory_of_files() - before) > MUCH and time.monotonic() < deadline:
        time.sleep(0.1)
    assert kept <= MUCH, "its memory is released"


# A quarter of the memory that a program may fill.
MUCH = 2**26


def memory_of_files() -> int:
    """Return the size of the host's in-memory files, which outlive the processes that fill them."""
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    return next(1_024 * int(line.split()[1]) for line in lines if line.startswith("Shmem:"))


def test_what_has_ended_makes_room_for_others() -> None:
    outcome = sh(f"for i in $(seq {3 * program_run.MAX_TASKS}); do /bin/true; done; echo x > x")
    assert (dict(outcome.files), outcome.code, outcome.stderr) == ({"x": b"x\n"}, 0, "")


def test_returned_files_are_limited() -> None:
    outcome = sh("cat /dev/zero > big; for i in 1 2 3 4; do truncate -s 30M f$i; done; echo x > h")
    assert outcome.left_out == ("f4",)
    assert outcome.files["h"] == b"x\n"
    assert len(outcome.files["big"]) == 32 * 2**20


def test_only_regular_files_come_back() -> None:
    command = "ln -s /etc/passwd link; ln -s / root; ln -s ../../.. up; ln a hard; mkdir d; ln -s /etc d/etc; chmod 000 a d"
    outcome = sh(f"{command}; python3 -c 'import os; os.mkfifo(\"pipe\")'", {"a": b"a"})
    assert dict(outcome.files) == {"a": b"a", "hard": b"a", "d": None}
    assert sorted(outcome.left_out) == ["d/etc", "link", "pipe", "root", "up"]
    outcome = py(r"open(b'odd\xff', 'w').write('x'); open('new\nline', 'w').write('y')")
    assert dict(outcome.files) == {"odd\udcff": b"x", "new\nline": b"y"}


def test_secrets_and_sources_stay_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_SECRET", "hunter2")
    (tmp_path / "file").write_text("hunter2")
    project = Path(agentgym.__file__).parents[1]
    code = f"""
import importlib.util, os, sys
names = ["/etc/passwd", "/proc/self/environ", "/proc/1/environ", "/proc/1/root/etc/passwd"]
names += ["{tmp_path}/file", "{__file__}", "{project}"]
print([name for name in names if os.path.exists(name)])
print([importlib.util.find_spec(name) for name in ("agentgym", "envs", "tests", "gymnasium", "pytest")])
found = [name for root, folders, files in os.walk("/") for name in folders + files]
print([name for name in found if "agentgym" in name or name in ("envs", "worlds.py", "store.py")])
print("hunter2" in str(os.environ), sorted(os.listdir("/")))
"""
    lines = py(code).stdout.splitlines()
    assert lines[:3] == ["[]", "[None, None, None, None, None]", "[]"]
    assert lines[3].startswith("False ['bin', 'dev', 'etc', 'lib")
    for name in (
        "../../x",
        "/x",
        "/usr/x",
        "/python/x",
        "/python/packages/x.py",
        "/dev/x",
        f"{tmp_path}/x",
    ):
        assert sh(f"echo x > {name}").code == 1, name
    assert sh("touch /usr/bin/ls /programs/ls /python/lib/*/os.py").code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


ESCAPES = {
    "a kill of the first process": "import os\nfor k in (*range(1, 32), 34, 64): os.kill(1, k)\nprint('alive')",
    "a namespace": "import ctypes\nprint(ctypes.CDLL(None).unshare(0x10000000))",
    "a clone with a namespace": "import ctypes\nprint(ctypes.CDLL(None).syscall(56, 0x10000011, 0, 0, 0, 0))",
    "a trace": "import ctypes\nprint(ctypes.CDLL(None).ptrace(16, 1, 0, 0))",
    "its descriptors": "import ctypes, os\nprint([ctypes.CDLL(None).syscall(438, os.pidfd_open(1), k, 0) for k in range(9)])",
    "a mount": "import ctypes\nprint(ctypes.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, 0))",
    "inherited descriptors": "import os\nprint([k for k in range(3, 999) if os.path.exists('/dev/null') and not _closed(k)])",
}


@pytest.mark.parametrize("name", ESCAPES)
def test_ways_out_are_closed(name: str) -> None:
    helper = (
        "def _closed(k):\n    import os\n    try: os.fstat(k)\n    except OSError: return True\n"
    )
    outcome = py(helper + ESCAPES[name])
    if name.startswith("a kill"):
        assert outcome.stdout == "alive\n"
    else:
        assert outcome.stdout.strip() in ("-1", "[]", str([-1] * 9))


@pytest.mark.rotation
def test_packages_and_bytes_are_the_same_each_time() -> None:
    packages = "numpy, openpyxl, pandas, pypdf, reportlab, PIL.Image, dateutil"
    code = f"import {packages}\nprint(hash('x'), pandas.DataFrame({{'a': [1, 2]}}).a.sum())"
    outcomes = [py(code, limits=Limits(seconds=60, memory_mb=1_024)) for _ in range(2)]
    assert (outcomes[0].stderr, outcomes[0].code) == ("", 0)
    assert outcomes[0] == outcomes[1]
    assert sh(
        "ls -l --time-style=+%F a; printf 'b\\na\\n' | sort; echo $TZ", {"a": b"x"}
    ).stdout.splitlines()[-3:] == [
        "a",
        "b",
        "UTC",
    ]


# Ways in which the host's program can end while a sandboxed program runs.
ENDINGS = {
    "interrupted": "import _thread; _thread.interrupt_main()",
    "killed": "import os; os.kill(os.getpid(), 9)",
}
HOST = """
import signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by background processes
from agentgym.sandboxes.workbench import run, BASH
run([BASH, "-c", "true"], {})
threading.Timer(0.5, exec, ["ENDING"]).start()
run([BASH, "-c", "echo began > /workspace/x; exec -a MARK sleep 300"], {})
"""


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_host_that_ends_leaves_nothing(ending: str, tmp_path: Path) -> None:
    mark = f"agentgym-{ending}-{os.getpid()}"
    code = HOST.replace("MARK", mark).replace("ENDING", ENDINGS[ending])
    done = run_python("-c", code, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert (done.returncode == -signal.SIGKILL) == (ending == "killed"), done.stderr
    assert ("KeyboardInterrupt" in done.stderr) == (ending == "interrupted")
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and (
        alive := [p for p in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in _content(p)]
    ):
        time.sleep(0.05)
    assert alive == []
    assert list(tmp_path.iterdir()) == []


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has exited, or belongs to another user
        return b""


def test_a_process_that_says_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 300")
    silent.chmod(0o755)
    monkeypatch.setattr(workbench, "_command", lambda: (str(silent),))
    monkeypatch.setattr(program_run, "START_SECONDS", 0.2)
    with pytest.raises(SandboxUnavailable, match="bwrap did not start"):
        sh("true")


PROBE = """
import ctypes, os, resource, signal, subprocess, sys, tempfile, time, uuid
print(os.getcwd(), sorted(os.environ.items()), sys.argv, sys.path, len(sys.modules), sys.flags)
for top in ("/workspace", "/tmp", "/run", "/dev", "/python/packages", "/var", "/etc"):
    for folder, folders, files in os.walk(top):
        entries = [os.lstat(os.path.join(folder, name)) for name in sorted(folders + files)]
        print(folder, sorted(folders), sorted(files), [(e.st_mode, e.st_size, e.st_mtime) for e in entries])
print(os.getpid(), os.getppid(), os.getsid(0), hash("x"), uuid.uuid4(), tempfile.mkdtemp())
print([resource.getrlimit(k) for k in range(16)], os.nice(0), os.umask(0o22), time.time(), os.urandom(4).hex())
print([signal.getsignal(k) for k in range(1, 32)], ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
print(os.get_blocking(1), os.get_blocking(2), open("/dev/urandom", "rb").read(4).hex(), os.listdir("/dev"))
"""
LITTER = {
    "files": "for d in /workspace /tmp /run/episode /dev /usr/bin /; do echo x > $d/litter; done 2> /dev/null",
    "processes": "setsid sleep 300 & nohup sleep 300 & kill -STOP -1",
    "a killed first process": "kill -9 -1",
    "no clock": "rm -rf /run/episode/*; truncate -s 3 /run/episode/state",
    "another clock": "rm /run/episode/state; mkdir /run/episode/state",
    "nothing left": "rm -rf --no-preserve-root / 2> /dev/null",
    "no room": "cat /dev/zero > x; cat /dev/zero > /tmp/x",
}


def test_a_run_finds_nothing_of_another() -> None:
    first = py(PROBE, {"d": None, "d/a": b"x"})
    assert (first.code, first.stderr) == (0, "")
    for name, command in LITTER.items():
        sh(command, limits=Limits(seconds=10))
        assert py(PROBE, {"d": None, "d/a": b"x"}) == first, name
