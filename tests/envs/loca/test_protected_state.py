"""Unrelated changes in the services fail in every task."""

from __future__ import annotations

import contextlib

import pytest

from agentgym.envs.loca.protected_state import DRAFTS
from agentgym.office.store import Store
from agentgym.text.tools import ToolError
from tests.envs.loca.office import TASKS, faults_after, fresh


@pytest.mark.parametrize("task", [task for task, kind in TASKS.items() if "email" in kind.servers])
def test_a_draft_is_none_unless_the_task_forbids_it(task: str) -> None:
    draft = {"subject": "Later", "body": "x", "to": "a@mcp.com"}
    faults = faults_after(task, lambda world: world.office.call("save_draft", draft))
    assert bool(faults) == (DRAFTS in TASKS[task].forbidden)
    assert ("drafts" in fresh(task).rules()) == (DRAFTS not in TASKS[task].forbidden)


@pytest.mark.parametrize("task", TASKS)
def test_looking_around_is_none(task: str) -> None:
    before = set(fresh(task).all_failures())
    world = fresh(task)
    for tool in ("canvas_list_users", "get_folders", "bigquery_list_datasets", "logging_read_logs",
                 "woo_reports_stock", "woo_system_status", "list_spreadsheets", "logout"):  # fmt: skip
        if any(
            tool in type(server).__dict__ or hasattr(server, tool) for server in world.toolsets()
        ):
            with contextlib.suppress(ToolError):  # some reads need a login
                world.office.call(tool, {})
    assert set(world.all_failures()) == before


def test_a_fingerprint_is_of_the_records_whatever_their_order() -> None:
    stores = [
        Store("CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT, seen TEXT)")
        for _ in range(2)
    ]
    for store, order in zip(stores, ((1, 2), (2, 1)), strict=True):
        for k in order:
            store.insert("things", id=k, name=f"thing {k}", seen=str(order))
    assert stores[0].tables() == ("things",)
    prints = [store.fingerprint("things", without=("seen",)) for store in stores]
    assert prints[0] == prints[1] != stores[0].fingerprint("things")
    stores[0].update("things", 1, name="another")
    assert stores[0].fingerprint("things", without=("seen",)) != prints[0]
