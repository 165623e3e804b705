"""Order notes and refunds."""

from __future__ import annotations

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import ShopContext, ShopPart
from agentgym.office.woocommerce.money import cents, money
from agentgym.office.woocommerce.shapes import (
    RefundedLine,
    RefundLine,
    parse_amount,
    validate,
)
from agentgym.office.woocommerce.stock import Stock
from agentgym.text.tools import ToolError, tool


class OrderNotes(ShopPart):
    """Notes of orders."""

    def of_order(self, order_id: int) -> list[Row]:
        """Return an order's notes, oldest first."""
        return self._store.find("notes", order_id=order_id)

    def add(
        self, order_id: int, note: str, customer_note: bool = False, author: str = "system"
    ) -> int:
        """Add a note and return its id."""
        return self._store.insert(
            "notes",
            order_id=order_id,
            author=author,
            note=note,
            customer_note=customer_note,
            date_created=self._shop.tick(),
        )

    def add_status_change(self, order_id: int, old: str, new: str) -> None:
        """Add a note about a status change."""
        self.add(order_id, f"Order status changed from {old} to {new}.")

    @tool
    def woo_orders_notes_create(self, orderId: int, note: str, customerNote: bool = False) -> Row:
        """Add a note to an order.

        Args:
            orderId: Order.
            note: Text.
            customerNote: Visible to the customer.
        """
        if not note.strip():
            raise ToolError("invalid argument: note must not be empty")
        self._store.get("orders", orderId)
        new_id = self.add(orderId, note, customer_note=customerNote, author="admin")
        row = self._store.get("notes", new_id)
        fields = {name: row[name] for name in ("id", "order_id", "note", "customer_note")}
        return {**fields, "date_created": self._shop.site_time(row["date_created"])}


class Refunds(ShopPart):
    """Refunds of orders. Refunded quantities return to the stock."""

    def __init__(self, shop: ShopContext, stock: Stock, notes: OrderNotes) -> None:
        super().__init__(shop)
        self._stock = stock
        self._notes = notes

    # For other parts.

    def check_total(self, order_id: int) -> None:
        """Raise `ToolError` if refunds exceed an order's total."""
        total, refunded = self._total(order_id), self._refunded(order_id)
        if total < refunded:
            raise ToolError(
                f"conflict: {money(refunded)} of the order have been refunded; its total cannot be "
                f"{money(total)}"
            )

    def refund_rest(self, order_id: int) -> None:
        """Refund an order's rest, without stock, when a caller marks it as refunded."""
        rest = self._total(order_id) - self._refunded(order_id)
        if rest:
            self._add(order_id, rest, "Order fully refunded.", [])

    # Tools.

    @tool
    def woo_orders_refunds_create(
        self,
        orderId: int,
        amount: str | None = None,
        reason: str = "",
        refundPayment: bool = False,
        lineItems: list[RefundedLine] | None = None,
    ) -> Row:
        """Refund an order, up to its total; a full refund sets the status to refunded.

        Args:
            orderId: Order.
            amount: Amount; the sum of the lines by default.
            reason: Reason.
            refundPayment: Refund through the payment method, if it can; otherwise manually.
            lineItems: Lines to refund, whose quantities return to the stock.
        """
        with self._store.change():
            order = self._store.get("orders", orderId)
            if refundPayment:
                raise ToolError(
                    "invalid argument: refundPayment: the payment method of this order cannot "
                    "refund; refund the order manually"
                )
            lines = self._lines(orderId, lineItems or [])
            named = sum(line["total"] for line in lines)
            worth = named if amount is None else cents(parse_amount(amount, "amount"))
            least, rest = max(named, 1), order["total"] - self._refunded(orderId)
            if not least <= worth <= rest:
                raise ToolError(
                    f"invalid argument: amount: {money(least)} to {money(rest)} can be refunded, "
                    f"got {money(worth)}"
                )
            new_id = self._add(orderId, worth, reason, lines)
            for line in lines:
                self._stock.put_back(line["id"], line["quantity"])
            if worth == rest:
                self._store.update(
                    "orders", orderId, status="refunded", date_modified=self._shop.tick()
                )
                self._notes.add_status_change(orderId, order["status"], "refunded")
        return self._show(self._store.get("refunds", new_id))

    # Helpers.

    def _total(self, order_id: int) -> int:
        return int(self._store.value("SELECT total FROM orders WHERE id = ?", order_id))

    def _refunded(self, order_id: int) -> int:
        sql = "SELECT coalesce(sum(amount), 0) FROM refunds WHERE order_id = ?"
        return int(self._store.value(sql, order_id))

    def _add(self, order_id: int, amount: int, reason: str, lines: list[Row]) -> int:
        return self._store.insert(
            "refunds",
            order_id=order_id,
            amount=amount,
            reason=reason,
            date_created=self._shop.tick(),
            lines=lines,
        )

    def _lines(self, order_id: int, data: list[Row]) -> list[Row]:
        refunds = self._store.find("refunds", order_id=order_id)
        lines: list[Row] = [line for refund in refunds for line in refund["lines"]]
        earlier = len(lines)
        for number, given in enumerate(data):
            fields = validate(RefundLine, given, f"lineItems.{number}")
            item = self._store.get(
                "items", fields.get("id", 0), "line of this order", order_id=order_id
            )
            tax = sum(cents(each["refund_total"]) for each in fields.get("refund_tax", []))
            total, quantity = cents(fields.get("refund_total", "")), fields.get("quantity", 0)
            lines.append({"id": item["id"], "quantity": quantity, "total": total})
            same = [line for line in lines if line["id"] == item["id"]]
            if (
                sum(line["quantity"] for line in same) > item["quantity"]
                or sum(line["total"] for line in same) > item["total"]
                or tax > 0  # orders are untaxed
            ):
                raise ToolError(
                    f"invalid argument: lineItems.{number}: this exceeds what is left to refund of "
                    f"line {item['id']}"
                )
        return lines[earlier:]

    def _show(self, row: Row) -> Row:
        items = {item["id"]: item for item in self._store.find("items", order_id=row["order_id"])}
        return {
            "id": row["id"],
            "order_id": row["order_id"],
            "date_created": self._shop.site_time(row["date_created"]),
            "amount": money(row["amount"]),
            "reason": row["reason"],
            "api_refund": False,
            "line_items": [_show_line(line, items[line["id"]]) for line in row["lines"]],
        }


def _show_line(line: Row, item: Row) -> Row:
    return {
        "id": line["id"],
        "name": item["name"],
        "product_id": item["product_id"] or 0,
        "quantity": -line["quantity"],
        "total": money(-line["total"]),
        "taxes": [],
    }
