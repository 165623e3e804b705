"""Register and welcome the new customers of a shop (LOCA-bench, table 7)."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import numpy as np

from agentgym.envs.loca.calls import Effects
from agentgym.envs.loca.catalog import in_decimals
from agentgym.envs.loca.checks import (
    digest,
    file_state,
    identical,
    parts_of,
    row_failures,
    same_subject,
    says,
    set_failures,
)
from agentgym.envs.loca.draws import address, load_texts, people, pick, shuffled, text_of
from agentgym.envs.loca.fragments import fields_of, fill_letter, read_shop, send_letter
from agentgym.envs.loca.plan import Piece, Plan, look, read, write
from agentgym.envs.loca.records import Fields, Record, Rows
from agentgym.envs.loca.results import query_rows
from agentgym.envs.loca.service_checks import bigquery_failures, bigquery_state
from agentgym.envs.loca.task import OfficeConfig, OfficeTask
from agentgym.envs.loca.writing.order_notes import declines_mails, draw_mail_wish
from agentgym.office.context import iso
from agentgym.text.tools import ToolError

DATASET = "woocommerce_crm"
TABLE = "customers"
TEMPLATE = "welcome_email_template.md"
CREDENTIALS = "admin_credentials.txt"

NOW = datetime(2025, 11, 20, 9, tzinfo=UTC)
FROM = NOW - timedelta(days=7)  # the earliest order time that counts
TODAY = f"{NOW:%Y-%m-%d}"
TYPES = {
    "id": "INT64",
    "woocommerce_id": "INT64",
    "email": "STRING",
    "first_name": "STRING",
    "last_name": "STRING",
    "phone": "STRING",
    "first_order_date": "TIMESTAMP",
    "welcome_email_sent": "BOOL",
    "welcome_email_date": "DATE",
    "sync_date": "DATE",
    "metadata": "STRING",
}
# Columns that are copied from the billing address.
BILLING = ("email", "first_name", "last_name", "phone")
CHUNK = 200  # maximum rows per statement

ME = "admin@woocommerce.local"
PASSWORD = "admin-2025-{}"
SHOP = "Harbour Books"
LETTER = text_of("letters", "WoocommerceNewWelcome")

PRODUCTS: Sequence[str] = load_texts("words")["WoocommerceNewWelcome"]["products"]
OTHER_STATUSES = ("pending", "processing", "on-hold", "cancelled", "failed")
# Shop tables that the plan does not change.
PROTECTED = tuple("orders items customers products categories notes settings".split())
# Probability of each history; "at the edge" means exactly seven days old, or a second older.
HISTORIES = {
    "new": 0.34,
    "new and old": 0.1,
    "new at the edge": 0.04,
    "new after the edge": 0.04,
    "several": 0.14,
    "several at the edge": 0.04,
    "old": 0.1,
    "old at the edge": 0.04,
    "known": 0.1,
    "guest": 0.06,
}

# Probability that a customer declines emails in an order note.
_DECLINED_RATE = 0.25
_INCOMPLETE = 0.25  # number of incomplete orders per completed order

# A kind of history, and the times at which orders were completed.
History: TypeAlias = tuple[str, list[datetime]]


class WoocommerceNewWelcome(OfficeTask[OfficeConfig]):
    """Find customers with exactly one completed order in the last seven days, add these customers to
    a table, and send each customer an email.

    The size is the number of completed orders.
    """

    servers = ("filesystem", "python_execute", "email", "google_cloud", "woocommerce", "claim_done")
    start = NOW
    outputs = (f"rows in {DATASET}.{TABLE}", "welcome mails")
    tokens_per_unit = 433.0
    text = text_of("prompts", "WoocommerceNewWelcome")

    def draw(self, size: int) -> None:
        self.shop.settings.update("woocommerce_currency", "EUR")
        self.shop.settings.update("gmt_offset", str(pick(self.rng, [-8, -5, 2, 9])))
        histories = self._histories(size)
        others = 15 + size // 10  # number of table rows about customers without orders
        everybody = self._customers(len(histories) + others)
        customers = everybody[: len(histories)]
        # Guests order without an account.
        has_account = [kind != "guest" for kind, _ in histories]
        ids = iter(self.shop.customers.add_all(list(itertools.compress(customers, has_account))))
        owners, known_customers = [], []
        for customer, (kind, _) in zip(customers, histories, strict=True):
            owners.append(0 if kind == "guest" else next(ids))
            if kind == "known":
                known_customers.append((owners[-1], customer))
        orders = self._orders(owners, customers, histories)
        keys = (90_000 + self.rng.permutation(2 * others)).tolist()
        strangers = zip(keys, everybody[len(histories) :], strict=False)
        rows = self._rows([*known_customers, *strangers])
        table = [tuple(row.values()) for row in rows]
        self.cloud.bigquery.load(DATASET, TABLE, TYPES, table)
        self.cloud.bigquery.load(DATASET, f"{TABLE}_2024", TYPES, table[:5])
        self.email.add_user(ME, self._write_files(), SHOP)
        last = max((row["id"] for row in rows), default=0)
        new, letters = _welcome(orders, {0, *dict(known_customers)}, last, LETTER)
        tables = bigquery_state(self.cloud, DATASET)
        del tables[f"{DATASET}.{TABLE}"]  # the check compares its rows
        self.truth = {
            "rows": [*self.cloud.bigquery.rows(DATASET, TABLE), *new],
            "letters": letters,
            "tables": tables,
            "shop": digest(self.shop.store, *PROTECTED),
            "users": self.email.users(),
            "files": file_state(self.files),
        }

    def _histories(self, size: int) -> list[History]:
        stories = ["new", *map(str, self.rng.permutation(list(HISTORIES)))]
        histories: list[History] = []
        left = size
        while left:
            if len(histories) < len(stories):
                story = stories[len(histories)]
            else:
                story = str(self.rng.choice(list(HISTORIES), p=list(HISTORIES.values())))
            moments = self._moments(story)[:left]
            left -= len(moments)
            histories.append((story, moments))
        return shuffled(self.rng, histories)

    def _moments(self, story: str) -> list[datetime]:
        before = FROM - timedelta(seconds=1)
        ages = 3_600 + self.rng.choice(7 * 86_400 - 7_200, 3, replace=False)
        inside = [NOW - timedelta(seconds=age) for age in ages.tolist()]
        ages = 3_600 + self.rng.choice(30 * 86_400, 2, replace=False)
        old = [FROM - timedelta(seconds=age) for age in ages.tolist()]
        return {
            "new at the edge": [FROM],
            "new after the edge": [inside[0], before],
            "new and old": [inside[0], *old[: 1 + self.whole(2)]],
            "several": inside[: 2 + self.whole(2)],
            "several at the edge": [inside[0], FROM],
            "old": old[: 1 + self.whole(2)],
            "old at the edge": [before],
        }.get(story, inside[:1])

    def _customers(self, count: int) -> list[Record]:
        customers = []
        for k, name in enumerate(people(self.rng, count)):
            first, _, last = name.rpartition(" ")
            mail = address(name, k + 1, pick(self.rng, ["mail.example.com", "post.example.org"]))
            person = {"first_name": first, "last_name": last, "email": mail}
            home = {
                "phone": f"+49 170 {self.whole(1_000_000, 9_999_999)}",
                "city": pick(self.rng, ["Bremen", "Hamburg", "Kiel", "Lübeck", "Rostock"]),
                "country": "DE",
            }
            customers.append({**person, "billing": {**person, **home}})
        return customers

    def _orders(
        self, owners: Sequence[int], customers: Rows, histories: Sequence[History]
    ) -> list[Record]:
        """Add orders to the shop, and return the completed orders."""
        prices = [self.whole(500, 6000) for _ in PRODUCTS]  # prices in cents
        products = self.shop.products.add_all(
            {"name": name, "regular_price": in_decimals(price)}
            for name, price in zip(PRODUCTS, prices, strict=True)
        )
        records = self._completed(owners, customers, histories)
        records += self._incomplete(owners, customers, len(records))
        for record in records:
            place = self.whole(len(products))
            count = self.whole(1, 4)
            record["line_items"] = [{"product_id": products[place], "quantity": count}]
            record["total"] = in_decimals(count * prices[place])
        records = shuffled(self.rng, records)
        facts = [{name: record.pop(name) for name in ("total", "declined")} for record in records]
        orders = []
        for key, record, fact in zip(
            self.shop.orders.add_all(records), records, facts, strict=True
        ):
            if "date_completed" in record:
                orders.append({**record, **fact, "id": key})
        return orders

    def _completed(
        self, owners: Sequence[int], customers: Rows, histories: Sequence[History]
    ) -> list[Record]:
        records = []
        sure = next(k for k, (kind, _) in enumerate(histories) if kind == "new")
        for k, (_, moments) in enumerate(histories):
            for moment in moments:
                created = moment - timedelta(minutes=self.whole(30, 14_400))
                declined = k != sure and self.happens(_DECLINED_RATE)
                record = self._order(owners[k], customers[k], created, declined)
                records.append({**record, "status": "completed", "date_completed": moment})
        return records

    def _incomplete(
        self, owners: Sequence[int], customers: Rows, completed: int
    ) -> Iterator[Record]:
        for _ in range(round(_INCOMPLETE * completed)):
            k = self.whole(len(owners))
            created = NOW - timedelta(minutes=self.whole(30, 10_000))
            declined = self.happens(_DECLINED_RATE)
            record = self._order(owners[k], customers[k], created, declined)
            yield {**record, "status": pick(self.rng, OTHER_STATUSES)}

    def _order(self, owner: int, customer: Fields, created: datetime, declined: bool) -> Record:
        return {
            "customer_id": owner,
            "billing": customer["billing"],
            "date_created": created,
            "customer_note": draw_mail_wish(self.rng, declined=declined),
            "declined": declined,
        }

    def _rows(self, customers: Sequence[tuple[int, Fields]]) -> list[Record]:
        count = len(customers)
        numbers = np.sort(1 + self.rng.permutation(2 * count)[:count]).tolist()
        rows: list[Record] = []
        for number, place in zip(numbers, self.rng.permutation(count).tolist(), strict=True):
            day = NOW - timedelta(days=self.whole(8, 200))
            owner, customer = customers[place]
            row = _row(number, owner, customer, day)
            row["sync_date"] = row["welcome_email_date"] = f"{day:%Y-%m-%d}"
            if not self.happens(0.8):
                row |= {"welcome_email_sent": False, "welcome_email_date": None}
            rows.append(row)
        return shuffled(self.rng, rows)

    def _write_files(self) -> str:
        password = PASSWORD.format(self.whole(1000, 9999))
        self.files.write(CREDENTIALS, f"Mail server\nuser: {ME}\npassword: {password}\n")
        self.files.write(TEMPLATE, LETTER)
        return password

    def plan(self) -> Plan:
        user, password = yield read(
            "Read the credentials.",
            lambda text: re.findall(r"^(?:user|password): (\S+)$", text, re.MULTILINE),
            "read_text_file",
            path=CREDENTIALS,
        )
        letter = yield read("Read the template.", str, "read_text_file", path=TEMPLATE)
        hours = yield read(
            "Read the time zone of the site.", _read_offset, "woo_settings_get", groupId="general"
        )
        orders = yield from read_shop(
            "the completed orders",
            "woo_orders_list",
            _read_order,
            status=["completed"],
            orderby="id",
            order="asc",
        )
        # Leave out all rows that the agent has written: rows from today, and rows in `own_records`.
        step = read(
            "Read the ids in the table.",
            lambda text: [[row["id"], row["woocommerce_id"]] for row in query_rows(text)],
            "bigquery_run_query",
            query=f"SELECT id, woocommerce_id FROM {DATASET}.{TABLE} WHERE sync_date < '{TODAY}'",
            max_results=10_000,
        )
        table = yield replace(step, mark_own=_without_own)
        known_owners = {row[1] for row in table}
        last = max((row[0] for row in table), default=0)
        completed = []
        for order in orders:
            # Like the tool results, these times are in the shop's time zone.
            local = datetime.fromisoformat(f"{order['date_completed']}Z")
            completed.append({**order, "date_completed": local - timedelta(hours=hours)})
        rows, texts = _welcome(completed, known_owners, last, letter)
        letters = []
        for to, subject, body in texts:
            letters.append(send_letter(f"Welcome {to}.", self.outputs[1], to, (subject, body)))
        yield (yield from _settle_rows(self.outputs[0], rows, known_owners))
        yield write(
            "Log in to the mail server.", self.outputs[1], "login", email=user, password=password
        )
        yield letters

    def own_records(self) -> Sequence[Any]:
        """Return the id and customer of each row that was not in the table at the start."""
        try:
            rows = self.cloud.bigquery.rows(DATASET, TABLE)
        except ToolError:
            return ()
        initial = []
        for row in self.truth["rows"]:
            if row["sync_date"] != TODAY:
                initial.append([row["id"], row["woocommerce_id"]])
        pairs = [[row.get("id"), row.get("woocommerce_id")] for row in rows]
        return [pair for pair in pairs if pair not in initial]

    def task_failures(self) -> Iterator[str]:
        truth = self.truth
        yield from self.outlook.derive(
            "customers", self.cloud.engine.version(), lambda: list(self._customer_failures())
        )
        yield from self._mail_failures()
        if digest(self.shop.store, *PROTECTED) != truth["shop"]:
            yield "something in the shop was changed"
        if self.email.users() != truth["users"]:
            yield "a user was added to the mail server"
        yield from bigquery_failures(self.cloud, truth["tables"])

    def _customer_failures(self) -> Iterator[str]:
        try:
            rows = self.cloud.bigquery.rows(DATASET, TABLE)
        except ToolError as error:
            rows = []
            yield f"{DATASET}.{TABLE}: {error}"
        if rows and list(rows[0]) != list(TYPES):
            yield f"{DATASET}.{TABLE} has other columns than before"
        yield from _row_failures(rows, self.truth["rows"])

    def _mail_failures(self) -> Iterator[str]:
        letters = {to: text for to, *text in self.truth["letters"]}
        mails = self.email.sent()
        recipients = [", ".join(mail.recipients) for mail in mails]
        yield from set_failures("welcome mails", recipients, list(letters))
        for to, mail in zip(recipients, mails, strict=True):
            subject, body = letters.get(to, (mail.subject, parts_of(mail)[0]))
            if not same_subject(mail, subject) or not says(mail, body):
                yield f"the mail to {mail.to} does not match the template"
            if mail.attachments:
                yield f"the mail to {mail.to} has attachments"


def _welcome(
    orders: Iterable[Record], known_owners: Collection[int], last: int, template: str
) -> tuple[list[Record], list[tuple[str, str, str]]]:
    """Return the rows and letters of the new customers; `last` is the last id in the table."""
    by_owner: dict[int, list[Record]] = {}
    for order in orders:
        by_owner.setdefault(order["customer_id"], []).append(order)
    rows: list[Record] = []
    letters = []
    for owner in sorted(by_owner.keys() - known_owners):
        recent = [each for each in by_owner[owner] if FROM <= each["date_completed"] <= NOW]
        if len(recent) == 1 and not recent[0]["declined"]:
            first = min(each["date_completed"] for each in by_owner[owner])
            rows.append(_row(last + len(rows) + 1, owner, recent[0], first))
            letters.append(_letter(template, recent[0]))
    return rows, letters


def _letter(template: str, order: Record) -> tuple[str, str, str]:
    values = {
        **order["billing"],
        "order_id": order["id"],
        "order_total": order["total"],
        "completed_date": f"{order['date_completed']:%Y-%m-%d}",
    }
    return values["email"], *fill_letter(template, values)


def _read_order(order: Record) -> Record | None:
    if not order["customer_id"]:
        return None
    return {
        **fields_of(order, "id", "customer_id", "total", "date_completed"),
        "billing": fields_of(order["billing"], *BILLING),
        "declined": declines_mails(order.get("customer_note") or ""),
    }


def _read_offset(text: str) -> float:
    return next(float(each["value"]) for each in json.loads(text) if each["id"] == "gmt_offset")


def _row_failures(rows: Rows, expected: Rows) -> Iterator[str]:
    cells = dict.fromkeys(TYPES, identical)
    yield from row_failures(TABLE, rows, expected, cells, ("woocommerce_id",))


def _without_own(
    rows: list[list[int]], _: Effects, own: Sequence[Sequence[int]]
) -> list[list[int]]:
    return [row for row in rows if row not in own]


def _settle_rows(output: str, rows: Rows, known_owners: Collection[int]) -> Piece:
    """Check a table that off-plan calls changed; return the steps that add the missing rows."""
    query = f"SELECT * FROM {DATASET}.{TABLE} {_own_rows(known_owners)}"
    tool, call = "bigquery_run_query", {"query": query, "max_results": 10_000}
    seen = yield look("tables", "Look at the new rows.", query_rows, tool, **call)
    if seen is not None and not any(_row_failures(seen, rows)):
        return []
    change = functools.partial(write, thing="tables")
    if seen:
        query = f"DELETE FROM {DATASET}.{TABLE} {_own_rows(known_owners)}"
        label = "Remove the new rows, some of which are wrong."
        yield change(label, output, "bigquery_run_query", query=query)
    steps = []
    for k in range(0, len(rows), CHUNK):
        chunk = rows[k : k + CHUNK]
        label = f"Add those of the rows {k + 1} to {k + len(chunk)} of the new customers that the table lacks."
        steps.append(change(label, output, "bigquery_run_query", query=_insert_missing(chunk)))
    return steps


def _own_rows(known_owners: Collection[int]) -> str:
    owners = ", ".join(map(str, sorted(known_owners)))
    others = f" OR woocommerce_id NOT IN ({owners})" if owners else " OR TRUE"
    return f"WHERE sync_date IS NULL OR sync_date >= '{TODAY}'{others}"


def _row(number: int, owner: int, person: Fields, first_order: datetime) -> Record:
    return {
        "id": number,
        "woocommerce_id": owner,
        **fields_of(person["billing"], *BILLING),
        "first_order_date": iso(first_order),
        "welcome_email_sent": True,
        "welcome_email_date": TODAY,
        "sync_date": TODAY,
        "metadata": None,
    }


def _insert_missing(rows: Rows) -> str:
    names = ", ".join(TYPES)
    form = ", ".join(map(" ".join, TYPES.items()))
    return (
        f"INSERT INTO {DATASET}.{TABLE} ({names}) SELECT {names} FROM UNNEST(ARRAY<STRUCT<{form}>>[{_values(rows)}]) "
        f"WHERE woocommerce_id NOT IN (SELECT woocommerce_id FROM {DATASET}.{TABLE})"
    )


def _values(rows: Rows) -> str:
    # For the types in TYPES, JSON literals are valid GoogleSQL literals.
    tuples = []
    for row in rows:
        values = [json.dumps(row[name], ensure_ascii=False) for name in TYPES]
        tuples.append(f"({', '.join(values)})")
    return ", ".join(tuples)
