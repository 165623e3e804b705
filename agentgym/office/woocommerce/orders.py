"""Orders of the shop."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import WithJsonSchema

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import ShopContext, ShopPart, merge_meta
from agentgym.office.woocommerce.lines import OrderLines
from agentgym.office.woocommerce.money import money, totals
from agentgym.office.woocommerce.shapes import (
    MAX_AMOUNT,
    STATUSES,
    OrderData,
    validate_record,
)
from agentgym.office.woocommerce.views import show_orders
from agentgym.text.tools import ToolError, echo, tool

ListedStatus = Annotated[str, WithJsonSchema({"type": "string", "enum": list(STATUSES)})]
"""Order status filter; `any` and `trash` are accepted too."""

# An order of these statuses has taken its products from the stock.
_BOOKING = ("processing", "completed", "on-hold")

# A new order's defaults.
_NEW: Row = {
    "status": "pending",
    "currency": "",
    "customer_id": None,
    "date_created": "",
    "date_modified": "",
    "date_paid": None,
    "date_completed": None,
    "details": {
        "billing": {},
        "shipping": {},
        "payment_method": "",
        "payment_method_title": "",
        "transaction_id": "",
        "customer_note": "",
    },
    "meta_data": [],
}

_DETAILS = tuple(_NEW["details"])  # stored in the column `details`
_DATES = ("date_created", "date_paid", "date_completed")  # settable by an author

# SQL: the order contains a product.
_WITH_PRODUCT = "id IN (SELECT order_id FROM items WHERE product_id = ?)"


class Orders(ShopPart):
    """Orders, which tools only read. The stock and sales of products already account for them."""

    def __init__(self, shop: ShopContext, lines: OrderLines) -> None:
        super().__init__(shop)
        self._lines = lines

    # For task authors.

    def add(self, **record: Any) -> int:
        """Add an order like `add_all` and return its id."""
        return self.add_all([record])[0]

    def add_all(self, records: Iterable[Mapping[str, Any]]) -> list[int]:
        """Add orders and return their ids, in order. Totals are computed from the lines.

        Args:
            records: REST API fields; `date_created` (by default now), `date_paid` and
                `date_completed` are datetimes. The latter two default to the creation date if the
                status implies them, and `billing` to the customer's address.

        Raises:
            ValueError: A field name is unknown.
            ToolError: A value is invalid, or a product or customer does not exist.
        """
        orders, customers = [], {row["id"]: row for row in self._store.find("customers")}
        for record in records:
            data = validate_record(OrderData, record, _DATES)
            customer = customers.get(data.get("customer_id", 0))
            if customer and "billing" not in data:
                names = {name: customer[name] for name in ("first_name", "last_name", "email")}
                data["billing"] = {**names, **customer["details"]["billing"]}
            for name in _DATES:
                if data.get(name) or name == "date_created":
                    data[name] = self._shop.date_of(data, name)
            orders.append(data)
        with self._store.change():
            return self._insert(orders)

    def all(self) -> list[Row]:
        """Return all orders, including trash, in API form, by id."""
        return show_orders(self._shop, self._shop.select_ids("orders", {}, "id"))

    # Tools.

    @tool
    def woo_orders_list(
        self,
        perPage: int = 10,
        page: int = 1,
        status: list[ListedStatus] | None = None,
        customer: int | None = None,
        product: int | None = None,
        dateAfter: str | None = None,
        dateBefore: str | None = None,
        orderby: Literal["date", "id", "include", "title", "slug"] = "date",
        order: Literal["asc", "desc"] = "desc",
    ) -> list[Row]:
        """List orders, newest first; orders in the trash only if status names it.

        Args:
            perPage: Items per page, at most 100.
            page: Page, from 1.
            status: Statuses.
            customer: Only of this customer; 0 for guests.
            product: Only with this product.
            dateAfter: Created after, in site time unless a time zone is given.
            dateBefore: Created before, in the same format.
            orderby: Sort key.
            order: Direction.
        """
        statuses = [name for name in dict.fromkeys(status or ()) if name != "any"]
        unknown = [name for name in statuses if name not in (*STATUSES, "trash")]
        if unknown:
            raise ToolError(
                f"invalid argument: status must be any, trash, {', '.join(STATUSES)}, got "
                f"{echo(unknown[0])}"
            )
        where = {
            _WITH_PRODUCT: product,
            "status IN (SELECT value FROM json_each(?))": statuses or None,
            "coalesce(customer_id, 0) = ?": customer,
            "date_created > ?": self._shop.parse_date(dateAfter, "dateAfter"),
            "date_created < ?": self._shop.parse_date(dateBefore, "dateBefore"),
        }
        column = "date_created" if orderby == "date" else "id"
        # Sort orders of one date by id, as in the published server.
        by = f"{column} {order}, id {'asc' if orderby == 'date' else order}"
        return show_orders(self._shop, self._shop.select_ids("orders", where, by, page, perPage))

    @tool
    def woo_orders_get(self, orderId: int) -> Row:
        """Get an order.

        Args:
            orderId: Order.
        """
        self._store.get("orders", orderId)
        return show_orders(self._shop, [orderId])[0]

    # Helpers.

    def _insert(self, records: Sequence[Row]) -> list[int]:
        prices = self._lines.look_up(records)
        currency = self._shop.setting("woocommerce_currency")
        rows, all_items, item_ids = [], [], itertools.count(self._shop.next_id("items"))
        for key, data in enumerate(records, self._shop.next_id("orders")):
            date = data["date_created"]
            new = {**_NEW, "id": key, "currency": currency, "date_created": date}
            order = self._merge(new, data, date)
            order |= {name: data[name] for name in _DATES if name in data}
            items = self._lines.compose(data, prices)
            for item in items:
                item |= {"id": next(item_ids), "order_id": key}
                product = prices.products.get(item["product_id"])
                if order["booked"] and product and product["manage_stock"]:
                    item["reduced"] = item["quantity"]
            rows.append({**order, **_checked_totals(items)})
            all_items += items
        self._store.insert_all("orders", rows)
        self._store.insert_all("items", all_items)
        return [row["id"] for row in rows]

    def _merge(self, order: Row, data: Row, now: str) -> Row:
        status = data.get("status", order["status"])
        # Payment advances an unpaid order, as in WooCommerce.
        if data.get("set_paid") and status in ("pending", "on-hold", "failed", "cancelled"):
            status = "processing"
        new = {
            **order,
            "status": status,
            "currency": data.get("currency", order["currency"]),
            "booked": status in _BOOKING,
            "date_modified": now,
        }
        if status in ("processing", "completed") or data.get("set_paid"):
            new["date_paid"] = order["date_paid"] or now
        if status == "completed" != order["status"]:
            new["date_completed"] = now
        if "customer_id" in data:
            new["customer_id"] = data["customer_id"] or None
            if data["customer_id"]:
                self._store.get("customers", data["customer_id"])
        details = {**order["details"], **{name: data[name] for name in _DETAILS if name in data}}
        for name in ("billing", "shipping"):
            details[name] = {**order["details"][name], **data.get(name, {})}
        return {**new, "details": details, "meta_data": merge_meta(order, data)}


def _checked_totals(items: Sequence[Row]) -> dict[str, int]:
    sums = totals(items)
    if sums["total"] + sums["discount_total"] > MAX_AMOUNT * 100:
        raise ToolError(
            f"limit exceeded: the total of an order is at most {money(MAX_AMOUNT * 100)}"
        )
    return sums
