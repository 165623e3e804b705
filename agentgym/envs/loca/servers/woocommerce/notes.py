"""Notes of the shop's orders."""

from __future__ import annotations

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.context import ShopContext
from agentgym.tools import ToolError, tool


class OrderNotes:
    """Notes of orders.

    Args:
        shop: Context of the shop.
    """

    def __init__(self, shop: ShopContext) -> None:
        self._shop = shop

    def of_order(self, order_id: int) -> list[Row]:
        """Return the notes of an order, first to last."""
        return self._shop.store.find("notes", order_id=order_id)

    def add(
        self, order_id: int, note: str, customer_note: bool = False, author: str = "system"
    ) -> int:
        """Add a note to an order and return its id."""
        return self._shop.store.insert(
            "notes",
            order_id=order_id,
            author=author,
            note=note,
            customer_note=customer_note,
            date_created=self._shop.tick(),
        )

    def add_status_change(self, order_id: int, old: str, new: str) -> None:
        """Note that an order has another status."""
        self.add(order_id, f"Order status changed from {old} to {new}.")

    @tool
    def woo_orders_notes_create(self, orderId: int, note: str, customerNote: bool = False) -> Row:
        """Add a note to an order.

        Args:
            orderId: Order.
            note: Text.
            customerNote: The customer sees it too.
        """
        if not note.strip():
            raise ToolError("invalid argument: note must not be empty")
        store = self._shop.store
        with store.change():
            store.get("orders", orderId)
            new_id = self.add(orderId, note, customer_note=customerNote, author="admin")
        row = store.get("notes", new_id)
        fields = {name: row[name] for name in ("id", "order_id", "note", "customer_note")}
        return {**fields, "date_created": self._shop.site_time(row["date_created"])}
