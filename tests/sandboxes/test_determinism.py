"""Programs depend only on the episode; each source of nondeterminism is tested by name."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from agentgym.sandboxes import Limits, determinism, namespaces
from agentgym.sandboxes.determinism import RunSeed
from tests.helpers import PATIENCE, needs_workbench

workbench: Any = pytest.importorskip("agentgym.sandboxes.workbench")

# Shell sources whose values differ between episodes.
SEEDED = {
    "the fraction of a second": "date +%N",
    "$EPOCHREALTIME": "echo $EPOCHREALTIME",
    "$RANDOM": "echo $RANDOM $RANDOM",
    "$RANDOM of a subshell": "bash -c 'echo $RANDOM'",
    "$SRANDOM": "echo $SRANDOM",
    "mktemp": "mktemp",
    "mktemp -d": "mktemp -d",
    "mktemp -u": "mktemp -u",
    "/dev/urandom": "head -c 16 /dev/urandom | base64",
    "/dev/random": "dd if=/dev/random bs=16 count=1 status=none | base64",
    "long reads of /dev/urandom": "head -c 1000000 /dev/urandom | md5sum",
    "shuf": "shuf -i 1-1000000 -n 3",
    "sort -R": "seq 1000 | sort -R | head -3",
    "python without an environment": "env -i /python/bin/python3 -c 'import os; print(os.urandom(8))'",
}

# Shell sources that are equal in all episodes at the same time.
FIXED = {
    "date": "date",
    "date without an environment": "env -i /usr/bin/date",
    "$EPOCHSECONDS": "echo $EPOCHSECONDS",
    "printf %()T": "printf '%(%s)T %(%F)T\\n' -1 -1",
    "$SECONDS": "echo $SECONDS",
    "awk systime": "awk 'BEGIN { srand(); print srand() }'",
    "stat": "echo > new; mkdir folder; stat -c '%n %w %x %y %z' new folder old /tmp",
    "touch": "touch old; stat -c %y old",
    "ls -l": "ls -l --full-time / /dev",
    "find -mmin": "find . -mmin -1 | sort; find . -newermt '2025-01-01'",
    "tar": "tar c . | md5sum",
    "gzip": "gzip < old | md5sum; gzip -k old; md5sum old.gz",
    "inode numbers": "ls -i; stat -c '%i %d' . /tmp / /dev/null",
    "directory order": "touch z y x a; ls -U; find .",
    "the room on disks": "stat -f / /tmp /programs /workspace; df /tmp /programs",
    "$$": "echo $$ $BASHPID $PPID; bash -c 'echo $$'; echo $!; true & echo $!; wait",
    "host name": "uname -n; echo $HOSTNAME",
    "uname": "uname -a",
    "nproc": "nproc; nproc --all",
    "user": "id; whoami; echo $UID $HOME",
    "environment": "env; export -p",
    "limits": "ulimit -a",
    "/proc": "cat /proc/uptime /proc/loadavg /proc/meminfo /proc/sys/kernel/random/boot_id; ls /proc /sys",
    "ps": "ps aux; top -b -n 1; uptime; free",
    "stdin": "cat; stat -c %F /dev/null",
    "descriptors": "for k in 0 1 2 3 4 5 6 7 8 9; do { true >&$k; } 2> /dev/null && echo $k; done",
    "a sleep": "sleep 1; date +%s",
    "the speed of dd": "dd if=/dev/zero of=/dev/null bs=1M count=50",
    "sed -i": "sed -i s/x/y/ old; stat old; ls -ai",
}

PYTHON_SEEDED = {
    "random": "random.random(), random.sample(range(10**6), 3)",
    "random.SystemRandom": "random.SystemRandom().random()",
    "uuid1": "uuid.uuid1()",
    "uuid4": "uuid.uuid4()",
    "secrets": "secrets.token_hex(8)",
    "os.urandom": "os.urandom(8)",
    "os.getrandom": "os.getrandom(8)",
    "getrandom by number": "buffer(lambda b: libc.syscall(GETRANDOM, b, 8, 0))",
    "getentropy": "buffer(lambda b: libc.getentropy(b, 8))",
    "tempfile": "tempfile.mkdtemp(), tempfile.NamedTemporaryFile().name",
    "mkstemp of the C library": "mkstemp()",
    "time.time_ns": "time.time_ns()",
}
PYTHON_FIXED = {
    "time": "int(time.time()), time.ctime(), time.localtime()",
    "datetime": "datetime.datetime.now().replace(microsecond=0), datetime.date.today()",
    "clock_gettime by number": "libc.syscall(CLOCK, 0, ctypes.create_string_buffer(16))",
    "time of the C library": "libc.time(None)",
    "a sleep": "time.sleep(1), int(time.time())",
    "hash": "hash('x'), hash(b'x'), hash(frozenset('abc'))",
    "id": "id(object()), id([]), id(print)",
    "repr": "repr(object()), repr(print_all)",
    "order of a set of objects": "[k for _, k in {(type(str(k), (), {}), k) for k in range(20)}]",
    "addresses of the C library": "ctypes.cast(libc.printf, ctypes.c_void_p).value",
    "os.getpid": "os.getpid(), os.getppid(), os.getpgid(0), threading.get_native_id()",
    "os.stat": "stamp()",
    "directory order": "folder()",
    "host name": "socket.gethostname(), platform.node(), os.uname(), platform.platform()",
    "processors": "os.cpu_count(), os.sched_getaffinity(0), multiprocessing.cpu_count()",
    "memory": "os.sysconf('SC_AVPHYS_PAGES'), os.sysconf('SC_PHYS_PAGES')",
    "load": "attempt(os.getloadavg)",
    "sysinfo": "buffer(lambda b: libc.sysinfo(ctypes.byref(INFO))), INFO.raw",
    "user": "attempt(getpass.getuser), os.getuid(), os.path.expanduser('~')",
    "environment": "sorted(os.environ.items())",
    "room": "attempt(lambda: shutil.disk_usage('/tmp')), os.statvfs('/')[:4]",
    "arguments": "sys.argv, sys.flags, sys.executable",
}
WITH_PACKAGES = {
    "numpy.random": "numpy.random.default_rng().random(), numpy.random.rand()",
    "numpy.random.SeedSequence": "numpy.random.SeedSequence().entropy",
    "a saved PDF": "pdf()",
}
PACKAGES_FIXED = {
    "pandas.Timestamp": "pandas.Timestamp.now().floor('s')",
    "a saved workbook": "workbook()",
}

HELPERS = """
import ctypes, datetime, getpass, hashlib, io, json, multiprocessing, os, platform, random, secrets, shutil, socket, sys, tempfile
import threading, time, uuid
libc = ctypes.CDLL(None)
INFO = ctypes.create_string_buffer(256)
GETRANDOM, CLOCK = (318, 228) if platform.machine() == "x86_64" else (278, 113)
def attempt(function):
    try: return function()
    except Exception as error: return repr(error)
def buffer(function):
    data = ctypes.create_string_buffer(8)
    return function(data), data.raw
def mkstemp():
    name = ctypes.create_string_buffer(b"/tmp/nameXXXXXX")
    return libc.mkstemp(name) > 0, name.value
def stamp():
    open("/tmp/stamp", "w").close()
    found = [os.stat("/tmp/stamp"), os.lstat("/tmp/stamp"), os.fstat(os.open("/tmp/stamp", os.O_RDONLY))]
    return [(s.st_mtime_ns, s.st_atime_ns, s.st_ctime_ns, s.st_ino, s.st_dev) for s in found]
def folder():
    os.mkdir("/tmp/folder")
    for name in "zyxabc": open(f"/tmp/folder/{name}", "w").close()
    return os.listdir("/tmp/folder"), [entry.inode() for entry in os.scandir("/tmp/folder")]
def workbook():
    book, data = openpyxl.Workbook(), io.BytesIO()
    book.active["A1"] = 1
    book.save(data)
    return hashlib.md5(data.getvalue()).hexdigest()
def pdf():
    data = io.BytesIO()
    page = canvas.Canvas(data)
    page.drawString(9, 9, "x")
    page.save()
    return hashlib.md5(data.getvalue()).hexdigest()
def print_all(sources):
    for name, source in sources.items():
        print(json.dumps([name, str(attempt(lambda: eval(source)))]))
"""
PACKAGES = "import numpy, openpyxl, pandas\nfrom reportlab.pdfgen import canvas\n"
PLAIN = {**PYTHON_SEEDED, **PYTHON_FIXED}
RICH = {**PLAIN, **WITH_PACKAGES, **PACKAGES_FIXED}

SHELL = "\n".join(
    [
        "mkdir /tmp/shown",
        *(
            f"mkdir /tmp/{k}; cp -p old /tmp/{k}; cd /tmp/{k}; ( {command}\n) > /tmp/shown/{k} 2>&1"
            for k, command in enumerate((SEEDED | FIXED).values())
        ),
        "python3 - > /workspace/shown <<'END'",
        f"import json\nnames = {list(SEEDED | FIXED)}",
        "print(json.dumps([(name, open(f'/tmp/shown/{k}').read()) for k, name in enumerate(names)]))",
        "END",
    ]
)
RUNS = """
import json, sys
from datetime import datetime, UTC
from agentgym.sandboxes import BubblewrapSandbox, Limits
from agentgym.sandboxes.determinism import RunSeed
from agentgym.sandboxes.namespaces import BASH, PYTHON
from agentgym.sandboxes.workbench import File, run
job = json.load(sys.stdin)
seed = RunSeed(datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC), job["seed"])
limits = Limits(seconds=120, memory_mb=1_024, output_chars=200_000)
lines = []
result = run([BASH, "-c", job["shell"]], {"old": File(b"x", 1.7e9)}, "/workspace", limits, seed)
lines += [json.dumps(["shell: " + name, text]) for name, text in json.loads(result.files["shown"])]
for program in job["programs"]:
    result = run([PYTHON, "-c", program], {}, "/workspace", limits, seed)
    assert result.code == 0, result
    lines += result.stdout.splitlines()
result = BubblewrapSandbox().run(job["code"], {}, limits)
assert not result.error, result.error
lines += [line.replace('["', '["code: ', 1) for line in result.stdout.splitlines()]
print("\\n".join(lines))
"""


@pytest.fixture(scope="module")
def first() -> dict[str, str]:
    return sources(1, 0)


@pytest.fixture(scope="module")
def second() -> dict[str, str]:
    return sources(1, 1)


@pytest.fixture(scope="module")
def other() -> dict[str, str]:
    return sources(2, 0)


def sources(seed: int, attempt: int) -> dict[str, str]:
    """Return each source's value with a seed, in a new process per attempt."""
    needs_workbench()
    job = {
        "seed": seed,
        "shell": SHELL,
        "programs": [f"{HELPERS}\n{PACKAGES}\nprint_all({RICH})"],
        "code": f"{HELPERS}\nprint_all({PLAIN})",
    }
    # The host's number of open descriptors must not be visible either.
    code = "import os\nfor k in range(20): os.dup(0)\n" * attempt + RUNS
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.fixture(autouse=True)
def _able() -> None:
    needs_workbench()


NAMES = [
    *(f"shell: {name}" for name in (*SEEDED, *FIXED)),
    *RICH,
    *(f"code: {name}" for name in PLAIN),
]
DIFFERENT = [*(f"shell: {name}" for name in SEEDED), *PYTHON_SEEDED, *WITH_PACKAGES]


@pytest.mark.parametrize("name", NAMES)
def test_each_source_is_the_same_in_another_process(
    name: str, first: dict[str, str], second: dict[str, str]
) -> None:
    assert first[name] == second[name]
    assert first[name]


@pytest.mark.parametrize("name", DIFFERENT)
def test_each_source_of_randomness_differs_with_the_seed(
    name: str, first: dict[str, str], other: dict[str, str]
) -> None:
    assert first[name] != other[name]


# In Python 3.13, class addresses follow the hash seed.
EITHER = "order of a set of objects"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in (*DIFFERENT, EITHER)])
def test_what_is_no_randomness_does_not_depend_on_the_seed(
    name: str, first: dict[str, str], other: dict[str, str]
) -> None:
    assert first[name] == other[name]


def test_no_source_shows_the_host(first: dict[str, str]) -> None:
    shown = "\n".join(text for name, text in first.items() if name != "shell: ls -l")
    today = datetime.now(UTC)
    for secret in (f"'{platform.node()}'", platform.release(), f"{today:%Y-%m-%d}"):
        assert secret not in shown, secret


def test_the_clock_is_that_of_the_episode(first: dict[str, str]) -> None:
    moment = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)
    stamp = str(int(moment.timestamp()))
    assert first["shell: date"] == "Tue Mar  4 05:06:07 UTC 2025\n"
    assert first["shell: $EPOCHSECONDS"] == f"{stamp}\n"
    assert first["shell: a sleep"] == f"{int(stamp) + 1}\n"
    assert first["time"].startswith(f"({stamp}, 'Tue Mar  4 05:06:07 2025'")
    assert first["a sleep"] == f"(None, {int(stamp) + 1})"
    assert first["time of the C library"] == stamp
    assert "2025-03-04 05:06:07" in first["shell: stat"]
    assert f"({stamp}000000000, {stamp}000000000, " in first["os.stat"]


def run(program: str, *code: str, seed: RunSeed = RunSeed()) -> str:  # noqa: B008
    limits = Limits(seconds=60, memory_mb=256, output_chars=10_000)
    result = workbench.run([program, "-c", *code], {}, "/workspace", limits, seed)
    assert not result.stderr
    return str(result.stdout)


def test_draws_differ_within_a_run_and_between_calls_and_processes() -> None:
    command = "for k in 1 2 3; do head -c 8 /dev/urandom | base64; mktemp -u; bash -c 'echo $SRANDOM'; done"
    lines = run(namespaces.BASH, command).split()
    assert len(set(lines)) == len(lines) == 9
    later = RunSeed(datetime(2025, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert not set(lines) & set(run(namespaces.BASH, command, seed=later).split())


def test_a_loop_that_waits_for_the_clock_ends_and_no_two_readings_are_equal() -> None:
    code = "import time\nstart = time.time()\nwhile time.time() < start + 0.1: pass\nprint(time.time_ns() != time.time_ns())"
    assert run(namespaces.PYTHON, code) == "True\n"
    assert run(namespaces.BASH, "a=$(date +%s%N); b=$(date +%s%N); echo $((b > a))") == "1\n"


def test_an_endless_reader_of_randomness_is_stopped_like_any_other() -> None:
    limits = Limits(seconds=1.0, memory_mb=256)
    command = "echo x > x; cat /dev/urandom > /dev/null & cat /dev/random > /dev/null"
    result = workbench.run([namespaces.BASH, "-c", command], {}, "/workspace", limits)
    assert (result.stopped, dict(result.files)) == ("stopped after 1 s", {"x": b"x\n"})


def test_waits_with_a_time_limit_last_as_long_as_they_say() -> None:
    code = """
import queue, select, threading, time
def last(wait):
    start = time.monotonic()
    try: wait()
    except queue.Empty: pass
    return 0.25 < time.monotonic() - start
lock = threading.Lock()
lock.acquire()
waits = [lambda: lock.acquire(timeout=0.3), lambda: queue.Queue().get(timeout=0.3), lambda: threading.Event().wait(0.3)]
waits += [lambda: time.sleep(0.3), lambda: select.select([], [], [], 0.3)]
print([last(wait) for wait in waits])
"""
    assert run(namespaces.PYTHON, code) == f"{[True] * 5}\n"


def test_the_library_is_built_from_its_source() -> None:
    folder = Path(determinism.__file__).parent / "preload"
    source = sha256((folder / "episode.c").read_bytes()).hexdigest()
    for machine in ("x86_64", "aarch64"):
        built = (folder / f"episode-{machine}.so").read_bytes()
        assert re.findall(rb"source:([0-9a-f]{64})", built) == [source.encode()], machine
