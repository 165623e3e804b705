"""Products, customers, settings and filling."""

from __future__ import annotations

import copy
import json
import re
from datetime import datetime, timedelta
from typing import Any

import pytest

from agentgym.office.context import START, OfficeContext
from agentgym.office.woocommerce.context import MAX_BATCH
from tests.office.direct import DirectShop
from tests.office.woocommerce.shop_checks import make_shop, order, refused


@pytest.fixture
def shop() -> DirectShop:
    return make_shop()


def test_product_fields(shop: DirectShop) -> None:
    mug, table = shop.products_get(1), shop.products_get(3)
    assert (mug["id"], mug["price"], mug["on_sale"], mug["stock_status"]) == (
        1,
        "10.00",
        False,
        "instock",
    )
    assert mug["categories"] == [{"id": 2, "name": "Mugs"}]
    assert (table["price"], table["regular_price"], table["on_sale"]) == ("15.00", "20", True)
    assert "categories" not in table, "what a product does not have is not shown"
    assert mug["date_created"] == "2025-01-15T09:00:00"
    for product in shop.products.all():
        before = json.dumps({**product, "date_modified": 0})
        after = shop.products_update(product["id"], product)
        assert json.dumps({**after, "date_modified": 0}) == before


def test_creating_changing_and_deleting_products(shop: DirectShop) -> None:
    product = shop.products_create(
        {
            "name": "Red Mug",
            "regular_price": 3,
            "meta_data": [{"key": "a", "value": 1}, {"key": "b", "value": [2]}],
        }
    )
    assert (product["id"], product["slug"], product["price"]) == (4, "red-mug-2", "3")
    assert "stock_quantity" not in product
    changes = [
        {"key": "a", "value": 5},
        {"key": "b", "value": None},
        {"key": "c", "value": {"d": None}},
    ]
    product = shop.products_update(
        4,
        {
            "meta_data": changes,
            "manage_stock": True,
            "stock_quantity": "0",
            "categories": [{"id": 2}],
        },
    )
    assert product["meta_data"] == [{"key": "a", "value": 5}, {"key": "c", "value": {"d": None}}]
    assert (
        product["stock_quantity"],
        product["stock_status"],
        product["categories"][0]["name"],
    ) == (0, "outofstock", "Mugs")
    assert shop.products_update(4, {"backorders": "notify"})["stock_status"] == "onbackorder"
    assert shop.products_delete(4)["status"] == "trash"
    assert [row["id"] for row in shop.products_list()] == [1, 2, 3]
    refused("conflict: product 4 is in the trash already", lambda: shop.products_delete(4))
    shop.products_delete(4, force=True)
    refused("not found: there is no product with id 4", lambda: shop.products_get(4))
    assert shop.products_create({})["id"] == 5, "an id is not given again"


@pytest.mark.parametrize(("data", "why"), [
    ({"sku": "M1"}, "conflict: another product has the SKU"),
    ({"regular_price": "cheap"}, "productData.regular_price: .*an amount must look like"),
    ({"regular_price": -1}, "an amount is from 0 to"),
    ({"stock_quantity": 3}, "stock_quantity requires manage_stock to be true"),
    ({"status": "gone"}, "productData.status"),
    ({"categories": [{"id": 77}]}, "not found: there is no category with id 77"),
    ({"categories": [{"name": "Mugs"}]}, r"productData.categories.0.id: field required"),
    ({"meta_data": [{"value": 1}]}, "a new item of meta_data needs a key"),
    ({"date_on_sale_from": "soon"}, "date_on_sale_from must be a date"),
    ({"manage_stock": True, "stock_quantity": 10**30}, "productData.stock_quantity"),
])  # fmt: skip
def test_invalid_products(shop: DirectShop, data: dict[str, Any], why: str) -> None:
    refused(why, lambda: shop.products_create(data))
    assert len(shop.products.all()) == 3
    [failed] = shop.products_batch_update(create=[data])["create"]
    assert re.search(why, failed["error"])


def test_product_filters_and_sorting(shop: DirectShop) -> None:
    shop.categories.add("Big mugs", parent=2)
    shop.products.add(
        "Bowl",
        regular_price="4.50",
        categories=["Big mugs"],
        status="draft",
        featured=True,
        description="red clay",
    )
    ids = lambda **filters: [row["id"] for row in shop.products_list(**filters)]  # noqa: E731
    assert ids(search="mug RED") == [1]
    assert ids(search="red") == [1, 4]
    assert (ids(category="2"), ids(category="3"), ids(category="1,3"), ids(tag="1")) == (
        [1, 2, 4],
        [4],
        [3, 4],
        [2],
    )
    assert (
        ids(sku="M2, T1"),
        ids(sku="M"),
        ids(status="draft"),
        ids(featured=True),
        ids(onSale=True),
    ) == ([2, 3], [], [4], [4], [3])
    assert (
        ids(minPrice="4.5", maxPrice="10"),
        ids(minPrice="10.01"),
        ids(stockStatus="outofstock"),
    ) == ([1, 2, 4], [3], [])
    assert ids(orderby="price", order="asc") == [2, 4, 1, 3]
    assert ids(orderby="title", order="asc") == [2, 4, 3, 1]
    refused("category must be ids separated by commas", lambda: ids(category="Mugs"))
    refused("minPrice: an amount", lambda: ids(minPrice="x"))
    assert ids(minPrice=" ") == ids()
    names = [(row["name"], row["count"], row["parent"]) for row in shop.products_categories_list()]
    assert names == [("Uncategorized", 1, 0), ("Mugs", 2, 0), ("Big mugs", 0, 2)]
    assert [row["name"] for row in shop.products_categories_list(hideEmpty=True, search="u")] == [
        "Uncategorized",
        "Mugs",
    ]
    assert [row["name"] for row in shop.products_categories_list(parent=2)] == ["Big mugs"]
    assert [row["name"] for row in shop.products_tags_list(hideEmpty=True)] == ["new"]
    assert (
        shop.products_categories_create({"name": "Outlet/Clearance"})["slug"] == "outlet-clearance"
    )
    refused("conflict: category", lambda: shop.products_categories_create({"name": "mugs"}))
    refused("categoryData.name is missing", lambda: shop.products_categories_create({}))
    picture = {"src": "https://example.com/a.png"}
    made = shop.products_categories_create({"name": "Sale", "menuOrder": 3, "image": picture})
    assert (made["menu_order"], made["image"]) == (3, picture)
    refused(
        "no category with id 9", lambda: shop.products_categories_create({"name": "a", "parent": 9})
    )


def test_customers_are_unique(shop: DirectShop) -> None:
    assert [row["id"] for row in shop.customers_list()] == [3, 2]
    assert [row["email"] for row in shop.customers_list(role="all", order="asc")] == [
        "admin@woocommerce.local",
        "ann@x.org",
        "bob@x.org",
    ]
    assert [row["id"] for row in shop.customers_list(orderby="name", order="asc")] == [2, 3]
    assert [row["id"] for row in shop.customers_list(email="BOB@x.org")] == [3]
    assert [row["id"] for row in shop.customers_list(search="x.org ann")] == [2]
    for record, why in (
        ({"email": "ANN@x.org"}, "conflict: another customer has the email"),
        ({"email": "a@b.cd", "username": "ann"}, "conflict: another customer has the user"),
        ({}, "a customer needs an email"),
    ):
        refused(why, lambda record=record: shop.customers.add_all([record]))
    [new] = shop.customers.add_all([{"email": "ann@y.org"}])
    assert shop.customers_get(new)["username"] == "ann2"


def test_failed_batch_items_do_not_stop_others(shop: DirectShop) -> None:
    done = shop.products_batch_update(
        create=[{"name": "A"}, {"sku": "M1"}],
        update=[{"id": 2, "name": "B"}, {"id": 9}, {}],
        delete=[1, 1],
    )
    assert [row.get("name") for row in done["create"]] == ["A", None]
    errors = [row["error"] for rows in done.values() for row in rows if "error" in row]
    assert [error.partition(":")[0] for error in errors] == [
        "conflict",
        "not found",
        "invalid argument",
        "not found",
    ]
    assert [row["name"] for row in shop.products.all()] == ["B", "Oak Table", "A"]
    refused(
        "limit exceeded: a batch has at most 100",
        lambda: shop.products_batch_update(delete=[1] * (MAX_BATCH + 1)),
    )


def test_paging(shop: DirectShop) -> None:
    shop.products.add_all([{"name": f"P{k}"} for k in range(120)])
    pages = [
        [row["id"] for row in shop.products_list(perPage=50, page=page, orderby="id", order="asc")]
        for page in (1, 2, 3, 4, 10**25)
    ]
    assert [len(page) for page in pages] == [50, 50, 23, 0, 0]
    assert [product for page in pages for product in page] == list(range(1, 124))
    assert len(shop.products_list()) == 10
    for size in (0, 101):
        refused("a page holds 1 to 100 items", lambda size=size: shop.products_list(perPage=size))
    refused("page must be at least 1", lambda: shop.orders_list(page=0))


def test_settings_and_status(shop: DirectShop) -> None:
    groups = [row["id"] for row in shop.settings_list()]
    assert {row["id"]: row["value"] for group in groups for row in shop.settings_get(group)}[
        "woocommerce_currency"
    ] == "USD"
    assert shop.system_status()["database"]["products"] == 3


def test_parts_use_the_current_store(shop: DirectShop) -> None:
    for _ in range(2):
        shop.begin()
        assert (len(shop.products.all()), currency(shop)) == (3, "USD")
        shop.products.add("Bowl")
        shop.settings.update("woocommerce_currency", "EUR")
    copied = copy.deepcopy(shop)
    copied.products.add("Plate")
    assert (len(shop.products.all()), len(copied.products.all())) == (4, 5)


def currency(shop: DirectShop) -> str:
    rows = shop.settings_get("general")
    return str({row["id"]: row["value"] for row in rows}["woocommerce_currency"])


def test_filling_is_checked() -> None:
    shop = DirectShop(OfficeContext(START))
    with pytest.raises(ValueError, match="no field is called 'titel'"):
        shop.products.add("Mug", titel="x")
    with pytest.raises(ValueError, match="a date must have a time zone"):
        shop.orders.add(date_created=datetime(2025, 1, 1))
    refused("no setting with id", lambda: shop.settings.update("colour", "red"))
    with pytest.raises(ValueError, match="gmt_offset must be a number, got 'CET'"):
        shop.settings.update("gmt_offset", "CET")
    with pytest.raises(
        ValueError, match="woocommerce_weight_unit must be one of kg, g, lbs, oz, got 'stone'"
    ):
        shop.settings.update("woocommerce_weight_unit", "stone")
    shop.settings.update("woocommerce_currency", "EUR")
    assert (order(shop)["currency"], currency(shop)) == ("EUR", "EUR")
    shop.orders_delete(1, force=True)
    ids = shop.products.add_all(
        {"name": "P", "sku": f"S{k}", "meta_data": {"threshold": str(k)}, "total_sales": k}
        for k in range(3)
    )
    assert (ids, [row.get("total_sales", 0) for row in shop.products.all()]) == (
        [1, 2, 3],
        [0, 1, 2],
    )
    refused(
        "conflict: another product has the SKU",
        lambda: shop.products.add_all([{"name": "new"}, {"name": "old", "sku": "S1"}]),
    )
    assert len(shop.products.all()) == 3
    sale = shop.products.add(
        "Old",
        regular_price="9",
        sale_price="8",
        date_on_sale_from="2025-01-01",
        date_created=START - timedelta(days=90),
    )
    assert shop.products_get(sale)["on_sale"], "sales are as of now, not as of the day of creation"
    shop.orders.add_all(
        [{"status": "completed", "line_items": [{"product_id": 1, "quantity": 2}]}], take_stock=True
    )
    assert shop.products_get(1)["total_sales"] == 2
