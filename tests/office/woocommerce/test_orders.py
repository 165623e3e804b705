"""Orders and reports, by hand and against a stock model."""

from __future__ import annotations

import json
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.office.context import START
from agentgym.text.tools import ToolError
from tests.office.direct import DirectShop
from tests.office.woocommerce.shop_checks import check_laws, make_shop, order, refused, stock


@pytest.fixture
def shop() -> DirectShop:
    return make_shop()


def test_an_order_with_shipping_and_fee(shop: DirectShop) -> None:
    first = order(
        shop,
        (1, 3),
        (2, 1),
        shipping_lines=[{"method_id": "flat_rate", "total": "5.00"}],
        fee_lines=[{"name": "Gift", "total": "2"}],
    )
    assert [(line["quantity"], line["price"]) for line in first["line_items"]] == [
        (3, "10.00"),
        (1, "4.50"),
    ]
    assert (first["subtotal"], first["shipping_total"]) == ("34.50", "5.00")
    assert (first["total"], first["total_tax"], first["status"]) == ("41.50", "0.00", "pending")
    before = shop.orders_get(first["id"])
    after = shop.orders_update(first["id"], before)
    assert {**after, "date_modified": 0} == {**before, "date_modified": 0}


def test_orders_change_the_stock(shop: DirectShop) -> None:
    first = order(shop, (1, 3), (3, 1))
    assert stock(shop) == [100, 100, 100]
    for status, left, sold in (
        ("on-hold", 97, 3),
        ("processing", 97, 3),
        ("completed", 97, 3),
        ("cancelled", 100, 0),
        ("processing", 97, 3),
        ("failed", 97, 3),
    ):
        shop.orders_update(first["id"], {"status": status})
        assert (stock(shop)[0], shop.products_get(1).get("total_sales", 0)) == (left, sold), status
    notes = [note["note"] for note in shop.notes.of_order(first["id"])]
    assert notes[0] == "Order status changed from pending to on-hold."
    assert order(shop, (2, 200), set_paid=True)["status"] == "processing"
    assert (stock(shop)[1], shop.products_get(2)["stock_status"]) == (-100, "outofstock")
    shop.orders_delete(2, force=True)
    assert stock(shop)[1] == -100


def test_listing_orders(shop: DirectShop) -> None:
    day = timedelta(days=1)
    rows = (
        ("completed", 2, 1, 7),
        ("processing", 3, 2, 3),
        ("completed", 3, 1, 1),
        ("pending", 2, 3, 0),
    )
    shop.orders.add_all(
        {
            "status": status,
            "customer_id": customer,
            "line_items": [{"product_id": product}],
            "date_created": START - days * day,
        }
        for status, customer, product, days in rows
    )
    assert stock(shop) == [100, 100, 100], "filled orders are counted in already"
    ids = lambda **filters: [row["id"] for row in shop.orders_list(**filters)]  # noqa: E731
    assert (ids(), ids(order="asc"), ids(status=["completed", "pending"]), ids(status=["any"])) == (
        [4, 3, 2, 1],
        [1, 2, 3, 4],
        [4, 3, 1],
        [4, 3, 2, 1],
    )
    assert (ids(customer=2), ids(product=1), ids(product=1, customer=3), ids(customer=0)) == (
        [4, 1],
        [3, 1],
        [3],
        [],
    )
    assert ids(dateAfter="2025-01-08T09:00:00") == [4, 3, 2], "exclusive"
    assert (ids(dateAfter="2025-01-08"), ids(dateBefore="2025-01-12T10:00:00+01:00")) == (
        [4, 3, 2, 1],
        [1],
    )
    refused("status must be any, trash", lambda: ids(status=["done"]))
    refused("dateAfter must be a date such as", lambda: ids(dateAfter="yesterday"))
    shop.orders_delete(4)
    assert (ids(), ids(status=["trash"])) == ([3, 2, 1], [4])
    first = shop.orders_get(1)
    assert (
        first["date_completed"]
        == first["date_paid"]
        == first["date_created"]
        == "2025-01-08T09:00:00"
    )
    assert (first["billing"]["email"], first["billing"]["first_name"]) == ("ann@x.org", "Ann")
    shop.orders_update(1, {"status": "cancelled"})
    assert stock(shop)[0] == 101, "a filled order holds what it took"
    shop.settings.update("gmt_offset", "-10.5")
    assert shop.orders_get(2)["date_created"] == "2025-01-11T22:30:00"
    assert ids(dateBefore="2025-01-11T22:30:01") == [2, 1]
    note = shop.orders_notes_create(1, "Call back", customerNote=True)
    assert (note["note"], note["customer_note"], note["order_id"]) == ("Call back", True, 1)


def test_invalid_orders(shop: DirectShop) -> None:
    for data, why in (
        ({"line_items": [{"product_id": 9}]}, "not found: there is no product with id 9"),
        ({"line_items": [{"sku": "none"}]}, 'no product with SKU "none"'),
        ({"line_items": [{"product_id": 1, "quantity": 0}]}, "a quantity of at least 1"),
        (
            {
                "line_items": [
                    {"product_id": 1, "quantity": 10**6, "total": "1e9"},
                    {"product_id": 1},
                ]
            },
            "limit exceeded: the total of an order",
        ),
        ({"shipping_lines": [{"total": "1"}]}, "a new shipping line needs a method_id"),
        ({"fee_lines": [{"total": "1"}]}, "a new fee line needs a name"),
    ):
        refused(why, lambda data=data: shop.orders.add(**data))
    filled = order(shop, (1, 2))
    line = filled["line_items"][0]["id"]
    for data, why in (
        ({"line_items": [{"product_id": 1}]}, "the lines of an order is not enabled"),
        ({"line_items": [{"id": line, "quantity": 3}]}, "the lines of an order is not enabled"),
        ({"line_items": [{"id": line, "name": "x"}]}, "the lines of an order is not enabled"),
        ({"line_items": [{"id": line, "product_id": 2}]}, "the lines of an order is not enabled"),
        ({"line_items": [{"id": line, "total": "9"}]}, "the lines of an order is not enabled"),
        ({"fee_lines": [{"id": line}]}, "the lines of an order is not enabled"),
        ({"customer_id": 9}, "no customer with id 9"),
        ({"status": "done"}, "orderData.status"),
        ({"currency": "dollars"}, "orderData.currency"),
        ({"coupon_lines": [{"code": "x"}]}, "orderData.coupon_lines"),
    ):
        refused(why, lambda data=data: shop.orders_update(1, data))
    assert shop.orders.all() == [filled]
    second = shop.orders.add(line_items=[{"product_id": 1, "quantity": 2, "total": "12.50"}])
    shown = shop.orders_get(second)
    assert (shown["total"], shown["discount_total"]) == ("12.50", "7.50")
    assert shop.orders_update(second, shown)["total"] == "12.50"
    third = order(shop, (3, 1))["id"]
    shop.products_delete(3, force=True)
    assert shop.orders_get(third)["line_items"][0]["product_id"] == 0


def test_stock_reports(shop: DirectShop) -> None:
    shop.products_update(1, {"stock_quantity": 2})
    shop.products_update(2, {"stock_quantity": 9, "low_stock_amount": 9})
    assert [row["id"] for row in shop.reports_low_stock()] == [1, 2]
    assert [(row["id"], row["stock_quantity"]) for row in shop.reports_stock(perPage=2)] == [
        (1, 2),
        (2, 9),
    ]


def legal_call(shop: DirectShop, rng: np.random.Generator) -> None:
    orders = [row["id"] for row in shop.orders.all()]
    pick = lambda values: values[int(rng.integers(len(values)))]  # noqa: E731
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
    pick([
        lambda: shop.orders_update(number, {"status": status}),
        lambda: shop.orders_delete(number, force=bool(rng.random() < 0.5)),
    ])()  # fmt: skip


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32))
def test_random_calls_match_a_model(seed: int) -> None:
    shops = []
    for _ in range(2):
        rng, shop = np.random.default_rng(seed), DirectShop()
        shop.products.add_all(
            {"name": f"P{k}", "regular_price": f"{k}.35", "stock_quantity": 50} for k in range(3)
        )
        booked: dict[int, dict[int, int]] = {}  # the model: quantities by order and product
        for _ in range(25):
            try:
                legal_call(shop, rng)
            except ToolError as error:
                assert str(error).startswith(("invalid argument", "conflict"))  # noqa: PT017
            for row in shop.orders.all():
                if row["status"] in ("processing", "completed", "on-hold") or (
                    row["id"] in booked and row["status"] not in ("pending", "cancelled")
                ):
                    sold: dict[int, int] = {}
                    for line in row["line_items"]:
                        sold[line["product_id"]] = (
                            sold.get(line["product_id"], 0) + line["quantity"]
                        )
                    booked[row["id"]] = sold
                elif row["status"] in ("pending", "cancelled"):
                    booked.pop(row["id"], None)
            assert stock(shop) == [
                50 - sum(sold.get(product, 0) for sold in booked.values()) for product in (1, 2, 3)
            ]
            check_laws(shop)
        shops.append(json.dumps([shop.orders.all(), shop.products.all()]))
    assert shops[0] == shops[1]
