from __future__ import annotations

import copy
import os
import pickle
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentgym import ToolError
from agentgym.sandboxes import SANDBOXES, Limits, RunResult, Sandbox, make_sandbox
from tests.helpers import run_python

# time limit for code that runs forever
QUICK = Limits(seconds=0.7, memory_mb=64, output_chars=2_000, calls=50)
# time limit for code that must end by itself or at another limit, even on a busy machine
AMPLE = Limits(seconds=300, memory_mb=64, output_chars=2_000, calls=50)
SECRET = "hunter2-hunter2"


@pytest.fixture(params=SANDBOXES, scope="module")
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    try:
        return make_sandbox(request.param)
    except (ImportError, RuntimeError) as error:
        pytest.skip(str(error))


@pytest.fixture
def bubblewrap() -> Sandbox:
    try:
        return make_sandbox("bubblewrap")
    except RuntimeError as error:
        pytest.skip(str(error))


class Counter:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def add(self, *args: Any, **kwargs: Any) -> str:
        self.seen.append((list(args), kwargs))
        if args == (13,):
            raise ToolError("not thirteen")
        return str(len(self.seen))

    @property
    def functions(self) -> dict[str, Callable[..., str]]:
        return {"add": self.add}


# Programs that reach a limit, with the limits that may stop them first.
GREEDY = {
    "while True: pass": ("timeout", "memory"),
    "while True:\n    try:\n        while True: pass\n    except BaseException: pass": ("timeout",),
    "[0 for _ in iter(int, 1) if _]": ("timeout", "memory"),
    "print(len(str(9**9**9)))": ("timeout", "memory"),
    "x = []\nwhile True: x.append('a' * 10_000)": ("memory",),
    "x = 'a' * 10**10": ("memory",),
    "x = [0] * 10**10": ("memory",),
    "x = bytes(10**10)": ("memory",),
    "print('x' * 10**9)": ("output", "memory"),
    "while True: print('y' * 1000)": ("output",),
    "print('z' * 2001)": ("output",),
    "while True: print()": ("output",),
}


@pytest.mark.parametrize("code", GREEDY)
def test_time_memory_and_output_are_limited(sandbox: Sandbox, code: str) -> None:
    kinds = GREEDY[code]
    execution = sandbox.run(code, {}, QUICK if "timeout" in kinds else AMPLE)
    assert execution.kind in kinds
    if execution.kind == "memory":
        assert "MemoryError" in execution.error
    if execution.kind == "output":
        assert len(execution.stdout) == 2_000
        assert execution.error == "the code printed more than 2000 characters and was stopped"
    else:
        assert execution.stdout == ""
    assert sandbox.run("print('w' * 1999)", {}, AMPLE) == RunResult("w" * 1999 + "\n")


STRAYS = {
    "os.fork": "import os\nwhile True: os.fork()",
    "fork by hand": "import ctypes\nprint(ctypes.CDLL(None).fork())",
    "a process": "import subprocess\nsubprocess.run(['/bin/sh', '-c', 'echo hi'])",
    "a shell": "import os\nprint(os.system('id'))",
    "os._exit": "import os\nos._exit(0)",
    "sys.exit": "import sys\nsys.exit(3)",
    "an exit": "raise SystemExit(0)",
    "abort": "import os\nos.abort()",
    "a wild pointer": "import ctypes\nctypes.string_at(0)",
    "a kill": "import os\nos.kill(1, 9)\nos.kill(-1, 9)",
    "recursion": "def f(): return f()\nf()",
    "a server": "import socket\nsocket.socket().bind(('127.0.0.1', 0))",
    "limits raised": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "a mount": "import ctypes\nprint(ctypes.CDLL(None).unshare(0x10000000))",
    "an odd error": "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
}


@pytest.mark.parametrize("code", STRAYS.values(), ids=STRAYS.keys())
def test_code_that_goes_astray_harms_nobody(sandbox: Sandbox, code: str) -> None:
    execution = sandbox.run(code, {}, Limits(seconds=5, memory_mb=64))
    assert execution.error or execution.stdout.strip() in ("-1", "32512"), (
        "it failed, or was told that it did"
    )
    assert str(Path(sys.base_prefix)) not in execution.error + execution.stdout
    assert sandbox.run("print(1+1)", {}) == RunResult("2\n")


def test_secrets_stay_out_of_reach(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_SECRET", SECRET)
    (tmp_path / "file").write_text(SECRET)
    names = ["/etc/passwd", "/etc/hostname", "/proc/self/environ", "/proc/1/environ"]
    names += [f"{tmp_path}/file", __file__]
    code = [
        "import os\nprint(dict(os.environ), os.getenv('AGENTGYM_SECRET'))",
        "import glob\nprint(glob.glob('/home/*'))",
        *(f"print(open({name!r}).read())" for name in names),
    ]
    for each in code:
        execution = sandbox.run(each, {})
        assert SECRET not in execution.stdout + execution.error
        assert "root:" not in execution.stdout
        assert "print(" not in execution.stdout


def test_nothing_can_be_written(sandbox: Sandbox, tmp_path: Path) -> None:
    mark = f"agentgym-{tmp_path.name}-{os.getpid()}"
    for folder in ("../..", "", "/python", f"{tmp_path}", "/etc", "/dev/shm", "/usr"):
        name = f"{folder}/{mark}"
        assert sandbox.run(f"open({name!r}, 'w').write('x')", {}).kind == "exception", name
        assert not Path(name).exists()
    assert not list(tmp_path.iterdir())


def test_there_is_no_network(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        port = server.getsockname()[1]
        for code in (
            f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)",
            f"import urllib.request\nurllib.request.urlopen('http://127.0.0.1:{port}', timeout=1)",
        ):
            assert sandbox.run(code, {}).kind == "exception"
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize(
    "code", ["import time\ntime.sleep(3000)", "import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')"]
)
def test_waiting_does_not_outlast_the_limit(sandbox: Sandbox, code: str) -> None:
    """Without the limit, the regular expression would match for years."""
    is_python = type(sandbox).__name__ == "BubblewrapSandbox"
    assert sandbox.run(code, {}, QUICK).kind == ("timeout" if is_python else "")
    assert sandbox.run("print(1+1)", {}) == RunResult("2\n")


def test_printing_the_protocol_forges_nothing(sandbox: Sandbox) -> None:
    counter = Counter()
    lines = [
        '{"call": ["add", [], {}]}',
        '{"done": ["", "", []]}',
        '{"text": "7"}',
        "error: x",
        "\x00\x01",
        '{"ready": true}',
    ]
    execution = sandbox.run(f"for line in {lines!r}: print(line)\nprint(add(1))", counter.functions)
    assert execution == RunResult("\n".join([*lines, "1", ""]))
    assert counter.seen == [([1], {})]


def test_calls_run_once_and_in_order_on_real_values(sandbox: Sandbox) -> None:
    counter = Counter()
    code = "n = '0'\nfor k in range(50): n = add(n, step=k)\nprint(n)"
    assert sandbox.run(code, counter.functions) == RunResult("50\n")
    assert counter.seen == [([str(k)], {"step": k}) for k in range(50)]


def test_a_refused_call_can_be_caught(sandbox: Sandbox) -> None:
    counter = Counter()
    for caught in ("ToolError", "RuntimeError", "Exception"):
        code = f"try:\n    add(13)\nexcept {caught} as error:\n    print('caught', error)\nprint(add(1))"
        execution = sandbox.run(code, counter.functions)
        assert (execution.stdout.splitlines()[0], execution.error) == ("caught not thirteen", "")
    execution = sandbox.run(
        "print('so far')\ndef f():\n    add(13)\nf()\nadd(2)", counter.functions
    )
    assert (execution.stdout, execution.kind) == ("so far\n", "exception")
    assert execution.error.splitlines()[1:] == ["  at line 4: f()", "  at line 3 in f: add(13)"]
    assert "Error: not thirteen" in execution.error
    assert counter.seen[-1] == ([13], {})


def test_what_a_function_raises_by_a_fault_is_raised(sandbox: Sandbox) -> None:
    def fault() -> str:
        raise ValueError("a bug in the world")

    with pytest.raises(ValueError, match="a bug in the world"):
        sandbox.run("try:\n    fault()\nexcept BaseException: pass", {"fault": fault})
    assert sandbox.run("print(1+1)", {}) == RunResult("2\n")


def test_arguments_cross_as_json(sandbox: Sandbox) -> None:
    counter = Counter()
    execution = sandbox.run(
        "add(1, (2, 3), {'a': [None, True, 1.5]}, s='é\\n\"')", counter.functions
    )
    assert execution == RunResult("")
    assert counter.seen == [([1, [2, 3], {"a": [None, True, 1.5]}], {"s": 'é\n"'})]
    for argument in ("float('nan')", "float('inf')", "{1, 2}", "b'x'", "10**5000"):
        execution = sandbox.run(f"add({argument})", counter.functions)
        assert execution.kind == "exception", argument
    execution = sandbox.run("x = []\nfor _ in range(100_000): x = [x]\nadd(x)", counter.functions)
    assert execution.kind in ("exception", "crash", "memory")
    assert len(counter.seen) == 1
    sandbox.run("add('\\ud800')", counter.functions)


@pytest.mark.parametrize(("levels", "kind"), [(60, ""), (66, "exception"), (5_000, "exception")])
def test_the_depth_of_arguments_has_one_limit_on_every_interpreter(
    sandbox: Sandbox, levels: int, kind: str
) -> None:
    counter = Counter()
    code = f"x = []\nfor _ in range({levels}): x = [x]\nadd(x)"
    execution = sandbox.run(code, counter.functions)
    assert execution.kind == kind or (levels == 5_000 and execution.kind in ("crash", "memory"))
    assert len(counter.seen) == (kind == "")


def test_calls_are_limited(sandbox: Sandbox) -> None:
    counter = Counter()
    code = "while True:\n    try: add()\n    except BaseException: pass"
    execution = sandbox.run(code, counter.functions, Limits(calls=50))
    assert execution == RunResult("", "the code made more than 50 calls and was stopped", "calls")
    assert len(counter.seen) == 50
    assert sandbox.run("add()", counter.functions, Limits(calls=0)).kind == "calls"
    assert len(counter.seen) == 50


def test_unknown_names(sandbox: Sandbox) -> None:
    for code in ("subtract(1)", "print(subtract)", "f = subtract"):
        execution = sandbox.run(code, Counter().functions)
        assert execution.error.startswith("NameError: name 'subtract' is not defined")
    asks = "while True:\n    try: subtract\n    except NameError: pass"
    assert sandbox.run(asks, {}, QUICK).kind in ("timeout", "calls")


@pytest.mark.parametrize(
    "code", ["x = (", "\0", "x = " + "(" * 5_000 + ")" * 5_000, "if 1:\n  x\n y"]
)
def test_what_does_not_parse_does_not_begin(sandbox: Sandbox, code: str) -> None:
    counter = Counter()
    execution = sandbox.run(f"add()\n{code}", counter.functions)
    assert (execution.stdout, execution.kind) == ("", "refused")
    assert execution.error
    assert counter.seen == []


def test_what_monty_does_not_know_does_not_begin() -> None:
    counter, sandbox = Counter(), make_sandbox("monty")
    unknown = {"del x": "del", "class A(B): pass": "inheritance", "def f(): yield 1": "yield"}
    for code, word in unknown.items():
        execution = sandbox.run(f"add()\n{code}", counter.functions)
        assert (execution.kind, word in execution.error) == ("refused", True)
    assert counter.seen == []
    execution = sandbox.run("add()\nexec('x = (')", counter.functions)
    # Code that has started must not be reported as refused.
    assert (execution.kind, len(counter.seen)) == ("exception", 1)


def test_long_code_and_long_errors(sandbox: Sandbox) -> None:
    execution = sandbox.run("print(1)\n" * 100, {}, Limits(code_chars=899))
    assert execution == RunResult(
        "", "the code is 900 characters long, at most 899 are allowed", "refused"
    )
    execution = sandbox.run("raise ValueError('x' * 100_000)", {})
    assert len(execution.error) < 2_000


def test_a_run_keeps_nothing_for_the_next(sandbox: Sandbox) -> None:
    assert sandbox.run("import json\nx = 3\njson.y = 4", {}).stdout == ""
    assert sandbox.run("print(x)", {}).error.startswith("NameError")
    assert sandbox.run("import json\nprint(json.y)", {}).error.startswith("AttributeError")


def test_runs_and_copies_are_equal(sandbox: Sandbox) -> None:
    code = "import random, json\nprint(random.random(), random.randint(0, 9**9), hash('x'), list({'a', 'b', 'c'}))\nprint(add(1))"
    copies = (sandbox, copy.deepcopy(sandbox), pickle.loads(pickle.dumps(sandbox)))
    first, *others = [each.run(code, Counter().functions) for each in copies]
    assert first.kind == ""
    assert others == [first, first]


def test_many_threads_at_once(sandbox: Sandbox) -> None:
    def play(k: int) -> tuple[RunResult, list[Any]]:
        counter = Counter()
        code = f"for i in range(5): print({k}, add(i, {k}))"
        return sandbox.run(code, counter.functions, Limits(seconds=60)), counter.seen

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(play, range(32)))
    for k, (execution, seen) in enumerate(results):
        assert execution == RunResult("".join(f"{k} {i + 1}\n" for i in range(5)))
        assert seen == [([i, k], {}) for i in range(5)]


FORKED = """
import os, sys
from agentgym.sandboxes import make_sandbox
sandbox = make_sandbox("monty")
if len(sys.argv) > 1: sandbox.run("print(1)", {})
child = os.fork()
try:
    said = sandbox.run("print(1+1)", {}).stdout
except RuntimeError as error:
    said = f"{error}\\n"
if child: os.waitpid(child, 0)
os.write(1, said.encode())
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_forked_process_gets_its_own_workers_or_is_told_why_not() -> None:
    def fork(*args: str) -> list[str]:
        shown = run_python("-W", "ignore", "-c", FORKED, *args, check=True)
        return shown.stdout.splitlines()

    assert fork() == ["2", "2"]
    child, parent = fork("first")
    assert (parent, "start processes with the method 'spawn'" in child) == ("2", True)


def test_threads_end_with_the_code(bubblewrap: Sandbox) -> None:
    counter = Counter()
    code = "import threading\ndef f():\n    while True:\n        add()\nthreading.Thread(target=f).start()\nprint('end')"
    for _ in range(10):  # the code may end while a call is being answered
        assert bubblewrap.run(code, counter.functions, Limits(calls=1_000_000)) == RunResult(
            "end\n"
        )
    seen = len(counter.seen)
    time.sleep(0.1)
    assert len(counter.seen) == seen


CHANNEL = "import os\nfor fd in range(3, 5_000):\n    try: os.write(fd, MESSAGE)\n    except OSError: pass\n"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("""b'{"done": ["", "", []]}\\n'""", ""),
        ("""b'{"done": ["refused", "nothing ran", []]}\\n'""", "exception"),
        ("""b'{"done": ["", "", [["a", 1]]]}\\n'""", "crash"),
        ("""b'{"done": [[], "", []]}\\n'""", "crash"),
        ("""b'{"call": [1, [], {}]}\\n'""", "crash"),
        ("""b'{"call": ["add", {}, []]}\\n'""", "crash"),
        (r"b'[' * 100_000 + b'\n'", "crash"),
        (r"b'\xff\xfe\n'", "crash"),
        ("b'x' * 5_000_000", "crash"),
        ("""b'{"call": ["subtract", [], {}]}\\n{"done": ["", "", []]}\\n'""", ""),
        ("""b'{"ready": true}\\n' * 100""", "crash"),
    ],
)
def test_writing_to_the_channel_gains_nothing(bubblewrap: Sandbox, message: str, kind: str) -> None:
    counter = Counter()
    execution = bubblewrap.run(
        "add(1)\n" + CHANNEL.replace("MESSAGE", message) + "while True: pass",
        counter.functions,
        AMPLE,
    )
    assert execution.kind == kind
    assert counter.seen == [([1], {})]


def test_calls_without_reading_the_answers_do_not_hang(bubblewrap: Sandbox) -> None:
    def long() -> str:
        return "x" * 100_000

    code = CHANNEL.replace("MESSAGE", 'b\'{"call": ["long", [], {}]}\\n\' * 500')
    execution = bubblewrap.run(code + "while True: pass", {"long": long}, QUICK)
    assert execution.kind in ("timeout", "calls")


def test_closing_stdout_and_the_channel(bubblewrap: Sandbox) -> None:
    assert bubblewrap.run("import os\nprint('x')\nos.close(1)", {}).stdout == "x\n"
    execution = bubblewrap.run("import os\nprint('x')\nos.closerange(0, 5_000)", {})
    assert (execution.stdout, execution.kind) == ("x\n", "crash")


@pytest.mark.parametrize(
    "limits",
    [{"seconds": 0}, {"memory_mb": 1.5}, {"output_chars": -1}, {"calls": True}, {"code_chars": 0}],
)
def test_limits_and_names_are_checked(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(limits))} must be a"):
        Limits(**limits)
    with pytest.raises(ValueError, match="sandbox must be one of monty, bubblewrap, got 'docker'"):
        make_sandbox("docker")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    with pytest.raises(ImportError, match=r"pip install 'agentgym-suite\[code\]'"):
        make_sandbox("monty")
