"""Stock and sales of products, and how orders move them."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import ShopPart

_NOTHING = {"quantity": 0, "reduced": 0}
"""An item that was not in the order before."""


class Stock(ShopPart):
    """Stock and sales of products. Each item of an order notes in `reduced` how much it took."""

    def settle(
        self, old: Sequence[Row], new: Sequence[Row], was_booked: bool, booked: bool
    ) -> None:
        """Move stock and sales as an order changes.

        Args:
            old: Its items before.
            new: Its items after; their `reduced` is set.
            was_booked: Whether it had taken its products from the stock.
            booked: Whether it takes them now.
        """
        before = {item["id"]: item for item in old}
        for item in new:
            previous = before.pop(item["id"], _NOTHING)
            taken = previous if was_booked else _NOTHING
            # An item that took less than its quantity (see refunds) keeps the difference.
            target = taken["reduced"] + item["quantity"] - taken["quantity"]
            self.take(item, previous["reduced"], max(0, target) if booked else 0)
            self._count_sales(item, item["quantity"] * booked - taken["quantity"])
        for removed in before.values():
            self.take(dict(removed), removed["reduced"], 0)
            self._count_sales(removed, -removed["quantity"] * was_booked)

    def take(self, item: Row, reduced: int, target: int) -> None:
        """Change how much an item of an order has taken; sets its `reduced`.

        It is taken from the variation if its stock is managed, or else from the product.

        Args:
            item: The item.
            reduced: How much it has taken so far.
            target: How much it is to have taken.
        """
        item["reduced"] = min(reduced, target)
        is_changed = item["type"] == "line_item" and reduced != target
        if is_changed and any(
            product_id and self._add(product_id, reduced - target)
            for product_id in (item["variation_id"], item["product_id"])
        ):
            item["reduced"] = target

    def put_back(self, item_id: int, count: int) -> None:
        """Put a number of what an item of an order has taken back into the stock."""
        item = self._store.get("items", item_id)
        self.take(item, item["reduced"], max(0, item["reduced"] - count))
        self._store.update("items", item_id, reduced=item["reduced"])

    def _add(self, product_id: int, count: int) -> bool:
        """Add to the stock of a product, unless its stock is not managed."""
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
    """Return the stock status of a product whose stock is managed."""
    if quantity > 0:
        return "instock"
    return "outofstock" if backorders == "no" else "onbackorder"
