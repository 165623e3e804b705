"""Orders of the shop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import WithJsonSchema

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import (
    ShopPart,
    check_fields,
    given_fields,
    in_address_order,
)
from agentgym.text.tools import ToolError, echo, tool

STATUSES = ("pending", "processing", "on-hold", "completed", "cancelled", "refunded", "failed")

ListedStatus = Annotated[str, WithJsonSchema({"type": "string", "enum": list(STATUSES)})]
"""Order status filter; `any` and `trash` are accepted too."""

# Statuses of orders that have reduced the stock.
_BOOKING = ("processing", "completed", "on-hold")

_MAX_QUANTITY = 10**6  # keeps order totals in cents below 2**63

_DATES = ("date_created", "date_paid", "date_completed")
_FIELDS = ("status", "customer_id", "customer_note", "billing", "line_items", *_DATES)

# Fields with the same value in all orders.
_TEXTS = dict.fromkeys(("payment_method", "payment_method_title", "transaction_id"), "")

_ITEMS = "SELECT * FROM items WHERE order_id IN (SELECT value FROM json_each(?)) ORDER BY id"
_WITH_PRODUCT = "id IN (SELECT order_id FROM items WHERE product_id = ?)"


class Orders(ShopPart):
    """Orders, which tools can only read; the products' stock already accounts for them."""

    def add_all(self, records: Iterable[Mapping[str, Any]]) -> list[int]:
        """Add orders and return the new ids, in order. Totals are computed from `line_items`.

        Records have the REST API's `status` (default: pending), `customer_id`, `customer_note`,
        `billing` (default: the customer's address) and `line_items` (each with `product_id` and
        `quantity`). The datetimes are `date_created` (default: now), `date_paid` and
        `date_completed` (default: the creation date if the status requires a date). Raises
        ValueError for an unknown field or status, and ToolError for an unknown product or customer.
        """
        currency = self.setting("woocommerce_currency")
        customers = {row["id"]: row for row in self.store.find("customers")}
        orders: list[Row] = []
        items: list[Row] = []
        for key, record in enumerate(records, self.next_id("orders")):
            order = {"id": key, "currency": currency, **self._order(record, customers)}
            lines = [self._line(line, order) for line in record.get("line_items", ())]
            order["total"] = sum(line["total"] for line in lines)
            orders.append(order)
            items += lines
        with self.store.change():
            self.store.insert_all("orders", orders)
            self.store.insert_all("items", items)
        return [order["id"] for order in orders]

    def all(self) -> list[Row]:
        """Return all orders, including trash, in the API's format, sorted by id."""
        return self._show(self.select_ids("orders", {}, "id"))

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
        for name in statuses:
            if name not in (*STATUSES, "trash"):
                raise ToolError(
                    f"invalid argument: status must be one of {', '.join(STATUSES)}, trash, any, "
                    f"got {echo(name)}"
                )
        where = {
            _WITH_PRODUCT: product,
            "status IN (SELECT value FROM json_each(?))": statuses or None,
            "coalesce(customer_id, 0) = ?": customer,
            "date_created > ?": self.parse_date(dateAfter, "dateAfter"),
            "date_created < ?": self.parse_date(dateBefore, "dateBefore"),
        }
        by = f"id {order}"
        if orderby == "date":  # orders with the same date are sorted by id
            by = f"date_created {order}, id asc"
        return self._show(self.select_ids("orders", where, by, page, perPage))

    @tool
    def woo_orders_get(self, orderId: int) -> Row:
        """Get an order.

        Args:
            orderId: Order.
        """
        self.store.get("orders", orderId)
        return self._show([orderId])[0]

    def _show(self, ids: list[int]) -> list[Row]:
        items = self.rows_by_owner("order_id", _ITEMS, ids)
        orders = []
        for row in self.rows_by_id("orders", ids):
            row |= {name: self.site_time(row[name]) for name in row if name.startswith("date_")}
            orders.append(_show_order(row, items[row["id"]]))
        return orders

    def _order(self, record: Mapping[str, Any], customers: Mapping[int, Row]) -> Row:
        check_fields(record, _FIELDS)
        status = record.get("status", "pending")
        if status not in STATUSES:
            raise ValueError(f"status must be one of {', '.join(STATUSES)}, got {status!r}")
        dates = {name: self.date_of(record, name) for name in _DATES if record.get(name)}
        created = dates.setdefault("date_created", self.now())
        if status in ("processing", "completed"):
            dates.setdefault("date_paid", created)
        if status == "completed":
            dates.setdefault("date_completed", created)
        owner = record.get("customer_id") or None
        billing = in_address_order(record.get("billing", {}))
        if owner is not None and owner not in customers:
            raise ToolError(f"not found: there is no customer with id {owner}")
        if owner is not None and "billing" not in record:
            customer = customers[owner]
            names = {name: customer[name] for name in ("first_name", "last_name", "email")}
            billing = {**names, **customer["details"]["billing"]}
        return {
            "status": status,
            "customer_id": owner,
            **dict.fromkeys(_DATES),
            **dates,
            "date_modified": created,
            "booked": status in _BOOKING,
            "details": {
                "billing": billing,
                "shipping": {},
                **_TEXTS,
                "customer_note": record.get("customer_note", ""),
            },
        }

    def _line(self, line: Mapping[str, Any], order: Row) -> Row:
        check_fields(line, ("product_id", "quantity"))
        product, quantity = self.store.get("products", line["product_id"]), line["quantity"]
        if not 1 <= quantity <= _MAX_QUANTITY:
            raise ValueError(f"quantity must be between 1 and {_MAX_QUANTITY}, got {quantity!r}")
        amount = int(Decimal(product["price"] or "0") * 100) * quantity
        reduces_stock = order["booked"] and product["manage_stock"]
        return {
            "order_id": order["id"],
            "name": product["name"],
            "product_id": product["id"],
            "quantity": quantity,
            "subtotal": amount,
            "total": amount,
            # The quantity that the order has removed from the stock.
            "reduced": quantity if reduces_stock else 0,
        }


def _money(amount: int) -> str:
    return f"{amount // 100}.{amount % 100:02d}"


def _show_order(row: Row, items: list[Row]) -> Row:
    given = {name: row[name] for name in ("date_paid", "date_completed") if row[name]}
    given |= given_fields({"customer_note": row["details"]["customer_note"]})
    if row["details"]["billing"]:
        given["billing"] = given_fields(row["details"]["billing"])
    # Taxes, shipping and discounts are disabled.
    nothing = _money(0)
    return {
        "id": row["id"],
        "number": str(row["id"]),
        "status": row["status"],
        "currency": row["currency"],
        "date_created": row["date_created"],
        "date_modified": row["date_modified"],
        "subtotal": _money(row["total"]),
        "discount_total": nothing,
        "discount_tax": nothing,
        "shipping_total": nothing,
        "shipping_tax": nothing,
        "cart_tax": nothing,
        "total": _money(row["total"]),
        "total_tax": nothing,
        "customer_id": row["customer_id"] or 0,
        **given,
        "line_items": [_show_line(item) for item in items],
        "tax_lines": [],
        "shipping_lines": [],
        "fee_lines": [],
        "coupon_lines": [],
        "refunds": [],
    }


def _show_line(item: Row) -> Row:
    return {
        "id": item["id"],
        "name": item["name"],
        "product_id": item["product_id"] or 0,
        "quantity": item["quantity"],
        "price": _money(item["total"] // item["quantity"]),
    }
