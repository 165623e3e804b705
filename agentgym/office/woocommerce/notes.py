"""Notes of orders."""

from __future__ import annotations

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import ShopPart
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
