"""Orders and products as the published server shows them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import (
    ShopContext,
    given_fields,
    show_meta,
    slug_of,
)
from agentgym.office.woocommerce.money import money

# A new product's `details` column.
PRODUCT_DETAILS: Row = {
    "catalog_visibility": "visible",
    "description": "",
    "short_description": "",
    "date_on_sale_from": None,
    "date_on_sale_to": None,
    "virtual": False,
    "downloadable": False,
    "tax_status": "taxable",
    "tax_class": "",
    "sold_individually": False,
    "weight": "",
    "dimensions": {"length": "", "width": "", "height": ""},
    "reviews_allowed": True,
    "purchase_note": "",
    "images": [],
    "attributes": [],
    "default_attributes": [],
    "menu_order": 0,
}

# A new product's defaults.
PRODUCT: Row = {
    "name": "",
    "slug": "",
    "type": "simple",
    "status": "publish",
    "sku": "",
    "regular_price": "",
    "sale_price": "",
    "price": "",
    "on_sale": False,
    "featured": False,
    "manage_stock": False,
    "stock_quantity": None,
    "stock_status": "instock",
    "backorders": "no",
    "low_stock_amount": None,
    "total_sales": 0,
    "average_rating": "0.00",
    "rating_count": 0,
    "date_created": "",
    "date_modified": "",
    "details": PRODUCT_DETAILS,
    "meta_data": [],
}

# Other fields are shown only if given, as in the published records.
_ALWAYS = tuple(
    (
        "id name type status featured catalog_visibility price on_sale stock_status date_created "
        "date_modified"
    ).split()
)


def select_products(
    shop: ShopContext,
    where: Mapping[str, Any],
    order: str,
    page: int | None = None,
    size: int = 100,
) -> list[Row]:
    """Return products as shown; see `ShopContext.select_ids`."""
    return show_products(shop, shop.select_ids("products", where, order, page, size))


def show_products(shop: ShopContext, ids: list[int]) -> list[Row]:
    """Return required fields and those that differ from a new product's."""
    terms = {table: _terms_by_product(shop, table, ids) for table in ("categories", "tags")}
    products = []
    for row in shop.rows_by_id("products", ids):
        links: Row = {table: by_product[row["id"]] for table, by_product in terms.items()}
        products.append(_show_product(shop, row, links))
    return products


def _terms_by_product(shop: ShopContext, table: str, ids: list[int]) -> defaultdict[int, list[Row]]:
    sql = f"""SELECT l.product_id, t.id, t.name
        FROM product_{table} AS l JOIN {table} AS t ON t.id = l.term_id
        WHERE l.product_id IN (SELECT value FROM json_each(?)) AND t.slug <> 'uncategorized'
        ORDER BY t.name, t.id"""
    return shop.rows_by_owner("product_id", sql, ids)


def _show_product(shop: ShopContext, row: Row, links: Row) -> Row:
    shown = shop.show_fields(row, PRODUCT, _ALWAYS)
    if row["slug"] == slug_of(row["name"], set()):
        del shown["slug"]
    shown |= {name: value for name, value in links.items() if value}
    if "meta_data" in shown:
        shown["meta_data"] = show_meta(shown["meta_data"])
    return shown


_ADDRESSES = ("billing", "shipping")
_NO_TAX = money(0)  # orders are untaxed: tax rates are disabled
# SQL: the items of orders.
_ITEMS = "SELECT * FROM items WHERE order_id IN (SELECT value FROM json_each(?)) ORDER BY id"


def show_orders(shop: ShopContext, ids: list[int]) -> list[Row]:
    """Return orders in API form."""
    items = shop.rows_by_owner("order_id", _ITEMS, ids)
    orders = []
    for row in shop.rows_by_id("orders", ids):
        row |= {name: shop.site_time(row[name]) for name in row if name.startswith("date_")}
        orders.append(_show_order(row, items[row["id"]]))
    return orders


def _show_order(row: Row, items: list[Row]) -> Row:
    details = row["details"]
    by_type: dict[str, list[Row]] = {"line_item": [], "shipping": [], "fee": []}
    for item in items:
        by_type[item["type"]].append(item)
    given = {name: row[name] for name in ("date_paid", "date_completed") if row[name]}
    texts = {name: text for name, text in details.items() if name not in _ADDRESSES}
    given |= given_fields(texts)
    for name in _ADDRESSES:
        if details[name]:
            given[name] = given_fields(details[name])
    if row["meta_data"]:
        given["meta_data"] = show_meta(row["meta_data"])
    return {
        "id": row["id"],
        "number": str(row["id"]),
        "status": row["status"],
        "currency": row["currency"],
        "date_created": row["date_created"],
        "date_modified": row["date_modified"],
        "subtotal": money(sum(item["subtotal"] for item in by_type["line_item"])),
        "discount_total": money(row["discount_total"]),
        "discount_tax": _NO_TAX,
        "shipping_total": money(row["shipping_total"]),
        "shipping_tax": _NO_TAX,
        "cart_tax": _NO_TAX,
        "total": money(row["total"]),
        "total_tax": _NO_TAX,
        "customer_id": row["customer_id"] or 0,
        **given,
        "line_items": [_show_line(item) for item in by_type["line_item"]],
        "tax_lines": [],
        "shipping_lines": [_show_shipping(item) for item in by_type["shipping"]],
        "fee_lines": [_show_fee(item) for item in by_type["fee"]],
        "coupon_lines": [],
        "refunds": [],
    }


def _show_extras(item: Row) -> Row:
    return {"meta_data": show_meta(item["meta_data"])} if item["meta_data"] else {}


def _show_line(item: Row) -> Row:
    price = Decimal(item["total"]) / item["quantity"] / 100
    shown = {
        "id": item["id"],
        "name": item["name"],
        "product_id": item["product_id"] or 0,
        "quantity": item["quantity"],
        "price": f"{price:.2f}",
    }
    if item["total"] % item["quantity"]:  # the rounded price does not give the total
        shown |= {"price": f"{price:.6f}", "total": money(item["total"])}
    return shown | _show_extras(item)


def _show_shipping(item: Row) -> Row:
    return {
        "id": item["id"],
        "method_title": item["name"],
        "method_id": item["code"],
        "total": money(item["total"]),
        **_show_extras(item),
    }


def _show_fee(item: Row) -> Row:
    return {
        "id": item["id"],
        "name": item["name"],
        "total": money(item["total"]),
        **_show_extras(item),
    }
