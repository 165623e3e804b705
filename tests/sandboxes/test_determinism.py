"""Programs in the same episode print the same bytes, as docs/sandbox.md promises."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from agentgym.sandboxes import Limits, determinism, namespaces
from agentgym.sandboxes.determinism import RunSeed
from tests.helpers import needs_workbench, run_python

workbench: Any = pytest.importorskip("agentgym.sandboxes.workbench")

# shell sources of randomness whose values differ between episodes
SEEDED = {
    "the fraction of a second": "date +%N",
    "$EPOCHREALTIME": "echo $EPOCHREALTIME",
    "$RANDOM": "echo $RANDOM $RANDOM; bash -c 'echo $RANDOM'",
    "$SRANDOM": "echo $SRANDOM",
    "/dev/urandom": "head -c 16 /dev/urandom | base64; head -c 1000000 /dev/urandom | md5sum",
    "/dev/random": "dd if=/dev/random bs=16 count=1 status=none | base64",
    "shuf": "shuf -i 1-1000000 -n 3; seq 1000 | sort -R | head -3",
    "python without an environment": "env -i /python/bin/python3 -c 'import os; print(os.urandom(8))'",
}
# shell sources of randomness whose values are equal in episodes that start at the same time
FIXED = {
    "date": "date; env -i /usr/bin/date",
    "$EPOCHSECONDS": "echo $EPOCHSECONDS $SECONDS; printf '%(%s)T %(%F)T\\n' -1 -1",
    "awk": "awk 'BEGIN { srand(); print srand() }'",
    "stat": "echo > new; mkdir folder; stat -c '%n %w %x %y %z' new folder old /tmp",
    "touch": "touch old; stat -c %y old; sed -i s/x/y/ old; stat -c %y old",
    "ls -l": "touch new; ls -l; ls -l --full-time; ls -lt; ls -U; find .",
    "find -mmin": "find . -mmin -1 | sort; find . -newermt '2025-01-01'",
    "archives": "tar c . | md5sum; gzip < old | md5sum; gzip -k old; md5sum old.gz",
    "host": "echo $HOSTNAME $$ $BASHPID $PPID $UID $HOME; id; env; ulimit -a; umask",
    "/proc": "cat /proc/uptime /proc/meminfo; ls /proc /sys; ps aux",
    "descriptors": "for k in 0 1 2 3 4 5 6 7 8 9; do { true >&$k; } 2> /dev/null && echo $k; done",
    "a sleep": "sleep 1; date +%s",
}
PYTHON_SEEDED = {
    "random": "random.random(), random.sample(range(10**6), 3), random.SystemRandom().random()",
    "uuid": "uuid.uuid1(), uuid.uuid4()",
    "secrets": "secrets.token_hex(8)",
    "os.urandom": "os.urandom(8)",
    "tempfile": "tempfile.mkdtemp(), tempfile.NamedTemporaryFile().name",
    "time.time_ns": "time.time_ns()",
}
PYTHON_FIXED = {
    "time": "int(time.time()), time.ctime(), time.localtime(), time.strftime('%c')",
    "datetime": "datetime.datetime.now().replace(microsecond=0), datetime.date.today()",
    "a sleep": "time.sleep(1), int(time.time())",
    "hash": "hash('x'), hash(b'x'), set('abcdefgh'), {str(k) for k in range(20)}",
    "os.stat": "stamp()",
    "processes": "os.getpid(), os.getppid(), threading.get_native_id()",
    "environment": "sorted(os.environ.items()), sys.argv, sys.flags, sys.executable",
}
PACKAGES_SEEDED = {
    "numpy.random": "numpy.random.default_rng().random(), numpy.random.rand()",
    "a saved PDF": "pdf()",
}
PACKAGES_FIXED = {
    "pandas.Timestamp": "pandas.Timestamp.now().floor('s')",
    "a saved workbook": "workbook()",
}
HELPERS = """
import datetime, hashlib, io, json, os, random, secrets, sys, tempfile, threading, time, uuid
def stamp():
    open("/tmp/stamp", "w").close()
    found = [os.stat("/tmp/stamp"), os.lstat("/tmp/stamp"), os.fstat(os.open("/tmp/stamp", os.O_RDONLY))]
    return [(s.st_mtime_ns, s.st_atime_ns, s.st_ctime_ns, s.st_size) for s in found]
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
        print(json.dumps([name, str(eval(source))]))
"""
PACKAGES = "import numpy, openpyxl, pandas\nfrom reportlab.pdfgen import canvas\n"
PLAIN = {**PYTHON_SEEDED, **PYTHON_FIXED}
RICH = {**PLAIN, **PACKAGES_SEEDED, **PACKAGES_FIXED}

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
result = run([PYTHON, "-c", job["program"]], {}, "/workspace", limits, seed)
assert result.code == 0, result
lines += result.stdout.splitlines()
result = BubblewrapSandbox().run(job["code"], {}, limits, job["seed"])
assert not result.error, result.error
lines += [line.replace('["', '["code: ', 1) for line in result.stdout.splitlines()]
print("\\n".join(lines))
"""


def sources(seed: int, attempt: int) -> dict[str, str]:
    """Return the value of each random source for a seed, with a new process per attempt."""
    job = {
        "seed": seed,
        "shell": SHELL,
        "program": f"{HELPERS}\n{PACKAGES}\nprint_all({RICH})",
        "code": f"{HELPERS}\nprint_all({PLAIN})",
    }
    # The sandbox must also hide the host's number of open descriptors.
    code = "import os\nfor k in range(20): os.dup(0)\n" * attempt + RUNS
    done = run_python("-c", code, input=json.dumps(job))
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.fixture(autouse=True)
def _able() -> None:
    needs_workbench()


def test_the_same_episode_gives_the_same_bytes() -> None:
    with ThreadPoolExecutor(3) as pool:  # the programs mostly sleep
        first, second, other = pool.map(sources, (1, 1, 2), (0, 1, 0))
    assert first == second
    seeded = {f"shell: {name}" for name in SEEDED} | PYTHON_SEEDED.keys() | PACKAGES_SEEDED.keys()
    seeded |= {f"code: {name}" for name in PYTHON_SEEDED}
    assert {name for name in first if first[name] != other[name]} == seeded
    assert f"{datetime.now(UTC):%Y-%m-%d}" not in "\n".join(first.values())
    stamp = int(datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC).timestamp())
    assert first["shell: date"] == "Tue Mar  4 05:06:07 UTC 2025\n" * 2
    assert first["shell: a sleep"] == f"{stamp + 1}\n"
    assert first["time"].startswith(f"({stamp}, 'Tue Mar  4 05:06:07 2025'")
    assert first["a sleep"] == f"(None, {stamp + 1})"
    assert "2025-03-04 05:06:07" in first["shell: stat"]
    assert f"({stamp}000000000, {stamp}000000000, " in first["os.stat"]


def run(program: str, code: str, seed: RunSeed = RunSeed()) -> str:  # noqa: B008
    limits = Limits(seconds=60, memory_mb=256, output_chars=10_000)
    result = workbench.run([program, "-c", code], {}, "/workspace", limits, seed)
    assert not result.stderr
    return str(result.stdout)


def test_draws_differ_within_a_run_and_between_calls_and_processes() -> None:
    command = "for k in 1 2 3; do head -c 8 /dev/urandom | base64; echo $RANDOM; bash -c 'echo $SRANDOM'; done"
    lines = run(namespaces.BASH, command).split()
    assert len(set(lines)) == len(lines) == 9
    later = RunSeed(datetime(2025, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert not set(lines) & set(run(namespaces.BASH, command, seed=later).split())


def test_a_loop_that_waits_for_the_clock_ends_and_no_two_readings_are_equal() -> None:
    code = "import time\nstart = time.time()\nwhile time.time() < start + 0.1: pass\nprint(time.time_ns() != time.time_ns())"
    assert run(namespaces.PYTHON, code) == "True\n"
    assert run(namespaces.BASH, "a=$(date +%s%N); b=$(date +%s%N); echo $((b > a))") == "1\n"


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


def test_a_program_cannot_set_the_time_that_it_reports() -> None:
    code = "open('/run/episode/state', 'r+b').write(bytes(24) + (2**62).to_bytes(8, 'little'))"
    result = workbench.run([namespaces.PYTHON, "-c", code], {}, limits=Limits(seconds=20))
    assert result.code == 0
    assert 0 <= result.seconds <= 20


def test_the_library_is_built_from_its_source() -> None:
    folder = Path(determinism.__file__).parent / "preload"
    source = sha256((folder / "episode.c").read_bytes()).hexdigest()
    for machine in ("x86_64", "aarch64"):
        built = (folder / f"episode-{machine}.so").read_bytes()
        assert re.findall(rb"source:([0-9a-f]{64})", built) == [source.encode()], machine
