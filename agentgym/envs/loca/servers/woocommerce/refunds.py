"""Refunds of the shop's orders."""

from __future__ import annotations

from typing import Any

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.money import cents, money
from agentgym.envs.loca.servers.woocommerce.orders import Orders
from agentgym.envs.loca.servers.woocommerce.shapes import RefundLine, as_amount, checked
from agentgym.tools import ToolError, tool


class Refunds(Orders):
    """The tool for refunds."""

    @tool
    def woo_orders_refunds_create(
        self,
        orderId: int,
        amount: str | None = None,
        reason: str = "",
        refundPayment: bool = False,
        lineItems: list[dict[str, Any]] | None = None,
    ) -> Row:
        """Refund an order, all in all at most its total. Items that `lineItems` names go back to the stock.

        An item of `lineItems` is {"id": of the line, "quantity": 1, "refund_total": "9.99", "refund_tax": [{"id": of the rate,
        "refund_total": "1.00"}]}. Without `amount` it is the sum of these. `refundPayment` pays back through the payment method,
        if that can; otherwise the money is to be paid back by hand. An order that is refunded whole gets the status refunded.
        """
        with self.store.change():
            order = self.store.get("orders", orderId)
            gateway = self.store.row("SELECT supports FROM gateways WHERE id = ?", order["details"]["payment_method"])
            if refundPayment and "refunds" not in (gateway or {"supports": []})["supports"]:
                raise ToolError("invalid argument: refundPayment: the payment method of this order cannot pay back; do it by hand")
            lines = self._refund_lines(orderId, lineItems or [])
            named = sum(line["total"] + sum(tax["total"] for tax in line["taxes"]) for line in lines)
            worth = named if amount is None else cents(as_amount(amount, "amount"))
            least, left = max(named, 1), order["total"] - self._refunded(orderId)
            if not least <= worth <= left:
                raise ToolError(f"invalid argument: amount: {money(least)} to {money(left)} can be refunded, got {money(worth)}")
            made = self._refund(orderId, worth, reason, lines, paid=refundPayment)
            for line in lines:
                item = self.store.get("items", line["id"])
                self._take(item, item["reduced"], max(0, item["reduced"] - line["quantity"]))
                self.store.update("items", item["id"], reduced=item["reduced"])
            if worth == left:
                self.store.update("orders", orderId, status="refunded", date_modified=self._now())
                self._note(orderId, f"Order status changed from {order['status']} to refunded.")
            self._fire("order.updated", orderId)
        return self._shown_refund(self.store.get("refunds", made))

    def _refund_lines(self, order_id: int, given: list[Row]) -> list[Row]:
        """What of each line a refund pays back, in cents; no line more than what is left of it."""
        done = [line for refund in self.store.find("refunds", order_id=order_id) for line in refund["lines"]]
        for number, data in enumerate(given):
            line = checked(RefundLine, data, f"lineItems.{number}")
            item = self.store.get("items", line.get("id", 0), "line of this order", order_id=order_id)
            taxes = [{"id": tax["id"], "total": cents(tax["refund_total"])} for tax in line.get("refund_tax", [])]
            total = cents(line.get("refund_total", ""))
            done.append({"id": item["id"], "quantity": line.get("quantity", 0), "total": total, "taxes": taxes})
            same = [each for each in done if each["id"] == item["id"]]
            tax = sum(each["total"] for entry in same for each in entry["taxes"])
            if any(sum(each[name] for each in same) > item[name] for name in ("quantity", "total")) or tax > item["total_tax"]:
                raise ToolError(f"invalid argument: lineItems.{number}: more than what is left to refund of line {item['id']}")
        return done[len(done) - len(given) :]

    def _shown_refund(self, row: Row) -> Row:
        named = {item["id"]: item for item in self.store.find("items", order_id=row["order_id"])}
        return {
            "id": row["id"],
            **self._dates(row, "date_created"),
            "amount": money(row["amount"]),
            "reason": row["reason"],
            "refunded_by": 1,
            "refunded_payment": row["refunded_payment"],
            "line_items": [
                {
                    "id": line["id"],
                    "name": named[line["id"]]["name"],
                    "product_id": named[line["id"]]["product_id"] or 0,
                    "quantity": -line["quantity"],
                    "total": money(-line["total"]),
                    "taxes": [{"id": tax["id"], "total": money(-tax["total"])} for tax in line["taxes"]],
                }
                for line in row["lines"]
            ],
        }
