"""Python and terminal servers on the workspace."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest

from agentgym.office.files.python_execute import PythonExecute
from agentgym.office.files.terminal import Terminal, parse_command
from agentgym.office.files.workspace import Workspace
from agentgym.office.office import Office
from agentgym.text.tools import ToolError, tools_of
from tests.helpers import needs_workbench
from tests.office.files.test_filesystem import Client


@pytest.fixture
def python() -> Client:
    needs_workbench()
    return Client(PythonExecute())


@pytest.fixture
def terminal() -> Client:
    return Client(Terminal())


def test_python_changes_the_workspace(python: Client) -> None:
    files = python.server.context.files
    files.write("data/in.csv", "a,b\n1,2\n3,4\n")
    code = "import csv\nprint(sum(int(row['b']) for row in csv.DictReader(open('data/in.csv'))))\nopen('out.txt', 'w').write('x')"
    assert python("python_execute", code=code, filename="sum.py") == (
        "=== STDOUT ===\n6\n=== EXECUTION INFO ===\nReturn code: 0\nExecution time: 0.000 seconds\n"
        "Timeout limit: 30 seconds"
    )
    assert (files.read_text("out.txt"), files.read_text(".python_tmp/sum.py")) == ("x", code)
    assert files.modified("out.txt") == python.server.context.clock.now()
    assert python("python_execute", code="import sum", filename="again", timeout=9_999).endswith(
        "Timeout limit: 120 seconds"
    )
    assert files.is_file(".python_tmp/again.py")


def test_failing_python_keeps_its_changes_and_stopped_python_does_not(python: Client) -> None:
    shown = python("python_execute", code="open('x', 'w').write('x')\n1 / 0", filename="f.py")
    assert shown.startswith(
        '=== STDERR ===\nTraceback (most recent call last):\n  File "/workspace/.python_tmp/f.py", line 2'
    )
    assert "ZeroDivisionError: division by zero\n=== EXECUTION INFO ===\nReturn code: 1\n" in shown
    shown = python(
        "python_execute", code="import time\nopen('y', 'w').write('y')\ntime.sleep(99)", timeout=2
    )
    assert (
        shown
        == "No console output produced.\n=== EXECUTION TIMEOUT ===\nTimeout limit: 2 seconds\nExecution time: 2.000 seconds"
        "\nThe workspace is unchanged."
    )
    files = python.server.context.files
    assert files.read("x") == b"x"
    assert not files.exists("y"), "a stopped program changes nothing"
    shown = python(
        "python_execute", code="import os\nos.symlink('/etc/passwd', 'link')\nos.remove('x')"
    )
    assert shown.endswith('Not kept (not regular files, or too large): "link"')
    assert (files.exists("link"), files.exists("x")) == (False, False)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"timeout": 0}, "invalid argument: timeout must be 1 to 120 seconds, got 0"),
        (
            {"filename": "../../x.py"},
            'permission denied: ".python_tmp/../../x.py" is outside of /workspace',
        ),
        ({"filename": "x" * 300}, "invalid argument"),
        ({"filename": "a\0b"}, "invalid argument"),
    ],
)
def test_invalid_python_calls(python: Client, arguments: dict[str, Any], error: str) -> None:
    assert python.refused("python_execute", code="print(1)", **arguments).startswith(error)
    assert list(python.server.context.files.walk()) == []


def test_generated_names_are_deterministic(python: Client) -> None:
    for server in (PythonExecute(), PythonExecute()):
        shown = [Client(server)("python_execute", code="print(__file__)") for _ in range(2)]
        assert shown[0] != shown[1]
        assert shown[0].startswith("=== STDOUT ===\n/workspace/.python_tmp/")
        python.server.session.setdefault("shown", []).append(shown)
    assert python.server.session["shown"][0] == python.server.session["shown"][1]


def test_a_plain_command_runs_without_a_shell(terminal: Client) -> None:
    needs_workbench()
    terminal.server.context.files.write("d/a.txt", "one\ntwo\n")
    assert terminal("run_command", command="wc -l d/a.txt") == (
        "2 /workspace/d/a.txt\n\nCommand completed with return code 0"
    )
    assert terminal("run_command", command="echo '*' * $HOME `ls` \\; 'a;b' \"c|d\"") == (
        "* * $HOME `ls` ; a;b c|d\n\nCommand completed with return code 0"
    )
    assert terminal("run_command", command="find . -name '*.txt'").startswith(
        "/workspace/d/a.txt\n"
    )
    assert terminal("run_command", command="grep -c /none/ d/a.txt").startswith("0\n")
    assert terminal("run_command", command="awk -F , '/o/ {print $1 ; n++}' d/a.txt").startswith(
        "one\ntwo\n"
    )
    shown = terminal(
        "run_command",
        command="python -c '\nimport sys\nprint(1)\nprint(2, file=sys.stderr)\nsys.exit(3)'",
    )
    assert shown == "1\n2\n\nCommand completed with return code 3"
    assert terminal("run_command", command="touch x") == "\nCommand completed with return code 0"
    assert terminal.server.context.files.is_file("x")


def test_operators_run_in_a_shell(terminal: Client) -> None:
    needs_workbench()
    files = terminal.server.context.files
    files.write("d/a.txt", "one\ntwo\n")
    files.write("b.txt", "three\n")

    def shown(command: str) -> str:
        text, _, end = terminal("run_command", command=command).rpartition("\n")
        assert end.startswith("Command completed with return code ")
        return text + end[-1]

    assert shown("cd d && pwd && cat ../b.txt") == "/workspace/d\nthree\n0"
    assert shown("pwd; ls") == "/workspace\nb.txt\nd\n0"
    assert shown("cat *.txt d/*.txt | sort | head -n 1") == "one\n0"
    assert (
        shown("ls none || echo $HOME")
        == "/tmp\nls: cannot access 'none': No such file or directory\n0"
    )
    assert shown("grep none b.txt && echo yes") == "1"
    assert shown("mkdir e\ntouch e/f\n") == "0"
    assert files.is_file("e/f")
    assert shown("echo 'a;b' | tr -d ';'") == "ab\n0"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("", "the command is empty"),
        (" ; ", "the command is empty"),
        ("echo " + "x" * 2_048, "the command has 2053 characters, at most 2048 are allowed"),
        ("bash -c ls", 'the command "bash" is not allowed'),
        ("python3 x.py", 'the command "python3" is not allowed'),
        ("ls && sleep 1", 'the command "sleep" is not allowed'),
        ("ls | | /bin/ls", 'the command "/bin/ls" is not allowed'),
        ("ls\ncurl x", 'the command "curl" is not allowed'),
        ("(ls); ls", 'the command "(ls)" is not allowed'),
        ("X=1 ls; ls", 'the command "X=1" is not allowed'),
        ("echo hi > o.txt", "redirects (>) are not supported"),
        ("cat < o.txt", "redirects (<) are not supported"),
        ("ls none 2>&1 | cat", "redirects (>) are not supported"),
        ("cat /etc/passwd", 'the path "/etc/passwd" is outside of /workspace'),
        ("ls ..", 'the path ".." is outside of /workspace'),
        ("ls -l ./a/../../b", "is outside of /workspace"),
        ("cd .. && ls", 'the path ".." is outside of /workspace'),
        ("cd d && cat ../../b", 'the path "../../b" is outside of /workspace'),
        ("sed -n 1p /etc/passwd", 'the path "/etc/passwd" is outside of /workspace'),
        ("echo 'a", '"echo \'a" cannot be parsed: no closing quotation'),
        ('ls; echo "a', "cannot be parsed: no closing quotation"),
        ("ls \\", "cannot be parsed: no escaped character"),
        ("echo $(curl x) | cat", "command substitution is not supported"),
        ('echo "`curl x`" | cat', "command substitution is not supported"),
    ],
)
def test_forbidden_commands(terminal: Client, command: str, reason: str) -> None:
    terminal.server.context.files.write("d/a.txt", "one\n")
    error = terminal.refused("run_command", command=command)
    assert error.startswith("security violation: ")
    assert reason in error
    assert "\n" not in error


def test_parsing_matches_bash() -> None:
    needs_workbench()
    rng, files, direct = random.Random(5), Workspace(), []
    for _ in range(3_000):
        line = "echo " + "".join(rng.choices("ab '\"\\;|<>", k=rng.randrange(12)))
        try:
            program, *words = parse_command(line, files)
        except ToolError:
            continue
        if program == "/usr/bin/env":
            direct.append((line, words[1:]))
    assert len(direct) > 400
    script = "\n".join(f"printf '%s\\0' {line} $'\\n'" for line, _ in direct)
    workbench = pytest.importorskip("agentgym.sandboxes.workbench")
    shown = workbench.run(["/usr/bin/bash", "-c", script], {})
    expected = [["echo", *words, "\n"] for _, words in direct]
    assert shown.stdout == "".join("\0".join([*words, ""]) for words in expected)


def test_cd_alone_is_an_error(terminal: Client) -> None:
    assert terminal.refused("run_command", command="cd d").startswith("invalid argument: cd alone")


def test_a_stopped_command_changes_nothing(
    terminal: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_workbench()
    monkeypatch.setattr("agentgym.office.files.terminal.SECONDS", 1)
    command = "touch x && python -c 'import time; print(1); time.sleep(99)'"
    shown = terminal("run_command", command=command)
    assert shown == "\nThe workspace is unchanged.\nThe command was stopped after 1 s."
    assert not terminal.server.context.files.is_file("x")


def test_the_rules_list_all_allowed_commands(terminal: Client) -> None:
    needs_workbench()
    rules = terminal("show_security_rules").split("\n")
    allowed = rules[rules.index("Allowed Commands:") + 2].split(", ")
    assert allowed == sorted(allowed)
    (description,) = [
        tool.schema.description
        for tool in tools_of(terminal.server).values()
        if tool.schema.name == "run_command"
    ]
    named = description.split("Allowed commands: ")[1].split(". ")[0]
    assert sorted(" ".join(named.split()).split(", ")) == allowed
    there = terminal("run_command", command=f"which {' '.join(allowed)}").split("\n")
    assert {path.rpartition("/")[2] for path in there[:-2]} == {*allowed} - {"cd"}


def test_servers_share_files() -> None:
    needs_workbench()
    office = Office(["filesystem", "terminal", "python_execute"])
    office.context.files.write("a", "1")
    python, terminal = Client(office.get(PythonExecute)), Client(office.get(Terminal))
    python("python_execute", code="open('b', 'w').write(open('a').read() + '2')")
    assert terminal("run_command", command="cat b; rm a b").startswith("12\n")
    assert office.context.files.names() == [".python_tmp"]


@pytest.mark.parametrize("server", [PythonExecute, Terminal])
def test_a_host_without_sandbox_raises(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    workbench = pytest.importorskip("agentgym.sandboxes.workbench")
    monkeypatch.setattr(workbench, "_command", lambda: ("/no/bwrap",))
    name, arguments = "python_execute", {"code": "1"}
    if server is Terminal:
        name, arguments = "run_command", {"command": "ls"}
    remedy = r"programs cannot run on this host: .*pip install 'agentgym-suite\[hardened\]'"
    with pytest.raises(RuntimeError, match=remedy):
        Client(server())(name, **arguments)
    monkeypatch.setitem(sys.modules, "agentgym.sandboxes.workbench", None)
    with pytest.raises(RuntimeError, match="programs cannot run on this host"):
        Client(server())(name, **arguments)
