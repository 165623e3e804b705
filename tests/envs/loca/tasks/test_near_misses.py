from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from agentgym.envs.loca.protected_state import DRAFTS
from agentgym.office.calendar import Calendar
from agentgym.office.canvas.server import Canvas
from agentgym.office.email.server import Email
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.office.spreadsheet.google_sheet import GoogleSheet
from agentgym.office.spreadsheet.workbooks import open_workbook, save_workbook
from agentgym.office.woocommerce.server import WooCommerce
from tests.envs.loca.office import (
    TASKS,
    Change,
    Rows,
    call,
    csv_text,
    file_of,
    folder_at,
    fresh,
    no_file,
    solved,
    sql,
    table_of,
    unsent,
)
from tests.envs.loca.own_forms import ORDERED
from tests.envs.loca.tasks.test_accepted_forms import own, paths, send, solved_mails

Misses = Iterator[tuple[str, Change, str]]
"""Names, changes, and words of a failure."""
LONGEST = 1_000
"""Maximum characters of a failure, whatever the state is."""


def of_rows(rows: Rows, ordered: bool) -> Iterator[tuple[str, Rows, str]]:
    head, *body = rows
    yield "a row is missing", [head, *body[1:]], "is missing"
    yield "a row twice", [*rows, body[0]], "should not be there"
    yield "a row of its own", [*rows, ["own"] * len(head)], "should not be there"
    if ordered and len(body) > 1:
        yield "backwards", [head, *body[::-1]], "not in the required order"
    yield "no header", body, "has the columns"
    yield "columns swapped", [[row[1], row[0], *row[2:]] for row in rows], "has the columns"
    for k, name in enumerate(head):
        yield f"another name of {name}", [[*head[:k], "Own", *head[k + 1 :]], *body], "the columns"
        for value in (None, "own"):
            row = [*body[0][:k], value, *body[0][k + 1 :]]
            if body[0][k] not in ("", None):
                yield f"{name} is {value}", [head, row, *body[1:]], ""


def of_files(task: str) -> Misses:
    start = fresh(task).office.context.files
    kept = [path for path in start.walk() if path.rpartition("/")[2] not in TASKS[task].outputs]
    for path in kept[:3]:
        yield f"{path} was changed", file_of(path, b"\xff\x00"), "was changed"
        yield f"{path} is gone", no_file(path), "is gone"
        yield f"a directory in place of {path}", folder_at(path), "is gone"


def of_tables(task: str) -> Misses:
    for path in paths(TASKS[task], ".csv"):
        yield f"no {path}", no_file(path), "there is no file"
        yield f"a directory in place of {path}", folder_at(path), "is a directory"
        yield f"{path} is no text", file_of(path, b"\xff\xfe\x00"), "not a text file"
        yield f"{path} is very long", file_of(path, "x," * 200_000), "has the columns"
        rows = table_of(solved(task), path)
        wider = [[*row, "own"] for row in rows]
        yield f"{path}: a column more", file_of(path, csv_text(wider)), "has the columns"
        for name, changed, words in of_rows(rows, path in ORDERED):
            yield f"{path}: {name}", file_of(path, csv_text(changed)), words


def of_workbooks(task: str) -> Misses:
    for path in paths(TASKS[task], ".xlsx"):
        yield f"no {path}", no_file(path), "there is no file"
        yield f"a directory in place of {path}", folder_at(path), "is a directory"
        for name, data in {"a bomb": b"0" * 10**7, "a note": b" nothing"}.items():
            yield (
                f"{path} is {name}",
                file_of(path, b"PK\x03\x04" + data),
                "not a readable workbook",
            )
        sheet = open_workbook(solved(task).office.context.files.read(path)).worksheets[0]
        rows = [[cell.value for cell in row] for row in sheet.iter_rows()]
        for name, changed, words in of_rows(rows, ordered=True):
            yield (
                f"{path}: {name}",
                in_book(path, lambda book, rows=changed: fill(book, rows)),
                words,
            )
        for name, (edit, words) in BOOKS.items():
            yield f"{path}: {name}", in_book(path, edit), words


def in_book(path: str, edit: Callable[[Any], object]) -> Change:
    def apply(world: Any) -> None:
        files = world.office.context.files
        book = open_workbook(files.read(path))
        edit(book)
        files.write(path, save_workbook(book, book.properties.modified))

    return apply


def fill(book: Any, rows: Rows) -> None:
    sheet = book.worksheets[0]
    sheet.delete_rows(1, sheet.max_row)
    for row in rows:
        sheet.append(row)


def hide(book: Any) -> None:
    book.worksheets[0].row_dimensions[2].hidden = True


def set_cell(place: str, value: str) -> Callable[[Any], None]:
    return lambda book: book.worksheets[0].__setitem__(place, value)


BOOKS: dict[str, tuple[Callable[[Any], object], str]] = {
    "a sheet more": (lambda book: book.create_sheet("Notes"), "expected only"),
    "another title": (lambda book: setattr(book.worksheets[0], "title", "Own"), "expected only"),
    "a hidden row": (hide, "hidden parts"),
    "a formula below": (set_cell("A40", "=1+1"), "formulas"),
    "a note beside the table": (set_cell("Z2", "!"), "to the right"),
}


def of_mails(task: str) -> Misses:
    mails = solved_mails(task)
    if "email" not in TASKS[task].servers:
        return
    yield "a mail more", call("send_email", to="a@mcp.com", subject="x", body="y"), ""
    if mails:
        yield "a mail is missing", unsent, "is missing" if "Shop" in mails[0].sender else ""
        yield "a mail twice", again(fresh_one=False), ""
        for name, changes in CHANGES.items():
            yield f"a mail with {name}", again(**changes), ""
    yield "received mails are deleted", of_received("delete_emails"), ""
    yield "received mails are moved", of_received("move_emails", target_folder="Trash"), ""
    yield "received mails are marked", of_received("mark_emails", status="important"), ""
    yield "a folder", call("create_folder", folder_name="Later"), ""
    if DRAFTS in TASKS[task].forbidden:
        yield "a draft", call("save_draft", subject="Later", body="x"), "email.mails"


def again(fresh_one: bool = True, **changes: Any) -> Change:
    """Resend the last email with changes, by default after removing the original."""

    def apply(world: Any) -> None:
        mail = unsent(world) if fresh_one else world.office.get(Email).sent()[-1]
        send(world, replace(mail, **changes), "/workspace/again")

    return apply


CHANGES: dict[str, dict[str, Any]] = {
    "another subject": {"subject": "News"},
    "another receiver": {"to": "someone@example.com"},
    "a copy": {"to": "someone@example.com, other@example.com"},
    "another attachment": {"attachments": {"own.txt": b"own"}},
}


def of_received(tool: str, **arguments: Any) -> Change:
    def apply(world: Any) -> None:
        ids = list(own("INBOX")(world))
        if ids:
            world.office.call(tool, {"email_ids": ids[:1], **arguments})
        else:  # the mailbox is empty
            world.office.call("send_email", {"to": "a@mcp.com", "subject": "x", "body": "y"})

    return apply


def of_cloud(task: str) -> Misses:
    if "google_cloud" not in TASKS[task].servers:
        return
    cloud = fresh(task).office.get(GoogleCloud)
    for dataset, table in list(cloud.engine.tables)[:2]:
        for name, form in STATEMENTS.items():
            yield f"{name} {table}", sql(form.format(f"{dataset}.{table}")), ""
        yield "a table", sql(f"CREATE TABLE {dataset}.scratch AS SELECT 1 AS one"), ""
    yield "a dataset", call("bigquery_create_dataset", dataset_id="scratch"), ""
    yield "another bucket", call("storage_create_bucket", bucket_name="own-bucket"), ""
    yield "another entry", call("logging_write_log", log_name="own", message="All is well."), ""
    for each in cloud.store.rows("SELECT bucket, name FROM objects"):
        where = {"bucket_name": each["bucket"], "blob_name": each["name"]}
        yield f"without {where}", call("storage_delete_object", **where), ""


STATEMENTS = {
    "empty": "DELETE FROM {} WHERE TRUE",
    "drop": "DROP TABLE {}",
    "widen": "CREATE OR REPLACE TABLE {0} AS SELECT *, 1 AS note FROM {0}",
    "describe": "ALTER TABLE {} SET OPTIONS (description = 'x')",
}


def of_shop(task: str) -> Misses:
    if "woocommerce" not in TASKS[task].servers:
        return
    product = fresh(task).office.get(WooCommerce).products.all()[0]["id"]
    data = {"regular_price": "1.23"}
    yield "a price", call("woo_products_update", productId=product, productData=data), "shop"
    yield "no product", call("woo_products_delete", productId=product, force=True), ""
    new = {"name": "Own"}
    yield "a product", call("woo_products_create", productData=new), ""
    yield "a category", call("woo_products_categories_create", categoryData=new), ""


def of_sheets(task: str) -> Misses:
    if "google_sheet" not in TASKS[task].servers:
        return
    yield "a spreadsheet", call("create_spreadsheet", title="scratch"), ""
    sheets = solved(task).office.get(GoogleSheet)
    for book, title in sheets.titles().items():
        yield f"the same {title}", call("create_spreadsheet", title=title), ""
        if book in fresh(task).office.get(GoogleSheet).titles():
            yield f"{title} more", call("create_sheet", spreadsheet_id=book, title="x"), ""
        for sheet in sheets.sheet_titles(book):
            for place in ("A1", "Z2"):
                where = {"spreadsheet_id": book, "sheet": sheet, "range": place}
                yield f"{sheet} {place}", call("update_cells", **where, data=[["Own"]]), ""


def of_others(task: str) -> Misses:
    servers = TASKS[task].servers
    if "canvas" in servers:
        yield (
            "a post",
            lambda world: world.office.get(Canvas).discussions.add_announcement(1, "x", "y"),
            "canvas",
        )
    if "memory" in servers:
        entity = {"name": "x", "entityType": "y", "observations": []}
        yield "the memory", call("create_entities", entities=[entity]), "was changed"
    if "calendar" in servers:
        for event in solved(task).office.get(Calendar).events():
            yield f"no {event.summary}", call("delete_event", eventId=str(event.id)), ""
        when = {name: {"dateTime": "2025-10-01T00:00:00Z"} for name in ("start", "end")}
        yield "an event", call("create_event", summary="Own camera-ready", **when), ""


KINDS: dict[str, Callable[[str], Misses]] = {
    "files": of_files,
    "tables": of_tables,
    "workbooks": of_workbooks,
    "mails": of_mails,
    "cloud": of_cloud,
    "shop": of_shop,
    "sheets": of_sheets,
    "others": of_others,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("task", TASKS)
def test_every_near_miss_fails(task: str, kind: str) -> None:
    image, wrong = pickle.dumps(solved(task)), {}
    for name, change, words in KINDS[kind](task):
        world = pickle.loads(image)
        change(world)
        failures = list(world.all_failures())
        assert all(len(failure) <= LONGEST for failure in failures), name
        if not failures or words not in " ".join(failures) or world.score():
            wrong[name] = failures
    assert not wrong


@pytest.mark.parametrize("task", TASKS)
def test_an_option_out_of_its_range_is_an_error(task: str) -> None:
    for field in dataclasses.fields(TASKS[task].Config):
        name = field.name
        for value in (-1, 11.5) if name.endswith("_rate") else (-1,):
            if name != "different_structures":
                with pytest.raises(ValueError, match=f"{name} must be (a|one)"):
                    fresh(task, **{"size": 4, name: value})
