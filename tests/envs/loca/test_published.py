"""Play LOCA-bench's own state folders; score them by agentgym's check and by the published rule."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym.office.email.server import Email
from agentgym.office.spreadsheet.google_sheet import GoogleSheet
from agentgym.office.spreadsheet.workbooks import read_workbook, write_workbook
from agentgym.office.woocommerce.server import WooCommerce
from tests.envs.loca.office import (
    Rows,
    call,
    carry_out,
    each_cell,
    enter,
    in_csv,
    no_file,
    one_cell,
    update_product,
)
from tests.envs.loca.published_states import STATES, files_of, write_state
from tests.envs.loca.tasks.test_filter_low_selling_products import outlet


def open_state(task: str, data: Path, seed: int = 0) -> Any:
    env = agentgym.tool_env(agentgym.make(task, data=str(data)))
    env.reset(seed=seed)
    return env.world


def example(folder: Path, task: str) -> Path:
    write_state(folder, files_of(task))
    return [folder, *folder.glob("state0")][-1]


TASKS = sorted(path.stem for path in STATES.iterdir())


@pytest.mark.parametrize("task", TASKS)
def test_the_plan_solves_a_published_state_by_both_rules(tmp_path: Path, task: str) -> None:
    folder = write_state(tmp_path, files_of(task))
    for state in [*folder.glob("state*")] or [folder]:
        world = open_state(task, state)
        before = world.report()
        assert (before["published_score"], before["claimed"]) == (0.0, False)
        report = carry_out(world).report()
        assert report["faults"] == report["published_faults"] == []
        assert world.score() == report["published_score"] == 1.0


def test_a_folder_of_states_is_drawn_from(tmp_path: Path) -> None:
    folder = write_state(tmp_path, files_of("ABTesting"))
    winners = {open_state("ABTesting", folder, seed).truth["winner"] for seed in range(4)}
    assert winners == {"A", "B"}
    rows = open_state("ABTesting", folder / "state0").truth["rows"]
    assert {row["scenario"]: round(row["B_conversion %"], 3) for row in rows} == {
        "Toys": 75.0, "Toys_2": 0.0, "Tea": 75.0, "overall (total_store_views/total_clicks)": 75.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("form", "ours", "published"),
    [
        ("Dear {name}, we lack your talk ({number}).", 1.0, 1.0),
        ("DEAR {name_upper}, we lack your talk ({number}).", 1.0, 0.0),
        ("Dear {name}, we lack your talk (2000{number}).", 0.0, 1.0),
        ("Dear {name}, we lack your talk.", 0.0, 0.0),
    ],
)
def test_both_rules_judge_reminders(
    tmp_path: Path, form: str, ours: float, published: float
) -> None:
    world = open_state("CourseAssistant", example(tmp_path, "CourseAssistant"))
    call("login", email="virginia_diaz@mcp.com", password="pw_0")(world)
    for name, number, address, _ in (ROSTER[0], ROSTER[3]):
        body = form.format(name=name, name_upper=name.upper(), number=number)
        remind(address, body)(world)
    world.done = True
    assert (world.score(), world.report()["published_score"]) == (ours, published)


def remind(address: str, body: str, subject: str = "nlp-course-emergency") -> Callable[[Any], Any]:
    return call("send_email", to=address, subject=subject, body=body)


def log(severity: str, message: Any) -> Callable[[Any], Any]:
    return call("logging_write_log", log_name="exam_log", severity=severity, message=message)


def edit(
    change: Callable[[list[str]], list[str]], path: str = "record.csv"
) -> Callable[[Any], Any]:
    return in_csv(path, lambda rows: [rows[0], *map(change, rows[1:])])


def rate(text: str) -> Callable[[Any], Any]:
    """Change a conversion rate of the scenario Toys; the correct rate is 73.333 percent."""
    return edit(lambda row: [row[0], text, row[2]] if row[0] == "Toys" else row)


def uploaded(change: Callable[[Rows], Rows]) -> Callable[[Any], Any]:
    name = "anomaly_report.csv"

    def edit(world: Any) -> None:
        in_csv(name, change)(world)
        world.office.call(
            "storage_upload_file",
            {"bucket_name": "iot_anomaly_reports", "source_file_path": name, "destination_blob_name": name},
        )  # fmt: skip

    return edit


EXCEL, MACHINES, NHL = "ExcelMarketResearch", "MachineOperating", "NhlB2bAnalysis"
INVENTORY, INVOICES = "UpdateMaterialInventory", "PayableInvoiceChecker"
COUNTED = "nhl_b2b_analysis.csv"
UPLOAD = {"bucket_name": "iot_anomaly_reports", "blob_name": "anomaly_report.csv"}


def in_book(path: str, change: Callable[[Rows], Rows], title: str) -> Callable[[Any], Any]:
    def edit(world: Any) -> None:
        files = world.office.context.files
        [rows] = read_workbook(files.read(path)).values()
        files.write(path, write_workbook({title: change(rows)}))

    return edit


in_growth = functools.partial(in_book, "growth_rate.xlsx", title="GrowthRate")
# The schedule contains the exams of MATH101, CS301, AI101, BIO204 and BUS102.
in_schedule = functools.partial(in_book, "exam_schedule.xlsx", title="Sheet1")


def in_stock(area: str, text: str) -> Callable[[Any], Any]:
    def edit(world: Any) -> None:
        titles = world.office.get(GoogleSheet).titles()
        book = next(
            each for each, name in titles.items() if name == "Material Inventory Management"
        )
        enter(world, book, "Material_Inventory", area, [[text]])

    return edit


def in_shop(sku: str, **fields: Any) -> Callable[[Any], Any]:
    def edit(world: Any) -> None:
        [number] = [
            row["id"] for row in world.office.get(WooCommerce).products.all() if row["sku"] == sku
        ]
        update_product(world, number, **fields)

    return edit


def in_both(row: int, cells: list[Any]) -> Callable[[Any], Any]:
    def edit(world: Any) -> None:
        in_csv("nhl_b2b_analysis.csv", lambda rows: [*rows[:row], cells, *rows[row + 1 :]])(world)
        titles = world.office.get(GoogleSheet).titles()
        book = next(each for each, name in titles.items() if name == "nhl_b2b_analysis")
        enter(world, book, "Sheet1", f"A{row + 1}:F{row + 1}", [cells])

    return edit


def in_outlet(product: int) -> Callable[[Any], Any]:
    def edit(world: Any) -> None:
        update_product(world, product, categories=[{"id": outlet(world)}])

    return edit


def in_quizzes(change: Callable[[Rows], Rows]) -> Callable[[Any], Any]:
    """Change the list with the quizzes of AI201-2, CS101-1 and NET101-5."""
    return in_csv("quiz_info.csv", change)


def query(text: str) -> Callable[[Any], Any]:
    return call("write_query", query=text)


def in_calendar(**fields: Any) -> Callable[[Any], Any]:
    return call("update_event", eventId="event_001", **fields)


ROSTER = files_of("CourseAssistant")["agent_workspace/nlp_statistics.xlsx"]["NLP Course Students"][
    1:
]
READING = ["2025-08-19 12:30:00", "M001", "rpm", 1500.25]  # a normal reading
TABLE, PAYMENTS = "PURCHASE_INVOICE.PUBLIC.INVOICES", "PURCHASE_INVOICE.PUBLIC.INVOICE_PAYMENTS"
RETYPE = f"CREATE OR REPLACE TABLE {PAYMENTS} AS SELECT * REPLACE ('much' AS PAYMENT_AMOUNT) FROM {PAYMENTS}"
PARTIAL, DUE = "WHERE INVOICE_ID = '2024-1000'", "Process Outstanding Invoices"
COURSE, CONFERENCES, CANVAS = "CourseAssistant", "SetConfCrDdl", "CanvasListTest"
EXAM, SLOW, OFFERS = "CanvasArrangeExam", "FilterLowSellingProducts", "discount_products.csv"
JOHN, TALK = ROSTER[0][2], "Dear John Lee, we lack your talk (200012345)."
EVENING = {"start": {"dateTime": "2025-10-03T20:00:00Z"}, "end": {"dateTime": "2025-10-03T22:00:00Z"}}  # fmt: skip
# Changes to a solved state, with the scores by agentgym's check and by the published rule.
CHANGES: Mapping[str, tuple[str, Callable[[Any], Any], float, float]] = {
    "a rate is 0.04 points off": ("ABTesting", rate("73.37"), 0.0, 1.0),
    "a rate is 0.06 points off": ("ABTesting", rate("73.40%"), 0.0, 0.0),
    "a rate is a share": ("ABTesting", rate("0.7333"), 0.0, 0.0),
    "no rate": ("ABTesting", rate("high"), 0.0, 0.0),
    "names with ab_": ("ABTesting", edit(lambda row: [f"ab_{row[0]}", *row[1:]]), 0.0, 1.0),
    "another bucket": (
        "ABTesting",
        call("storage_create_bucket", bucket_name="promo-assets"),
        0.0,
        1.0,
    ),
    "a log entry although B wins": (
        "ABTesting",
        call("logging_write_log", log_name="abtesting_logging", message="done"),
        0.0,
        0.0,
    ),
    "no record": ("ABTesting", no_file("record.csv"), 0.0, 0.0),
    "wrong drops": (
        "AcademicWarning",
        edit(lambda row: [*row[:2], row[2] and "1"], "bad_student.csv"),
        0.0,
        1.0,
    ),
    "another student": (
        "AcademicWarning",
        edit(lambda row: [row[0].replace("S001", "S004"), *row[1:]], "bad_student.csv"),
        0.0,
        0.0,
    ),
    "a remark in the log": ("AcademicWarning", log("INFO", "S003 does well"), 0.0, 1.0),
    "a second entry": ("AcademicWarning", log("CRITICAL", "S002 Bo Reyes again"), 0.0, 1.0),
    "an entry on another student": ("AcademicWarning", log("CRITICAL", {"id": "S001"}), 0.0, 0.0),
    "a level in the payload": (
        "AcademicWarning",
        log("INFO", {"warning_level": "critical", "message": "Cy Hall"}),
        0.0,
        0.0,
    ),
    "a title before the name": (EXAM, in_schedule(one_cell(1, 2, lambda x: f"Prof. {x}")), 1.0, 1.0),
    "a full name": (EXAM, in_schedule(one_cell(1, 2, lambda x: f"{x} Flores")), 0.0, 1.0),
    "part of a place": (EXAM, in_schedule(one_cell(1, 8, lambda _: "Room 101")), 0.0, 1.0),
    "another room": (EXAM, in_schedule(one_cell(1, 8, lambda _: "Room 102")), 0.0, 0.0),
    "an unknown place left blank": (EXAM, in_schedule(one_cell(4, 8, lambda _: "")), 0.0, 1.0),
    "two sources": (EXAM, in_schedule(one_cell(1, 9, lambda _: "Announcement, Email")), 0.0, 1.0),
    "an ISO date": (EXAM, in_schedule(one_cell(1, 5, lambda _: "2025-01-20")), 1.0, 0.0),
    "another hour": (EXAM, in_schedule(one_cell(1, 6, lambda _: "10:00")), 0.0, 0.0),
    "another credit": (EXAM, in_schedule(one_cell(1, 10, lambda _: 4)), 0.0, 0.0),
    "unknown dates in another order": (EXAM, in_schedule(lambda rows: [*rows[:4], rows[5], rows[4]]), 0.0, 1.0),
    "unknown dates first": (EXAM, in_schedule(lambda rows: [rows[0], *rows[4:], *rows[1:4]]), 0.0, 0.0),
    "an exam short": (EXAM, in_schedule(lambda rows: rows[:-1]), 0.0, 0.0),
    "no schedule": (EXAM, no_file("exam_schedule.xlsx"), 0.0, 0.0),
    "a ratio 0.1 points off": (SLOW, in_csv(OFFERS, one_cell(1, 5, lambda _: "19.3%")), 0.0, 1.0),
    "a ratio 0.3 points off": (SLOW, in_csv(OFFERS, one_cell(1, 5, lambda _: "19.5%")), 0.0, 0.0),
    "a second decimal": (SLOW, in_csv(OFFERS, one_cell(1, 5, lambda _: "19.19%")), 1.0, 1.0),
    "another price": (SLOW, in_csv(OFFERS, one_cell(2, 4, lambda _: "10.35")), 0.0, 0.0),
    "the larger discount first": (SLOW, in_csv(OFFERS, lambda rows: [rows[0], rows[2], rows[1], rows[3]]), 0.0, 0.0),
    "an offer short": (SLOW, in_csv(OFFERS, lambda rows: rows[:-1]), 0.0, 0.0),
    "no offers": (SLOW, no_file(OFFERS), 0.0, 0.0),
    "a new product in the outlet": (SLOW, in_outlet(4), 0.0, 0.0),
    "a description": (SLOW, lambda world: update_product(world, 4, description="Good"), 0.0, 1.0),
    "another mail to a subscriber": (SLOW, remind("tomwu9@mcpt.com", "Hello"), 0.0, 1.0),
    "another policy": (CANVAS, in_quizzes(one_cell(1, 7, lambda _: "keep_latest")), 0.0, 1.0),
    "a title in capitals": (CANVAS, in_quizzes(one_cell(1, 3, str.upper)), 0.0, 1.0),
    "another section": (CANVAS, in_quizzes(one_cell(2, 1, lambda _: "Course-9")), 0.0, 1.0),
    "other columns first": (CANVAS, in_quizzes(lambda rows: [row[::-1] for row in rows]), 0.0, 1.0),
    "another course": (CANVAS, in_quizzes(one_cell(2, 1, lambda _: "Courses-1")), 0.0, 0.0),
    "another code": (CANVAS, in_quizzes(one_cell(2, 0, str.lower)), 0.0, 0.0),
    "other credits": (CANVAS, in_quizzes(one_cell(1, 2, lambda _: "4")), 0.0, 0.0),
    "another minute": (CANVAS, in_quizzes(one_cell(1, 9, lambda x: x.replace(":59:", ":58:"))), 0.0, 0.0),
    "sorted by code": (CANVAS, in_quizzes(lambda rows: [rows[0], rows[2], rows[1], rows[3]]), 0.0, 0.0),
    "a quiz short": (CANVAS, in_quizzes(lambda rows: rows[:-1]), 0.0, 0.0),
    "a column short": (CANVAS, in_quizzes(lambda rows: [row[:-1] for row in rows]), 0.0, 0.0),
    "no assignments": (CANVAS, no_file("assignment_info.csv"), 0.0, 0.0),
    "a second reminder": (COURSE, remind(JOHN, TALK), 0.0, 0.0),
    "a reminder without the id": (COURSE, remind(JOHN, "Dear John Lee"), 0.0, 0.0),
    "a word in the text": (COURSE, remind(JOHN, "NLP-course-emergency", "hello"), 0.0, 0.0),
    "another mail to the student": (COURSE, remind(JOHN, "See you", "hello"), 0.0, 1.0),
    "a reminder to somebody else": (COURSE, remind(ROSTER[2][2], TALK), 0.0, 1.0),
    "another event": (CONFERENCES, call("create_event", summary="Dinner", **EVENING), 0.0, 1.0),
    "no reminder": (CONFERENCES, call("delete_event", eventId="event_002"), 0.0, 0.0),
    "five minutes late": (CONFERENCES, in_calendar(start={"dateTime": "2025-10-03T21:04:00-12:00"}), 0.0, 1.0),
    "six minutes early": (CONFERENCES, in_calendar(start={"dateTime": "2025-10-03T20:53:00-12:00"}), 0.0, 0.0),
    "the old deadline": (CONFERENCES, in_calendar(start={"dateTime": "2025-09-30T20:59:00-12:00"}), 0.0, 0.0),
    "the full name": (CONFERENCES, in_calendar(summary="Forum of the main-track: camera ready"), 0.0, 1.0),
    "another name": (CONFERENCES, in_calendar(summary="ML2 camera-ready"), 0.0, 0.0),
    "the name with a year": (CONFERENCES, in_calendar(summary="COML2025 camera-ready"), 1.0, 0.0),
    "a rate half a point off": (EXCEL, in_growth(one_cell(1, 2, lambda x: x + 0.5)), 0.0, 1.0),
    "a rate over a point off": (EXCEL, in_growth(one_cell(2, 3, lambda x: x - 1.1)), 0.0, 0.0),
    "a rate as text": (EXCEL, in_growth(one_cell(1, 2, lambda x: f"{x} %")), 0.0, 1.0),
    "a rate without a number": (EXCEL, in_growth(one_cell(1, 2, lambda _: "?")), 0.0, 0.0),
    "a column of no weight": (EXCEL, in_growth(lambda rows: [[*rows[0], "Mice %"], *rows[1:]]), 0.0, 1.0),
    "a raw category short": (EXCEL, in_growth(lambda rows: [row[:1] + row[2:] for row in rows]), 0.0, 0.0),
    "a year short": (EXCEL, in_growth(lambda rows: rows[:-1]), 0.0, 0.0),
    "another title of the sheet": (EXCEL, in_growth(list, title="Growth"), 0.0, 1.0),
    "no report of growth": (EXCEL, no_file("growth_rate.xlsx"), 0.0, 0.0),
    "half a minute off": (MACHINES, uploaded(each_cell(0, lambda x: x.replace(":30:00", ":30:30"))), 0.0, 1.0),
    "two minutes off": (MACHINES, uploaded(each_cell(0, lambda x: x.replace(":30:00", ":32:00"))), 0.0, 0.0),
    "another range": (MACHINES, uploaded(one_cell(1, 4, lambda _: "1 - 2")), 0.0, 1.0),
    "a reading slightly off": (MACHINES, uploaded(one_cell(1, 3, lambda x: f"{float(x) + 0.009:.3f}")), 0.0, 1.0),
    "a reading off": (MACHINES, uploaded(one_cell(1, 3, lambda x: f"{float(x) + 0.02:.3f}")), 0.0, 0.0),
    "an anomaly short": (MACHINES, uploaded(lambda rows: rows[:-1]), 0.0, 0.0),
    "an anomaly twice": (MACHINES, uploaded(lambda rows: [*rows, rows[-1]]), 0.0, 1.0),
    "a normal reading": (MACHINES, uploaded(lambda rows: [*rows, [*READING, ""]]), 0.0, 0.0),
    "a time without meaning": (MACHINES, uploaded(one_cell(1, 0, lambda _: "noon")), 0.0, 0.0),
    "only the upload": (MACHINES, no_file("anomaly_report.csv"), 0.0, 1.0),
    "no upload": (MACHINES, call("storage_delete_object", **UPLOAD), 0.0, 0.0),
    "another team": (NHL, in_both(5, ["Seattle Kraken", 0, 0, 0, 0, 0]), 0.0, 1.0),
    "another count": (NHL, in_both(2, ["Boston Bruins", 2, 0, 0, 0, 2]), 0.0, 0.0),
    "other heads": (NHL, in_both(0, ["Teams", "Home-Away", "AwayHome", "HH", "AA", "Sum"]), 0.0, 1.0),
    "unknown heads": (NHL, in_both(0, ["Club", "HA", "AH", "HH", "AA", "Total"]), 0.0, 0.0),
    "other heads of the file": (NHL, in_csv(COUNTED, lambda rows: [["Teams", *rows[0][1:]], *rows[1:]]), 0.0, 1.0),
    "a count in the file": (NHL, in_csv(COUNTED, one_cell(2, 5, lambda _: "9")), 0.0, 0.0),
    "another spreadsheet": (NHL, call("create_spreadsheet", title="notes"), 0.0, 1.0),
    "no file": (NHL, no_file(COUNTED), 0.0, 0.0),
    "an amount slightly off": (INVENTORY, in_stock("C2:C2", "89.26"), 0.0, 1.0),
    "an amount off": (INVENTORY, in_stock("C2:C2", "89.27"), 0.0, 0.0),
    "an amount without a number": (INVENTORY, in_stock("C3:C3", "few"), 0.0, 0.0),
    "another supplier": (INVENTORY, in_stock("F2:F2", "Supplier B"), 0.0, 1.0),
    "a price": (INVENTORY, in_shop("CHAIR_001", regular_price="1"), 0.0, 1.0),
    "a supplier": (INVOICES, query(f"UPDATE {TABLE} SET SUPPLIER_NAME = 'x' WHERE INVOICE_ID = '2024-1000'"), 0.0, 1.0),
    "an old invoice": (INVOICES, query(f"DELETE FROM {TABLE} WHERE INVOICE_ID = 'NOISE-10001'"), 0.0, 0.0),
    "a new invoice": (INVOICES, query(f"DELETE FROM {TABLE} WHERE INVOICE_ID = '2024-1000'"), 0.0, 0.0),
    "an invoice too many": (INVOICES, query(f"UPDATE {TABLE} SET INVOICE_ID = 'X' WHERE INVOICE_ID = 'DIST-2022-101'"), 0.0, 0.0),
    "a payment 0.01 off": (INVOICES, query(f"UPDATE {PAYMENTS} SET PAYMENT_AMOUNT = 99.91 {PARTIAL}"), 0.0, 1.0),
    "a payment 0.02 off": (INVOICES, query(f"UPDATE {PAYMENTS} SET PAYMENT_AMOUNT = 99.92 {PARTIAL}"), 0.0, 0.0),
    "a payment without amount": (INVOICES, query(f"UPDATE {PAYMENTS} SET PAYMENT_AMOUNT = NULL {PARTIAL}"), 0.0, 1.0),
    "another flag": (INVOICES, query(f"UPDATE {PAYMENTS} SET OUTSTANDING_FLAG = 0 {PARTIAL}"), 0.0, 0.0),
    "a payment of text": (INVOICES, query(RETYPE), 0.0, 0.0),
    "no payments": (INVOICES, query(f"DROP TABLE {PAYMENTS}"), 0.0, 0.0),
    "another comment": (INVOICES, query(f"COMMENT ON COLUMN {PAYMENTS}.OUTSTANDING_FLAG IS '1=Outstanding'"), 0.0, 0.0),
    "a mail without files": (INVOICES, remind("cturner@mcp.com", "Pay", DUE), 0.0, 1.0),
    "a second list of files": (INVOICES, remind("cturner@mcp.com", "MCP-100000 INV-2024-008 INV-2024-009", DUE), 0.0, 0.0),
    "a mail on a paid invoice": (INVOICES, remind("ashley_anderson@mcp.com", "Pay", f"Re: {DUE}"), 0.0, 0.0),
    "a mail on an old invoice": (INVOICES, remind("JSmith@mcp.com", "Pay", DUE), 0.0, 0.0),
    "another mail": (INVOICES, remind("JSmith@mcp.com", "Pay", "Hello"), 0.0, 1.0),
    "another stock": (INVENTORY, in_shop("DESK_002", stock_quantity=4), 0.0, 0.0),
}  # fmt: skip


def test_dates_of_the_host_move_before_the_start(tmp_path: Path) -> None:
    rows = open_state(CANVAS, example(tmp_path / CANVAS, CANVAS)).truth["quizzes"]
    assert [row["deadline"] for row in rows] == [f"2025-01-{day}T23:59:00Z" for day in (24, 24, 29)]
    for task, owner in ((COURSE, "virginia_diaz@mcp.com"), (EXAM, "rkelly27@mcp.com")):
        world = open_state(task, example(tmp_path / task, task))
        mails = world.office.get(Email).messages(owner)
        assert mails[-1].date == world.start - timedelta(hours=1)


@pytest.mark.parametrize("name", CHANGES)
def test_both_rules_judge_a_changed_state(tmp_path: Path, name: str) -> None:
    task, change, ours, published = CHANGES[name]
    world = carry_out(open_state(task, example(tmp_path, task)))
    change(world)
    assert (world.score(), world.report()["published_score"]) == (ours, published), name


DATABASE, LOG = "local_db/google_cloud/bigquery_data.db", "local_db/google_cloud/log_entries.json"
QUIZ, ALERTS = (
    "agent_workspace/latest_quiz_scores.csv",
    "groundtruth_workspace/expected_alerts.csv",
)
BOOKS, CELLS = "local_db/google_sheets/spreadsheets.json", "local_db/google_sheets/cells.json"
RATIO = "groundtruth_workspace/expected_ratio.csv"
TEAMS, REQUEST = "groundtruth_workspace/standard_answer.csv", "agent_workspace/task_specific.md"
QUIZ_HEADS = "student_id,name,score\n"


RESULTS = "groundtruth_workspace/expected_results.json"
SHOP_ORDERS = "local_db/woocommerce/orders.json"
PRODUCT = {"sku": "X", "name": "X", "description": "", "regular_price": "1", "stock_quantity": 1}
FOREIGN = {"status": "processing", "line_items": [{"product_id": PRODUCT, "quantity": 1}]}


INBOX, USERS = (
    "local_db/emails/users_data/virginia_diaz@mcp.com/emails.json",
    "local_db/emails/users.json",
)
ACCOUNT = {"email": "a@mcp.com", "password": "pw", "name": "A"}
SENT = {"folder": "Sent", "from": "virginia_diaz@mcp.com", "to": "virginia_diaz@mcp.com", "subject": "x",
        "body": "x", "html_body": "x", "date": "2026-01-05T10:00:00+00:00"}  # fmt: skip
EXAM_HEADS, EXAM_ROW, *_ = files_of("CanvasArrangeExam")[
    "groundtruth_workspace/exam_schedule.xlsx"
]["Sheet"]
XY_EXAM = write_workbook({"Sheet1": [EXAM_HEADS, ["XY1", *EXAM_ROW[1:]]]})
READERS = json.dumps({"subscriber_list": [ACCOUNT]})
NO_SUCH_OFFER = json.dumps({"timestamp": "2026-03-01T22:30:00", "low_selling_products": ["X"]})
SLOW_ANSWER = "groundtruth_workspace/generation_metadata.json"
CANVAS_COURSES = "local_db/canvas/courses.json"
TEACHER = {"teacher_name": "Debra", "teacher_email": "debra_flores76@mcp.com"}


def courses_with(**fields: str) -> str:
    courses = files_of("CanvasArrangeExam")[CANVAS_COURSES]
    for key, course in courses.items():
        courses[key] = {
            "id": course["id"],
            "course_code": course["course_code"],
            "name": f"Real-{key}",
            **fields,
        }
    return json.dumps(courses)


STRANGERS = json.dumps(
    {str(k): {"id": k, "name": "A", "login_id": f"a{k}@mcp.com", "password": "p"} for k in (1, 2)}
)
OWNER = json.dumps({"": {**ACCOUNT, "email": SENT["to"]}})
INCOMING = json.dumps({"1": {**SENT, "folder": "INBOX"}})
NO_TIME = "course_code,assignment_title,description,deadline,course_name,points_possible\nA,B,C,1 May,D,9\n"
DUES = "groundtruth_workspace/conference_metadata.json"
NO_DUES = json.dumps({"base_date": "2025-09-15", "target_info": {"conferences": []}})


def results(stock: Mapping[str, float]) -> str:
    final: Mapping[str, Any] = {"woocommerce_inventory": {}, "google_sheets_material_inventory": {}}
    initial = {"material_inventory": stock}
    return json.dumps({"initial_inventories": initial, "expected_final_inventories": final})


def other_weights(weights: Mapping[str, Any]) -> str:
    return json.dumps({"target_category": "x", "conversion_weights": {"x": weights}})


RECEIVED = "groundtruth_workspace/invoice.jsonl"


def invoice(**fields: Any) -> str:
    status = {"paid_amount": 0.0, "flag": 1}
    record = {"invoice_id": "MCP-1", "date": "2024-03-01", "supplier": "S", "buyer_email": "a@mcp.com",
              "total_amount": 9.5, "payment_status": status, **fields}  # fmt: skip
    return json.dumps(record) + "\n"


ACADEMIC, METADATA = "AcademicWarning", "groundtruth_workspace/metadata.json"
SPOILT: Mapping[str, tuple[str, str, Any, str]] = {
    "an empty database": (ACADEMIC, DATABASE, b"", "must have tables whose names start with local-project_academic_warning_"),
    "a short line": (ACADEMIC, ALERTS, "student_id,drop_ratio\nS001\n", "row 2: drop_ratio must be a number, got None"),
    "no number": (ACADEMIC, ALERTS, "student_id,drop_ratio\r\nS001,nan\r\n", "row 2: drop_ratio must be a number, got 'nan'"),
    "a stranger": (ACADEMIC, QUIZ, "student_id,name,score\nS9,X,5\n", "scores.csv: row 2: student_id must have exam points"),
    "a student twice": (ACADEMIC, QUIZ, f"{QUIZ_HEADS}S001,X,5\nS001,Y,5\n", r"row 3: student_id \('S001',\) occurs twice"),
    "an agent's entries": (ACADEMIC, LOG, '{"a": {}}', "must be empty in an unused state"),
    "an agent's file": (ACADEMIC, "agent_workspace/bad_student.csv", "", "must not exist in an unused state"),
    "fewer scenarios": ("ABTesting", RATIO, "scenario,A_conversion %,B_conversion %\nTea,1%,2%\n", "must contain the scenarios"),
    "another spreadsheet": (NHL, BOOKS, '{"a": {"properties": {"title": "x"}}}', r"only 'NHL .*, got \['x'\]"),
    "no title": (NHL, BOOKS, '{"a": {"properties": {}}}', r"spreadsheets.json: a\.properties\.title: Field required"),
    "a cell of another sheet": (NHL, CELLS, '{"a_b_0_1": {"value": 1}}', "cells.json: a_b_0_1 must have the form .*_ROW_COLUMN"),
    "a cell that is a list": (NHL, CELLS, '{"a_b_0_1": {"value": [1]}}', r"cells.json: a_b_0_1\.value\.str: Input"),
    "fewer teams": (NHL, TEAMS, "Team,HA,AH,HH,AA,Total\nBoston Bruins,0,0,0,0,0\n", "must contain the teams in the schedule"),
    "another request": (EXCEL, REQUEST, "**Target Category:** TVs", "task_specific.md must name a target"),
    "weights of another target": (EXCEL, METADATA, other_weights({}), "must contain the weights of 'Gaming'"),
    "an agent's stock": (INVENTORY, RESULTS, results({"OAK": 1.0}), "Material_Inventory must match .*json in an unused state"),
    "an unpaid order": (INVENTORY, SHOP_ORDERS, json.dumps({"1": {"status": "pending"}}), r"1\.status: Input should be 'process"),
    "a stranger's product": (INVENTORY, SHOP_ORDERS, json.dumps({"1": FOREIGN}), r"1\.line_items: product_id must be a prod"),
    "an agent's exams": (EXAM, "agent_workspace/exam_schedule.xlsx", XY_EXAM, "must contain only the header in an unused state"),
    "an unknown exam": (EXAM, "groundtruth_workspace/exam_schedule.xlsx", XY_EXAM, "XY1 must be the code of a course"),
    "two courses of a name": (EXAM, CANVAS_COURSES, courses_with(**TEACHER), "Real-time Systems' must match exactly one"),
    "no teacher": (EXAM, CANVAS_COURSES, courses_with(), "courses.json must contain teacher_name and teacher_email"),
    "unknown products": (SLOW, SLOW_ANSWER, NO_SUCH_OFFER,
                         "low_selling_products must name products"),
    "an unknown subscriber": (SLOW, "agent_workspace/subscriber.json", READERS, r"must contain the users \['a@"),
    "no announcements": (CANVAS, "local_db/canvas/announcements.json", "{}", "announcements.json must contain announcements"),
    "an unknown course": (CANVAS, CANVAS_COURSES, "{}", "canvas: every id must belong to a record, got 1"),
    "another student": (CANVAS, "local_db/canvas/users.json", STRANGERS, "canvas: not found: there is no user with login id"),
    "no time": (CANVAS, "groundtruth_workspace/assignment_info.csv", NO_TIME, "row 2: deadline must be a time with a time zone"),
    "an agent's mail": (COURSE, INBOX, json.dumps({"1": SENT}), "only INBOX emails, and drafts.json must be empty"),
    "a mail from a student": (COURSE, INBOX, INCOMING, "must contain the subjects in the INBOX"),
    "no subject": (COURSE, "files/emails.jsonl", '\n{"subject": 3}', r"emails.jsonl: line 2: subject: Input"),
    "fewer users": (COURSE, USERS, OWNER, r"must contain the users \['emmascott9@mcp.com', 'john"),
    "another day": (CONFERENCES, DUES, '{"base_date": "2025-09-16"}', "base_date: Input should be '2025-09-15'"),
    "fewer conferences": (CONFERENCES, DUES, NO_DUES, "must contain the conferences and tracks in conference_info.txt"),
    "an agent's event": (CONFERENCES, "local_db/calendar/events.json", "[{}]", "events.json must be empty in an unused state"),
    "another owner": (CONFERENCES, "email_config.json", json.dumps(ACCOUNT), "users.json must contain the users .'a@mcp.com'"),
    "another PDF": (INVOICES, "agent_workspace/files/x.pdf", "", "must contain only the files"),
    "an invoice twice": (INVOICES, RECEIVED, invoice() + invoice(), "each invoice_id must occur once"),
    "an invoice without a file": (INVOICES, RECEIVED, invoice(), "must contain only the files"),
    "a path as number": (INVOICES, RECEIVED, invoice(invoice_id="../a"), "invoice.jsonl: line 1: invoice_id: String should match"),
    "no amount": (INVOICES, RECEIVED, invoice(total_amount=float("nan")), "line 1: total_amount: Input should be"),
    "fewer payments": (INVOICES, "groundtruth_workspace/interference_payments.jsonl", "", "must contain the same ids as"),
    "no buyers": (INVOICES, USERS, json.dumps({"": {**ACCOUNT, "email": "walkera@mcp.com"}}), r"must contain the users \['ashley"),
    "weights as text": (EXCEL, METADATA, other_weights({"a": "1"}), r"metadata.json: conversion_weights\.x\.a: Input"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILT)
def test_a_malformed_state_is_refused(tmp_path: Path, name: str) -> None:
    task, path, content, words = SPOILT[name]
    folder = example(tmp_path, task)
    if isinstance(content, dict):
        (folder / path).unlink()
        write_state(folder, {path: content})
    else:
        (folder / path).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ValueError, match=words):
        open_state(task, folder)


# Files that the package does not read.
UNREAD = {"permissions.json", "sheets.json", "insights.json", "snowflake.db"}


@pytest.mark.parametrize("bad", [b"3", b"\xff\xfe\0", None], ids=["a number", "no text", "folder"])
@pytest.mark.parametrize("task", TASKS)
def test_an_error_names_the_malformed_file(tmp_path: Path, task: str, bad: bytes | None) -> None:
    state = example(tmp_path, task)
    for path in filter(Path.is_file, sorted(state.rglob("*.*"))):
        if path.name in UNREAD:
            continue
        content = path.read_bytes()
        path.unlink()
        path.mkdir() if bad is None else path.write_bytes(bad)
        with pytest.raises(ValueError, match=re.escape(path.name)):
            open_state(task, state)
        path.rmdir() if bad is None else path.unlink()
        path.write_bytes(content)
    open_state(task, state)


def test_a_table_of_another_form_is_refused(tmp_path: Path) -> None:
    files = files_of("ABTesting")
    [table, *_] = files["state0/" + DATABASE].values()
    table["rows"][0][2] = 8.5
    write_state(tmp_path / "text", files)
    with pytest.raises(ValueError, match=r"ab_Toys: row 1: A_store_views must be INT64, got 8\.5"):
        open_state("ABTesting", tmp_path / "text" / "state0")
    files["state0/" + DATABASE] = files_of("AcademicWarning")[DATABASE]
    write_state(tmp_path / "wrong", files)
    with pytest.raises(
        ValueError, match=r"must have tables whose names start with local-project_ab_testing_"
    ):
        open_state("ABTesting", tmp_path / "wrong" / "state0")
    with pytest.raises(ValueError, match="data must be a LOCA-bench state folder"):
        agentgym.make("ABTesting", data=str(tmp_path / "none"))
