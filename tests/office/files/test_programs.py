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


def test_files_of_a_program_have_the_time_of_the_office(python: Client) -> None:
    python("python_execute", code="open('out.txt', 'w').write('x')")
    assert python.server.context.files.modified("out.txt") == python.server.context.clock.now()


def test_a_long_filename_is_refused(python: Client) -> None:
    error = python.refused("python_execute", code="print(1)", filename="x" * 300)
    assert error.startswith("invalid argument")
    assert list(python.server.context.files.walk()) == []


def test_generated_names_are_deterministic(python: Client) -> None:
    for server in (PythonExecute(), PythonExecute()):
        shown = [Client(server)("python_execute", code="print(__file__)") for _ in range(2)]
        assert shown[0] != shown[1]
        assert shown[0].startswith("=== STDOUT ===\n/workspace/.python_tmp/")
        python.server.session.setdefault("shown", []).append(shown)
    assert python.server.session["shown"][0] == python.server.session["shown"][1]


def test_a_long_command_is_refused(terminal: Client) -> None:
    error = terminal.refused("run_command", command="echo " + "x" * 2_048)
    assert "a command may have at most 2048 characters, got 2053" in error


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
