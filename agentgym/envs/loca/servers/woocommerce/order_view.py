"""Orders as the published server shows them."""

from __future__ import annotations

from decimal import Decimal

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.context import (
    ShopContext,
    given_fields,
    show_meta,
)
from agentgym.envs.loca.servers.woocommerce.money import cents, money

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


def show_orders(shop: ShopContext, ids: list[int]) -> list[Row]:
    """Return the orders with ids as the API shows them."""
    items: dict[int, list[Row]] = {}
    sql = "SELECT * FROM items WHERE order_id IN (SELECT value FROM json_each(?)) ORDER BY id"
    for row in shop.store.rows(sql, ids):
        items.setdefault(row["order_id"], []).append(row)
    refunds: dict[int, list[Row]] = {}
    sql = "SELECT * FROM refunds WHERE order_id IN (SELECT value FROM json_each(?)) ORDER BY id"
    for row in shop.store.rows(sql, ids):
        refund = {"id": row["id"], "total": money(-row["amount"])}
        refunds.setdefault(row["order_id"], []).append(refund)
    rates = {row["id"]: row for row in shop.store.find("tax_rates")}
    orders = []
    for row in shop.rows_by_id("orders", ids):
        key = row["id"]
        row |= {name: shop.site_time(row[name]) for name in row if name.startswith("date_")}
        orders.append(_show(row, items.get(key, []), refunds.get(key, []), rates))
    return orders


def _show(row: Row, items: list[Row], refunds: list[Row], rates: dict[int, Row]) -> Row:
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
        "refunds": refunds,
    }


def _show_extras(item: Row) -> Row:
    """Return what only some lines have: a variation, tax, custom fields."""
    extras: Row = {}
    if item["variation_id"]:
        extras["variation_id"] = item["variation_id"]
    if item["total_tax"]:
        extras["total_tax"] = money(item["total_tax"])
    if item["meta_data"]:
        extras["meta_data"] = show_meta(item["meta_data"])
    return extras


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
    names = {"method_title": item["name"], "method_id": item["code"]}
    return {"id": item["id"], **names, "total": money(item["total"]), **_show_extras(item)}


def _show_fee(item: Row) -> Row:
    return {
        "id": item["id"],
        "name": item["name"],
        "total": money(item["total"]),
        **_show_extras(item),
    }


def _show_coupon(item: Row) -> Row:
    amounts = {"discount": money(item["total"]), "discount_tax": money(item["total_tax"])}
    return {"id": item["id"], "code": item["code"], **amounts}


def _show_taxes(items: list[Row], rates: dict[int, Row]) -> list[Row]:
    """Return the taxes of an order by rate."""
    sums: dict[int, dict[str, int]] = {}
    for item in items:
        name = "shipping_tax_total" if item["type"] == "shipping" else "tax_total"
        for tax in item["taxes"]:
            by_kind = sums.setdefault(tax["id"], {"tax_total": 0, "shipping_tax_total": 0})
            by_kind[name] += cents(tax["total"])
    lines = []
    for key, by_kind in sorted(sums.items()):
        rate = rates[key]
        code = "-".join(filter(None, [rate["country"], rate["state"], rate["name"].upper()]))
        lines.append(
            {
                "rate_id": key,
                "rate_code": code,
                "label": rate["name"],
                "compound": rate["compound"],
                "rate_percent": float(rate["rate"]),
                **{name: money(amount) for name, amount in by_kind.items()},
            }
        )
    return lines
