"""Unrelated changes in the services fail in every task."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from agentgym.envs.loca.protected_state import DRAFTS
from agentgym.envs.loca.results import listed_items
from agentgym.office.store import Store
from agentgym.text.tools import ToolError
from tests.envs.loca.office import TASKS, faults_after, fresh, solved

EXTRAS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "email": [
        ("create_folder", {"folder_name": "Later"}),
    ],
    "calendar": [
        (
            "create_event",
            {
                "summary": "Lunch",
                "start": {"dateTime": "2025-10-01T00:00:00Z"},
                "end": {"dateTime": "2025-10-01T01:00:00Z"},
            },
        )
    ],
    "google_cloud": [
        ("bigquery_create_dataset", {"dataset_id": "scratch"}),
        ("bigquery_run_query", {"query": "CREATE TABLE {dataset}.scratch AS SELECT 1 AS one"}),
        ("storage_create_bucket", {"bucket_name": "scratch-of-mine"}),
        ("logging_write_log", {"log_name": "scratch", "message": "x"}),
    ],
    "google_sheet": [
        ("create_spreadsheet", {"title": "Scratch"}),
    ],
    "woocommerce": [
        ("woo_products_create", {"productData": {"name": "Scratch"}}),
        ("woo_products_categories_create", {"categoryData": {"name": "Scratch"}}),
    ],
}


def carried_out(world: Any, tool: str, arguments: dict[str, Any]) -> None:
    text = json.dumps(arguments)
    if "{dataset}" in text:
        first = listed_items(world.office.call("bigquery_list_datasets", {}))[0]
        text = text.replace("{dataset}", first.partition(" ")[0])
    if "{spreadsheet}" in text:
        text = text.replace(
            "{spreadsheet}", json.loads(world.office.call("list_spreadsheets", {}))[0]["id"]
        )
    world.office.call(tool, json.loads(text))


@pytest.mark.parametrize("task", TASKS)
def test_what_is_done_besides_is_a_fault(task: str) -> None:
    for server in solved(task).toolsets():
        for tool, arguments in EXTRAS.get(server.name, ()):
            assert faults_after(
                task, lambda world, call=(tool, arguments): carried_out(world, *call)
            ), tool


@pytest.mark.parametrize("task", [task for task, kind in TASKS.items() if "email" in kind.servers])
def test_a_draft_is_none_unless_the_task_forbids_it(task: str) -> None:
    draft = {"subject": "Later", "body": "x", "to": "a@mcp.com"}
    faults = faults_after(task, lambda world: world.office.call("save_draft", draft))
    assert bool(faults) == (DRAFTS in TASKS[task].forbidden)
    assert ("drafts" in fresh(task).rules()) == (DRAFTS not in TASKS[task].forbidden)


@pytest.mark.parametrize("task", [task for task, kind in TASKS.items() if "email" in kind.servers])
def test_a_mail_that_was_deleted_or_marked_is_a_fault(task: str) -> None:
    first = json.loads(solved(task).office.call("get_emails", {}))["emails"][:1]
    for tool, more in (
        (("delete_emails", {}), ("mark_emails", {"status": "important"})) if first else ()
    ):
        arguments = {"email_ids": [first[0]["id"]], **more}
        assert faults_after(task, lambda world, call=(tool, arguments): world.office.call(*call)), (
            tool
        )


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
