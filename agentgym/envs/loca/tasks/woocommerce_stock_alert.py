"""Write low-stock alerts for a shop, in a spreadsheet and by mail (LOCA-bench, table 7)."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Annotated, Any, ClassVar

from pydantic import Field

from agentgym.envs.loca.catalog import add_note, cents, has_note, make_products
from agentgym.envs.loca.checks import (
    as_text,
    digest,
    exact,
    file_state,
    is_blank,
    named_rows,
    number,
    says,
    set_failures,
    table_failures,
)
from agentgym.envs.loca.draws import (
    LAST,
    address,
    load_texts,
    people,
    pick,
    shuffled,
    text_of,
)
from agentgym.envs.loca.fragments import (
    as_records,
    fields_of,
    fill_letter,
    find_spreadsheet,
    read_shop,
    read_table,
    send_letter,
    settle_sheet,
)
from agentgym.envs.loca.plan import Plan, read, write
from agentgym.envs.loca.records import Fields, Grid, Record, Rows
from agentgym.envs.loca.service_checks import other_sheet_failures, other_sheets, values_of
from agentgym.envs.loca.task import OfficeConfig, OfficeTask

ME = "admin@woocommerce.local"
DOMAIN = "mcp.com"
TITLE = "WooCommerce Stock Alert"
ALERTS = "Stock Alert"
SUPPLIERS = "Suppliers"
CONTACTS = "contacts.md"
TEMPLATE = "stock_alert_email_template.md"
COLUMNS = (
    "Product ID",
    "Product Name",
    "SKU",
    "Current Stock",
    "Safety Threshold",
    "Supplier Name",
    "Supplier ID",
    "Supplier Contact",
)
_NUMBERS = ("Product ID", "Current Stock", "Safety Threshold")
CELLS = dict.fromkeys(COLUMNS, exact) | dict.fromkeys(_NUMBERS, number())
LETTER = text_of("letters", "WoocommerceStockAlert")
ROLES: Sequence[str] = load_texts("words")["WoocommerceStockAlert"]["roles"]
# Shop tables that the plan does not change.
PROTECTED = tuple("products product_categories categories tags orders customers settings".split())
# Probability that the stock is close to the threshold: one below for products that need an alert,
# and exactly at the threshold for other products.
_BOUNDARY_RATE = 0.25
# Probabilities that a product without an alert was reported before, is unpublished, or is
# discontinued according to the description.
_REPORTED_RATE, _HIDDEN_RATE, _GONE_RATE = 0.35, 0.1, 0.6
_OUTLOOK_RATE = 0.85  # share of the other products that are described as still ordered
_MANAGER = re.compile(r"^- Purchasing manager: .* <(\S+)>$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class WoocommerceStockAlertConfig(OfficeConfig):
    """The size is the number of products.

    Attributes:
        low_stock: The number of products that need an alert, at most the size. Default: 45 for 100
            products.
    """

    low_stock: Annotated[int, Field(ge=1, le=100_000)] | None = None


class WoocommerceStockAlert(OfficeTask[WoocommerceStockAlertConfig]):
    """Add low-stock products to a spreadsheet, and send an email about each product."""

    Config = WoocommerceStockAlertConfig
    servers = ("filesystem", "python_execute", "email", "google_sheet", "woocommerce", "claim_done")
    outputs = ("stock alerts in the spreadsheet", "mails to the purchasing manager")
    mutable_tables = ("google_sheet.sheets", "google_sheet.lines")
    harmless: ClassVar[Mapping[str, str]] = {
        f"google_sheet.sheets/{TITLE}/{ALERTS}.row_count": "empty rows at the end of the sheet of alerts",
        f"google_sheet.sheets/{TITLE}/{ALERTS}.column_count": "empty columns at the end of the sheet of alerts",
    }
    tokens_per_unit = 324.0
    text = text_of("prompts", "WoocommerceStockAlert")

    def draw(self, size: int) -> None:
        low = min(size, self.config.low_stock or max(1, round(0.45 * size)))
        suppliers = self._suppliers(2 + size // 4)
        roles = shuffled(self.rng, ["low"] * low + ["other"] * (size - low))
        products = []
        for k, (product, role) in enumerate(zip(make_products(self.rng, size), roles, strict=True)):
            # Every state contains a product exactly at the threshold.
            stock = self._product(role, first=role == "other" and roles.index("other") == k)
            if stock["role"] == "gone" or self.happens(_OUTLOOK_RATE):
                kind = "gone" if stock["role"] == "gone" else "stays"
                product["description"] = add_note(self.rng, product["description"], kind)
            products.append({**stock, **product, "supplier": pick(self.rng, suppliers)})
        ids = self.shop.products.add_all(list(map(_record, products)))
        rows, old, new = [], [], []
        for key, product in zip(ids, products, strict=True):
            rows.append(_row(key, product))
            if product["role"] == "reported":
                old.append(self._outdated(rows[-1]))
            elif product["role"] == "low":
                new.append(rows[-1])
        older = []  # alerts in another spreadsheet, which do not count
        for k, row in enumerate(rows[:2]):
            older.append(self._outdated({**row, "SKU": f"OLD-{k}", "Product ID": 10**6 + k}))
        self.sheets.add_spreadsheet(f"{TITLE} 2024", {ALERTS: _table(older)})
        old = shuffled(self.rng, old)
        tables: dict[str, list[Any]] = {
            ALERTS: _table(old),
            SUPPLIERS: [("Supplier ID", "Supplier Name", "Supplier Contact"), *suppliers],
        }
        spreadsheet = self.sheets.add_spreadsheet(TITLE, tables)
        self.truth = {
            "new": new,
            "old": old,
            "manager": self._write_files(),
            "sheet": spreadsheet,
            "shop": digest(self.shop.store, *PROTECTED),
            "files": file_state(self.files),
            "sheets": other_sheets(self.sheets, spreadsheet, ALERTS),
            "users": self.email.users(),
        }

    def _suppliers(self, count: int) -> list[tuple[str, str, str]]:
        """Draw suppliers with an id, a name and an email address."""
        suppliers = []
        for serial in map(int, self.rng.permutation(2 * count)[:count]):
            name = f"{self.rng.choice(LAST)} {self.rng.choice(['Supply', 'Supply Co', 'Trading', 'Wholesale'])}"
            box = pick(self.rng, ["sales", "orders", "info"])
            contact = address(box, serial, f"{name.lower().replace(' ', '-')}.example.com")
            suppliers.append((f"SUP-{serial + 100}", name, contact))
        return suppliers

    def _product(self, role: str, first: bool) -> Record:
        threshold = self.whole(8, 51)
        edge = self.rng.random() < _BOUNDARY_RATE
        below = self.whole(0, threshold)
        product = {
            "role": role,
            "threshold": threshold,
            "stock": below,
            "status": "publish",
            "price": cents(self.rng, 300, 9_000),
        }
        if role == "low":
            if edge:
                return {**product, "stock": threshold - 1}
            # Backorders can make the stock negative.
            return {**product, "stock": -2 if self.happens(0.05) else below}
        if not first and self.rng.random() < _GONE_RATE:
            return {**product, "role": "gone"}
        kind = self.rng.random()
        plenty = threshold + self.whole(1, 100)
        if edge or first:
            return {**product, "stock": threshold}
        if kind < _REPORTED_RATE:
            stock = below if self.happens(0.7) else plenty
            return {**product, "role": "reported", "stock": stock}
        if kind < _REPORTED_RATE + _HIDDEN_RATE:
            return {**product, "status": pick(self.rng, ["draft", "private"])}
        return {**product, "stock": None if self.happens(0.08) else plenty}

    def _outdated(self, row: Fields) -> Record:
        return {**row, "Current Stock": self.whole(0, row["Safety Threshold"])}

    def _write_files(self) -> str:
        users, lines = [], []
        for k, name in enumerate(people(self.rng, len(ROLES))):
            mail = address(name, k + 1, DOMAIN)
            users.append((mail, "", name))
            lines.append(f"- {ROLES[k]}: {name} <{mail}>")
        self.email.add_users([(ME, "admin-2025", "Shop Admin"), *users])
        self.email.login_as(ME)
        text = "\n".join(["# Whom to write to", "", *shuffled(self.rng, lines), ""])
        self.files.write(CONTACTS, text)
        self.files.write(TEMPLATE, LETTER)
        return users[0][0]

    def plan(self) -> Plan:
        manager = yield read(
            "Read the contacts.",
            lambda text: str(_MANAGER.findall(text)[0]),
            "read_text_file",
            path=CONTACTS,
        )
        letter = yield read("Read the template.", str, "read_text_file", path=TEMPLATE)
        sheet = yield find_spreadsheet(TITLE)
        alerts = yield read_table(sheet, ALERTS)
        contacts = yield read_table(sheet, SUPPLIERS)
        low = yield from read_shop(
            "the products", "woo_products_list", _read_low, orderby="id", order="asc"
        )
        old = []
        for k, row in enumerate(alerts["rows"]):
            if k not in alerts["own"] and not is_blank(row):
                old.append(row)
        reported = {row[2] for row in old[1:]}
        suppliers = {row[0]: row for row in contacts["rows"][1:]}
        rows = []
        for product in low:
            if product[2] not in reported:
                supplier = suppliers[product[5]]
                rows.append([*product[:5], supplier[1], supplier[0], supplier[2]])
        where = {"spreadsheet_id": sheet, "sheet": ALERTS}
        last = len(old) + len(rows)
        earlier = [dict(zip(COLUMNS, row, strict=False)) for row in old[1:]]
        new = as_records(COLUMNS, rows)
        step = functools.partial(write, thing="spreadsheets", **where)
        entries = yield from settle_sheet(
            functools.partial(step, "Add the rows.", self.outputs[0], "update_cells"),
            where,
            [*old, *rows],
            f"A{len(old) + 1}:H{last}",
            lambda table: not any(_alert_failures(table, earlier, new)),
        )
        missing = last - alerts["room"]
        if entries and missing > 0:
            label = "Make room in the sheet."
            yield step(label, self.outputs[0], "add_rows", count=missing, start_row=alerts["room"])
        letters = []
        for row in rows:
            label = f"Write to the purchasing manager about {row[2]}."
            letters.append(send_letter(label, self.outputs[1], manager, _letter(letter, row)))
        yield [*entries, *letters]

    def task_failures(self) -> Iterator[str]:
        truth = self.truth
        yield from other_sheet_failures(self.sheets, truth["sheet"], ALERTS, truth["sheets"])
        table = values_of(self.sheets, truth["sheet"], ALERTS)
        yield from self.outlook.derive(
            "alerts",
            self.sheets.store.version(),
            lambda: list(_alert_failures(table, truth["old"], truth["new"])),
        )
        yield from self._mail_failures()
        if digest(self.shop.store, *PROTECTED) != truth["shop"]:
            yield "something in the shop was changed"

    def _mail_failures(self) -> Iterator[str]:
        letters = self.outlook.derive("letters", "", self._letters)
        mails = self.email.sent()
        addressed = [(", ".join(mail.recipients), " ".join(mail.subject.split())) for mail in mails]
        expected = [(self.truth["manager"], subject) for subject in letters]
        yield from set_failures("mails", addressed, expected)
        for mail in mails:
            body = letters.get(" ".join(mail.subject.split()))
            if body is not None and not says(mail, body):
                yield f"the text of the mail {mail.subject!r} does not match the template"
            if mail.attachments:
                yield f"the mail {mail.subject!r} has attachments"
        if self.email.users() != self.truth["users"]:
            yield "a user was added to the mail server"

    def _letters(self) -> dict[str, str]:
        return dict(_letter(LETTER, list(row.values())) for row in self.truth["new"])


def _alert_failures(
    table: Grid,
    old: Rows,
    new: Rows,
) -> Iterator[str]:
    yield from table_failures(ALERTS, table, [*old, *new], CELLS, ("SKU",))
    _, rows = named_rows(table, COLUMNS)
    earlier = [as_text(row["SKU"]) for row in old]
    if [as_text(row["SKU"]) for row in rows[: len(earlier)]] != earlier:
        yield f"{ALERTS}: the initial rows must come first, in their original order"


def _record(product: Fields) -> Record:
    record = fields_of(product, "name", "sku", "description", "status")
    if product["threshold"] % 3 == 0:  # a shop field that the task does not use
        record["low_stock_amount"] = product["threshold"] // 3
    age = timedelta(minutes=int(product["sku"][-6:]) % 500_000)
    return {
        **record,
        "regular_price": product["price"],
        "categories": [product["department"]],
        "meta_data": {
            "stock_threshold": str(product["threshold"]),
            "supplier_id": product["supplier"][0],
        },
        "stock_quantity": product["stock"],
        "backorders": "notify",
        "date_created": datetime(2024, 1, 1, tzinfo=UTC) + age,
    }


def _table(rows: Rows) -> list[tuple[Any, ...]]:
    return [COLUMNS, *(tuple(row.values()) for row in rows)]


def _row(key: int, product: Fields) -> Record:
    supplier, name, contact = product["supplier"]
    facts = itemgetter("name", "sku", "stock", "threshold")(product)
    return dict(zip(COLUMNS, (key, *facts, name, supplier, contact), strict=True))


def _letter(template: str, row: list[Any]) -> tuple[str, str]:
    values = {}
    for column, cell in zip(COLUMNS, row, strict=True):
        values[column.lower().replace(" ", "_")] = as_text(cell)
    return fill_letter(template, values)


def _read_low(product: Record) -> list[Any] | None:
    custom = {meta["key"]: meta["value"] for meta in product["meta_data"]}
    stock = product.get("stock_quantity")
    threshold = int(custom["stock_threshold"])
    is_low = product["status"] == "publish" and stock is not None and stock < threshold
    if not is_low or has_note(product["description"], "gone"):
        return None
    return [product["id"], product["name"], product["sku"], stock, threshold, custom["supplier_id"]]
