"""What the parts of the shop share: tables, dates, pages, batches, events for webhooks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeAlias

from agentgym.envs.loca.servers.server import Server, page_of
from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.presets import PRESETS
from agentgym.tools import ToolError, echo

SITE = "https://woocommerce.local"
MAX_BATCH = 100
ADDRESS = dict.fromkeys(
    ("first_name", "last_name", "company", "address_1", "address_2", "city", "state", "postcode", "country", "phone"), ""
)
"""The fields of an address, blank; that of a bill has an email besides."""

_Job: TypeAlias = tuple[list[Any] | None, Callable[..., Row]]
"""Items of a batch, and what carries out one."""

_TABLES = """
CREATE TABLE products (id INTEGER PRIMARY KEY AUTOINCREMENT, parent_id INTEGER REFERENCES products(id) ON DELETE CASCADE,
  name TEXT, slug TEXT UNIQUE, type TEXT, status TEXT, sku TEXT, regular_price TEXT, sale_price TEXT, price TEXT, on_sale BOOL,
  featured BOOL, manage_stock BOOL, stock_quantity INTEGER, stock_status TEXT, backorders TEXT, low_stock_amount INTEGER,
  total_sales INTEGER, average_rating TEXT, rating_count INTEGER, date_created TEXT, date_modified TEXT, details JSON,
  meta_data JSON);
CREATE UNIQUE INDEX product_skus ON products(sku) WHERE sku <> '';
CREATE INDEX products_by_date ON products(date_created, type, status);
CREATE INDEX product_parents ON products(parent_id);
CREATE TABLE categories (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, slug TEXT UNIQUE, parent INTEGER, description TEXT,
  display TEXT, menu_order INTEGER);
CREATE TABLE tags (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, slug TEXT UNIQUE, description TEXT);
CREATE TABLE product_categories (product_id INTEGER REFERENCES products(id) ON DELETE CASCADE,
  term_id INTEGER REFERENCES categories(id), PRIMARY KEY (product_id, term_id));
CREATE TABLE product_tags (product_id INTEGER REFERENCES products(id) ON DELETE CASCADE, term_id INTEGER REFERENCES tags(id),
  PRIMARY KEY (product_id, term_id));
CREATE INDEX products_of_category ON product_categories(term_id);
CREATE TABLE reviews (id INTEGER PRIMARY KEY AUTOINCREMENT, product_id INTEGER REFERENCES products(id) ON DELETE CASCADE,
  status TEXT, reviewer TEXT, reviewer_email TEXT, review TEXT, rating INTEGER, verified BOOL, date_created TEXT);
CREATE TABLE customers (id INTEGER PRIMARY KEY AUTOINCREMENT, email TEXT COLLATE NOCASE UNIQUE,
  username TEXT COLLATE NOCASE UNIQUE, first_name TEXT, last_name TEXT, role TEXT, date_created TEXT, date_modified TEXT,
  details JSON, meta_data JSON);
CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, status TEXT, currency TEXT,
  customer_id INTEGER REFERENCES customers(id), date_created TEXT, date_modified TEXT, date_paid TEXT, date_completed TEXT,
  discount_total INTEGER, discount_tax INTEGER, shipping_total INTEGER, shipping_tax INTEGER, cart_tax INTEGER, total_tax INTEGER,
  total INTEGER, booked BOOL, details JSON, meta_data JSON);
CREATE INDEX orders_by_date ON orders(date_created, status);
CREATE INDEX orders_of_customer ON orders(customer_id);
CREATE TABLE items (id INTEGER PRIMARY KEY AUTOINCREMENT, order_id INTEGER REFERENCES orders(id) ON DELETE CASCADE, type TEXT,
  name TEXT, product_id INTEGER REFERENCES products(id) ON DELETE SET NULL,
  variation_id INTEGER REFERENCES products(id) ON DELETE SET NULL, quantity INTEGER, subtotal INTEGER, subtotal_tax INTEGER,
  total INTEGER, total_tax INTEGER, reduced INTEGER, code TEXT, taxes JSON, meta_data JSON);
CREATE INDEX items_of_order ON items(order_id);
CREATE INDEX items_of_product ON items(product_id);
CREATE INDEX items_of_code ON items(code);
CREATE INDEX items_of_variation ON items(variation_id);
CREATE TABLE refunds (id INTEGER PRIMARY KEY AUTOINCREMENT, order_id INTEGER REFERENCES orders(id) ON DELETE CASCADE,
  amount INTEGER, reason TEXT, date_created TEXT, refunded_payment BOOL, lines JSON);
CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, order_id INTEGER REFERENCES orders(id) ON DELETE CASCADE, author TEXT,
  note TEXT, customer_note BOOL, date_created TEXT);
CREATE TABLE coupons (id INTEGER PRIMARY KEY AUTOINCREMENT, code TEXT COLLATE NOCASE UNIQUE, amount TEXT, status TEXT,
  discount_type TEXT, description TEXT, date_expires TEXT, usage_count INTEGER, date_created TEXT, date_modified TEXT,
  details JSON, meta_data JSON);
CREATE TABLE tax_rates (id INTEGER PRIMARY KEY AUTOINCREMENT, country TEXT, state TEXT, rate TEXT, name TEXT, priority INTEGER,
  compound BOOL, shipping BOOL, class TEXT);
CREATE TABLE tax_classes (slug TEXT PRIMARY KEY, name TEXT);
CREATE TABLE zones (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, menu_order INTEGER);
CREATE TABLE zone_methods (id INTEGER PRIMARY KEY AUTOINCREMENT, zone_id INTEGER REFERENCES zones(id), method_id TEXT,
  enabled BOOL, settings JSON);
CREATE TABLE gateways (id TEXT PRIMARY KEY, title TEXT, description TEXT, menu_order INTEGER, enabled BOOL, method_title TEXT,
  supports JSON, settings JSON);
CREATE TABLE settings (id TEXT PRIMARY KEY, group_id TEXT, label TEXT, type TEXT, default_value TEXT, value TEXT, options JSON);
CREATE TABLE webhooks (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, status TEXT, topic TEXT, delivery_url TEXT, secret TEXT,
  date_created TEXT, date_modified TEXT);
CREATE TABLE deliveries (id INTEGER PRIMARY KEY AUTOINCREMENT, webhook_id INTEGER REFERENCES webhooks(id), topic TEXT,
  resource_id INTEGER, date_created TEXT);
"""


def stamp(moment: datetime) -> str:
    """A moment in GMT as the records hold it.

    Raises:
        ValueError: It has no time zone.
    """
    if moment.tzinfo is None:
        raise ValueError(f"a date must have a time zone, got {moment!r}; write datetime(..., tzinfo=UTC)")
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def slug_of(name: str, taken: set[str]) -> str:
    """A short name for addresses, unlike those that are taken; it is taken from now on."""
    plain = re.sub(r"[\W_]+", "-", name.lower()).strip("-")[:180] or "item"
    number, slug = 1, plain
    while slug in taken:
        number += 1
        slug = f"{plain}-{number}"
    taken.add(slug)
    return slug


def ascii_lower(text: str) -> str:
    """Lower case as SQLite has it."""
    return text.encode().lower().decode()


class Shop(Server):
    """Tables and helpers of the shop; the tools are in the classes above. The session holds the settings that were changed."""

    name: ClassVar[str] = "woocommerce"
    schema: ClassVar[str] = _TABLES + PRESETS

    def set_setting(self, id: str, value: str) -> None:
        """Give a setting of the shop another value, such as `woocommerce_currency` or `gmt_offset` (hours).

        Raises:
            ToolError: There is no such setting.
            ValueError: It cannot have that value.
        """
        held = self.store.get("settings", id)
        if held["options"] and value not in held["options"]:
            raise ValueError(f"{id} must be one of {', '.join(held['options'])}, got {value!r}")
        if held["type"] == "number" and not value.lstrip("-").replace(".", "", 1).isdigit():
            raise ValueError(f"{id} must be a number, got {value!r}")
        self.store.update("settings", id, value=value)
        self.session[id] = value

    def deliveries(self) -> list[Row]:
        """The events that were sent to webhooks, in order."""
        return self.store.find("deliveries")

    def _setting(self, id: str) -> str:
        changed = self.session.get(id)
        return str(changed or self.store.value("SELECT value FROM settings WHERE id = ?", id))

    def _now(self) -> str:
        """The time of something that happens now."""
        return stamp(self.context.clock.tick())

    def _date(self, record: Mapping[str, Any], name: str = "date_created") -> str:
        """A date that a filled record gives, or now."""
        return stamp(record.get(name) or self.context.clock.now())

    def _offset(self) -> timedelta:
        return timedelta(hours=float(self.session.get("gmt_offset", 0)))

    def _dates(self, row: Row, *names: str) -> Row:
        """Dates of a record in site time and in GMT, under the names of the API."""
        offset = self._offset()
        shown = {}
        for name in names:
            gmt = row[name]
            shown[name] = gmt and (datetime.fromisoformat(gmt) + offset).isoformat() if offset else gmt
            shown[f"{name}_gmt"] = gmt
        return shown

    def _moment(self, text: str | None, name: str) -> str | None:
        """A date that a caller gives, in GMT; one without time zone is in site time.

        Raises:
            ToolError: It is no date.
        """
        if not text:
            return None
        try:
            moment = datetime.fromisoformat(text.strip())
            if not 1900 <= moment.year <= 9000:
                raise ValueError
        except ValueError:
            raise ToolError(f"invalid argument: {name} must be a date such as 2025-01-15T09:00:00, got {echo(text)}") from None
        return stamp(moment if moment.tzinfo else moment.replace(tzinfo=UTC) - self._offset())

    def _ids(self, table: str, where: Mapping[str, Any], order: str, page: int | None = None, size: int = 100) -> list[int]:
        """The ids of records in an order, all or of one page; a condition whose value is None does not count."""
        used = {condition: value for condition, value in where.items() if value is not None}
        sql = f'SELECT id FROM "{table}" WHERE {" AND ".join(used) or 1} ORDER BY {order}'
        if page is not None:
            page_of((), page, size)
            sql += f" LIMIT {size} OFFSET {min((page - 1) * size, 2**62)}"
        rows = self.store.rows(sql, *used.values())
        return [row["id"] for row in rows]

    def _page(self, table: str, where: Mapping[str, Any], order: str, page: int, size: int) -> list[Row]:
        """A page of the records that meet conditions."""
        return self._by_ids(table, self._ids(table, where, order, page, size))

    def _by_ids(self, table: str, ids: Iterable[int]) -> list[Row]:
        """The records with ids, in their order; those that there are not are left out."""
        wanted = list(ids)
        sql = f'SELECT * FROM "{table}" WHERE id IN (SELECT value FROM json_each(?))'
        held = {row["id"]: row for row in self.store.rows(sql, wanted)}
        return [held[key] for key in wanted if key in held]

    def _write(self, table: str, row: Row) -> None:
        """Replace the record that has the id of this one."""
        self.store.update(table, row["id"], **{name: value for name, value in row.items() if name != "id"})

    def _next_id(self, table: str) -> int:
        return int(self.store.value("SELECT seq FROM sqlite_sequence WHERE name = ?", table) or 0) + 1

    def _values(self, table: str, column: str) -> set[Any]:
        return {row[column] for row in self.store.rows(f'SELECT "{column}" FROM "{table}"')}

    def _fire(self, topic: str, id: int) -> None:
        """Tell the active webhooks of a topic that something happened to a record."""
        for hook in self.store.find("webhooks", topic=topic, status="active"):
            stamped = stamp(self.context.clock.now())
            self.store.insert("deliveries", webhook_id=hook["id"], topic=topic, resource_id=id, date_created=stamped)

    def _discard(self, table: str, kind: str, id: int, force: bool, show: Callable[[int], Row]) -> Row:
        """Delete a record, or put it into the trash; how it is shown there, or was before."""
        shown = show(id)
        if force:
            self.store.delete(table, id=id)
        elif shown["status"] == "trash":
            raise ToolError(f"conflict: {kind} {id} is in the trash already; force deletes it for good")
        else:
            self.store.update(table, id, status="trash", date_modified=self._now())
            shown = show(id)
        self._fire(f"{kind}.deleted", id)
        return shown

    def _batch(self, kind: str, create: _Job, update: _Job, delete: _Job) -> dict[str, list[Row]]:
        """Carry out each item of a batch by itself; one that fails gives its error in its place and changes nothing.

        Each list of items comes with the tool for one of them.
        """
        jobs: dict[str, _Job] = {
            "create": create,
            "update": (update[0], lambda data: update[1](id_of(data), data)),
            "delete": (delete[0], lambda key: delete[1](key, force=True)),
        }
        if sum(len(items or ()) for items, _ in jobs.values()) > MAX_BATCH:
            raise ToolError(f"limit exceeded: a batch has at most {MAX_BATCH} items")
        return {verb: [self._attempt(kind, item, do) for item in items] for verb, (items, do) in jobs.items() if items is not None}

    def _attempt(self, kind: str, item: Any, do: Callable[[Any], Row]) -> Row:
        try:
            with self.store.change():
                return do(item)
        except ToolError as error:
            codes = {
                "not found": (f"woocommerce_rest_{kind}_invalid_id", 404),
                "conflict": (f"woocommerce_rest_{kind}_exists", 400),
            }
            code, status = codes.get(str(error).partition(":")[0], ("rest_invalid_param", 400))
            key = item.get("id", 0) if isinstance(item, dict) else item
            return {"id": key, "error": {"code": code, "message": str(error), "data": {"status": status}}}


def id_of(data: Row) -> int:
    """The id in an item of a batch."""
    key = data.get("id")
    if isinstance(key, bool) or not isinstance(key, int):
        raise ToolError("invalid argument: an item to update needs an integer id")
    return key


def words_in(*columns: str) -> str:
    """SQL: each word of a list (as JSON, in lower case) is in one of the columns."""
    text = " || ' ' || ".join(f"coalesce({column}, '')" for column in columns)
    return f"NOT EXISTS (SELECT 1 FROM json_each(?) AS word WHERE instr(lower({text}), word.value) = 0)"


def words(search: str | None) -> list[str] | None:
    """The words of a search for `words_in`."""
    return ascii_lower(search).split() if search else None
