"""Office servers outside office tasks, mounted by any world, without leaks."""

from __future__ import annotations

import copy
import json
import pickle
import tempfile
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym import ToolCall, render, tool_env
from agentgym.envs.loca.results import query_rows
from agentgym.office import SERVERS, Office, OfficeContext, server_class
from agentgym.office.calendar import Calendar
from agentgym.office.files.filesystem import Filesystem
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.office.spreadsheet.excel import Excel
from agentgym.office.warehouse.snowflake import Snowflake
from agentgym.oracles import OraclePolicy
from agentgym.text.tools import ToolError

LUNCH = {
    "summary": "Lunch",
    "start": {"dateTime": "2025-01-20T12:00:00Z"},
    "end": {"dateTime": "2025-01-20T13:00:00Z"},
}
ALL = {"timeMin": "2025-01-01T00:00:00Z", "timeMax": "2026-01-01T00:00:00Z"}


def titles(env: Any) -> list[str]:
    return [event["summary"] for event in json.loads(env.call("list_events", ALL).text)["items"]]


@pytest.mark.parametrize("name", [name for name in SERVERS if name != "claim_done"])
def test_every_server_mounts_on_a_world_which_is_played_as_before(name: str) -> None:
    env = tool_env(agentgym.make("ListWorld", items=4, removals=2))
    env.mount(server_class(name)())
    chat, _ = env.reset(seed=1)
    assert {tool.name for tool in env.tools} > {"pop"}
    while not env.over:
        chat, reward, *_ = env.step(OraclePolicy("ListWorld")([chat])[0].text)
    assert reward == 1.0


def test_a_mounted_server_begins_each_episode_as_it_was_mounted() -> None:
    context = OfficeContext()
    calendar, files = Calendar(context), Filesystem(context)
    now = {"dateTime": context.clock.now().isoformat()}
    calendar.create_event("Birthday", now, now)
    context.files.write("note.txt", "x")
    env = tool_env(agentgym.make("TreeWorld", nodes=10))
    env.mount(calendar)
    env.mount(files)
    for _ in range(2):
        env.reset(seed=1)
        assert titles(env) == ["Birthday"]
        env.step(render(ToolCall("create_event", LUNCH)))
        env.step(render(ToolCall("write_file", {"path": "new.txt", "content": "y"})))
        assert titles(env) == ["Birthday", "Lunch"]
        assert context.files.names() == ["new.txt", "note.txt"]


def test_servers_with_a_common_tool_name_mount_once_one_is_renamed() -> None:
    env, server = tool_env(agentgym.make("ListWorld")), Snowflake()
    env.mount(Excel())
    with pytest.raises(ValueError, match=r"create_table already exists; .* Snowflake\.renamed$"):
        env.mount(server)
    server.renamed = {"create_table": "snowflake_create_table"}
    env.mount(server)
    assert {"create_table", "snowflake_create_table"} <= {tool.name for tool in env.tools}
    with pytest.raises(ValueError, match="servers contains excel twice"):
        Office(["excel", "memory", "excel"])


def test_snapshots_clones_and_pickles_hold_mounted_servers() -> None:
    env = tool_env(agentgym.make("ListWorld", items=4, removals=2))
    env.mount(Calendar())
    env.reset(seed=1)
    held = env.snapshot()
    env.step(render(ToolCall("create_event", LUNCH)))
    copies = [env.clone(), pickle.loads(pickle.dumps(env))]
    env.restore(held)
    assert titles(env) == []
    assert [titles(each) for each in copies] == [["Lunch"], ["Lunch"]]


def test_many_offices_live_side_by_side_and_leave_nothing_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    offices = [Office(SERVERS) for _ in range(8)]
    for k, office in enumerate(offices):
        office.get(GoogleCloud).bigquery.load("shop", "sales", {"n": "INT64"}, [(k,)])
        office.call("write_file", {"path": "n.txt", "content": str(k)})
    for k, office in enumerate(offices):
        shown = office.call("bigquery_run_query", {"query": "SELECT n FROM shop.sales"})
        assert query_rows(shown) == [{"n": k}]
        assert office.call("read_text_file", {"path": "n.txt"}) == str(k)
    other = copy.deepcopy(offices[5])
    other.call("write_file", {"path": "n.txt", "content": "other"})
    assert offices[5].call("read_text_file", {"path": "n.txt"}) == "5"
    with pytest.raises(ToolError, match="not found"):
        offices[0].get(Snowflake).describe_table("A.B.C")
    for office in (*offices, other):
        office.close()
    assert list(tmp_path.iterdir()) == []
