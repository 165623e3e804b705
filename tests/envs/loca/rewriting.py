"""Alternative calls with the same effect as the calls of a plan."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from agentgym import ToolCall
from agentgym.envs.loca.plan import PlanStep

Rewriter = Callable[[dict[str, Any], random.Random], list[ToolCall]]
"""Function from the arguments of a call to equivalent calls."""


def rewritten(step: PlanStep, draw: random.Random) -> list[ToolCall]:
    call = plain(step)
    rewriter = REWRITERS.get(call.name)
    return rewriter(dict(call.arguments), draw) if rewriter else [call]


def plain(step: PlanStep) -> ToolCall:
    """Return a step's call; an INSERT … SELECT of missing rows becomes an INSERT … VALUES."""
    query = str(step.call.arguments.get("query"))
    parts = re.fullmatch(r"(INSERT .*?\)) SELECT .*?>>\[(.*)\]\) WHERE .*", query, re.DOTALL)
    if step.call.name != "bigquery_run_query" or parts is None:
        return step.call
    return ToolCall(step.call.name, {"query": f"{parts[1]} VALUES {parts[2]}"})


def merged(steps: Sequence[PlanStep]) -> list[ToolCall]:
    """Return a single call with the same effects as several steps, or an empty list."""
    calls = [plain(step) for step in steps]
    [tool] = {call.name for call in calls} if len({call.name for call in calls}) == 1 else [""]
    if tool == "woo_products_update":
        update = [
            {"id": call.arguments["productId"], **call.arguments["productData"]} for call in calls
        ]
        return [ToolCall("woo_products_batch_update", {"update": update})]
    if tool == "woo_products_batch_update":
        update = [each for call in calls for each in call.arguments["update"]][:100]
        return [ToolCall(tool, {"update": update})]
    if tool == "bigquery_run_query":
        heads, rows = zip(*(_insert(call.arguments["query"]) for call in calls), strict=True)
        everything = ", ".join(row for some in rows for row in some)
        return [ToolCall(tool, {"query": f"{heads[0]} VALUES {everything}"})]
    return []


def _insert(query: str) -> tuple[str, list[str]]:
    head, _, values = query.partition(" VALUES ")
    return head, [f"({row})" for row in values[1:-1].split("), (")]


def _mail(arguments: dict[str, Any], draw: random.Random) -> list[ToolCall]:
    to = arguments["to"]
    forms = (f"Student <{to}>", f'"Doe, Jane" <{to}>', to.upper(), f" {to} ", f"<{to}>")
    body = arguments["body"]
    html = "".join(f"<p>{line}</p>\n" for line in body.split("\n"))
    more = draw.choice(
        (
            {"cc": "", "body": f"\n{body}\n\n"},
            {"body": body.replace("\n", "\r\n")},
            {"html_body": f"<div style='color: red'>{html}</div>"},
        )
    )
    return [ToolCall("send_email", {**arguments, **more, "to": draw.choice(forms)})]


def _query(arguments: dict[str, Any], draw: random.Random) -> list[ToolCall]:
    if not arguments["query"].startswith("INSERT"):
        return [ToolCall("bigquery_run_query", arguments)]
    head, rows = _insert(arguments["query"])
    head = draw.choice((head, head.replace(" INTO", ""), head.lower(), _quoted(head)))
    verb = draw.choice(("VALUES", "values\n"))
    cut = draw.randint(0, len(rows) - 1)
    return [
        ToolCall("bigquery_run_query", {"query": f"{head} {verb} {', '.join(part)};"})
        for part in (rows[:cut], rows[cut:])
        if part
    ]


def _quoted(head: str) -> str:
    return re.sub(r"(INSERT INTO) (\S+)", r"\1 `\2`", head)


def _statement(arguments: dict[str, Any], draw: random.Random) -> list[ToolCall]:
    query = arguments["query"]
    for word in ("MERGE INTO", "COMMENT ON COLUMN", "USING", "WHEN NOT MATCHED THEN INSERT"):
        query = query.replace(word, draw.choice((word, word.lower(), word.replace(" ", "\n"))))
    return [ToolCall("write_query", {"query": query + draw.choice(("", ";", "\n"))})]


def _products(arguments: dict[str, Any], draw: random.Random) -> list[ToolCall]:
    update = list(arguments["update"])
    draw.shuffle(update)
    if draw.random() < 0.5:
        cut = draw.randint(0, len(update))
        parts = [part for part in (update[:cut], update[cut:]) if part]
        return [ToolCall("woo_products_batch_update", {"update": part}) for part in parts]
    return [
        ToolCall(
            "woo_products_update",
            {
                "productId": each["id"],
                "productData": {name: each[name] for name in each if name != "id"},
            },
        )
        for each in update
    ]


def _cells(arguments: dict[str, Any], draw: random.Random) -> list[ToolCall]:
    data = arguments["data"]
    first, last, top, end = re.findall(r"[A-Z]+|[0-9]+", arguments["range"])[::2] + re.findall(
        r"[0-9]+", arguments["range"]
    )
    cut = draw.randint(0, len(data))
    areas = {
        f"{first}{int(top)}:{last}{int(top) + cut - 1}": data[:cut],
        f"{first}{int(top) + cut}:{last}{end}": data[cut:],
    }
    ranges = {area: rows for area, rows in areas.items() if rows}
    where = {name: arguments[name] for name in ("spreadsheet_id", "sheet")}
    if draw.random() < 0.5:
        return [ToolCall("batch_update_cells", {**where, "ranges": ranges})]
    return [
        ToolCall("update_cells", {**where, "range": area, "data": rows})
        for area, rows in ranges.items()
    ]


def _workbook(arguments: dict[str, Any], draw: random.Random) -> list[ToolCall]:
    data, top = arguments["data"], int(arguments.get("start_cell", "A1")[1:])
    cut = draw.randint(1, len(data))
    path = draw.choice(("", "./", "/workspace/")) + arguments["filepath"]
    parts = [(top, data[:cut]), (top + cut, data[cut:])]
    first = []
    if "start_cell" not in arguments:  # the call creates a sheet
        names = {"old_name": "Sheet1", "new_name": arguments["sheet_name"]}
        first = [ToolCall("rename_worksheet", {"filepath": path, **names})][: draw.randint(0, 1)]
    return first + [
        ToolCall(
            "write_data_to_excel",
            {
                "filepath": path,
                "sheet_name": arguments["sheet_name"],
                "data": rows,
                "start_cell": f"A{row}",
            },
        )
        for row, rows in parts
        if rows
    ]


def _event(arguments: dict[str, Any], draw: random.Random) -> list[ToolCall]:
    title = arguments["summary"]
    key = title.split()[0]
    titles = (
        title.upper(),
        title.lower(),
        f"{key}2025: camera ready",
        f"Camera-Ready of {key} (AoE)",
    )
    changes: dict[str, Any] = {"summary": draw.choice(titles)}
    for name in ("start", "end"):
        moment = datetime.fromisoformat(arguments[name]["dateTime"]).astimezone(UTC)
        forms = (
            {"dateTime": f"{moment:%Y-%m-%dT%H:%M:%SZ}"},
            {"dateTime": f"{moment:%Y-%m-%dT%H:%M:%S}", "timeZone": "UTC"},
        )
        changes[name] = draw.choice(forms)
    return [ToolCall("create_event", {**arguments, **changes})]


def _entry(arguments: dict[str, Any], draw: random.Random) -> list[ToolCall]:
    message = arguments["message"]
    if isinstance(message, dict):
        message = draw.choice((message, json.dumps(message), json.dumps(message, indent=2)))
    else:
        message = draw.choice((message, f"Warning: {message}", message.replace(" (", ", ID ")))
        message = message.replace(")", "") if "(" not in message else message
    return [ToolCall("logging_write_log", {**arguments, "message": message})]


def _path(tool: str, *names: str) -> Rewriter:
    def rewrite(arguments: dict[str, Any], draw: random.Random) -> list[ToolCall]:
        paths = {
            name: draw.choice(("", "./", "/workspace/"))
            + arguments[name].removeprefix("/workspace/")
            for name in names
        }
        return [ToolCall(tool, {**arguments, **paths})]

    return rewrite


def _category(arguments: dict[str, Any], draw: random.Random) -> list[ToolCall]:
    more: dict[str, Any] = draw.choice(({"description": ""}, {"parent": 0}, {"display": "default"}))
    data = {**arguments["categoryData"], **more}
    return [ToolCall("woo_products_categories_create", {"categoryData": data})]


def _bucket(arguments: dict[str, Any], draw: random.Random) -> list[ToolCall]:
    return [ToolCall("storage_create_bucket", {**arguments, "location": "US"})]


REWRITERS: dict[str, Rewriter] = {
    "send_email": _mail,
    "bigquery_run_query": _query,
    "write_query": _statement,
    "woo_products_batch_update": _products,
    "update_cells": _cells,
    "write_data_to_excel": _workbook,
    "create_event": _event,
    "logging_write_log": _entry,
    "woo_products_categories_create": _category,
    "storage_create_bucket": _bucket,
    "storage_upload_file": _path("storage_upload_file", "source_file_path"),
    "write_file": _path("write_file", "path"),
    "create_workbook": _path("create_workbook", "filepath"),
}
