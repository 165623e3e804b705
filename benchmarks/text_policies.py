"""Policies that solve the reading part of office tasks with regular expressions.

Each policy returns the share of right answers, or the Jaccard overlap with the right answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from statistics import fmean
from typing import Any

from agentgym.envs.loca.tasks.woocommerce_new_welcome import DATASET, FROM, TABLE
from agentgym.envs.loca.writing.order_notes import read_amended
from agentgym.office.canvas.server import Canvas
from agentgym.office.email.server import Email
from agentgym.office.files.pdfs import read_pdf
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.office.spreadsheet.workbooks import read_workbook
from agentgym.office.woocommerce.server import WooCommerce

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DAY = re.compile(rf"(\d{{4}})-(\d\d)-(\d\d)|(\d+) ({_MONTHS})|({_MONTHS}) (\d+)")
_NO_EXAM = re.compile(
    r"no final exam|without a final|exempt from|called off|cancel|not take place", re.I
)


def find_exams(world: Any) -> float:
    """Find the day, time, duration and room of each exam in the newest message about the exam."""
    store = world.office.get(Canvas).store
    mails = [mail.body for mail in world.office.get(Email).messages("rkelly27@mcp.com")]
    found = set()
    for course in store.find("courses"):
        code, name = course["course_code"], course["name"].rpartition("-")[0]
        posts = [p["message"] for p in store.find("topics", "posted_at", course_id=course["id"])]
        texts = [
            text
            for text in posts[1:]
            if re.search("final exam", re.sub("It is no final exam", "", text), re.I)
        ]
        texts += [text for text in mails if re.search(f"{code}\\b|\\b{re.escape(name)}\\b", text)]
        if not texts or any(_NO_EXAM.search(text) for text in texts):
            continue
        day = _DAY.search(texts[-1])
        time = re.search(r"\b(\d\d):00|\b(\d+) ([ap])m", texts[-1])
        minutes = re.search(r"(\d+) minutes", texts[-1])
        place = re.search(rf"\b(?!{_MONTHS})(?:[A-Z][a-z]+ )+\d+\b(?:-B)?", texts[-1])
        if day and (day[1] == "2024" or (_date(day), _time(time) or "") <= ("01/15/2025", "09:00")):
            continue
        found.add((code.rpartition("-")[0], _date(day), _time(time), minutes and int(minutes[1]),
                   place and place[0]))  # fmt: skip
    rows = {tuple(_plain(row)) for row in world.truth["exams"]}
    extra = sum(row[0] not in {right[0] for right in rows} for row in found)
    return len(rows & found) / (len(rows) + extra)


def _date(match: re.Match[str] | None) -> str | None:
    if match is None:
        return None
    if match[1]:
        return f"{match[2]}/{match[3]}/{match[1]}"
    month = _MONTHS.split("|").index(match[5] or match[6]) + 1
    return f"{month:02}/{int(match[4] or match[7]):02}/2025"


def _time(match: re.Match[str] | None) -> str | None:
    if match is None:
        return None
    return f"{match[1]}:00" if match[1] else f"{int(match[2]) + 12 * (match[3] == 'p'):02}:00"


def _plain(row: Mapping[str, Any]) -> list[Any]:
    names = ("Course Code", "Final Date (MM/DD/YYYY)", "Start Time (HH:MM)", "Duration (minutes)", "Location")  # fmt: skip
    return [None if row[name] == "TBD" else row[name] for name in names]


def find_reminders(world: Any) -> float:
    """Find the last date in the newest "camera-ready" email about each conference and track."""
    mails = [mail.body for mail in world.office.get(Email).messages("swright@mcp.com")]
    note = world.office.context.files.read_text("conference_info.txt")
    right = 0
    for line in note.splitlines()[1:]:
        key, _, track = line.partition(": ")
        texts = [
            text
            for text in mails
            if re.search(rf"\b{key}\b", text) and track in text and "camera-ready" in text
        ]
        days = [_date(match) for match in _DAY.finditer(texts[-1])] if texts else []
        begin = world.truth["reminders"][key]
        right += bool(days) and days[-1] == f"{begin:%m/%d/%Y}"
    return right / len(world.truth["reminders"])


def find_professors(world: Any) -> float:
    """Find professors whose newest email prescribes a file structure and is not a refusal."""
    newest = {
        re.sub(".*<|>", "", mail.sender): mail.body
        for mail in world.office.get(Email).messages("maryc@mcp.com", "INBOX")
        if not mail.subject.startswith("Automatic reply:")
    }
    texts = {address: text for address, text in newest.items() if "<Student_ID>" in text}
    idle = r"no (open )?place|\bnot\b|cannot|would|full\b|once|next year|coming year|example"
    right = world.truth["wanted"]
    return max(best_overlap(texts, words, right) for words in ("nothing to send", idle))


_DRAFT = r"draft|placeholder|outline|not (the )?final|first version"


def overlap(found: Iterable[Any], right: Iterable[Any]) -> float:
    one, two = set(found), set(right)
    return len(one & two) / max(1, len(one | two))


def find_coursework(world: Any) -> float:
    """Find quizzes and assignments that are not marked as voluntary, cancelled or exempted."""
    canvas = world.office.get(Canvas).store
    memory = world.office.context.files.read_text("memory/memory.json")
    scores = {code: int(points) for code, points in re.findall(r"of (\S+): (\d+) points", memory)}
    done = {row["assignment_id"] for row in canvas.find("submissions", user_id=1)}
    found = set()
    for course in canvas.find("courses"):
        posts = canvas.find("topics", "posted_at", course_id=course["id"])
        texts = [post["message"] for post in posts]
        numbers = re.findall(r"\b(\d\d) points", " ".join(t for t in texts if "entrance" in t))
        if numbers and scores.get(course["course_code"], 0) >= int(numbers[-1]):
            continue
        gone = " ".join(text for text in texts if re.search(r"drop|cancel|no longer|ignore", text))
        for kind, name in (("quizzes", "title"), ("assignments", "name")):
            found |= {
                row[name]
                for row in canvas.find(kind, course_id=course["id"])
                if row["due_at"] > "2025-01-15T09"
                and not (kind == "assignments" and row["id"] in done)
                and not re.search(r"voluntary|optional|skip|extra", row["description"] or "", re.I)
                and row[name] not in gone
            }
    rows = [row["quiz_title"] for row in world.truth["quizzes"]]
    return overlap(found, rows + [row["assignment_title"] for row in world.truth["assignments"]])


def best_overlap(texts: Mapping[Any, str], pattern: str, right: Iterable[Any]) -> float:
    """Return the higher of two overlaps: of all texts, and of the texts that do not match `pattern`."""
    rest = [key for key, text in texts.items() if not re.search(pattern, text, re.I)]
    right = list(right)
    return max(overlap(texts, right), overlap(rest, right))


def find_students(world: Any) -> float:
    """Find students who have sent no PDF under the right subject; try with and without drafts."""
    roster = read_workbook(world.office.context.files.read("nlp_statistics.xlsx"))
    enrolled = {
        str(row[1]): row[2] for row in next(iter(roster.values()))[1:] if row[3] == "enrolled"
    }
    texts: dict[str, str] = {}
    for mail in world.office.get(Email).messages("virginia_diaz@mcp.com", "INBOX"):
        match = re.match(r"nlp-presentation-(\d+)-", mail.subject, re.I)
        if (
            match
            and match[1] in enrolled
            and any(name.endswith(".pdf") for name in mail.attachments)
        ):
            # An email that is not marked as a draft takes precedence over other emails.
            before = texts.get(enrolled[match[1]], mail.body)
            texts[enrolled[match[1]]] = before if not re.search(_DRAFT, before) else mail.body
    every = set(enrolled.values())
    rest = {address for address, text in texts.items() if not re.search(_DRAFT, text)}
    answers = (every - texts.keys(), every - rest)
    return max(overlap(answer, world.truth["missing"]) for answer in answers)


def find_slow(world: Any) -> float:
    """Select slow-selling products; try with and without products excluded from an outlet sale."""
    texts = {}
    for item in world.office.get(WooCommerce).products.all():
        custom = {meta["key"]: int(meta["value"]) for meta in item["meta_data"]}
        slow = item["date_created"] < "2024-10-17" and custom["sales_last_30_days"] < 10
        if slow and item["status"] == "publish" and item["stock_status"] == "instock":
            texts[item["id"]] = item["description"]
    kept = r"(never|not|no|excluded)\b.*(outlet|clear)"
    return best_overlap(texts, kept, [row["Product ID"] for row in world.truth["rows"]])


def find_payments(world: Any) -> float:
    """Guess the paid amount: the whole invoice, or the sum of amounts after words such as "paid"."""
    right = 0
    for invoice in world.truth["invoices"]:
        pages = read_pdf(world.office.context.files.read(f"invoices/{invoice['file']}"))
        text = " ".join(" ".join(pages).split())
        words = r"(?:PAID|paid|[Rr]eceived|[Pp]ayment|credited)[^$.]{0,40}\$([\d,]+\.\d\d)"
        paid = sum(int(re.sub("[,.]", "", amount)) for amount in re.findall(words, text))
        whole = re.search(r"IN FULL|in full|SETTLED|settled|completely", text)
        right += (invoice["cents"] if whole else paid) == invoice["paid"]
    return right / len(world.truth["invoices"])


def find_alerts(world: Any) -> float:
    """Select low-stock products; try with and without products described as discontinued."""
    known = {row["SKU"] for row in world.truth["old"]}
    texts = {}
    for item in world.office.get(WooCommerce).products.all():
        custom = {meta["key"]: meta["value"] for meta in item["meta_data"]}
        stock = item.get("stock_quantity")
        low = stock is not None and stock < int(custom["stock_threshold"])
        if low and item["status"] == "publish" and item["sku"] not in known:
            texts[item["sku"]] = item["description"]
    ends = r"discontinued|no longer|last|closed|stopped|no more"
    return best_overlap(texts, ends, [row["SKU"] for row in world.truth["new"]])


_MAILS = r"mail|newsletter|\blists?\b|advert|offers|write|your news|hear|codes"
_REFUSAL = r"\bno\b|\bnot\b|never|nothing|object|without|delete|forget|warns|leave|keep|off|none"
_WELCOME = (
    r"do write|welcome|on purpose|may write|after all, |second thought, do|take that back, since"
)


def find_customers(world: Any) -> float:
    """Find customers with one recent order; try with and without customers who refuse emails."""
    shop = world.office.get(WooCommerce)
    settings = shop.settings.woo_settings_get("general")
    hours = next(float(row["value"]) for row in settings if row["id"] == "gmt_offset")
    since = f"{FROM + timedelta(hours=hours):%Y-%m-%dT%H:%M:%S}"
    crm = world.office.get(GoogleCloud).bigquery.rows(DATASET, TABLE)
    known = {0, *(row["woocommerce_id"] for row in crm)}
    notes: dict[str, list[str]] = {}
    for order in shop.orders.all():
        if order.get("date_completed", "") >= since and order["customer_id"] not in known:
            note = re.split(r"(?<=[.!?]) ", order.get("customer_note") or "")
            about = [text for text in note if re.search(_MAILS, text, re.I)]
            last = "" if not about or re.search(_WELCOME, about[-1], re.I) else about[-1]
            notes.setdefault(order["billing"]["email"], []).append(last)
    single = {address: texts[0] for address, texts in notes.items() if len(texts) == 1}
    return best_overlap(single, _REFUSAL, [to for to, _, _ in world.truth["letters"]])


_PRODUCT = re.compile(r"Gift Card|Assembly|[A-Z][a-z]+ \d{3,}")
_OTHER_ORDERS = (
    r"\blast\b|year|spring|summer|autumn|former|old order|new order|separately|brother|my aunt bought"
    r"|neighbours|colleague|\bher order|own order|some day|thought of|talked|idea|tempting|nearly"
)
_COUNT = re.compile(r"\b(?:one|two|three|four|five|six|\d+)\b")


def find_pieces(world: Any) -> float:
    """Count pieces in order lines; try with and without changes mentioned in notes."""
    orders = [
        order
        for order in world.office.get(WooCommerce).orders.all()
        if order["status"] == "processing" and order["date_paid"] > "2025-01-12T18:00:00"
    ]
    right = [read_amended(_lines(order), order.get("customer_note") or "") for order in orders]
    return max(
        fmean(pieces(order) == held for order, held in zip(orders, right, strict=True))
        for pieces in (_lines, _pieces)
    )


def _lines(order: Mapping[str, Any]) -> dict[str, int]:
    return {line["name"]: line["quantity"] for line in order["line_items"]}


def _pieces(order: Mapping[str, Any]) -> dict[str, int]:
    now, words = _lines(order), "zero one two three four five six".split()
    note = order.get("customer_note") or ""
    ends = (
        r"cancel|withdraw|not an order|void|the order is off|Forget this|any of (it|this)|take back"
    )
    if re.search(ends, note) and not re.search(r"after all|(keep|make) the order|stands", note):
        return dict.fromkeys(now, 0)
    for text in re.split(r"(?<=[.!?]) ", note):
        names = _PRODUCT.findall(text)
        if re.search(r"forget the changes|take back what|all of the above|right after all", text):
            now = _lines(order)
        if not names or re.search(_OTHER_ORDERS, text, re.I):
            continue
        found = _COUNT.search(_PRODUCT.sub("", text))
        number = (
            words.index(found[0]) if found and found[0] in words else int(found[0] if found else 0)
        )
        first, second = names[0], names[-1]
        if first != second:
            now[first] -= number
            now[second] += number
        elif re.search(r"double|twice", text):
            now[first] *= 2
        elif re.search(r"more|add|extra|another|Raise|Increase|up by", text):
            now[first] += number
        elif re.search(r"fewer|less|off|Reduce|subtract|Lower|give up|down by|too many", text):
            now[first] = max(0, now[first] - number)
        elif number or re.search(r"leave out|strike|not make|without|against|longer", text, re.I):
            now[first] = number
    return now


REGEX: Mapping[str, Callable[[Any], float]] = {
    "ApplyPhDEmail": find_professors,
    "CanvasArrangeExam": find_exams,
    "CanvasListTest": find_coursework,
    "CourseAssistant": find_students,
    "FilterLowSellingProducts": find_slow,
    "PayableInvoiceChecker": find_payments,
    "SetConfCrDdl": find_reminders,
    "UpdateMaterialInventory": find_pieces,
    "WoocommerceNewWelcome": find_customers,
    "WoocommerceStockAlert": find_alerts,
}
