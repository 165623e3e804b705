"""Recorded sessions, in which every call must get its recorded reply.

`recorded/<server>.txt` contains calls of one server. The calls before the first `==` prepare the
server for every session in the file. Each line consists of a tool and its arguments as JSON; `@`
marks a method for task authors. The indented lines below a call are the reply:

- an error, marked by `!`, with the start of its message; it must leave the server unchanged,
- text, in which `...` matches anything, or `<empty>`,
- JSON, in which an object may omit keys; the value "<absent>" means that a key is missing.
"""

from __future__ import annotations

import copy
import doctest
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_jsonable_python

from agentgym.office import server_class
from agentgym.office.server import Server
from agentgym.text.tools import ToolError, tools_of
from tests.helpers import needs_workbench
from tests.office.prepared import PREPARED
from tests.office.test_laws import SLOW, digest, run

FOLDER = Path(__file__).parent / "recorded"


@dataclass(frozen=True)
class Step:
    call: str
    arguments: Mapping[str, Any]
    reply: str

    def play(self, server: Server) -> Any:
        if self.reply.startswith("! "):
            before = (digest(server), server.context.clock.now())
            with pytest.raises((ToolError, ValueError)) as caught:
                self.run(server)
            assert str(caught.value).startswith(self.reply.removeprefix("! "))
            assert (digest(server), server.context.clock.now()) == before
            return caught.value
        reply = self.run(server)
        if isinstance(reply, str):
            check_text(reply, self.reply)
        elif self.reply:
            check_part(to_jsonable_python(reply, bytes_mode="base64"), json.loads(self.reply), "")
        return reply

    def run(self, server: Server) -> Any:
        if not self.call.startswith("@"):
            return tools_of(server)[self.call](self.arguments)
        method: Any = reduce(getattr, self.call.removeprefix("@").split("."), server)
        return method(**self.arguments)


def check_text(reply: str, recorded: str) -> None:
    """Check a text against its record, in which `...` matches anything, as in doctests."""
    lines = "\n".join(line.rstrip() for line in reply.split("\n")).rstrip("\n") or "<empty>"
    matches = doctest.OutputChecker().check_output(recorded, lines, doctest.ELLIPSIS)
    assert matches or not recorded, f"{lines}\n\nin place of\n\n{recorded}"


def check_part(value: Any, recorded: Any, path: str) -> None:
    if isinstance(value, dict) and isinstance(recorded, dict):
        for key, item in recorded.items():
            check_part(value.get(key, "<absent>"), item, f"{path}.{key}")
    elif isinstance(value, list) and isinstance(recorded, list):
        assert len(value) == len(recorded), path
        for k, (one, other) in enumerate(zip(value, recorded, strict=True)):
            check_part(one, other, f"{path}[{k}]")
    else:
        assert value == recorded, path


def read_steps(file: Path) -> Iterator[Step | str]:
    """Yield the steps and session titles of a recorded file."""
    # A block consists of a line and the indented or blank lines below it.
    for block in re.split(r"\n(?=\S)", file.read_text(encoding="utf-8").strip()):
        if block.startswith("== "):
            yield block.removeprefix("== ").strip()
        elif not block.startswith("#"):
            yield read_step(block)


def read_sessions(file: Path) -> dict[str, list[Step]]:
    """Return each session's steps by title; the session without a title prepares the server."""
    title, sessions = "", defaultdict[str, list[Step]](list)
    for item in read_steps(file):
        if isinstance(item, str):
            title = item
        else:
            sessions[title].append(item)
    return sessions


def read_step(block: str) -> Step:
    line, *reply = block.split("\n")
    call, _, arguments = line.partition(" ")
    # Task authors pass times, and JSON has no type for times.
    given = json.loads(arguments or "{}", object_hook=_with_times)
    return Step(call, given, "\n".join(each[4:].rstrip() for each in reply).rstrip("\n"))


def _with_times(record: dict[str, Any]) -> Any:
    return datetime.fromisoformat(record["$time"]) if "$time" in record else record


SESSIONS = {file.stem: read_sessions(file) for file in sorted(FOLDER.glob("*.txt"))}


def prepared(server: str) -> Server:
    """Return the server with which every session in the file begins."""
    made = PREPARED.get(server, server_class(server))()
    for step in SESSIONS[server][""]:
        step.play(made)
    return made


@pytest.mark.parametrize("server", [name for name in SESSIONS if name not in SLOW])
def test_numbers_of_any_size_are_taken_or_refused_briefly(server: str) -> None:
    for steps in [steps for title, steps in SESSIONS[server].items() if title]:
        played = prepared(server)
        for step in steps:
            numbers = [key for key, value in step.arguments.items() if type(value) is int]
            for key, huge in itertools.product(numbers, (10**400, -(10**400))):
                if not step.call.startswith("@"):
                    changed = {**step.arguments, key: huge}
                    shown = run(copy.deepcopy(played), step.call, changed)
                    assert not shown.startswith("error:") or len(shown) < 500
            step.play(played)


@pytest.mark.parametrize(
    ("server", "title"),
    [(server, title) for server, sessions in SESSIONS.items() for title in sessions if title],
)
def test_every_call_gets_its_recorded_reply(server: str, title: str) -> None:
    if server in SLOW:
        needs_workbench()
    played = prepared(server)
    for step in SESSIONS[server][title]:
        step.play(played)
