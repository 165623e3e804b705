from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from agentgym import ToolCall, make, render, tool_env, worlds
from agentgym.office import store
from agentgym.office.files.pdfs import write_pdf
from agentgym.office.files.workspace import MAX_TOTAL_BYTES
from agentgym.office.office import SERVERS, server_class
from agentgym.office.server import Server
from agentgym.office.warehouse import database
from agentgym.office.warehouse.engine import MAX_CHARACTERS
from agentgym.text import reply_work
from agentgym.text.tools import HostLimitError, ToolError, Toolset, tools_of
from agentgym.wrappers import ProgrammaticTools
from tests import bombs
from tests.helpers import needs_workbench
from tests.office.test_laws import SLOW

IDS = [entry.id for entry in worlds()]
OFFICE_TOOLS = {name for server in SERVERS for name in tools_of(server_class(server)())}
# Most calls take milliseconds; SQL statements may take 5 s.
MOST_SECONDS = 15.0
MOST_MEGABYTES = 600.0
# Maximum size of the records, files and tables of one server.
MOST_STORED_BYTES = store.MAX_BYTES + MAX_TOTAL_BYTES + 2 * MAX_CHARACTERS


def faults_of(toolset: Toolset, known: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Call every tool with all extreme arguments; return the calls that took too long or failed."""
    broken = []
    for name, bound in tools_of(toolset).items():
        for arguments in bombs.calls(bound.schema.parameters, known):
            before = bombs.seconds()
            problem = ""
            try:
                bound(arguments)
            except HostLimitError:
                problem = "makes the episode invalid"
            except ToolError:
                pass
            except Exception as error:  # noqa: BLE001 - any other exception breaks the law
                problem = repr(error)[:200]
            if (spent := bombs.seconds() - before) > MOST_SECONDS:
                problem = f"took {spent:.1f} s"
            if problem:
                broken.append(f"{name} {problem}: {json.dumps(arguments)[:200]}")
    return broken


@pytest.mark.rotation(name=[name for name in SERVERS if name not in SLOW])
def test_no_call_of_an_office_tool_takes_long(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "SECONDS", 1.0)  # slow statements reach this limit
    server = server_class(name)()
    for path, data in bombs.files().items():
        server.context.files.write(path, data)
    known = {}
    if name == "google_sheet":
        known = {"spreadsheet_id": add_sheet(server, [["a"] * 26] * 1_000), "sheet": "Sheet1"}
    memory = bombs.megabytes()
    assert faults_of(server, known) == []
    assert bombs.megabytes() - memory < MOST_MEGABYTES
    assert stored_bytes(server) < MOST_STORED_BYTES
    server.close()


@pytest.mark.rotation(env_id=IDS)
def test_no_reply_takes_long_or_makes_its_episode_invalid(env_id: str) -> None:
    env = tool_env(make(env_id))
    chat, _ = env.reset(seed=0)
    broken: list[Any] = []
    # The test above covers the tools of office servers.
    own = [each for each in chat.tools if each.name not in OFFICE_TOOLS]
    for schema in own:
        for arguments in bombs.calls(schema.parameters):
            before = bombs.seconds()
            reply = render(ToolCall(schema.name, arguments), "json")
            _, _, terminated, truncated, info = env.step(reply)
            spent, invalid = bombs.seconds() - before, info["detail"].invalid
            if spent > MOST_SECONDS or invalid:
                broken.append((schema.name, spent, invalid, json.dumps(arguments)[:200]))
            if terminated or truncated:
                env.reset(seed=0)
    assert broken == []


def add_sheet(server: Server, data: list[list[str]]) -> str:
    tools = tools_of(server)
    identity = str(tools["create_spreadsheet"]({"title": "a"})["spreadsheetId"])
    place = {"spreadsheet_id": identity, "sheet": "Sheet1", "range": "A1"}
    tools["update_cells"]({**place, "data": data})
    return identity


def stored_bytes(server: Server) -> int:
    return len(pickle.dumps({name: getattr(server, name) for name in server.episode_state}))


NINE = {"dateTime": "2025-02-01T09:00:00Z"}
ROWS = "SELECT COUNT(*) AS c FROM "
ARRAY = "UNNEST(GENERATE_ARRAY(1, 6000))"
# Each range is read again for every change to the sheet.
FORMULA = "=" + "+".join(f"COUNTIF(A1:Z{row},1)" for row in range(990, 1_000))
# Calls that use most of the work allowed per call, or more.
HEAVY: list[tuple[str, str, dict[str, Any]]] = [
    ("snowflake", "read_query", {"query": f"{ROWS}TABLE(GENERATOR(ROWCOUNT=>20000000000))"}),
    ("google_cloud", "bigquery_run_query", {"query": f"{ROWS}{ARRAY} a, {ARRAY} b, {ARRAY} c"}),
    ("python_execute", "python_execute", {"code": "while True: pass", "timeout": 4}),
    ("filesystem", "read_text_file", {"path": "big.txt"}),
    ("google_sheet", "update_cells", {"sheet": "Sheet1", "range": "Z1000", "data": [[FORMULA]]}),
]


@pytest.mark.parametrize(("name", "tool_name", "arguments"), HEAVY)
def test_the_calls_of_a_reply_share_their_work(
    monkeypatch: pytest.MonkeyPatch, name: str, tool_name: str, arguments: dict[str, Any]
) -> None:
    if name == "python_execute":
        needs_workbench()
    monkeypatch.setattr(reply_work, "ROOM", 0.2)  # using up the whole budget would take a minute
    monkeypatch.setattr(database, "SECONDS", 0.2)
    server = server_class(name)()
    server.context.files.write("a.pdf", write_pdf([["a" * 60 + "b"]]))
    server.context.files.write("big.txt", "a line\n" * 100_000)
    if name == "google_sheet":
        arguments = {**arguments, "spreadsheet_id": add_sheet(server, [["a"] * 26] * 1_000)}
    env = tool_env(make("SearchWorld"))
    env.mount(server)
    env.reset(seed=0)
    calls = [ToolCall(tool_name, arguments)] * 8
    if name == "google_sheet":  # a formula is computed when its cell is read
        place = {key: arguments[key] for key in ("spreadsheet_id", "sheet", "range")}
        calls[1::2] = [ToolCall("get_sheet_data", place)] * 4
    reply = "\n".join(render(call, "json") for call in calls)
    for _ in range(2):  # the next reply gets the full limit again
        chat, _, _, _, info = env.step(reply)
        results = chat.messages[-8:]
        assert {message.role for message in results} == {"tool"}, results[-1].text
        ran = ["used up" not in message.text for message in results]
        assert sorted(ran, reverse=True) == ran
        assert 1 <= sum(ran) < 8
        assert not info["detail"].invalid
    server.close()


def test_the_calls_of_code_share_their_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_work, "ROOM", 0.5)
    server = server_class("filesystem")()
    server.context.files.write("big.txt", "a line\n" * 100_000)
    world = tool_env(make("ListWorld"))
    world.mount(server)
    env = ProgrammaticTools(world, also=["read_text_file"])
    env.reset(seed=0)
    code = "read_text_file(path='big.txt')\nread_text_file(path='big.txt')"
    for _ in range(2):
        chat, _, _, _, info = env.step(render(ToolCall("run_python", {"code": code}), "json"))
        assert "used up" in chat.messages[-1].text
        first, second = info["detail"].nested
        assert first.result.startswith("a line")
        assert "used up" in second.result
    server.close()


@pytest.mark.parametrize(
    ("name", "tool_name", "arguments"),
    [
        ("google_cloud", "logging_write_log", {"log_name": "a", "message": "m" * 60_000}),
        ("google_sheet", "update_cells", {"sheet": "Sheet1", "range": "A{}", "data": [["m" * 40_000]]}),
        ("calendar", "create_event", {"summary": "m", "description": "m" * 8_000, "start": NINE, "end": NINE}),
    ],
)  # fmt: skip
def test_a_server_refuses_more_records_than_it_stores(
    monkeypatch: pytest.MonkeyPatch, name: str, tool_name: str, arguments: dict[str, Any]
) -> None:
    monkeypatch.setattr(store, "MAX_BYTES", 500_000)
    server = server_class(name)()
    if name == "google_sheet":
        arguments = {**arguments, "spreadsheet_id": add_sheet(server, [["a"]])}
    bound, table, problem = tools_of(server)[tool_name], server.store.tables()[-1], ""
    for row in range(1, 200):
        before = server.store.fingerprint(table)
        try:
            bound({k: v.format(row) if k == "range" else v for k, v in arguments.items()})
        except ToolError as error:
            problem = str(error)
            break
    assert "the service can store at most 500000 bytes" in problem
    assert row > 3
    assert server.store.fingerprint(table) == before
    assert len(pickle.dumps(server.store)) < 600_000
