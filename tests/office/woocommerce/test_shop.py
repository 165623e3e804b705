"""Shops: paging, copies, and the totals of orders.

`tests/office/recorded/woocommerce.txt` has the rest.
"""

from __future__ import annotations

import copy
from datetime import datetime
from typing import Any

import pytest

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
        refused(shop, "woo_products_list", "the page size must be between 1 and 100", perPage=size)
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
        WooCommerce().orders.add_all([{"date_created": datetime(2025, 1, 1)}])
