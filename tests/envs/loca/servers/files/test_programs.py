"""The servers python_execute and terminal: programs on the workspace, and edits of files by
rows.
"""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

import pytest

from agentgym.envs.loca.servers.files.python_execute import PythonExecute
from agentgym.envs.loca.servers.files.terminal import Terminal
from agentgym.envs.loca.servers.office import Office
from agentgym.tools import tools_of
from tests.envs.loca.servers.files.test_filesystem import Client
from tests.helpers import needs_workbench


@pytest.fixture
def python() -> Client:
    needs_workbench()
    return Client(PythonExecute())


@pytest.fixture
def terminal() -> Client:
    return Client(Terminal())


def test_python_works_on_the_files(python: Client) -> None:
    files = python.server.context.files
    files.write("data/in.csv", "a,b\n1,2\n3,4\n")
    code = "import csv\nprint(sum(int(row['b']) for row in csv.DictReader(open('data/in.csv'))))\nopen('out.txt', 'w').write('x')"
    assert python("python_execute", code=code, filename="sum.py") == (
        "=== STDOUT ===\n6\n\n=== EXECUTION INFO ===\nReturn code: 0\nTimeout limit: 30 seconds"
    )
    assert (files.read_text("out.txt"), files.read_text(".python_tmp/sum.py")) == ("x", code)
    assert files.modified("out.txt") == python.server.context.clock.now()
    assert python("python_execute", code="import sum", filename="again", timeout=9_999).endswith(
        "Timeout limit: 120 seconds"
    )
    assert files.is_file(".python_tmp/again.py")


def test_python_that_fails_has_had_its_effects(python: Client) -> None:
    shown = python("python_execute", code="open('x', 'w').write('x')\n1 / 0", filename="f.py")
    assert shown.startswith(
        '=== STDERR ===\nTraceback (most recent call last):\n  File "/workspace/.python_tmp/f.py", line 2'
    )
    assert (
        "ZeroDivisionError: division by zero\n\n=== EXECUTION INFO ===\nReturn code: 1\n" in shown
    )
    shown = python(
        "python_execute", code="import time\nopen('y', 'w').write('y')\ntime.sleep(99)", timeout=2
    )
    assert (
        shown
        == "No console output produced.\n\n=== EXECUTION INFO ===\nThe program was stopped after 2 s.\nTimeout limit: 2 seconds"
    )
    files = python.server.context.files
    assert (files.read("x"), files.read("y")) == (b"x", b"y")
    shown = python(
        "python_execute", code="import os\nos.symlink('/etc/passwd', 'link')\nos.remove('x')"
    )
    assert shown.endswith('Not kept, being no regular files or too big: "link"')
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
def test_what_python_refuses(python: Client, arguments: dict[str, Any], error: str) -> None:
    assert python.refused("python_execute", code="print(1)", **arguments).startswith(error)
    assert list(python.server.context.files.walk()) == []


def test_names_are_made_up_alike_in_each_run(python: Client) -> None:
    for server in (PythonExecute(), PythonExecute()):
        shown = [Client(server)("python_execute", code="print(__file__)") for _ in range(2)]
        assert shown[0] != shown[1]
        assert shown[0].startswith("=== STDOUT ===\n/workspace/.python_tmp/")
        python.server.session.setdefault("shown", []).append(shown)
    assert python.server.session["shown"][0] == python.server.session["shown"][1]


def test_commands(terminal: Client) -> None:
    needs_workbench()
    terminal.server.context.files.write("d/a.txt", "one\ntwo\n")
    assert (
        terminal("execute_command", command="wc -l < d/a.txt")
        == "Command executed successfully\n\nOutput:\n2\n"
    )
    assert (
        terminal("execute_command", command="true")
        == "Command executed successfully\n\nCommand had no output."
    )
    assert terminal("execute_command", command="echo x; echo y >&2; exit 3") == (
        "Command execution failed\n\nOutput:\nx\n\nError:\ny\n\nReturn code: 3"
    )
    assert terminal("change_directory", path="d") == "Switched to directory: /workspace/d"
    assert terminal(
        "execute_command",
        command="pwd; cd /; rm a.txt || rm /workspace/d/a.txt; mkdir /workspace/e",
    ).startswith("Command executed successfully\n\nOutput:\n/workspace/d\n")
    assert terminal("get_current_directory") == "/workspace/d"
    assert terminal("list_directory") == "Directory '/workspace/d' is empty"
    assert (
        terminal("list_directory", path="..")
        == "Contents of directory '/workspace':\n\nDirectories:\n📁 d/\n📁 e/"
    )
    assert (
        terminal("get_command_history", count=2).split("\n")[2]
        == "1. [✗] 2025-01-15T09:00:03+00:00: echo x; echo y >&2; exit 3"
    )
    assert terminal("execute_command", command="rm -r /workspace/d; sleep 9", timeout=1).endswith(
        "The command was stopped after 1 s."
    )
    assert terminal.refused("execute_command", command="ls").startswith(
        "not found: the current directory"
    )
    assert (
        terminal("change_directory", path="/workspace/e") == "Switched to directory: /workspace/e"
    )
    assert terminal.refused("execute_command", command="ls", timeout=121).startswith(
        "invalid argument"
    )


def test_history_is_kept_short_and_goes_along_with_copies(terminal: Client) -> None:
    assert terminal("get_command_history") == "No command execution history."
    assert terminal.refused("get_command_history", count=0).startswith("invalid argument")
    needs_workbench()
    for k in range(3):
        terminal("execute_command", command=f": {k}")
    for server in (copy.deepcopy(terminal.server), pickle.loads(pickle.dumps(terminal.server))):
        assert Client(server)("get_command_history") == terminal("get_command_history")
    assert len(terminal("get_command_history", count=99).split("\n")) == 5


def test_rows_are_read(terminal: Client) -> None:
    assert (
        terminal("write_file", path="f", content="a\nb")
        == "Successfully wrote 4 bytes to 'f' in overwrite mode."
    )
    assert (
        terminal("write_file", path="f", content="c", mode="append")
        == "Successfully wrote 6 bytes to 'f' in append mode."
    )
    assert terminal("read_file", path="f") == "a\nb\nc\n"
    assert terminal("read_file", path="f", start_row=1) == "Line 1: b\n"
    assert terminal("read_file", path="f", start_row=1, end_row=9) == "Line 1: b\nLine 2: c\n"
    for rows in ({"start_row": 3}, {"start_row": -1}, {"start_row": 1, "end_row": 0}):
        assert terminal.refused("read_file", path="f", **rows).startswith(
            "invalid argument: there are no rows"
        )
    terminal("write_file", path="j", content='{"a": ["é"]}')
    assert terminal("read_file", path="j", as_json=True) == '{\n    "a": [\n        "é"\n    ]\n}'
    assert terminal.refused("read_file", path="f", as_json=True).startswith(
        "invalid argument: the file is not JSON"
    )
    assert terminal.refused("write_file", path="f", content="", mode="x").startswith(
        "invalid argument: mode"
    )


EDITS: list[tuple[str, dict[str, Any], str]] = [
    ("insert_file_content", {"content": "x"}, "a\nb\nc\nx\n"),
    ("insert_file_content", {"content": "x\ny", "row": 1}, "a\nx\ny\nb\nc\n"),
    ("insert_file_content", {"content": "x", "row": 5}, "a\nb\nc\n\n\nx\n"),
    ("insert_file_content", {"content": "x", "rows": [0, 2]}, "x\na\nb\nx\nc\n"),
    ("delete_file_content", {}, ""),
    ("delete_file_content", {"row": 0}, "b\nc\n"),
    ("delete_file_content", {"rows": [2, 0, 9, 0]}, "b\n"),
    ("delete_file_content", {"substring": "b"}, "a\n\nc\n"),
    ("update_file_content", {"content": "x"}, "x\n"),
    ("update_file_content", {"content": "x\ny", "row": 1}, "a\nx\ny\nc\n"),
    ("update_file_content", {"content": "x\ny", "rows": [0, 2]}, "x\nb\ny\n"),
    ("update_file_content", {"content": "x", "rows": [0, 1]}, "x\nx\nc\n"),
    ("update_file_content", {"content": "xx", "substring": "c"}, "a\nb\nxx\n"),
    ("update_file_content", {"content": "x", "substring": "b", "row": 1}, "a\nx\nc\n"),
]


@pytest.mark.parametrize(("name", "arguments", "text"), EDITS)
def test_rows_are_edited(terminal: Client, name: str, arguments: dict[str, Any], text: str) -> None:
    files = terminal.server.context.files
    files.write("f", "a\r\nb\nc")
    assert terminal(name, path="f", **arguments).startswith("Successfully")
    assert files.read_text("f").removesuffix("\n") == text.removesuffix("\n")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("insert_file_content", {"content": "x", "row": -1}),
        ("insert_file_content", {"content": "x", "row": 10**9}),
        ("insert_file_content", {"content": "x", "rows": [True]}),
        ("insert_file_content", {"content": "x" * 200_000, "rows": [0] * 1_000}),
        ("delete_file_content", {"row": 3}),
        ("delete_file_content", {"rows": []}),
        ("delete_file_content", {"substring": ""}),
        ("delete_file_content", {"substring": "z"}),
        ("update_file_content", {"content": "x", "row": 3}),
        ("update_file_content", {"content": "x", "row": 0, "substring": "b"}),
        ("update_file_content", {"content": "x" * 200_000, "substring": "a", "path": "many"}),
        ("read_file", {"path": "none"}),
        ("delete_file_content", {"path": "binary", "row": 0}),
    ],
)
def test_a_refused_edit_changes_nothing(
    terminal: Client, name: str, arguments: dict[str, Any]
) -> None:
    files = terminal.server.context.files
    files.write("f", "a\nb\nc\n")
    files.write("many", "a" * 1_000)
    files.write("binary", b"\xff\n")
    error = terminal.refused(name, **{"path": "f", **arguments})
    assert error.startswith(("invalid argument: ", "not found: ", "limit exceeded: "))
    assert (files.read_text("f"), files.size("many")) == ("a\nb\nc\n", 1_000)


def test_the_servers_of_an_office_share_the_files() -> None:
    needs_workbench()
    office = Office(["filesystem", "terminal", "python_execute"])
    office.context.files.write("a", "1")
    python, terminal = Client(office.get(PythonExecute)), Client(office.get(Terminal))
    python("python_execute", code="open('b', 'w').write(open('a').read() + '2')")
    assert terminal("execute_command", command="cat b; rm a b").endswith("Output:\n12")
    assert office.context.files.names() == [".python_tmp"]
    assert "terminal_read_file" in tools_of(office.get(Terminal))
    office.close()


@pytest.mark.parametrize("server", [PythonExecute, Terminal])
def test_a_host_that_cannot_run_programs_is_an_error_for_the_user(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    workbench = pytest.importorskip("agentgym.sandboxes.workbench")
    monkeypatch.setattr(workbench, "_command", lambda: ("/no/bwrap",))
    call = (
        {"python_execute": {"code": "1"}}
        if server is PythonExecute
        else {"execute_command": {"command": "ls"}}
    )
    for name, arguments in call.items():
        with pytest.raises(
            RuntimeError,
            match=r"programs cannot run on this host: .*pip install 'agentgym\[hardened\]'",
        ):
            Client(server())(name, **arguments)
    monkeypatch.setitem(sys.modules, "agentgym.sandboxes.workbench", None)
    for name, arguments in call.items():
        with pytest.raises(RuntimeError, match="programs cannot run on this host"):
            Client(server())(name, **arguments)
