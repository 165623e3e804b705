"""Texts of the office tasks: `python benchmarks/texts.py [task …]` where `agentgym[office]` is
installed.

For each task at 128K tokens, by kind of document: how many sentences differ
once names, dates, numbers and places are masked, how often a sentence comes again, and how many
different words there are; then the share of the tokens that the reference plan reads to decide (the
mean of four states), and what 20 lines of regular expressions find of the answer at 64K.
"""

from __future__ import annotations

import json
import pickle
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from statistics import fmean
from typing import Any

import agentgym
from agentgym import worlds
from agentgym.envs.loca.order_changes import read_amended
from agentgym.envs.loca.plan import Step
from agentgym.envs.loca.progress import steps_of
from agentgym.envs.loca.servers.canvas.server import Canvas
from agentgym.envs.loca.servers.email.server import Email
from agentgym.envs.loca.servers.files.pdfs import read_pdf
from agentgym.envs.loca.servers.gcloud.google_cloud import GoogleCloud
from agentgym.envs.loca.servers.spreadsheet.workbooks import read_workbook
from agentgym.envs.loca.servers.woocommerce.server import WooCommerce
from agentgym.envs.loca.task import OfficeTask
from agentgym.envs.loca.tasks.woocommerce_new_welcome import DATASET, FROM, TABLE
from agentgym.tokens import counter

TASKS = [entry.world.__name__ for entry in worlds() if issubclass(entry.world, OfficeTask)]
LENGTH, REGEX_LENGTH, REGEX_SEEDS = 128_000, 64_000, 5
SHARE_SEEDS = 4  # the share of one state is within two points of that of others
_SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n+")
_NUMBERS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|half|quarter|an hour|hours?|"
    "minutes|days?|weeks?|am|pm"
)
_NAME = re.compile(r"[A-Z]\S*( #)+")
_DRAWN = re.compile(rf"\S*[0-9@]\S*|\b(?:{_NUMBERS})\b|(?<=\S )[\"(]?[A-Z][\w'-]*")


def main(arguments: Sequence[str]) -> None:
    """Print the tables."""
    names = [name for name in arguments if name in TASKS] or TASKS
    print("| task | documents | number | distinct sentences | occurrences of each | words |")
    print("|---|---|---|---|---|---|")
    for name in names:
        world = start(name, LENGTH, 0)
        for kind, texts in documents(world).items():
            print(f"| {name} | {kind} | {' | '.join(variety(texts))} |", flush=True)
    print("\n| task | share of tokens that is read | rows right | episodes solved |")
    print("|---|---|---|---|")
    for name in names:
        share = f"{100 * mean_share_read(name, LENGTH):.0f} %"
        regex = "| |"
        if name in REGEX:
            scores = [REGEX[name](start(name, REGEX_LENGTH, seed)) for seed in range(REGEX_SEEDS)]
            rows = sum(scores) / len(scores)
            regex = f"{100 * rows:.0f} % | {sum(score == 1 for score in scores)} of {len(scores)} |"
        print(f"| {name} | {share} | {regex}", flush=True)


def start(name: str, length: int, seed: int) -> Any:
    """Return a task at the start of an episode."""
    env = agentgym.tool_env(agentgym.make(name, length=length))
    env.reset(seed=seed)
    return env.world


def documents(world: Any) -> dict[str, list[str]]:
    """Return the texts of a state, by kind of document."""
    texts: dict[str, list[str]] = {}
    if "canvas" in world.servers:
        store = world.office.get(Canvas).store
        texts["announcements"] = [post["message"] for post in store.find("topics")]
        texts["assignments"] = [item.get("description") or "" for item in store.find("assignments")]
        texts["quizzes"] = [item.get("description") or "" for item in store.find("quizzes")]
        texts["submissions"] = [item.get("body") or "" for item in store.find("submissions")]
        texts["questions"] = [item["question_text"] for item in store.find("quiz_questions")]
    if "email" in world.servers:
        email = world.office.get(Email)
        for user in email.users():
            mails = email.messages(user["email"])
            texts.setdefault("mails", []).extend(_without_structure(mail.body) for mail in mails)
    if "woocommerce" in world.servers:
        products = world.office.get(WooCommerce).products.all()
        texts["descriptions"] = [item.get("description") or "" for item in products]
        orders = world.office.get(WooCommerce).orders.all()
        texts["notes"] = [note for item in orders if (note := item.get("customer_note"))]
    return {kind: found for kind, found in texts.items() if any(found)}


def _without_structure(text: str) -> str:
    """Return a mail without the paragraphs that are lists of folders and files."""
    return "\n\n".join(part for part in text.split("\n\n") if "<Student_ID>" not in part)


def variety(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the number of texts, of distinct sentences, of occurrences of each, and of words."""
    masked = (
        " ".join(_DRAWN.sub("#", sentence).split())
        for text in texts
        for sentence in _SENTENCE.split(text)
    )
    sentences = [sentence for sentence in masked if sentence and not _NAME.fullmatch(sentence)]
    words = {word for text in texts for word in re.findall(r"(?<!\S)[a-z]+(?=[\s.,;:!?]|$)", text)}
    count = Counter(sentences)
    return (
        f"{len(texts):,}",
        f"{len(count):,}",
        f"{len(sentences) / len(count):.1f}",
        f"{len(words):,}",
    )


class _Read(dict[str, Any]):
    """A record that notes which of its values are read."""

    def __init__(self, pairs: Any) -> None:
        super().__init__(pairs)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, and note that it was read."""
        self.read.add(key)
        return super().get(key, default)


def mean_share_read(name: str, length: int) -> float:
    """Return the mean of `share_read` over states of a task."""
    return fmean(share_read(start(name, length, seed)) for seed in range(SHARE_SEEDS))


def share_read(world: Any) -> float:
    """Return the share of a state's tokens that are values which the reference plan reads."""
    office, length = pickle.loads(pickle.dumps(world.office)), counter("cl100k_base").length
    total, read = 0, 0

    def play(step: Step) -> str:
        nonlocal total, read
        if step.learn is None:
            return ""
        text = str(office.call(step.call.name, step.call.arguments))
        if not step.changes:
            total += length(text)
            read += sum(map(length, values_read(step.learn, text)))
        return text

    for _ in steps_of(world.plan, play):
        pass
    return read / total


def values_read(learn: Callable[[str], Any], text: str) -> list[str]:
    """Return the values of a result that are read to learn from it; all of a text without keys."""
    if text[:1] not in ("[", "{"):
        return [text]
    values: list[Any] = []
    loads = json.loads

    def noting(source: str, **options: Any) -> Any:
        values.append(loads(source, object_pairs_hook=_Read, **options))
        return values[-1]

    # Servers and the progress of a plan parse JSON too, so this lasts for one result only.
    json.loads = noting
    try:
        learn(text)
    finally:
        json.loads = loads
    return [str(leaf) for value in values for leaf in _leaves(value)]


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the values in records that were read."""
    if isinstance(value, _Read):
        for key in value.read & value.keys():
            yield from _leaves(dict.__getitem__(value, key))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DAY = re.compile(rf"(\d{{4}})-(\d\d)-(\d\d)|(\d+) ({_MONTHS})|({_MONTHS}) (\d+)")
_NO_EXAM = re.compile(
    r"no final exam|without a final|exempt from|called off|cancel|not take place", re.I
)


def find_exams(world: Any) -> float:
    """Return the share of the rows of CanvasArrangeExam that regular expressions find, in the
    newest text about the final exam of a course: its first day, time, duration and room.
    """
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
    """Return the share of the reminders of SetConfCrDdl that regular expressions find: in the
    newest mail with the short name, the track and the word camera-ready, the last day.
    """
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
    """Return the overlap with the professors of ApplyPhDEmail: whose newest mail has a structure,
    with and without a word of having no need of it.
    """
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
    """Return the share of two sets that is in both."""
    one, two = set(found), set(right)
    return len(one & two) / max(1, len(one | two))


def find_coursework(world: Any) -> float:
    """Return the overlap with the quizzes and assignments of CanvasListTest: due, without a word of
    being voluntary, not in an announcement of its end, and without an exemption by its last number.
    """
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
    """Return the overlap of what fits by its fields with the right answer, with all of it or without
    those whose texts have a pattern, whichever is better.
    """
    rest = [key for key, text in texts.items() if not re.search(pattern, text, re.I)]
    right = list(right)
    return max(overlap(texts, right), overlap(rest, right))


def find_students(world: Any) -> float:
    """Return the overlap with the submissions of CourseAssistant: mails with the right subject and a
    file, with and without a word of drafts.
    """
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
            # Of several mails the one counts that speaks least of drafts.
            before = texts.get(enrolled[match[1]], mail.body)
            texts[enrolled[match[1]]] = before if not re.search(_DRAFT, before) else mail.body
    every = set(enrolled.values())
    rest = {address for address, text in texts.items() if not re.search(_DRAFT, text)}
    answers = (every - texts.keys(), every - rest)
    return max(overlap(answer, world.truth["missing"]) for answer in answers)


def find_slow(world: Any) -> float:
    """Return the overlap with the products of FilterLowSellingProducts: by their fields, with and
    without a negation beside the outlet.
    """
    texts = {}
    for item in world.office.get(WooCommerce).products.all():
        custom = {meta["key"]: int(meta["value"]) for meta in item["meta_data"]}
        slow = item["date_created"] < "2024-10-17" and custom["sales_last_30_days"] < 10
        if slow and item["status"] == "publish" and item["stock_status"] == "instock":
            texts[item["id"]] = item["description"]
    kept = r"(never|not|no|excluded)\b.*(outlet|clear)"
    return best_overlap(texts, kept, [row["Product ID"] for row in world.truth["rows"]])


def find_payments(world: Any) -> float:
    """Return the share of the invoices of PayableInvoiceChecker whose payment is the whole, nothing or
    the sum of the amounts beside a word of paying.
    """
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
    """Return the overlap with the alerts of WoocommerceStockAlert: by their fields, with and without a
    word of the end of a product.
    """
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


_NO_MAILS = (
    r"\b(no|not|never|nothing|object|delete|forget|without|leave|off|out of)\b.*"
    r"(mail|newsletter|list|write|advert|offer|address|afterwards|it\b)"
)


def find_customers(world: Any) -> float:
    """Return the overlap with the new customers of WoocommerceNewWelcome: with one order of the last
    days, with and without a refusal of mails in its note that no later sentence welcomes.
    """
    shop = world.office.get(WooCommerce)
    hours = next(
        float(row["value"])
        for row in shop.settings.woo_settings_get("general")
        if row["id"] == "gmt_offset"
    )
    crm = world.office.get(GoogleCloud).bigquery.rows(DATASET, TABLE)
    known = {row["woocommerce_id"] for row in crm}
    notes: dict[str, list[str]] = {}
    for order in shop.orders.all():
        done = order.get("date_completed")
        since = f"{FROM + timedelta(hours=hours):%Y-%m-%dT%H:%M:%S}"
        if done and done >= since and order["customer_id"] and order["customer_id"] not in known:
            note = order.get("customer_note") or ""
            welcome = r"do write|welcome|after all|second thought|take that back"
            texts = re.split(rf"[^.]*(?:{welcome})[^.]*", note, flags=re.I)
            notes.setdefault(order["billing"]["email"], []).append(texts[-1])
    single = {address: texts[0] for address, texts in notes.items() if len(texts) == 1}
    return best_overlap(single, _NO_MAILS, [to for to, _, _ in world.truth["letters"]])


_PRODUCT = re.compile(r"Gift Card|Assembly|[A-Z][a-z]+ \d{3,}")
_OTHER_ORDERS = (
    r"last|next|year|spring|summer|autumn|former|old order|brother|aunt|neighbour|her|will"
)
_COUNT = re.compile(r"\b(?:one|two|three|four|five|six|\d+)\b")


def find_pieces(world: Any) -> float:
    """Return the share of the paid orders of UpdateMaterialInventory whose pieces are right: those of
    the lines, or these with the changes that regular expressions find in notes.
    """
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
    """Return the pieces of an order by regular expressions."""
    now, words = _lines(order), "zero one two three four five six".split()
    note = order.get("customer_note") or ""
    ends = r"cancel|withdraw|refund me\.|void|the order is off|order, the right"
    if re.search(ends, note) and not re.search(r"after all|keep the order|order stands", note):
        return dict.fromkeys(now, 0)
    for text in re.split(r"(?<=[.!?]) ", note):
        name = _PRODUCT.search(text)
        if not name or re.search(_OTHER_ORDERS, text, re.I):
            continue
        count = _COUNT.search(_PRODUCT.sub("", text))
        number = (
            0 if not count else int(count[0]) if count[0][0].isdigit() else words.index(count[0])
        )
        before = now[name[0]]
        if re.search(r"double|twice", text):
            now[name[0]] = 2 * before
        elif re.search(r"more|add|extra|another|Raise|Increase|up by", text):
            now[name[0]] = before + number
        elif re.search(r"fewer|less|off|Reduce|subtract|Lower|give up|down by|too many", text):
            now[name[0]] = max(0, before - number)
        elif number or re.search(
            r"leave out|strike|not make|without|against|No |no longer", text, re.I
        ):
            now[name[0]] = number
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
"""What finds the answer of a task without reading."""


if __name__ == "__main__":
    main(sys.argv[1:])
