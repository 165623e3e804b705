"""Shops: paging, copies, and random orders against a stock model.

`tests/office/recorded/woocommerce.txt` has the rest.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.office.woocommerce.server import WooCommerce
from agentgym.text.tools import ToolError
from tests.office.test_laws import call, refused
from tests.office.test_sessions import prepared


def test_paging() -> None:
    shop: Any = prepared("woocommerce")
    shop.products.add_all([{"name": f"P{k}"} for k in range(120)])
    order = {"perPage": 50, "orderby": "id", "order": "asc"}
    pages = [call(shop, "woo_products_list", page=page, **order) for page in (1, 2, 3, 4, 10**25)]
    assert [len(page) for page in pages] == [50, 50, 23, 0, 0]
    assert [product["id"] for page in pages for product in page] == list(range(1, 124))
    assert len(call(shop, "woo_products_list")) == 10
    for size in (0, 101):
        refused(shop, "woo_products_list", "a page holds 1 to 100 items", perPage=size)
    refused(shop, "woo_orders_list", "page must be at least 1", page=0)


def test_parts_use_the_current_store() -> None:
    shop: Any = prepared("woocommerce")
    for _ in range(2):
        shop.begin()
        assert (len(shop.products.all()), currency(shop)) == (3, "USD")
        shop.products.add("Bowl")
        shop.settings.update("woocommerce_currency", "EUR")
    copied = copy.deepcopy(shop)
    copied.products.add("Plate")
    assert (len(shop.products.all()), len(copied.products.all())) == (4, 5)


def currency(shop: WooCommerce) -> str:
    rows = call(shop, "woo_settings_get", groupId="general")
    return str({row["id"]: row["value"] for row in rows}["woocommerce_currency"])


def test_filled_dates_need_a_time_zone() -> None:
    with pytest.raises(ValueError, match="a date must have a time zone"):
        WooCommerce().orders.add(date_created=datetime(2025, 1, 1))


def check_laws(shop: WooCommerce) -> None:
    """Check that totals are the sums of their items."""
    assert shop.store.rows("PRAGMA foreign_key_check") == []
    for row in shop.orders.all():
        items = shop.store.find("items", order_id=row["id"])
        lines = [item for item in items if item["type"] == "line_item"]
        assert Decimal(row["total"]) == sum(Decimal(item["total"]) for item in items) / 100
        assert Decimal(row["subtotal"]) == sum(Decimal(line["subtotal"]) for line in lines) / 100
        shown = Decimal(0)
        for line in row["line_items"]:
            shown += Decimal(line.get("total") or Decimal(line["price"]) * line["quantity"])
        assert Decimal(row["discount_total"]) == Decimal(row["subtotal"]) - shown


def legal_call(shop: WooCommerce, rng: np.random.Generator) -> None:
    def pick(values: list[Any]) -> Any:
        return values[int(rng.integers(len(values)))]

    orders = [row["id"] for row in shop.orders.all()]
    lines = [
        {"product_id": int(rng.integers(1, 4)), "quantity": int(rng.integers(1, 9))}
        for _ in range(int(rng.integers(1, 4)))
    ]
    status = pick(["pending", "processing", "on-hold", "completed", "cancelled", "failed"])
    if not orders or rng.random() < 0.25:
        shipping = [{"method_id": "flat_rate", "total": f"{int(rng.integers(999)) / 100}"}]
        filled = {"status": status, "line_items": lines, "shipping_lines": shipping}
        shop.orders.add_all([filled], take_stock=True)
        return
    number = pick(orders)
    tool, arguments = pick([
        ("woo_orders_update", {"orderData": {"status": status}}),
        ("woo_orders_delete", {"force": bool(rng.random() < 0.5)}),
    ])  # fmt: skip
    call(shop, tool, orderId=number, **arguments)


def book(booked: dict[int, Counter[int]], row: dict[str, Any]) -> None:
    """Note the quantities that an order has taken from the stock."""
    if row["status"] in ("pending", "cancelled"):
        booked.pop(row["id"], None)
    elif row["id"] in booked or row["status"] in ("processing", "completed", "on-hold"):
        sold = Counter[int]()
        for line in row["line_items"]:
            sold[line["product_id"]] += line["quantity"]
        booked[row["id"]] = sold


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32))
def test_random_calls_match_a_model(seed: int) -> None:
    shops = []
    for _ in range(2):
        rng, shop = np.random.default_rng(seed), WooCommerce()
        products = [
            {"name": f"P{k}", "regular_price": f"{k}.35", "stock_quantity": 50} for k in range(3)
        ]
        shop.products.add_all(products)
        booked: dict[int, Counter[int]] = {}
        for _ in range(25):
            try:
                legal_call(shop, rng)
            except ToolError as error:
                assert str(error).startswith(("invalid argument", "conflict"))  # noqa: PT017
            for row in shop.orders.all():
                book(booked, row)
            sold = sum(booked.values(), Counter[int]())
            stock = [row["stock_quantity"] for row in shop.products.all()]
            assert stock == [50 - sold[product] for product in (1, 2, 3)]
            check_laws(shop)
        shops.append(json.dumps([shop.orders.all(), shop.products.all()]))
    assert shops[0] == shops[1]
