"""A shop for tests, and invariants of every shop."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from agentgym.text.tools import ToolError
from tests.office.direct import DirectShop

PAID = {"status": "processing"}


def make_shop() -> DirectShop:
    """Return a shop with three products at 10.00, 4.50 and 15.00 (reduced from 20.00)."""
    shop = DirectShop()
    shop.products.add_all([
        {"name": "Red Mug", "sku": "M1", "regular_price": "10.00", "stock_quantity": 100, "categories": ["Mugs"]},
        {"name": "Blue Mug", "sku": "M2", "regular_price": "4.50", "stock_quantity": 100, "categories": ["Mugs"], "tags": ["new"]},
        {"name": "Oak Table", "sku": "T1", "regular_price": "20", "sale_price": "15.00", "stock_quantity": 100},
    ])  # fmt: skip
    shop.customers.add_all(
        [{"email": "ann@x.org", "first_name": "Ann"}, {"email": "bob@x.org", "first_name": "Bob"}]
    )
    return shop


def order(shop: DirectShop, *lines: tuple[int, int], **more: Any) -> dict[str, Any]:
    items = [{"product_id": product, "quantity": quantity} for product, quantity in lines]
    [new] = shop.orders.add_all([{"line_items": items, **more}], take_stock=True)
    return shop.orders_get(new)


def stock(shop: DirectShop) -> list[Any]:
    return [row.get("stock_quantity") for row in shop.products.all()]


def refused(why: str, call: Callable[[], object]) -> None:
    with pytest.raises(ToolError, match=why):
        call()


def check_laws(shop: DirectShop) -> None:
    assert shop.store.rows("PRAGMA foreign_key_check") == []
    for row in shop.orders.all():
        amount = lambda items, name: sum(Decimal(item[name]) for item in items)  # noqa: E731
        items = shop.store.find("items", order_id=row["id"])
        lines = [item for item in items if item["type"] == "line_item"]
        assert Decimal(row["total"]) == amount(items, "total") / 100
        assert Decimal(row["subtotal"]) == amount(lines, "subtotal") / 100
        shown = [
            line.get("total") or Decimal(line["price"]) * line["quantity"]
            for line in row["line_items"]
        ]
        assert Decimal(row["discount_total"]) == Decimal(row["subtotal"]) - sum(map(Decimal, shown))
