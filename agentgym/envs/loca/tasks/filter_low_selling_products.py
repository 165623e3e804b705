"""Move slow products to the outlet, and mail all subscribers a table (LOCA-bench, table 7)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, TypeAdapter

from agentgym.envs.loca.catalog import add_note, has_note, make_products
from agentgym.envs.loca.checks import (
    CsvTable,
    digest,
    exact,
    file_state,
    number,
    same_subject,
    says,
    set_failures,
    write_csv,
)
from agentgym.envs.loca.draws import address, people, pick, shuffled, text_of
from agentgym.envs.loca.fragments import (
    create,
    fields_of,
    fill_letter,
    read_shop,
    send_letter,
    settle_file,
)
from agentgym.envs.loca.plan import Plan, look, read, write
from agentgym.envs.loca.published.files import read_json
from agentgym.envs.loca.published.rules import outlet_failures
from agentgym.envs.loca.published.states import (
    PublishedConfig,
    load_mail,
    load_workspace,
    read_products,
)
from agentgym.envs.loca.records import Fields, Record, Rows
from agentgym.envs.loca.task import OfficeTask
from agentgym.office.context import START
from agentgym.office.email.messages import Mail
from agentgym.office.files.workspace import Workspace
from agentgym.text.tools import echo

ME = "admin@woocommerce.local"
DOMAIN = "mcp.com"
OUTLET = "Outlet/Clearance"
SUBSCRIBERS = "subscriber.json"
TEMPLATE = "email_template.txt"
TABLE = "discount_products.csv"
COLUMNS = (
    "Product ID",
    "Product Name",
    "In Stock Since",
    "Original Price",
    "Discounted Price",
    "Discount Ratio",
)
DAYS, SALES = 90, 10  # limits stated in the task prompt
# Probabilities that a product outside the outlet is exactly at a limit, and that only the
# description excludes the product.
_BOUNDARY_RATE, _EXCLUDED_RATE = 0.2, 0.45
# Probability that a description mentions the outlet although the task does not depend on it.
_NOTE_RATE = 0.5
# Probability that a product for the outlet has the same date and discount as another product.
_TIE_RATE = 0.25
_INACTIVE_RATE = 0.15  # share of subscribers who have unsubscribed


def _same_percent(actual: Any, expected: str) -> bool:
    return number(unit="%")(actual, expected.removesuffix("%"))


OFFERS = CsvTable(
    TABLE,
    COLUMNS,
    {
        **dict.fromkeys(COLUMNS, number()),
        "Product Name": exact,
        "In Stock Since": exact,
        "Discount Ratio": _same_percent,
    },
    key=("Product ID",),
    ordered=True,
)
# Discounts in LOCA-bench's states have more than one decimal.
PUBLISHED_OFFERS = replace(
    OFFERS,
    cells={
        **OFFERS.cells,
        "Discount Ratio": lambda cell, wanted: number(0.05, "%")(cell, wanted.removesuffix("%")),
    },
)
LETTER = text_of("letters", "FilterLowSellingProducts")
# Shop tables that the plan does not change. Products are checked separately.
PROTECTED = ("tags", "product_tags", "orders", "customers", "settings")


@dataclass(frozen=True)
class _Subscriber:
    email: str
    name: str


@dataclass(frozen=True)
class _Subscribers:
    subscriber_list: list[_Subscriber]


@dataclass(frozen=True)
class _Metadata:
    timestamp: datetime
    low_selling_products: list[str]


@dataclass(frozen=True, kw_only=True)
class FilterLowSellingProductsConfig(PublishedConfig):
    """The size is the number of products.

    Attributes:
        low_selling: The number of products that move to the outlet, at most the size. Default: 40
            for 100 products.
        subscribers: The number of entries in the subscriber list. Default: 27 for 100 products.
    """

    low_selling: Annotated[int, Field(ge=1, le=100_000)] | None = None
    subscribers: Annotated[int, Field(ge=1, le=10_000)] | None = None


class FilterLowSellingProducts(OfficeTask[FilterLowSellingProductsConfig]):
    """Move slow products to an outlet category, and mail a table of these products to every
    subscriber.
    """

    Config = FilterLowSellingProductsConfig
    servers = ("filesystem", "python_execute", "email", "woocommerce", "claim_done")
    outputs = (f"category {OUTLET}", TABLE, "mails to the subscribers")
    mutable_tables = (
        "woocommerce.products",
        "woocommerce.categories",
        "woocommerce.product_categories",
    )
    harmless: ClassVar[Mapping[str, str]] = {
        "woocommerce.products.date_modified": "when a product was changed last",
        "own:woocommerce.categories.description": "the description of the new category",
        "own:woocommerce.categories.slug": "its name in addresses",
        "own:woocommerce.categories.image": "its picture",
        "own:woocommerce.categories.display": "what its page shows",
        "own:woocommerce.categories.menu_order": "its place in menus",
    }
    tokens_per_unit = 318.0
    text = text_of("prompts", "FilterLowSellingProducts")

    def draw(self, size: int) -> None:
        low = min(size, self.config.low_selling or max(1, round(0.4 * size)))
        roles = shuffled(self.rng, ["low"] * low + ["other"] * (size - low))
        products: list[Record] = []
        slow_products: list[Record] = []
        for drawn, role in zip(make_products(self.rng, size), roles, strict=True):
            if role == "low":
                product = {**drawn, **self._slow(slow_products[-20:])}
                slow_products.append(product)
            else:
                product = {**drawn, **self._other(len(products) - len(slow_products))}
            self._add_note(product, role)
            products.append(product)
        ids = self.shop.products.add_all(list(map(self._record, products)))
        rows = []
        for key, product, role in zip(ids, products, roles, strict=True):
            if role == "low":
                rows.append(_row(key, *itemgetter("name", "since", "regular", "sale")(product)))
        count = self.config.subscribers or max(1, round(0.27 * size))
        letters = self._subscribers(count, len(rows))
        self._set_truth(rows, letters)

    def _load(self, state: Path) -> None:
        load_workspace(state, self.files, [SUBSCRIBERS])
        path = state / "groundtruth_workspace" / "generation_metadata.json"
        metadata = read_json(path, TypeAdapter(_Metadata))
        # Shift all dates, because product ages are relative to the generator's clock.
        products = read_products(state, self.start - metadata.timestamp.replace(tzinfo=UTC))
        ids = self.shop.products.add_all(products)
        rows = []
        for key, product in zip(ids, products, strict=True):
            if product["name"] in metadata.low_selling_products:
                since = product["date_created"].date().isoformat()
                prices = product["regular_price"], product.get("sale_price", "")
                rows.append(_row(key, product["name"], since, *prices))
        names = sorted(row["Product Name"] for row in rows)
        places = {_order(row)[:2] for row in rows}
        if names != sorted(metadata.low_selling_products) or len(places) < len(rows):
            raise ValueError(
                f"{path}: low_selling_products must name products that differ in date or discount"
            )
        path = state / "agent_workspace" / SUBSCRIBERS
        people = read_json(path, TypeAdapter(_Subscribers)).subscriber_list
        load_mail(state, self.email, ME, [person.email for person in people])
        self.email.login_as(ME)
        entries, letters = [], {}
        for person in people:
            entries.append({**vars(person), "status": "active"})
            letters[person.email] = fill_letter(LETTER, {"name": person.name, "count": len(rows)})
        self.files.write(SUBSCRIBERS, json.dumps({"subscribers": entries}, indent=1))
        self._set_truth(rows, letters, published=True)

    def _set_truth(self, rows: list[Record], letters: Fields, **more: Any) -> None:
        self.files.write(TEMPLATE, LETTER)
        news = "# Outlet news\n\nFrom {date} on, {count} products cost less.\n"
        self.files.write("blog_template.md", news)
        example = _row(1, "Example Product", "2024-01-31", "100.00", "87.50")
        self.files.write(TABLE, write_csv(COLUMNS, [example]))
        self.truth = {
            "rows": sorted(rows, key=_order),
            "letters": letters,
            "shop": self._shop_hash(),
            "terms": self._terms(),
            "categories": self.shop.categories.all(),
            "users": self.email.users(),
            "files": file_state(self.files),
            **more,
        }

    def _add_note(self, product: Record, role: str) -> None:
        if product["excluded"] or self.happens(_NOTE_RATE):
            stays = product["excluded"] or (role == "other" and self.happens(0.5))
            kind = "excluded" if stays else "admitted"
            product["description"] = add_note(self.rng, product["description"], kind)

    def _prices(self) -> dict[str, str]:
        regular = Decimal(2 * self.whole(3, 150))
        percent = Decimal(5 * self.whole(4, 21)) / 2
        sale = "" if self.happens(0.1) else f"{regular * (100 - percent) / 100:.2f}"
        return {"regular": f"{regular:.2f}", "sale": sale}

    def _slow(self, before: Rows) -> Record:
        days = DAYS + 1 if self.happens(0.15) else self.whole(DAYS + 1, 365)
        sold = SALES - 1 if self.happens(0.2) else self.whole(0, SALES)
        product = _product(days, sold, {}, excluded=False) | self._prices()
        if before and self.happens(_TIE_RATE):
            twin = pick(self.rng, before)
            product["since"] = twin["since"]
            if Decimal(twin["regular"]) < 10_000:  # prices must not double without limit
                product["regular"] = _double(twin["regular"])
                product["sale"] = _double(twin["sale"])
        elif before and self.happens(0.3):
            product["since"] = before[-1]["since"]
        return product

    def _other(self, others: int) -> Record:
        old = self.whole(DAYS + 1, 365)
        few = self.whole(0, SALES)
        kinds: list[tuple[int, int, dict[str, str]]] = [
            (DAYS, few, {}),
            (old, SALES, {}),
            (self.whole(1, DAYS), self.whole(0, 16), {}),
            (old, self.whole(SALES, 100), {}),
            (old, few, {"stock_status": "outofstock"}),
            (old, few, {"status": pick(self.rng, ["draft", "private"])}),
        ]
        kind = int(self.rng.choice([2, 2, 2, 3, 3, 3, 4, 5]))
        if others < 2:
            kind = others
        elif self.happens(_BOUNDARY_RATE):
            kind = self.whole(2)
        days, sold, state = kinds[kind]
        excluded = others >= 2 and self.happens(_EXCLUDED_RATE)
        if excluded:
            days, sold, state = old, few, {}
        return _product(days, sold, state, excluded) | self._prices()

    def _record(self, product: Fields) -> Record:
        sold = product["sold"] + self.whole(0, 300)
        since = datetime.fromisoformat(product["since"]).replace(tzinfo=UTC)
        return {
            **fields_of(product, "name", "sku", "description"),
            "categories": [product["department"]],
            "regular_price": product["regular"],
            "sale_price": product["sale"],
            "date_created": since + timedelta(minutes=self.whole(0, 1440)),
            "meta_data": {
                "sales_last_30_days": str(product["sold"]),
                "sales_last_90_days": str(sold),
            },
            "total_sales": sold + self.whole(0, 200),
            **product["state"],
        }

    def _subscribers(self, count: int, products: int) -> dict[str, tuple[str, str]]:
        entries: list[Record] = []
        letters = {}
        self.email.add_user(ME, "admin-2025", "Shop Admin")
        self.email.login_as(ME)
        for k, name in enumerate(people(self.rng, count)):
            if k and self.happens(0.08):
                # One person has subscribed twice with different spellings of the same address.
                twice = pick(self.rng, entries)
                spelling = twice["email"].title().replace("Mcp.Com", "MCP.com")
                entries.append({**twice, "email": spelling})
                continue
            mail = address(name, k + 1, DOMAIN)
            self.email.add_user(mail, "", name)
            status = "cancelled"
            if not k or self.rng.random() >= _INACTIVE_RATE:
                status = "active"
                letters[mail] = fill_letter(LETTER, {"name": name, "count": products})
            entries.append({"name": name, "email": mail, "status": status})
        shown = enumerate(shuffled(self.rng, entries), 1)
        records = [{**entry, "id": place} for place, entry in shown]
        self.files.write(SUBSCRIBERS, json.dumps({"subscribers": records}, indent=1))
        return letters

    def plan(self) -> Plan:
        letter = yield read("Read the template.", str, "read_text_file", path=TEMPLATE)
        subscribers = yield read(
            "Read the subscribers.", _read_subscribers, "read_text_file", path=SUBSCRIBERS
        )
        slow = yield from read_shop(
            "the products", "woo_products_list", _read_slow, orderby="id", order="asc"
        )
        rows = sorted((_row(*fact) for fact in slow), key=_order)
        label, tool = f"Look for the category {OUTLET}.", "woo_products_categories_list"
        outlet = yield look("categories", label, _find_outlet, tool, search=OUTLET, perPage=100)
        if not outlet:
            outlet = yield create(
                "categories",
                f"Create the category {OUTLET}.",
                self.outputs[0],
                "id",
                "woo_products_categories_create",
                categoryData={"name": OUTLET},
            )
        steps = yield from settle_file(OFFERS, rows)
        for k in range(0, len(slow), 100):
            update = [{"id": fact[0], "categories": [{"id": outlet}]} for fact in slow[k : k + 100]]
            label = f"Move the products {slow[k][0]} to {update[-1]['id']} that hardly sell."
            steps.append(write(label, self.outputs[0], "woo_products_batch_update", update=update))
        yield steps
        letters = []
        for to, name in subscribers.items():
            text = fill_letter(letter, {"name": name, "count": len(rows)})
            letters.append(send_letter(f"Write to {to}.", self.outputs[2], to, text, [TABLE]))
        yield letters

    @property
    def _offers(self) -> CsvTable:
        return PUBLISHED_OFFERS if "published" in self.truth else OFFERS

    def published_failures(self) -> Iterator[str]:
        """Check LOCA-bench's own rule, which uses another name for the column Discounted Price."""
        truth = self.truth
        return outlet_failures(self.shop, self.email, self.files, truth["rows"], truth["letters"])

    def task_failures(self) -> Iterator[str]:
        yield from self._shop_failures()
        yield from self.outlook.derive("offers", self.files.version(), self._offer_failures)
        yield from self._mail_failures()

    def _offer_failures(self) -> list[str]:
        return list(self._offers.failures(self.files, self.truth["rows"]))

    def _shop_failures(self) -> Iterator[str]:
        truth = self.truth
        added = {category["id"]: category for category in self.shop.categories.all()}
        for category in truth["categories"]:
            if {**added.pop(category["id"], {}), "count": category["count"]} != category:
                yield f"the category {category['name']!r} was changed"
        outlet = next((key for key, category in added.items() if category["name"] == OUTLET), None)
        if outlet is None:
            yield f"there is no category {OUTLET}"
        elif added[outlet]["parent"]:
            yield f"the category {OUTLET} is within another"
        for key in added:
            if key != outlet:
                yield f"the category {added[key]['name']!r} was added"
        terms = self._terms()
        expected = truth["terms"] | {row["Product ID"]: [outlet] for row in truth["rows"]}
        for product, categories in expected.items():
            if terms.get(product) != categories:
                yield f"product {product} has the categories {terms.get(product)}, expected {categories}"
        if self._shop_hash() != truth["shop"]:
            yield "something other than categories was changed in the shop"

    def _shop_hash(self) -> str:
        return digest(self.shop.store, "products", *PROTECTED, without=("date_modified",))

    def _terms(self) -> dict[int, list[int]]:
        terms: dict[int, list[int]] = {}
        query = "SELECT product_id, term_id FROM product_categories ORDER BY product_id, term_id"
        for product, term in self.shop.store.tuples(query):
            terms.setdefault(product, []).append(term)
        return terms

    def _mail_failures(self) -> Iterator[str]:
        letters = self.truth["letters"]
        mails = [(", ".join(mail.recipients), mail) for mail in self.email.sent()]
        yield from set_failures("mails to", (to for to, _ in mails), list(letters))
        for to, mail in mails:
            if to in letters:
                yield from self._letter_failures(to, mail)
        if self.email.users() != self.truth["users"]:
            yield "a user was added to the mail server"

    def _letter_failures(self, to: str, mail: Mail) -> Iterator[str]:
        subject, body = self.truth["letters"][to]
        if not same_subject(mail, subject) or not says(mail, body):
            yield f"the mail to {to} does not match the template"
        if list(mail.attachments) != [TABLE]:
            yield f"the mail to {to} has the attachments {echo(list(mail.attachments))}, expected {echo([TABLE])}"
            return
        data = mail.attachments[TABLE]
        # All mails should have the same attachment.
        failures = self.outlook.derive("attachment", data, lambda: self._copy_failures(data))
        if failures:
            yield f"the attachment of the mail to {to} is wrong: {failures[0]}"

    def _copy_failures(self, data: bytes) -> list[str]:
        copy = Workspace()
        copy.write(TABLE, data)
        return list(self._offers.failures(copy, self.truth["rows"]))


def _row(key: int, name: str, since: str, regular: str, sale: str) -> Record:
    price = Decimal(regular)
    now = Decimal(sale or regular)
    ratio = f"{(price - now) * 100 / price:.1f}%"
    return dict(zip(COLUMNS, (key, name, since, f"{price:.2f}", f"{now:.2f}", ratio), strict=True))


def _product(days: int, sold: int, state: Mapping[str, str], excluded: bool) -> Record:
    since = (START.date() - timedelta(days=days)).isoformat()
    return {"since": since, "sold": sold, "state": state, "excluded": excluded}


def _double(price: str) -> str:
    return f"{2 * Decimal(price):.2f}" if price else ""


def _order(row: Fields) -> tuple[str, Decimal, str]:
    # Discount ratios are exact decimals, so rounding does not change the order.
    ratio = Decimal(row["Discount Ratio"].removesuffix("%"))
    return row["In Stock Since"], ratio, row["Product Name"]


def _find_outlet(text: str) -> int:
    return next((int(each["id"]) for each in json.loads(text) if each["name"] == OUTLET), 0)


def _read_subscribers(text: str) -> dict[str, str]:
    subscribers = {}
    for each in json.loads(text)["subscribers"]:
        if each["status"] == "active":
            subscribers[each["email"].lower()] = each["name"]
    return subscribers


def _read_slow(product: Record) -> list[Any] | None:
    custom = {meta["key"]: meta["value"] for meta in product["meta_data"]}
    since = date.fromisoformat(product["date_created"][:10])
    sells = int(custom["sales_last_30_days"]) >= SALES or (START.date() - since).days <= DAYS
    offered = product["status"] == "publish" and product["stock_status"] == "instock"
    if sells or not offered or has_note(product.get("description", ""), "excluded"):
        return None
    return [
        product["id"],
        product["name"],
        since.isoformat(),
        product["regular_price"],
        product.get("sale_price", ""),
    ]
