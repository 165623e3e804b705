"""Orders of the shop, with notes and refunds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.lines import UNTAXED, Lines
from agentgym.envs.loca.servers.woocommerce.money import cents, money
from agentgym.envs.loca.servers.woocommerce.shapes import STATUSES, OrderData, checked, filled
from agentgym.envs.loca.servers.woocommerce.shop import ADDRESS
from agentgym.tools import ToolError, echo, tool

_NEW: Row = {
    "status": "pending",
    "currency": "",
    "customer_id": None,
    "date_created": "",
    "date_modified": "",
    "date_paid": None,
    "date_completed": None,
    "booked": False,
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
_DATES = ("date_created", "date_paid", "date_completed")
_SUMS = ("discount_total", "discount_tax", "shipping_total", "shipping_tax", "cart_tax", "total", "total_tax")
_WITH_PRODUCT = "id IN (SELECT order_id FROM items WHERE product_id = ?1 OR variation_id = ?1)"


class Orders(Lines):
    """The tools for orders, and the methods that fill and read them.

    An order takes its products from the stock when it comes to processing, completed or on-hold, once, below zero if need be, and
    counts them as sold; it gives them back when it comes to pending or cancelled. Refunds put back the quantities they name.
    Deletion and the other statuses leave the stock alone.
    """

    # -- for authors of tasks --------------------------------------------------------------------------------------------------

    def add_order(self, **record: Any) -> int:
        """Add one order as `add_orders` does; its id."""
        return self.add_orders([record])[0]

    def add_orders(self, records: Iterable[Mapping[str, Any]], take_stock: bool = False) -> list[int]:
        """Add orders; their ids, in order. Totals are computed from the lines.

        Args:
            records: Fields of the REST API; `date_created` (now by default), `date_paid` and `date_completed` are datetimes. The
                latter two are that of creation by default, where the status implies them. Without `billing` it is that of the
                customer.
            take_stock: Whether the orders take from the stock and add to the sales of their products; by default these stand as
                filled, with the orders counted in already.

        Raises:
            ValueError: A field is misspelt.
            ToolError: A value is wrong, or a product or customer is not there.
        """
        made, bills = [], {row["id"]: row for row in self.store.find("customers")}
        for record in records:
            data = filled(OrderData, record, _DATES)
            held = bills.get(data.get("customer_id", 0))
            if held and "billing" not in data:
                data["billing"] = {**{k: held[k] for k in ("first_name", "last_name", "email")}, **held["details"]["billing"]}
            made.append({**data, **{name: self._date(data, name) for name in _DATES if data.get(name) or name == "date_created"}})
        with self.store.change():
            return self._add_orders(made, take_stock)

    def orders(self) -> list[Row]:
        """All orders as the API shows them, those in the trash too, by id."""
        return self._shown_orders(self._ids("orders", {}, "id"))

    def notes(self, order_id: int) -> list[Row]:
        """The notes of an order, first to last."""
        return self.store.find("notes", order_id=order_id)

    # -- tools -----------------------------------------------------------------------------------------------------------------

    @tool
    def woo_orders_list(
        self,
        perPage: int = 10,
        page: int = 1,
        status: list[str] | None = None,
        customer: int | None = None,
        product: int | None = None,
        dateAfter: str | None = None,
        dateBefore: str | None = None,
        orderby: Literal["date", "id", "include", "title", "slug"] = "date",
        order: Literal["asc", "desc"] = "desc",
    ) -> list[Row]:
        """List orders, at most 100 a page; those in the trash only if `status` names it.

        `dateAfter` and `dateBefore` are about the date of creation, exclusive, in site time unless they name a time zone; a date
        without time is its midnight.
        """
        wanted = [name for name in dict.fromkeys(status or ()) if name != "any"]
        unknown = [name for name in wanted if name not in (*STATUSES, "trash")]
        if unknown:
            raise ToolError(f"invalid argument: status must be any, trash, {', '.join(STATUSES)}, got {echo(unknown[0])}")
        where = {
            _WITH_PRODUCT: product,
            "status IN (SELECT value FROM json_each(?))": wanted or None,
            "status <> ?": None if wanted else "trash",
            "coalesce(customer_id, 0) = ?": customer,
            "date_created > ?": self._moment(dateAfter, "dateAfter"),
            "date_created < ?": self._moment(dateBefore, "dateBefore"),
        }
        by = "date_created" if orderby == "date" else "id"
        return self._shown_orders(self._ids("orders", where, f"{by} {order}, id {order}", page, perPage))

    @tool
    def woo_orders_get(self, orderId: int) -> Row:
        """Get an order."""
        return self._shown_order(orderId)

    @tool
    def woo_orders_create(self, orderData: dict[str, Any]) -> Row:
        """Create an order. Prices are those of the products unless a line gives its `total`; `set_paid` makes it processing."""
        data = checked(OrderData, orderData, "orderData")
        with self.store.change():
            [made] = self._add_orders([{**data, "date_created": self._now()}], take_stock=True)
            self._full_refund(made, data)
            self._fire("order.created", made)
        return self._shown_order(made)

    @tool
    def woo_orders_update(self, orderId: int, orderData: dict[str, Any]) -> Row:
        """Change an order. A line with an `id` is changed (a quantity of 0 removes it), one without is added; totals follow."""
        data = checked(OrderData, orderData, "orderData")
        with self.store.change():
            old = self.store.get("orders", orderId)
            held = self.store.find("items", order_id=orderId)
            new = self._merged_order(old, data, self._now())
            items = held
            if data.keys() & {"line_items", "shipping_lines", "fee_lines", "coupon_lines", "billing", "shipping"}:
                items = self._compose(new, held, data, self._shelf([data]))
            items = [dict(item) for item in items]
            self._settle(held, items, old["booked"], new["booked"])
            self.store.delete("items", order_id=orderId)
            self._put_items(orderId, items)
            self._write("orders", {**new, **self._totals(items)})
            self._check_refunded(orderId)
            if new["status"] != old["status"]:
                self._note(orderId, f"Order status changed from {old['status']} to {new['status']}.")
                self._full_refund(orderId, data)
            self._fire("order.updated", orderId)
        return self._shown_order(orderId)

    @tool
    def woo_orders_delete(self, orderId: int, force: bool = False) -> Row:
        """Delete an order: for good with `force`, otherwise it goes to the trash. The stock stays as it is."""
        with self.store.change():
            return self._discard("orders", "order", orderId, force, self._shown_order)

    @tool
    def woo_orders_batch_update(
        self,
        create: list[dict[str, Any]] | None = None,
        update: list[dict[str, Any]] | None = None,
        delete: list[int] | None = None,
    ) -> dict[str, list[Row]]:
        """Create, update (each with its `id`) and delete (for good) up to 100 orders; an item that fails shows its error."""
        return self._batch(
            "shop_order",
            create=(create, self.woo_orders_create),
            update=(update, self.woo_orders_update),
            delete=(delete, self.woo_orders_delete),
        )

    @tool
    def woo_orders_notes_create(self, orderId: int, note: str, customerNote: bool = False) -> Row:
        """Add a note to an order, which with `customerNote` the customer sees too."""
        if not note.strip():
            raise ToolError("invalid argument: note must not be empty")
        with self.store.change():
            self.store.get("orders", orderId)
            made = self.store.get("notes", self._note(orderId, note, customer_note=customerNote, author="admin"))
        return {**{name: made[name] for name in ("id", "author", "note", "customer_note")}, **self._dates(made, "date_created")}

    # -- helpers ---------------------------------------------------------------------------------------------------------------

    def _add_orders(self, records: Sequence[Row], take_stock: bool) -> list[int]:
        """Add orders whose fields are checked; they have a `date_created`."""
        shelf, currency = self._shelf(records), self._setting("woocommerce_currency")
        rows, all_items, number = [], [], self._next_id("items")
        for row_id, data in enumerate(records, self._next_id("orders")):
            now = data["date_created"]
            order = self._merged_order({"id": row_id, **_NEW, "currency": currency, "date_created": now}, data, now)
            order |= {name: data[name] for name in _DATES if name in data}
            items = self._compose(order, (), data, shelf)
            if take_stock:
                self._settle((), items, was=False, booked=order["booked"])
            for item in items:
                item |= {"id": number, "order_id": row_id}
                number += 1
                if not take_stock and order["booked"] and item["type"] == "line_item":
                    keeper = shelf.products.get(item["variation_id"] or item["product_id"])
                    item["reduced"] = item["quantity"] * bool(keeper and keeper["manage_stock"])
            rows.append({**order, **self._totals(items)})
            all_items += items
        self.store.insert_all("orders", rows)
        self.store.insert_all("items", all_items)
        return [row["id"] for row in rows]

    def _put_items(self, order_id: int, items: Sequence[Row]) -> None:
        """Write the items of an order; those that are new get their ids."""
        number = self._next_id("items")
        for item in items:
            if not item["id"]:
                item["id"] = number
                number += 1
        self.store.insert_all("items", [{**item, "order_id": order_id} for item in items])

    def _note(self, order_id: int, note: str, customer_note: bool = False, author: str = "system") -> int:
        return self.store.insert(
            "notes", order_id=order_id, author=author, note=note, customer_note=customer_note, date_created=self._now()
        )

    def _refunded(self, order_id: int) -> int:
        return int(self.store.value("SELECT coalesce(sum(amount), 0) FROM refunds WHERE order_id = ?", order_id))

    def _refund(self, order_id: int, amount: int, reason: str, lines: list[Row], paid: bool = False) -> int:
        return self.store.insert(
            "refunds", order_id=order_id, amount=amount, reason=reason, date_created=self._now(), refunded_payment=paid, lines=lines
        )

    def _check_refunded(self, order_id: int) -> None:
        total, refunded = self.store.value("SELECT total FROM orders WHERE id = ?", order_id), self._refunded(order_id)
        if total < refunded:
            raise ToolError(f"conflict: {money(refunded)} of the order are refunded; its total cannot come to {money(total)}")

    def _full_refund(self, order_id: int, data: Row) -> None:
        """Refund what is left of an order that a caller declares refunded; the stock stays as it is."""
        left = self.store.value("SELECT total FROM orders WHERE id = ?", order_id) - self._refunded(order_id)
        if data.get("status") == "refunded" and left:
            self._refund(order_id, left, "Order fully refunded.", [])

    def _shown_order(self, order_id: int) -> Row:
        self.store.get("orders", order_id)
        return self._shown_orders([order_id])[0]

    def _shown_orders(self, ids: list[int]) -> list[Row]:
        """Orders as the API shows them."""
        items: dict[int, list[Row]] = {}
        sql = """SELECT i.*, p.sku FROM items AS i LEFT JOIN products AS p ON p.id = coalesce(i.variation_id, i.product_id)
            WHERE i.order_id IN (SELECT value FROM json_each(?)) ORDER BY i.id"""
        for row in self.store.rows(sql, ids):
            items.setdefault(row["order_id"], []).append(row)
        refunds: dict[int, list[Row]] = {}
        for row in self.store.rows("SELECT * FROM refunds WHERE order_id IN (SELECT value FROM json_each(?)) ORDER BY id", ids):
            refunds.setdefault(row["order_id"], []).append(
                {"id": row["id"], "reason": row["reason"], "total": money(-row["amount"])}
            )
        rates = {row["id"]: row for row in self.store.find("tax_rates")}
        return [
            self._shown_as_order(row, items.get(row["id"], []), refunds.get(row["id"], []), rates)
            for row in self._by_ids("orders", ids)
        ]

    def _shown_as_order(self, row: Row, items: list[Row], refunds: list[Row], rates: dict[int, Row]) -> Row:
        details = row["details"]
        kinds = {kind: [item for item in items if item["type"] == kind] for kind in ("line_item", "shipping", "fee", "coupon")}
        return {
            "id": row["id"],
            "number": str(row["id"]),
            "status": row["status"],
            "currency": row["currency"],
            **self._dates(row, "date_created", "date_modified", *_DATES[1:]),
            **{name: money(row[name]) for name in _SUMS},
            "prices_include_tax": False,
            "customer_id": row["customer_id"] or 0,
            **details,
            "billing": {**ADDRESS, "email": "", **details["billing"]},
            "shipping": {**ADDRESS, **details["shipping"]},
            "line_items": [_shown_line(item) for item in kinds["line_item"]],
            "tax_lines": _tax_lines(items, rates),
            "shipping_lines": [
                {"id": item["id"], "method_title": item["name"], "method_id": item["code"], **_sums(item)}
                for item in kinds["shipping"]
            ],
            "fee_lines": [
                {"id": item["id"], "name": item["name"], "tax_class": item["code"], **_sums(item)} for item in kinds["fee"]
            ],
            "coupon_lines": [
                {"id": item["id"], "code": item["code"], "discount": money(item["total"]), "discount_tax": money(item["total_tax"])}
                for item in kinds["coupon"]
            ],
            "refunds": refunds,
            "meta_data": row["meta_data"],
        }


def _sums(item: Row) -> Row:
    return {
        "total": money(item["total"]),
        "total_tax": money(item["total_tax"]),
        "taxes": item["taxes"],
        "meta_data": item["meta_data"],
    }


def _shown_line(item: Row) -> Row:
    return {
        "id": item["id"],
        "name": item["name"],
        "product_id": item["product_id"] or 0,
        "variation_id": item["variation_id"] or 0,
        "quantity": item["quantity"],
        "tax_class": "" if item["code"] == UNTAXED else item["code"],
        "subtotal": money(item["subtotal"]),
        "subtotal_tax": money(item["subtotal_tax"]),
        **_sums(item),
        "sku": item["sku"] or "",
        "price": round(item["total"] / item["quantity"] / 100, 6),
    }


def _tax_lines(items: list[Row], rates: dict[int, Row]) -> list[Row]:
    """The taxes of an order by rate."""
    found: dict[int, dict[str, int]] = {}
    for item in items:
        for tax in item["taxes"]:
            sums = found.setdefault(tax["id"], {"tax_total": 0, "shipping_tax_total": 0})
            sums["shipping_tax_total" if item["type"] == "shipping" else "tax_total"] += cents(tax["total"])
    return [
        {
            "rate_id": number,
            "rate_code": "-".join(filter(None, [rate["country"], rate["state"], rate["name"].upper()])),
            "label": rate["name"],
            "compound": rate["compound"],
            "rate_percent": float(rate["rate"]),
            **{name: money(worth) for name, worth in found[number].items()},
        }
        for number in sorted(found)
        for rate in [rates[number]]
    ]
