"""Orders and products as the published server shows them."""

from __future__ import annotations

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
from agentgym.office.woocommerce.money import cents, money

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
"""Fields in the column `details`, as they are in a new product."""

PRODUCT: Row = {
    "parent_id": None,
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
"""A new product."""

_ALWAYS = (
    "id",
    "name",
    "type",
    "status",
    "featured",
    "catalog_visibility",
    "price",
    "on_sale",
    "stock_status",
    "date_created",
    "date_modified",
)
"""Fields that each product has; the published records have others only where one was given."""


def select_products(
    shop: ShopContext,
    where: Mapping[str, Any],
    order: str,
    page: int | None = None,
    size: int = 100,
) -> list[Row]:
    """Return products as the server shows them, chosen as by `ShopContext.select_ids`."""
    return show_products(shop, shop.select_ids("products", where, order, page, size))


def show_products(shop: ShopContext, ids: list[int]) -> list[Row]:
    """Return the products with ids as the server shows them: with the fields that all have, and
    those whose value is not that of a new product.
    """
    terms = {
        table: shop.rows_by_owner(
            "product_id",
            f"""SELECT l.product_id, t.id, t.name
            FROM product_{table} AS l JOIN {table} AS t ON t.id = l.term_id
            WHERE l.product_id IN (SELECT value FROM json_each(?)) AND t.slug <> 'uncategorized'
            ORDER BY t.name, t.id""",
            ids,
        )
        for table in ("categories", "tags")
    }
    variations = shop.rows_by_owner(
        "parent_id",
        """SELECT id, parent_id FROM products
        WHERE parent_id IN (SELECT value FROM json_each(?)) ORDER BY id""",
        ids,
    )
    products = []
    for row in shop.rows_by_id("products", ids):
        links: Row = {table: by_product[row["id"]] for table, by_product in terms.items()}
        links["variations"] = [variation["id"] for variation in variations[row["id"]]]
        products.append(_show_product(shop, row, links))
    return products


def _show_product(shop: ShopContext, row: Row, links: Row) -> Row:
    shown = shop.show_fields(row, PRODUCT, _ALWAYS)
    if row["slug"] == slug_of(row["name"], set()):
        del shown["slug"]
    shown |= {name: value for name, value in links.items() if value}
    if "meta_data" in shown:
        shown["meta_data"] = show_meta(shown["meta_data"])
    return shown


_SUMS = (
    "discount_total",
    "discount_tax",
    "shipping_total",
    "shipping_tax",
    "cart_tax",
    "total",
    "total_tax",
)
"""Sums of an order, in the order of the API."""

_ADDRESSES = ("billing", "shipping")
_OF_ORDERS = "SELECT * FROM {} WHERE order_id IN (SELECT value FROM json_each(?)) ORDER BY id"
"""SQL: the records of a table that belong to orders."""


def show_orders(shop: ShopContext, ids: list[int]) -> list[Row]:
    """Return the orders with ids as the API shows them."""
    items = shop.rows_by_owner("order_id", _OF_ORDERS.format("items"), ids)
    refunds = shop.rows_by_owner("order_id", _OF_ORDERS.format("refunds"), ids)
    rates = {row["id"]: row for row in shop.store.find("tax_rates")}
    orders = []
    for row in shop.rows_by_id("orders", ids):
        row |= {name: shop.site_time(row[name]) for name in row if name.startswith("date_")}
        orders.append(_show_order(row, items[row["id"]], refunds[row["id"]], rates))
    return orders


def _show_order(row: Row, items: list[Row], refunds: list[Row], rates: dict[int, Row]) -> Row:
    details = row["details"]
    by_type: dict[str, list[Row]] = {"line_item": [], "shipping": [], "fee": [], "coupon": []}
    for item in items:
        by_type[item["type"]].append(item)
    given = {
        **{name: row[name] for name in ("date_paid", "date_completed") if row[name]},
        **given_fields({name: text for name, text in details.items() if name not in _ADDRESSES}),
        **{name: given_fields(details[name]) for name in _ADDRESSES if details[name]},
        **({"meta_data": show_meta(row["meta_data"])} if row["meta_data"] else {}),
    }
    return {
        "id": row["id"],
        "number": str(row["id"]),
        "status": row["status"],
        "currency": row["currency"],
        "date_created": row["date_created"],
        "date_modified": row["date_modified"],
        "subtotal": money(sum(item["subtotal"] for item in by_type["line_item"])),
        **{name: money(row[name]) for name in _SUMS},
        "customer_id": row["customer_id"] or 0,
        **given,
        "line_items": [_show_line(item) for item in by_type["line_item"]],
        "tax_lines": _show_taxes(items, rates),
        "shipping_lines": [_show_shipping(item) for item in by_type["shipping"]],
        "fee_lines": [_show_fee(item) for item in by_type["fee"]],
        "coupon_lines": [_show_coupon(item) for item in by_type["coupon"]],
        "refunds": [{"id": refund["id"], "total": money(-refund["amount"])} for refund in refunds],
    }


def _show_extras(item: Row) -> Row:
    """Return what only some lines have: a variation, tax, custom fields."""
    extras = {
        "variation_id": item["variation_id"],
        "total_tax": item["total_tax"] and money(item["total_tax"]),
        "meta_data": item["meta_data"] and show_meta(item["meta_data"]),
    }
    return {name: value for name, value in extras.items() if value}


def _show_line(item: Row) -> Row:
    price = Decimal(item["total"]) / item["quantity"] / 100
    exact = item["total"] % item["quantity"] == 0
    return {
        "id": item["id"],
        "name": item["name"],
        "product_id": item["product_id"] or 0,
        "quantity": item["quantity"],
        "price": f"{price:.2f}" if exact else f"{price:.6f}",
        **({} if exact else {"total": money(item["total"])}),
        **_show_extras(item),
    }


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


def _show_coupon(item: Row) -> Row:
    return {
        "id": item["id"],
        "code": item["code"],
        "discount": money(item["total"]),
        "discount_tax": money(item["total_tax"]),
    }


def _show_taxes(items: list[Row], rates: dict[int, Row]) -> list[Row]:
    """Return the taxes of an order by rate."""
    sums: dict[int, dict[str, int]] = {}
    for item in items:
        name = "shipping_tax_total" if item["type"] == "shipping" else "tax_total"
        for tax in item["taxes"]:
            by_kind = sums.setdefault(tax["id"], {"tax_total": 0, "shipping_tax_total": 0})
            by_kind[name] += cents(tax["total"])
    return [_show_tax(rates[key], by_kind) for key, by_kind in sorted(sums.items())]


def _show_tax(rate: Row, by_kind: dict[str, int]) -> Row:
    names = filter(None, [rate["country"], rate["state"], rate["name"].upper()])
    return {
        "rate_id": rate["id"],
        "rate_code": "-".join(names),
        "label": rate["name"],
        "compound": rate["compound"],
        "rate_percent": float(rate["rate"]),
        **{name: money(amount) for name, amount in by_kind.items()},
    }
