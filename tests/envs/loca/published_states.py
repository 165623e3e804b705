"""State folders of LOCA-bench in the published form, written without the package's code."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import openpyxl  # type: ignore[import-untyped]

SQL_TYPES = {str: "TEXT", int: "INTEGER", float: "REAL"}


def write_csv(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def write_database(
    state: Path, dataset: str, columns: Sequence[str], tables: Mapping[str, Sequence[Sequence[Any]]]
) -> None:
    """Write tables as the published Google Cloud server stores them, in WAL mode."""
    folder = state / "local_db" / "google_cloud"
    folder.mkdir(parents=True)
    database = sqlite3.connect(folder / "bigquery_data.db")
    database.execute("PRAGMA journal_mode=WAL")
    for name, rows in tables.items():
        kinds = ", ".join(
            f'"{column}" {SQL_TYPES[type(value)]}'
            for column, value in zip(columns, rows[0], strict=True)
        )
        database.execute(f'CREATE TABLE "local-project_{dataset}_{name}" ({kinds})')
        marks = ", ".join("?" * len(columns))
        database.executemany(f'INSERT INTO "local-project_{dataset}_{name}" VALUES ({marks})', rows)
    database.commit()
    database.close()
    (folder / "log_entries.json").write_text("{}", encoding="utf-8")


def write_ab_testing(state: Path, counts: Mapping[str, Sequence[Sequence[int]]]) -> None:
    """Write a state with the hourly counts (A's clicks and views, B's) of each scenario."""
    columns = ("time_window", "A_clicks", "A_store_views", "B_clicks", "B_store_views")
    tables = {}
    expected: list[Sequence[Any]] = [("scenario", "A_conversion %", "B_conversion %")]
    overall = "overall (total_store_views/total_clicks)"
    for name, hours in [
        *counts.items(),
        (overall, [row for rows in counts.values() for row in rows]),
    ]:
        sums = [sum(row[k] for row in hours) for k in range(4)]
        rates = [100 * views / clicks if clicks else 0.0 for clicks, views in (sums[:2], sums[2:])]
        expected.append((name, *(f"{rate:.3f}%" for rate in rates)))
        if name in counts:
            windows = [f"7/29 {hour:02}:00-{hour:02}:59" for hour in range(len(hours))]
            tables[f"ab_{name}"] = [
                (window, *row) for window, row in zip(windows, hours, strict=True)
            ]
    write_database(state, "ab_testing", columns, tables)
    write_csv(
        state / "agent_workspace" / "record.csv",
        [expected[0], ("scenario_name", "", ""), (overall, "", "")],
    )
    write_csv(state / "groundtruth_workspace" / "expected_ratio.csv", expected)


def write_academic_warning(
    state: Path, students: Mapping[str, tuple[str, Sequence[float], float]]
) -> None:
    """Write a state with name, exam scores and latest score of each student."""
    columns = ("student_id", "name", "class_id", "score")
    exams = len(next(iter(students.values()))[1])
    tables = {
        f"scores_{2501 + k}": [
            (key, name, "A", past[k]) for key, (name, past, _) in students.items()
        ]
        for k in range(exams)
    }
    write_database(state, "academic_warning", columns, tables)
    latest = [(key, name, "A", score) for key, (name, _, score) in students.items()]
    write_csv(state / "agent_workspace" / "latest_quiz_scores.csv", [columns, *latest])
    alerts: list[Sequence[Any]] = []
    for key, (name, past, score) in students.items():
        mean = sum(past) / exams
        if (drop := (mean - score) / mean) > 0.25:
            alerts.append((key, name, score, mean, drop))
    heads = ("student_id", "name", "score", "hist_avg", "drop_ratio")
    write_csv(state / "groundtruth_workspace" / "expected_alerts.csv", [heads, *alerts])


def write_spreadsheet(
    state: Path, title: str, tables: Mapping[str, Sequence[Sequence[Any]]]
) -> None:
    """Write a spreadsheet as the published Google Sheets server stores it."""
    book, folder = "7d444840-9dc0-11d1-b245-5ffdce74fad2", state / "local_db" / "google_sheets"
    sheets: dict[str, Any] = {}
    cells: dict[str, Any] = {}
    for number, (sheet, table) in enumerate(tables.items()):
        sheets[f"{book}_{number}"] = {
            "sheetId": number, "title": sheet, "spreadsheetId": book, "index": number, "sheetType": "GRID",
            "gridProperties": {"rowCount": 1500, "columnCount": 26},
        }  # fmt: skip
        for row, values in enumerate(table):
            for column, value in enumerate(values):
                cells[f"{book}_{sheet}_{row}_{column}"] = {
                    "value": value, "formula": "", "formatted_value": value, "updated": "2026-01-05T10:00:00",
                }  # fmt: skip
    spreadsheet = {"spreadsheetId": book, "properties": {"title": title, "locale": "en_US"}, "folder": "root",
                   "sheets": [{"properties": sheet} for sheet in sheets.values()]}  # fmt: skip
    files: dict[str, Any] = {
        "spreadsheets": {book: spreadsheet},
        "sheets": sheets,
        "cells": cells,
        "permissions": {},
    }
    for name, content in files.items():
        write_json(folder / f"{name}.json", content)


def write_json(path: Path, content: Any, indent: int | None = 2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=indent), encoding="utf-8")


def write_inventory(
    state: Path,
    stock: Mapping[str, float],
    recipes: Mapping[str, Mapping[str, float]],
    orders: Sequence[Mapping[str, int]],
) -> None:
    """Write a state with the stock of materials, recipes by SKU, and the pieces in each order."""
    bom = [("Product SKU", "Product Name", "Raw Material ID", "Raw Material Name", "Unit Quantity", "Unit")]  # fmt: skip
    products: dict[str, dict[str, Any]] = {}
    for k, (sku, recipe) in enumerate(recipes.items(), 1):
        bom += [(sku, f"Model {k}", m, m.title(), str(need), "pcs") for m, need in recipe.items()]
        products[str(k)] = {
            "id": k, "date_created": "2026-01-05T10:00:00", "date_modified": "2026-01-05T10:00:00", "status": "publish",
            "sku": sku, "name": f"Model {k}", "description": "For the office", "regular_price": "299.5", "price": "299.5",
            "manage_stock": True, "stock_quantity": int(min(stock[m] // need for m, need in recipe.items())),
            "categories": [{"name": "Furniture"}], "type": "simple",
        }  # fmt: skip
    by_sku = {product["sku"]: product for product in products.values()}
    entries: dict[str, Any] = {}
    left = dict(stock)
    for k, order in enumerate(orders, 1):
        lines = [{"product_id": by_sku[sku], "quantity": count} for sku, count in order.items()]
        entries[str(k)] = {
            "id": k,
            "status": "processing",
            "date_created": "2026-01-05T10:00:00",
            "line_items": lines,
        }
        for sku, count in order.items():
            for material, need in recipes[sku].items():
                left[material] -= count * need
    most = {
        sku: int(min(left[m] / need for m, need in recipe.items()))
        for sku, recipe in recipes.items()
    }
    materials = [("Material ID", "Material Name", "Current Stock", "Unit", "Min Stock", "Supplier")]
    materials += [
        (m, m.title(), str(amount), "pcs", "30.0", "Supplier A") for m, amount in stock.items()
    ]
    tables: dict[str, Sequence[Sequence[Any]]] = {
        "Sheet1": [],
        "BOM": bom,
        "Material_Inventory": materials,
    }
    write_spreadsheet(state, "Material Inventory Management", tables)
    write_json(state / "local_db" / "woocommerce" / "products.json", products)
    write_json(state / "local_db" / "woocommerce" / "orders.json", entries)
    (state / "agent_workspace").mkdir()
    results = {
        "initial_inventories": {"material_inventory": stock},
        "expected_final_inventories": {
            "woocommerce_inventory": most,
            "google_sheets_material_inventory": left,
        },
    }
    write_json(state / "groundtruth_workspace" / "expected_results.json", results)


def write_mailbox(
    state: Path, users: Mapping[str, str], owner: str, mails: Sequence[Mapping[str, Any]]
) -> None:
    """Write names by address, and the owner's mails, as the published mail server stores them."""
    folder = state / "local_db" / "emails"
    records = {
        address: {"email": address, "password": f"pw_{k}", "name": name}
        for k, (address, name) in enumerate(users.items())
    }
    write_json(folder / "users.json", records)
    entries = {
        str(k): {"id": str(k), "folder": "INBOX", "to": owner, "cc": "", "bcc": "", "read": False,
                 "important": False, "attachments": [], **mail}
        for k, mail in enumerate(mails, 1)
    }  # fmt: skip
    write_json(folder / "users_data" / owner / "emails.json", entries)
    write_json(folder / "users_data" / owner / "drafts.json", {})


def write_course(state: Path, roster: Sequence[Sequence[str]], submitted: Sequence[str]) -> None:
    """Write a state with the rows of the roster, and the ids of the students who submitted."""
    me, sender = "virginia_diaz@mcp.com", "mcooper@mcp.com"
    rows = [("Name", "Student ID", "Email", "Status"), *roster]
    write_book(state / "agent_workspace" / "nlp_statistics.xlsx", {"NLP Course Students": rows})
    (state / "agent_workspace" / "email_account.txt").write_text(
        f"Email: {me}\nPassword: pw_0\n", encoding="utf-8"
    )
    users = {me: "NLP Course Assistant", sender: "NLP Course Student"}
    names = {}
    for name, number, address, status in roster:
        names[number] = name
        if status == "enrolled" and number not in submitted:
            users[address] = name
    sent = [
        {"sender_name": names[number], "subject": f"nlp-presentation-{number}-{names[number]}",
         "content": "<html><body><p>NLP is a bridge.</p></body></html>", "content_type": "html"}
        for number in submitted
    ]  # fmt: skip
    (state / "files").mkdir()
    lines = "".join(json.dumps(each) + "\n" for each in sent)
    (state / "files" / "emails.jsonl").write_text(lines, encoding="utf-8")
    mails = [
        {"from": sender, "subject": each["subject"], "body": each["content"], "html_body": each["content"],
         "date": f"2026-01-05T10:00:0{k}.250000+00:00", "has_attachments": False}
        for k, each in enumerate(sent)
    ]  # fmt: skip
    write_mailbox(state, users, me, mails)


EXAM_HEADS = (
    "Course Code", "Course Name", "Proctor Name", "Proctor Email", "Open-book/Closed-book", "Final Date (MM/DD/YYYY)",
    "Start Time (HH:MM)", "Duration (minutes)", "Location", "Information Source(Announcement/Email/Message)", "Course Credit",
)  # fmt: skip


class FinalExam(NamedTuple):
    """An exam; the date is in 2025, TBD or "none", and `source` says where it is announced."""

    name: str
    day: str
    source: str = "Announcement"
    books: str = "Open-book"

    def post(self) -> str:
        if self.day == "none":
            return "This course does not have a final exam. Marks come from projects.\n"
        if self.day == "TBD":
            return f"The final exam schedule for {self.name} will be announced soon. Wait.\n"
        day = date.fromisoformat(self.day)
        return (
            f"We announce that the final exam for {self.name} will be held on:\n\n📅 Date: {day:%B %d, %Y}\n"
            "⏰ Time: 09:00 - 11:00\n⏱️ Duration: 120 minutes\n📍 Location: Main Building, Room 101\n\nCome."
        )

    def mail(self) -> str:
        known = self.day != "TBD"
        time, minutes, place = (
            ("09:00", "120 minutes", "Main Building, Room 101") if known else ("TBD",) * 3
        )
        return (
            f"📚 Information\nCourse Name: {self.name.partition('-')[0]}\nExam Type: {self.books}\n\n📅 Exam Schedule\n"
            f"Exam Date: {self.day}\nExam Time: {time}\nDuration: {minutes}\n\n📍 Exam Location\n{place}\n\nGood luck\n"
        )

    def row(self, code: str) -> tuple[Any, ...]:
        facts: tuple[Any, ...] = ("TBD",) * 4
        if self.day != "TBD":
            year, month, day = self.day.split("-")
            facts = (f"{month}/{day}/{year}", "09:00", 120, "Main Building, Room 101")
        person = ("Debra", "debra_flores76@mcp.com")
        return (code, self.name.partition("-")[0], *person, self.books, *facts, self.source, 3)


def write_exams(state: Path, exams: Mapping[str, FinalExam]) -> None:
    """Write a state with exams by course code."""
    me, teacher, made = "rkelly27@mcp.com", "debra_flores76@mcp.com", "2026-03-01T22:30:00.5+00:00"
    folder = state / "local_db" / "canvas"
    people = [
        (1, "Debra", teacher, "TeacherEnrollment"),
        (2, "Ronald Kelly", me, "StudentEnrollment"),
    ]
    users = [
        {"id": k, "name": name, "login_id": login, "password": "pw"} for k, name, login, _ in people
    ]
    tables: dict[str, dict[str, Any]] = {
        name: {} for name in ("courses", "enrollments", "announcements")
    }
    tables |= {name: {} for name in ("quizzes", "assignments", "submissions")}
    tables["users"] = {str(user["id"]): user for user in users}
    mails = [
        {"from": "deals@target.com", "subject": "Sale", "body": "Save up to 50%", "date": made}
    ]
    for k, (code, exam) in enumerate(exams.items(), 1):
        tables["courses"][str(k)] = {
            "id": k, "name": f"{exam.name}-{k}", "course_code": f"{code}-{k}", "teacher_name": "Debra", "teacher_email": teacher,
        }  # fmt: skip
        tables["enrollments"][f"course_{k}"] = {
            str(user): {"user_id": user, "course_id": k, "type": role, "enrollment_state": "active"} for user, _, _, role in people
        }  # fmt: skip
        posts = [f"🏫 Information:\n🎓 Credits: 3\n📝 Exam Type: {exam.books.title()}\n\n",
                 "📅 Midterm:\n\n📅 Date: November 12, 2024\n⏱️ Duration: 75 minutes\n"]  # fmt: skip
        if exam.source == "Email":
            mails.append(
                {
                    "from": teacher,
                    "subject": f"Final Exam - {exam.name}",
                    "body": exam.mail(),
                    "date": made,
                }
            )
        else:
            posts.append(exam.post())
        for text in posts:
            number = len(tables["announcements"]) + 1
            tables["announcements"][str(number)] = {
                "course_id": k,
                "title": code,
                "message": text,
                "posted_at": made,
            }
    for title, records in tables.items():
        write_json(folder / f"{title}.json", records)
    sent = [{**mail, "html_body": mail["body"]} for mail in mails]
    write_mailbox(state, {me: "Ronald Kelly", teacher: "Debra Flores"}, me, sent)
    write_book(state / "agent_workspace" / "exam_schedule.xlsx", {"Sheet1": [EXAM_HEADS]})
    ahead = {
        code: exam
        for code, exam in exams.items()
        if exam.day == "TBD" or "2025-01-15" < exam.day < "none"
    }
    ordered = sorted(ahead, key=lambda code: ahead[code].day)
    rows = [ahead[code].row(code) for code in ordered]
    write_book(
        state / "groundtruth_workspace" / "exam_schedule.xlsx", {"Sheet": [EXAM_HEADS, *rows]}
    )


def write_conferences(
    state: Path, targets: Mapping[tuple[str, str], str], mails: Sequence[tuple[str, str, str]]
) -> None:
    """Write a state with deadlines by conference and track, and date, subject and text of mails."""
    me, sender = "rkelly27@mcp.com", "coml-chairs@ml-conference.org"
    account = {"email": me, "password": "pw_0", "name": "R. Kelly"}
    write_json(state / "email_config.json", account)
    write_mailbox(
        state,
        {me: "R. Kelly", sender: "coml-chairs"},
        me,
        [
            {"from": sender, "subject": subject, "body": text, "date": day, "cc": None, "bcc": None,
             "html_body": f"<html><body><pre>{text}</pre></body></html>", "message_id": f"<e{k}@ml.org>"}
            for k, (day, subject, text) in enumerate(mails)
        ],
    )  # fmt: skip
    write_json(state / "local_db" / "calendar" / "events.json", [])
    listed = [f"  • {key} ({track})" for key, track in targets]
    head = "You have submitted papers to multiple conferences:"
    if len(listed) == 1:
        [(key, track)] = targets
        head, listed = f"You have submitted a paper to the {key} conference ({track}).", []
    note = "\n".join(["Conference Tracking Note", "=" * 24, "", head, *listed, "", "Remember to:"])
    folder = state / "agent_workspace"
    folder.mkdir()
    (folder / "conference_info.txt").write_text(note, encoding="utf-8")
    conferences = [
        {"conference": key, "track": track, "deadline": f"{day}T23:59:00-12:00", "full_name": f"Forum of the {track}"}
        for (key, track), day in targets.items()
    ]  # fmt: skip
    metadata = {
        "base_date": "2025-09-15",
        "target_info": {"conferences": conferences, "count": len(conferences)},
    }
    write_json(state / "groundtruth_workspace" / "conference_metadata.json", metadata)


QUIZ_HEADS = (
    "course_code course_name credits quiz_title number_of_questions time_limit allowed_attempts "
    "scoring_policy points_possible deadline"
).split()
TASK_HEADS = "course_code assignment_title description deadline course_name points_possible".split()


class Coursework(NamedTuple):
    """The deadlines of a course's quiz and assignment ("" is none), and the points to be exempt
    from both, with the own ones.
    """

    quiz: str
    task: str
    required: int = 0
    points: int = -1

    @property
    def exempt(self) -> bool:
        return self.points >= self.required


def write_coursework(state: Path, courses: Mapping[str, Coursework], submitted: str) -> None:
    """Write a state with courses by code; the assignment of one course is submitted."""
    folder, made = state / "local_db" / "canvas", "2026-03-01T22:30:00.5+00:00"
    users = [
        {"id": 1, "name": "Ryan Brown", "login_id": "ryan.brown93@mcp.com", "password": "pw_1"},
        {"id": 2, "name": "Teacher", "login_id": "smith@mcp.com", "password": "pw_2"},
    ]
    names = ("courses", "enrollments", "quizzes", "assignments", "submissions", "announcements")
    tables: dict[str, dict[str, Any]] = {name: {} for name in names}
    notes = ["Student ID: 2201210606"]
    question = {"question_name": "Question 1", "question_text": "Which?", "question_type": "multiple_choice_question",
                "points_possible": 50, "answers": [{"answer_text": "This", "answer_weight": 100}]}  # fmt: skip
    for k, (code, work) in enumerate(courses.items(), 1):
        tables["courses"][str(k)] = {"id": k, "name": f"Course-{k}", "course_code": code}
        roles = enumerate(("StudentEnrollment", "TeacherEnrollment"), 1)
        tables["enrollments"][f"course_{k}"] = {
            str(user): {"user_id": user, "course_id": k, "type": role, "enrollment_state": "active"}
            for user, role in roles
        }
        post = {
            "course_id": k,
            "posted_at": made,
            "title": code,
            "message": "📅 Date: March 20, 2026",
        }
        tables["announcements"][str(2 * k)] = post
        if work.required:
            met = "not been met. Need to take"
            if work.exempt:
                met = "been met. This may qualify for course exemption for"
            need = f"The exemption requirement is {work.required}, which has {met} {code}."
            notes.append(f"Score for the Course-{k} exam: {work.points}. {need}")
            policy = f"📋 Policy:\n   • Minimum Required Score: {work.required}\n"
            tables["announcements"][str(2 * k + 1)] = {**post, "message": policy}
        if work.quiz:
            tables["quizzes"][str(k)] = {
                "id": k, "course_id": k, "title": f"{code} Unit Quiz", "quiz_type": "Graded Quiz", "description": "Concepts.",
                "time_limit": 60, "allowed_attempts": 2, "scoring_policy": "keep_highest", "points_possible": 100,
                "due_at": work.quiz, "credits": 3, "questions": [question, question],
            }  # fmt: skip
        if work.task:
            tables["assignments"][str(k)] = {
                "id": k, "course_id": k, "name": f"{code} Homework", "description": "Part 1.", "points_possible": 100,
                "due_at": work.task,
            }  # fmt: skip
        if code == submitted:
            body = {"assignment_id": k, "user_id": 1, "body": "<p>Done</p>", "submitted_at": made}
            tables["submissions"][f"assignment_{k}"] = {"1": body}
    tables["users"] = {str(user["id"]): user for user in users}
    for title, records in tables.items():
        write_json(folder / f"{title}.json", records)
    memory = {"type": "entity", "entityType": "Person", "name": "Ryan Brown", "observations": notes}
    write_json(state / "agent_workspace" / "memory" / "memory.json", memory, indent=None)
    _write_coursework_answers(state / "groundtruth_workspace", courses, submitted)


def _write_coursework_answers(
    folder: Path, courses: Mapping[str, Coursework], submitted: str
) -> None:
    quizzes, tasks = [], []
    for k, (code, work) in enumerate(courses.items(), 1):
        name = f"Course-{k}"
        if work.quiz and not (work.required and work.exempt):
            row = (code, name, 3, f"{code} Unit Quiz", 2, 60, 2, "keep_highest", 100, work.quiz)
            quizzes.append((work.quiz, row))
        if work.task and code != submitted and not (work.required and work.exempt):
            tasks.append((work.task, (code, f"{code} Homework", "Part 1.", work.task, name, 100)))
    # The published files end with an empty line.
    write_csv(folder / "quiz_info.csv", [QUIZ_HEADS, *(row for _, row in sorted(quizzes)), []])
    write_csv(folder / "assignment_info.csv", [TASK_HEADS, *(row for _, row in sorted(tasks)), []])


def write_slow_products(
    state: Path, products: Mapping[str, tuple[int, int, str, str]], subscribers: Mapping[str, str]
) -> None:
    """Write a state with days in stock, sales, price and sale price of products, and names of
    subscribers by address.
    """
    now = datetime(2026, 3, 1, 22, 30, 0, 250_000)
    entries = {}
    for k, (name, (days, sold, price, sale)) in enumerate(products.items(), 1):
        entries[str(k)] = {
            "id": k, "name": name, "type": "simple", "status": "publish", "regular_price": price, "stock_quantity": 20,
            "manage_stock": True, "stock_status": "instock", "date_created": (now - timedelta(days=days)).isoformat(),
            "meta_data": [{"key": "sales_last_30_days", "value": str(sold)}], **({"sale_price": sale} if sale else {}),
        }  # fmt: skip
    write_json(state / "local_db" / "woocommerce" / "products.json", entries)
    people = [{"email": address, "name": name} for address, name in subscribers.items()]
    write_json(state / "agent_workspace" / "subscriber.json", {"subscriber_list": people})
    me = "admin@woocommerce.local"
    write_mailbox(state, {me: "WooCommerce Admin", **subscribers}, me, [])
    slow = [name for name, (days, sold, *_) in products.items() if days > 90 and sold < 10]
    stamp = (now + timedelta(seconds=2)).isoformat()
    metadata = {"low_selling_products": slow, "timestamp": stamp}
    write_json(state / "groundtruth_workspace" / "generation_metadata.json", metadata)


def write_nhl(state: Path, games: Sequence[tuple[str, str, str]]) -> None:
    """Write a state with date, visitor and home of each game."""
    header = ("Date", "Start Time (Sask)", "Start Time (ET)", "Visitor", "Score", "Home", "Score.1", "Status")  # fmt: skip
    table = [header, *((day, "17:00:00", "19:00:00", away, "2", home, "3", "OT") for day, away, home in games)]  # fmt: skip
    write_spreadsheet(state, "NHL Regular 2024-2025", {"nhl-202425-asplayed_schedule": table})
    (state / "agent_workspace").mkdir()
    write_csv(state / "groundtruth_workspace" / "standard_answer.csv", _back_to_backs(games))


def _back_to_backs(games: Sequence[tuple[str, str, str]]) -> list[Sequence[Any]]:
    days: dict[str, dict[int, str]] = {}
    for day, away, home in games:
        number = date.fromisoformat(day).toordinal()
        days.setdefault(away, {})[number] = "A"
        days.setdefault(home, {})[number] = "H"
    kinds = ("HA", "AH", "HH", "AA")
    rows: list[Sequence[Any]] = [("Team", *kinds, "Total")]
    for team in sorted(days):
        pairs = [where + days[team].get(day + 1, "") for day, where in days[team].items()]
        counts = [pairs.count(kind) for kind in kinds]
        rows.append((team, *counts, sum(counts)))
    return rows


def write_machines(
    state: Path,
    ranges: Mapping[tuple[str, str], tuple[float, float]],
    readings: Sequence[tuple[str, str, str, float]],
) -> None:
    """Write a state with the range of each sensor, and its readings by time."""
    columns = ("timestamp", "machine_id", "sensor_type", "reading")
    write_database(state, "machine_operating", columns, {"live_sensor": readings})
    parameters: list[Sequence[Any]] = [
        ("machine_id", "machine_description", "sensor_type", "unit", "min_value", "max_value",
         "calibration_date", "next_maintenance")
    ]  # fmt: skip
    for (machine, sensor), limits in ranges.items():
        parameters.append((machine, "Pump", sensor, "°C", *limits, "2024-01-15", "2024-07-15"))
    summary = [
        ("machine_id", "description", "sensor_count", "status"),
        ("M001", "Pump", 2, "Active"),
    ]
    write_book(
        state / "agent_workspace" / "machine_operating_parameters.xlsx",
        {"Operating Parameters": parameters, "Machine Summary": summary},
    )
    report: list[Sequence[Any]] = [(*columns, "normal_range")]
    for time, machine, sensor, value in readings:
        low, high = ranges.get((machine, sensor), (value, value))
        if "2025-08-19 11:30:00" <= time <= "2025-08-19 12:30:00" and not low <= value <= high:
            report.append((f"{time}.000000", machine, sensor, value, f"{low:.2f} - {high:.2f}"))
    write_csv(state / "groundtruth_workspace" / "anomaly_report.csv", report)


def write_market(
    state: Path,
    weights: Mapping[str, Mapping[str, float]],
    sizes: Mapping[str, tuple[str, Sequence[float]]],
    first: int = 2001,
) -> None:
    """Write a state with weights by own and raw category, and each raw one's unit and sizes."""
    target, own = next(iter(weights.items()))
    raw = list(sizes)
    years = len(next(iter(sizes.values()))[1])
    table = [["Internal / Raw", *raw], *([name, *row.values()] for name, row in weights.items())]
    data = [["Year", *(f"{name} ({sizes[name][0]} USD)" for name in raw)]]
    data += [[first + k, *(sizes[name][1][k] for name in raw)] for k in range(years)]
    heads = ["Year", *(f"{name} %" for name in raw), "Growth Rate %"]
    answer: list[Sequence[Any]] = [heads]
    for k in range(1, years):
        parts = [[sizes[name][1][at] for name in raw] for at in (k - 1, k)]
        factors = [own[name] * (1000 if sizes[name][0] == "bn" else 1) for name in raw]
        totals = [sum(x * f for x, f in zip(part, factors, strict=True)) for part in parts]
        before, after = ([*part, total] for part, total in zip(parts, totals, strict=True))
        rates = [round((new - old) / old * 100, 9) for old, new in zip(before, after, strict=True)]
        answer.append([first + k, *rates])
    folder, answers = state / "agent_workspace", state / "groundtruth_workspace"
    write_book(folder / "Market_Data.xlsx", {"Methodology": table, "RawData": data})
    examples = [[2020 + k, *[5.0 + 1.5 * k] * (len(heads) - 1)] for k in range(3)]
    write_book(folder / "Market_Data_Format.xlsx", {"GrowthRate": [heads, *examples]})
    request = (
        f"**Target Category:** {target}\n\n**Time Range:** {first + 1} to {first + years - 1}\n"
    )
    (folder / "task_specific.md").write_text(f"# Task\n\n{request}", encoding="utf-8")
    write_csv(answers / "Market_Data_gt.csv", answer)
    metadata = {
        "target_category": target,
        "raw_categories": raw,
        "conversion_weights": {target: own},
    }
    write_json(answers / "metadata.json", metadata)


def write_book(path: Path, sheets: Mapping[str, Sequence[Sequence[Any]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(list(row))
    book.save(path)


def write_configurations(path: Path, *each: tuple[str, Mapping[str, Any]]) -> None:
    configurations = [
        {"env_class": f"gem.envs.x_s2l.x_s2l.{task}S2LEnv", "env_params": params, "mcp_servers": {}}
        for task, params in each
    ]
    path.write_text(json.dumps({"configurations": configurations}), encoding="utf-8")
