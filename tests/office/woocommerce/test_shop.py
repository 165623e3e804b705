"""Shops: paging, copies, and the totals of orders.

`tests/office/recorded/woocommerce.txt` has the rest.
"""

from __future__ import annotations

import copy
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.office.woocommerce.server import WooCommerce
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


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32))
def test_totals_are_the_sums_of_the_items(seed: int) -> None:
    rng, shop = np.random.default_rng(seed), WooCommerce()
    shop.products.add_all([{"name": f"P{k}", "regular_price": f"{k}.35"} for k in range(3)])
    for _ in range(10):
        lines = [
            {"product_id": int(rng.integers(1, 4)), "quantity": int(rng.integers(1, 9))}
            for _ in range(int(rng.integers(1, 4)))
        ]
        shipping = [{"method_id": "flat_rate", "total": f"{int(rng.integers(999)) / 100}"}]
        shop.orders.add(line_items=lines, shipping_lines=shipping)
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
