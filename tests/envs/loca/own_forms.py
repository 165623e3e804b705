"""Calls that the checks accept in place of a plan's writing calls, and repairable damage."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym import ToolCall
from agentgym.envs.loca.plan import PlanStep
from tests.envs.loca.office import Rows, csv_text
from tests.envs.loca.rewriting import REWRITERS, plain

ORDERED = {"discount_products.csv", "quiz_info.csv", "assignment_info.csv"}
"""Tables whose rows have a required order."""
Form = Callable[[dict[str, Any], random.Random], list[ToolCall]]


def own_forms(step: PlanStep, draw: random.Random) -> list[ToolCall]:
    """Return calls that the checks accept in place of a step that writes."""
    call = plain(step)
    forms = [*FORMS.get(call.name, ())]
    if call.name in REWRITERS:
        forms.append(REWRITERS[call.name])
    if not forms:
        return [call]
    return draw.choice(forms)(dict(call.arguments), draw)


def with_gaps(rows: Rows, draw: random.Random, width: int) -> Rows:
    """Insert blank rows at random, or one blank row before the last row."""
    blank: list[Any] = [""] * width
    if draw.random() < 0.3:
        return [*rows[:-1], blank, *rows[-1:]]
    spread: Rows = []
    for row in rows:
        spread += [blank] * draw.choice((0, 0, 1, 2)) + [row]
    return spread


def spaced(rows: Rows) -> Rows:
    return [[f" {cell} " if isinstance(cell, str) else cell for cell in row] for row in rows]


def _split_area(area: str) -> tuple[str, int, str]:
    first, last = area.split(":")
    return first[0], int(first[1:]), last[0]


def _sheet(arguments: dict[str, Any], draw: random.Random) -> list[ToolCall]:
    left, top, right = _split_area(arguments["range"])
    rows, body = arguments["data"], arguments["data"]
    head: Rows = []
    if len(rows[0]) == 1:  # values of an existing column must not move to other rows
        if draw.random() < 0.5:
            rows = [[float(row[0])] for row in rows]
        forms = [ToolCall("update_cells", {**arguments, "range": f"{left}{top + k}", "data": [row]})
                 for k, row in enumerate(rows)]  # fmt: skip
        draw.shuffle(forms)
        return forms
    if rows[0][0] == "Team":
        head, body = rows[:1], rows[1:]
    body = draw.sample(body, len(body))
    if draw.random() < 0.7:
        body = with_gaps(body, draw, len(rows[0]))
    table = [*head, *body]
    if draw.random() < 0.3:
        table = spaced(table)
    where = f"{left}{top}:{right}{top + len(table) - 1}"
    return [ToolCall("update_cells", {**arguments, "range": where, "data": table})]


def _excel(arguments: dict[str, Any], draw: random.Random) -> list[ToolCall]:
    rows, top = arguments["data"], int(arguments.get("start_cell", "A1")[1:])
    width, heads = len(rows[0]), 0 if "start_cell" in arguments else 1
    if draw.random() < 0.3:
        where = {name: arguments[name] for name in ("filepath", "sheet_name")}
        gap = ToolCall("insert_rows", {**where, "start_row": top + heads})
        return [ToolCall("write_data_to_excel", arguments), gap]
    table = [*rows[:heads], *with_gaps(rows[heads:], draw, width)]
    table = [[None if cell == "" else cell for cell in row] for row in table]
    return [ToolCall("write_data_to_excel", {**arguments, "data": table})]


def _rows_of(content: str) -> Rows:
    return list(csv.reader(io.StringIO(content, newline="")))


def _csv(arguments: dict[str, Any], draw: random.Random) -> list[ToolCall]:
    path = arguments["path"]
    if not path.endswith(".csv"):
        return [ToolCall("write_file", arguments)]
    head, *body = _rows_of(arguments["content"])
    if path not in ORDERED:
        draw.shuffle(body)
    form: dict[str, Any] = draw.choice(
        ({"quoting": csv.QUOTE_ALL}, {"lineterminator": "\n\n"}, {"lineterminator": "\r\n"}, {})
    )
    table = spaced([head, *body]) if draw.random() < 0.3 else [head, *body]
    if draw.random() < 0.3:
        table = [table[0], *with_gaps(table[1:], draw, len(head))] if body else table
    content = csv_text(table, **form)
    kind = draw.randrange(4)
    if kind == 0:
        return [
            ToolCall("write_file", {"path": "tmp.csv", "content": content}),
            ToolCall("move_file", {"source": "tmp.csv", "destination": f"{path}.new"}),
            ToolCall("write_file", {"path": path, "content": content}),
        ]
    if kind == 1:
        wrong = ToolCall("write_file", {"path": path, "content": "@@" + content})
        edit = {"oldText": "@@", "newText": ""}
        return [wrong, ToolCall("edit_file", {"path": path, "edits": [edit]})]
    return [ToolCall("write_file", {"path": f"/workspace/{path}", "content": content})]


def _upload(arguments: dict[str, Any], draw: random.Random) -> list[ToolCall]:
    there = {"bucket_name": arguments["bucket_name"], "blob_name": "tmp.csv"}
    return [
        ToolCall("storage_upload_file", {**arguments, "destination_blob_name": "tmp.csv"}),
        ToolCall("storage_upload_file", arguments),
        ToolCall("storage_delete_object", there),
    ]


def _snowflake(arguments: dict[str, Any], draw: random.Random) -> list[ToolCall]:
    query = arguments["query"]
    before = draw.choice(("-- new rows\n", "/* new */ ", "/* a\nb */\n-- c\n"))
    after = draw.choice(("", " -- done", " /* done */;"))
    if query.startswith("MERGE") and draw.random() < 0.5:
        table = query.split()[2]
        values, _, rest = query.partition("VALUES ")[2].partition(" AS v (")
        names = rest.partition(")")[0]
        query = f"INSERT INTO {table} ({names}) SELECT * FROM VALUES {values}"
    return [ToolCall("write_query", {"query": f"{before}{query}{after}"})]


def _bigquery(arguments: dict[str, Any], draw: random.Random) -> list[ToolCall]:
    query = arguments["query"]
    head, _, values = query.partition(" VALUES ")
    rows = values[1:-1].split("), (")
    if draw.random() < 0.5 and len(rows) > 1:
        selects = [f"SELECT {row}" for row in rows]
        query = f"{head} {' UNION ALL '.join(selects)}"
    return [ToolCall("bigquery_run_query", {"query": f"/* own form */ {query} -- end"})]


FORMS: Mapping[str, Sequence[Form]] = {
    "update_cells": (_sheet, _sheet),
    "write_data_to_excel": (_excel, _excel),
    "write_file": (_csv,),
    "storage_upload_file": (_upload,),
    "write_query": (_snowflake,),
    "bigquery_run_query": (_bigquery,),
}


def _of(tool: str, changes: Sequence[PlanStep]) -> list[dict[str, Any]]:
    return [dict(plain(step).arguments) for step in changes if step.call.name == tool]


def _files(changes: Sequence[PlanStep]) -> list[dict[str, Any]]:
    return [each for each in _of("write_file", changes) if each["path"].endswith(".csv")]


def _broken_csv(changes: Sequence[PlanStep], draw: random.Random) -> list[ToolCall]:
    calls = []
    for each in _files(changes):
        head, *body = _rows_of(each["content"])
        tables = (
            [head, *body[:-1]],
            [head, *body, ["extra"] * len(head)],
            [[*head, "more"]],
            [head, *([*row[:-1], "7.77"] for row in body or [head])],
        )
        content = draw.choice(("", "no table", *map(csv_text, tables)))
        calls.append(ToolCall("write_file", {"path": each["path"], "content": content}))
    return calls


def _ruined_files(changes: Sequence[PlanStep], draw: random.Random) -> list[ToolCall]:
    calls = []
    paths = [each.get("path") or each["filepath"] for tool in ("write_file", "write_data_to_excel")
             for each in _of(tool, changes)]  # fmt: skip
    for path in paths:
        content = draw.choice(("", "{", "PK\x03\x04 no book", "a,b\n1", '"', "\ufeff[1,"))
        if draw.random() < 0.5:
            calls.append(ToolCall("write_file", {"path": path, "content": content}))
        else:
            calls += by_program(path, content.encode())
    return calls


def by_program(path: str, data: bytes) -> list[ToolCall]:
    """Return program calls that write a file without mentioning the file name."""
    name = path.removeprefix("/workspace/")
    code = (
        f"import os; p = '/workspace/' + bytes.fromhex('{name.encode().hex()}').decode(); "
        "os.makedirs(os.path.dirname(p), exist_ok=True); "
        f"open(p, 'wb').write(bytes.fromhex('{data.hex()}'))"
    )
    return [
        ToolCall("python_execute", {"code": code}),
        ToolCall("run_command", {"command": f'python -c "{code}"'}),
    ]


def _session(changes: Sequence[PlanStep], draw: random.Random) -> list[ToolCall]:
    return [ToolCall("logout", {}) for step in changes if step.call.name == "login"]


def _moved(changes: Sequence[PlanStep], draw: random.Random) -> list[ToolCall]:
    return [ToolCall("move_file", {"source": each["path"], "destination": f"old/{each['path']}"})
            for each in _files(changes)]  # fmt: skip


def _cells(changes: Sequence[PlanStep], draw: random.Random) -> list[ToolCall]:
    calls = []
    for each in _of("update_cells", changes):
        left, top, right = _split_area(each["range"])
        bottom = top + len(each["data"]) - 1
        area = draw.choice(
            (
                f"{left}{bottom}",
                f"{right}{bottom}",
                f"{right}{top}",
                f"{left}{bottom}:{right}{bottom}",
            )
        )
        value = draw.choice(("", "wrong", 7))
        if len(each["data"][0]) == 1:
            value = "7" if value == "" else value
        width = ord(right) - ord(left) + 1 if ":" in area else 1
        calls.append(ToolCall("update_cells", {**each, "range": area, "data": [[value] * width]}))
        if (
            len(each["data"][0]) > 1 and draw.random() < 0.5
        ):  # leave a gap, then repeat the last row
            below = f"{left}{bottom + 2}:{right}{bottom + 2}"
            calls.append(
                ToolCall("update_cells", {**each, "range": below, "data": each["data"][-1:]})
            )
    return calls


def _workbooks(changes: Sequence[PlanStep], draw: random.Random) -> list[ToolCall]:
    calls = []
    for each in _of("write_data_to_excel", changes):
        book, sheet = {"filepath": each["filepath"]}, each["sheet_name"]
        top = int(each.get("start_cell", "A1")[1:])
        bottom = top + len(each["data"]) - 1
        calls.append(draw.choice((
            ToolCall("write_data_to_excel", {**each, "start_cell": f"A{bottom + 2}", "data": each["data"][-1:]}),
            ToolCall("write_data_to_excel", {**each, "start_cell": f"B{bottom}", "data": [["wrong"]]}),
            ToolCall("delete_sheet_rows", {**book, "sheet_name": sheet, "start_row": bottom}),
            ToolCall("insert_columns", {**book, "sheet_name": sheet, "start_col": 2}),
            ToolCall("rename_worksheet", {**book, "old_name": sheet, "new_name": "Other"}),
            ToolCall("create_worksheet", {**book, "sheet_name": "Notes"}),
            ToolCall("create_workbook", book),
            ToolCall("move_file", {"source": each["filepath"], "destination": "gone.xlsx"}),
        )))  # fmt: skip
    return calls


def _tables(changes: Sequence[PlanStep], draw: random.Random) -> list[ToolCall]:
    calls = []
    for each in _of("write_query", changes):
        query = each["query"]
        if query.startswith("COMMENT"):
            calls.append(
                ToolCall("write_query", {"query": query.rpartition(" IS ")[0] + " IS 'wrong'"})
            )
            continue
        table, first = query.split()[2], query.partition("('")[2].partition("'")[0]
        amount = "INVOICE_AMOUNT" if table.endswith("INVOICES") else "PAYMENT_AMOUNT"
        calls.append(ToolCall("write_query", {"query": draw.choice((
            f"DELETE FROM {table} WHERE INVOICE_ID = '{first}'",
            f"UPDATE {table} SET {amount} = 1.23 WHERE INVOICE_ID = '{first}'",
            f"INSERT INTO {table} SELECT * FROM {table} WHERE INVOICE_ID = '{first}'",
        ))}))  # fmt: skip
    for _ in _of("bigquery_run_query", changes)[:1]:
        table = "woocommerce_crm.customers"
        calls.append(ToolCall("bigquery_run_query", {"query": draw.choice((
            f"DELETE FROM {table} WHERE sync_date = '2025-11-20'",
            f"UPDATE {table} SET phone = '1' WHERE sync_date = '2025-11-20'",
            f"INSERT INTO {table} SELECT * FROM {table} WHERE sync_date = '2025-11-20'",
        ))}))  # fmt: skip
    return calls


def _events(changes: Sequence[PlanStep], draw: random.Random) -> list[ToolCall]:
    created = _of("create_event", changes)
    if not created:
        return []
    wrong = {"summary": "Lunch", **{name: created[0][name] for name in ("start", "end")}}
    return [draw.choice((
        ToolCall("update_event", {"eventId": "event_001", "summary": "nothing"}),
        ToolCall("delete_event", {"eventId": "event_001"}),
        ToolCall("create_event", wrong),
        ToolCall("create_event", created[0]),
    ))]  # fmt: skip


def _objects(changes: Sequence[PlanStep], draw: random.Random) -> list[ToolCall]:
    calls = []
    for each in _of("storage_upload_file", changes):
        bucket, name = each["bucket_name"], each["destination_blob_name"]
        if draw.random() < 0.5:
            calls.append(
                ToolCall("storage_delete_object", {"bucket_name": bucket, "blob_name": name})
            )
        else:
            calls.append(ToolCall("write_file", {"path": "wrong.csv", "content": "x"}))
            calls.append(ToolCall("storage_upload_file", {**each, "source_file_path": "wrong.csv"}))
    return calls


def _products(changes: Sequence[PlanStep], draw: random.Random) -> list[ToolCall]:
    wrong = {"productData": {"stock_quantity": 999}}
    calls = [
        ToolCall("woo_products_update", {**each, **wrong})
        for each in _of("woo_products_update", changes)
    ]
    for each in _of("woo_products_batch_update", changes):
        update = [{"id": each["update"][0]["id"], "categories": [{"id": 1}]}]
        calls.append(ToolCall("woo_products_batch_update", {"update": update}))
    return calls


Damage = Callable[[Sequence[PlanStep], random.Random], list[ToolCall]]
DAMAGES: Sequence[Damage] = (
    _broken_csv,
    _ruined_files,
    _session,
    _moved,
    _cells,
    _workbooks,
    _tables,
    _events,
    _objects,
    _products,
)
"""Functions that return calls which damage the outputs of a plan's changes; none if it has none."""
