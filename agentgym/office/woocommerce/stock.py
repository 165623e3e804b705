"""Products' stock and sales, and their changes by orders."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import ShopPart


class Stock(ShopPart):
    """Products' stock and sales. Each order item stores in `reduced` how much it took."""

    def settle(self, items: Sequence[Row], was_booked: bool, booked: bool) -> None:
        """Update stock, sales and the items' `reduced` after an order was booked or released."""
        if was_booked != booked:
            for item in items:
                self.take(item, item["reduced"], item["quantity"] if booked else 0)
                self._count_sales(item, item["quantity"] * (booked - was_booked))

    def take(self, item: Row, reduced: int, target: int) -> None:
        """Change what an item took from `reduced` to `target` in its product's stock."""
        item["reduced"] = min(reduced, target)
        if item["type"] != "line_item" or reduced == target:
            return
        if item["product_id"] and self._add(item["product_id"], reduced - target):
            item["reduced"] = target

    def _add(self, product_id: int, count: int) -> bool:
        """Add to a product's managed stock; return whether it is managed."""
        sql = "SELECT manage_stock, stock_quantity, backorders FROM products WHERE id = ?"
        row = self._store.row(sql, product_id)
        if row is None or not row["manage_stock"]:
            return False
        quantity = row["stock_quantity"] + count
        status = stock_status(quantity, row["backorders"])
        self._store.update("products", product_id, stock_quantity=quantity, stock_status=status)
        return True

    def _count_sales(self, item: Row, count: int) -> None:
        if count and item["type"] == "line_item" and item["product_id"]:
            sql = "SELECT total_sales FROM products WHERE id = ?"
            sales = self._store.value(sql, item["product_id"]) + count
            self._store.update("products", item["product_id"], total_sales=max(0, sales))


def stock_status(quantity: int, backorders: str) -> str:
    """Return the status of managed stock."""
    if quantity > 0:
        return "instock"
    return "outofstock" if backorders == "no" else "onbackorder"
