"""Conversion of orders and products to the API's format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import (
    ShopContext,
    given_fields,
    show_meta,
    slug_of,
)

# A new product's columns; `details` contains the fields that no query uses.
PRODUCT: Row = json.loads(Path(__file__).with_name("new_product.json").read_text(encoding="utf-8"))
PRODUCT_DETAILS: Row = PRODUCT["details"]

# Other fields are shown only if they are set.
_ALWAYS = tuple(
    (
        "id name type status featured catalog_visibility price on_sale stock_status date_created "
        "date_modified"
    ).split()
)


_CATEGORIES = """SELECT l.product_id, t.id, t.name
    FROM product_categories AS l JOIN categories AS t ON t.id = l.term_id
    WHERE l.product_id IN (SELECT value FROM json_each(?)) AND t.slug <> 'uncategorized'
    ORDER BY t.name, t.id"""


def select_products(
    shop: ShopContext,
    where: Mapping[str, Any],
    order: str,
    page: int | None = None,
    size: int = 100,
) -> list[Row]:
    """Return products in the API's format, selected as in `ShopContext.select_ids`."""
    return show_products(shop, shop.select_ids("products", where, order, page, size))


def show_products(shop: ShopContext, ids: list[int]) -> list[Row]:
    """Return products with required fields and all fields that differ from a new product."""
    categories = shop.rows_by_owner("product_id", _CATEGORIES, ids)
    return [
        _show_product(shop, row, categories[row["id"]]) for row in shop.rows_by_id("products", ids)
    ]


def _show_product(shop: ShopContext, row: Row, categories: list[Row]) -> Row:
    shown = shop.show_fields(row, PRODUCT, _ALWAYS)
    if row["slug"] == slug_of(row["name"], set()):  # the default
        del shown["slug"]
    if categories:
        shown["categories"] = categories
    if "meta_data" in shown:
        shown["meta_data"] = show_meta(shown["meta_data"])
    return shown


_ITEMS = "SELECT * FROM items WHERE order_id IN (SELECT value FROM json_each(?)) ORDER BY id"


def cents(text: str) -> int:
    """Convert an amount such as `12.50` to cents; an empty string is 0."""
    return int(Decimal(text or "0") * 100)


def _money(amount: int) -> str:
    return f"{amount // 100}.{amount % 100:02d}"


def show_orders(shop: ShopContext, ids: list[int]) -> list[Row]:
    """Return orders in the API's format."""
    items = shop.rows_by_owner("order_id", _ITEMS, ids)
    orders = []
    for row in shop.rows_by_id("orders", ids):
        row |= {name: shop.site_time(row[name]) for name in row if name.startswith("date_")}
        orders.append(_show_order(row, items[row["id"]]))
    return orders


def _show_order(row: Row, items: list[Row]) -> Row:
    given = {name: row[name] for name in ("date_paid", "date_completed") if row[name]}
    given |= given_fields({"customer_note": row["details"]["customer_note"]})
    if row["details"]["billing"]:
        given["billing"] = given_fields(row["details"]["billing"])
    # Taxes, shipping and discounts are disabled.
    nothing = _money(0)
    return {
        "id": row["id"],
        "number": str(row["id"]),
        "status": row["status"],
        "currency": row["currency"],
        "date_created": row["date_created"],
        "date_modified": row["date_modified"],
        "subtotal": _money(row["total"]),
        "discount_total": nothing,
        "discount_tax": nothing,
        "shipping_total": nothing,
        "shipping_tax": nothing,
        "cart_tax": nothing,
        "total": _money(row["total"]),
        "total_tax": nothing,
        "customer_id": row["customer_id"] or 0,
        **given,
        "line_items": [_show_line(item) for item in items],
        "tax_lines": [],
        "shipping_lines": [],
        "fee_lines": [],
        "coupon_lines": [],
        "refunds": [],
    }


def _show_line(item: Row) -> Row:
    return {
        "id": item["id"],
        "name": item["name"],
        "product_id": item["product_id"] or 0,
        "quantity": item["quantity"],
        "price": _money(item["total"] // item["quantity"]),
    }
