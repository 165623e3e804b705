"""Register and welcome the new customers of a shop (LOCA-bench, table 7)."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import numpy as np

from agentgym.envs.loca.catalog import in_decimals
from agentgym.envs.loca.checks import digest, file_state, parts_of, same_subject, says, set_failures
from agentgym.envs.loca.draws import address, people, pick, shuffled, text_of
from agentgym.envs.loca.fragments import Record, fields_of, fill_letter, read_shop, send_letter
from agentgym.envs.loca.plan import Plan, read, write
from agentgym.envs.loca.published.files import Rows
from agentgym.envs.loca.results import query_rows
from agentgym.envs.loca.service_checks import bigquery_failures, bigquery_state
from agentgym.envs.loca.task import OfficeConfig, OfficeTask
from agentgym.envs.loca.tasks.customer_rows import (
    BILLING,
    CREDENTIALS,
    DATASET,
    FROM,
    NOW,
    TABLE,
    TEMPLATE,
    TODAY,
    TYPES,
    customer_failures,
    row_of,
    settle_rows,
    without_own,
)
from agentgym.envs.loca.writing.order_notes import declines_mails, draw_mail_wish
from agentgym.office.email.server import Email
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.office.woocommerce.server import WooCommerce
from agentgym.text.tools import ToolError

ME = "admin@woocommerce.local"
PASSWORD = "admin-2025-{}"
SHOP = "Harbour Books"
LETTER = text_of("letters", "WoocommerceNewWelcome")

PRODUCTS = tuple(
    (
        "Atlas|Calendar|Comic|Cookbook|Crime novel|Dictionary|Notebook|Picture book|Poems|"
        "Travel guide"
    ).split("|")
)
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

# A customer and the time at which an order was completed.
Completion: TypeAlias = tuple[int, datetime]
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
        shop = self.office.get(WooCommerce)
        cloud = self.office.get(GoogleCloud)
        shop.settings.update("woocommerce_currency", "EUR")
        shop.settings.update("gmt_offset", str(pick(self.rng, [-8, -5, 2, 9])))
        histories = self._histories(size)
        others = 15 + size // 10  # number of table rows about customers without orders
        everybody = self._customers(len(histories) + others)
        customers = everybody[: len(histories)]
        # Guests order without an account.
        has_account = [kind != "guest" for kind, _ in histories]
        ids = iter(shop.customers.add_all(list(itertools.compress(customers, has_account))))
        owners, known_customers = [], []
        for customer, (kind, _) in zip(customers, histories, strict=True):
            owners.append(0 if kind == "guest" else next(ids))
            if kind == "known":
                known_customers.append((owners[-1], customer))
        orders = self._orders(shop, owners, customers, histories)
        keys = (90_000 + self.rng.permutation(2 * others)).tolist()
        strangers = zip(keys, everybody[len(histories) :], strict=False)
        rows = self._rows([*known_customers, *strangers])
        table = [tuple(row.values()) for row in rows]
        cloud.bigquery.load(DATASET, TABLE, TYPES, table)
        cloud.bigquery.load(DATASET, f"{TABLE}_2024", TYPES, table[:5])
        email = self.office.get(Email)
        email.add_user(ME, self._write_files(), SHOP)
        new: list[Record] = []
        letters = []
        last = max((row["id"] for row in rows), default=0)
        history_by_owner = dict(zip(owners, zip(customers, histories, strict=True), strict=True))
        for owner in sorted(history_by_owner.keys() - dict(known_customers).keys() - {0}):
            customer, (_, moments) = history_by_owner[owner]
            inside = [moment for moment in moments if moment >= FROM]
            if len(inside) == 1 and not orders[owner, inside[0]][2]:
                row = row_of(last + len(new) + 1, owner, customer, min(moments))
                new.append({**row, "welcome_email_sent": True})
                letters.append(_letter(LETTER, customer, orders[owner, inside[0]][:2], inside[0]))
        tables = bigquery_state(cloud, DATASET)
        del tables[f"{DATASET}.{TABLE}"]  # the check compares its rows
        self.truth = {
            "rows": [*cloud.bigquery.rows(DATASET, TABLE), *new],
            "letters": letters,
            "tables": tables,
            "shop": digest(shop.store, *PROTECTED),
            "users": email.users(),
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
        self,
        shop: WooCommerce,
        owners: Sequence[int],
        customers: Rows,
        histories: Sequence[History],
    ) -> dict[Completion, tuple[int, str, bool]]:
        prices = [self.whole(500, 6000) for _ in PRODUCTS]  # prices in cents
        products = shop.products.add_all(
            {"name": name, "regular_price": in_decimals(price)}
            for name, price in zip(PRODUCTS, prices, strict=True)
        )
        records, declining = self._completed(owners, customers, histories)
        records += self._incomplete(owners, customers, len(records))
        totals: dict[Completion, str] = {}
        for record in records:
            place = self.whole(len(products))
            count = self.whole(1, 4)
            record["line_items"] = [{"product_id": products[place], "quantity": count}]
            if "date_completed" in record:
                totals[_moment(record)] = in_decimals(count * prices[place])
        records = shuffled(self.rng, records)
        orders = {}
        for key, record in zip(shop.orders.add_all(records), records, strict=True):
            if "date_completed" in record:
                moment = _moment(record)
                orders[moment] = key, totals[moment], moment in declining
        return orders

    def _completed(
        self,
        owners: Sequence[int],
        customers: Rows,
        histories: Sequence[History],
    ) -> tuple[list[Record], set[Completion]]:
        records, declining = [], set()
        sure = next(k for k, (kind, _) in enumerate(histories) if kind == "new")
        for k, (owner, customer, (_, moments)) in enumerate(
            zip(owners, customers, histories, strict=True)
        ):
            for moment in moments:
                created = moment - timedelta(minutes=self.whole(30, 14_400))
                declined = k != sure and self.happens(_DECLINED_RATE)
                if declined:
                    declining.add((owner, moment))
                records.append(
                    {
                        "customer_id": owner,
                        "billing": customer["billing"],
                        "status": "completed",
                        "date_created": created,
                        "date_completed": moment,
                        "customer_note": draw_mail_wish(self.rng, declined=declined),
                    }
                )
        return records, declining

    def _incomplete(
        self, owners: Sequence[int], customers: Rows, completed: int
    ) -> Iterator[Record]:
        for _ in range(round(_INCOMPLETE * completed)):
            k = self.whole(len(owners))
            created = NOW - timedelta(minutes=self.whole(30, 10_000))
            declined = bool(self.happens(_DECLINED_RATE))
            note = draw_mail_wish(self.rng, declined=declined)
            yield {
                "customer_id": owners[k],
                "billing": customers[k]["billing"],
                "date_created": created,
                "status": pick(self.rng, OTHER_STATUSES),
                "customer_note": note,
            }

    def _rows(self, customers: Sequence[tuple[int, Mapping[str, Any]]]) -> list[Record]:
        numbers = np.sort(1 + self.rng.permutation(2 * len(customers))[: len(customers)])
        rows: list[Record] = []
        for number, place in zip(numbers, self.rng.permutation(len(customers)), strict=True):
            day = NOW - timedelta(days=self.whole(8, 200))
            sent = bool(self.happens(0.8))
            when = f"{day:%Y-%m-%d}"
            rows.append(
                {
                    **row_of(int(number), *customers[int(place)], day),
                    "welcome_email_sent": sent,
                    "welcome_email_date": when if sent else None,
                    "sync_date": when,
                }
            )
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
        table = yield replace(step, mark_own=without_own)
        known_owners = {row[1] for row in table}
        last = max((row[0] for row in table), default=0)
        rows: list[Record] = []
        letters = []
        for owner, order, moment, first in _new_orders(orders, known_owners, hours):
            row = row_of(last + len(rows) + 1, owner, order, first)
            rows.append({**row, "welcome_email_sent": True})
            paid = order["id"], order["total"]
            to, subject, body = _letter(letter, order, paid, moment)
            letters.append(send_letter(f"Welcome {to}.", self.outputs[1], to, (subject, body)))
        yield (yield from settle_rows(self.outputs[0], rows, known_owners))
        yield write(
            "Log in to the mail server.", self.outputs[1], "login", email=user, password=password
        )
        yield letters

    def own_records(self) -> Sequence[Any]:
        """Return the id and customer of each row that was not in the table at the start."""
        try:
            rows = self.office.get(GoogleCloud).bigquery.rows(DATASET, TABLE)
        except ToolError:
            return ()
        initial = []
        for row in self.truth["rows"]:
            if row["sync_date"] != TODAY:
                initial.append([row["id"], row["woocommerce_id"]])
        pairs = [[row.get("id"), row.get("woocommerce_id")] for row in rows]
        return [pair for pair in pairs if pair not in initial]

    def task_failures(self) -> Iterator[str]:
        cloud = self.office.get(GoogleCloud)
        email = self.office.get(Email)
        truth = self.truth
        yield from self.outlook.derive(
            "customers", cloud.engine.version(), lambda: list(self._customer_failures(cloud))
        )
        yield from self._mail_failures(email)
        if digest(self.office.get(WooCommerce).store, *PROTECTED) != truth["shop"]:
            yield "something in the shop was changed"
        if email.users() != truth["users"]:
            yield "a user was added to the mail server"
        yield from bigquery_failures(cloud, truth["tables"])

    def _customer_failures(self, cloud: GoogleCloud) -> Iterator[str]:
        try:
            rows = cloud.bigquery.rows(DATASET, TABLE)
        except ToolError as error:
            rows = []
            yield f"{DATASET}.{TABLE}: {error}"
        if rows and list(rows[0]) != list(TYPES):
            yield f"{DATASET}.{TABLE} has other columns than before"
        yield from customer_failures(rows, self.truth["rows"])

    def _mail_failures(self, email: Email) -> Iterator[str]:
        letters = {to: (subject, body) for to, subject, body in self.truth["letters"]}
        mails = email.sent()
        recipients = [", ".join(mail.recipients) for mail in mails]
        yield from set_failures("welcome mails", recipients, list(letters))
        for to, mail in zip(recipients, mails, strict=True):
            subject, body = letters.get(to, (mail.subject, parts_of(mail)[0]))
            if not same_subject(mail, subject) or not says(mail, body):
                yield f"the mail to {mail.to} does not match the template"
            if mail.attachments:
                yield f"the mail to {mail.to} has attachments"


def _new_orders(
    orders: Iterable[Record], known_owners: Collection[int], hours: float
) -> Iterator[tuple[int, Record, datetime, datetime]]:
    by_owner: dict[int, list[Record]] = {}
    for order in orders:
        by_owner.setdefault(order["customer_id"], []).append(order)
    for owner in sorted(by_owner.keys() - known_owners):
        # Like the tool results, these times are in the shop's time zone.
        local = [datetime.fromisoformat(f"{each['date_completed']}Z") for each in by_owner[owner]]
        dates = [moment - timedelta(hours=hours) for moment in local]
        recent = [k for k, moment in enumerate(dates) if FROM <= moment <= NOW]
        if len(recent) == 1 and not by_owner[owner][recent[0]]["declined"]:
            yield owner, by_owner[owner][recent[0]], dates[recent[0]], min(dates)


def _moment(order: Mapping[str, Any]) -> Completion:
    return order["customer_id"], order["date_completed"]


def _letter(
    template: str, person: Mapping[str, Any], order: tuple[int, str], moment: datetime
) -> tuple[str, str, str]:
    values = {
        **person["billing"],
        "order_id": order[0],
        "order_total": order[1],
        "completed_date": f"{moment:%Y-%m-%d}",
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
