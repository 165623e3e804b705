"""Orders as the REST API shows them."""

from __future__ import annotations

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.context import ADDRESS, ShopContext
from agentgym.envs.loca.servers.woocommerce.lines import UNTAXED
from agentgym.envs.loca.servers.woocommerce.money import cents, money

_DATES = ("date_created", "date_modified", "date_paid", "date_completed")
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


def show_orders(shop: ShopContext, ids: list[int]) -> list[Row]:
    """Return the orders with ids as the API shows them."""
    items: dict[int, list[Row]] = {}
    sql = """SELECT i.*, p.sku FROM items AS i
        LEFT JOIN products AS p ON p.id = coalesce(i.variation_id, i.product_id)
        WHERE i.order_id IN (SELECT value FROM json_each(?)) ORDER BY i.id"""
    for row in shop.store.rows(sql, ids):
        items.setdefault(row["order_id"], []).append(row)
    refunds: dict[int, list[Row]] = {}
    sql = "SELECT * FROM refunds WHERE order_id IN (SELECT value FROM json_each(?)) ORDER BY id"
    for row in shop.store.rows(sql, ids):
        refund = {"id": row["id"], "reason": row["reason"], "total": money(-row["amount"])}
        refunds.setdefault(row["order_id"], []).append(refund)
    rates = {row["id"]: row for row in shop.store.find("tax_rates")}
    orders = []
    for row in shop.rows_by_id("orders", ids):
        dates, key = shop.show_dates(row, *_DATES), row["id"]
        orders.append(_show(row, dates, items.get(key, []), refunds.get(key, []), rates))
    return orders


def _show(row: Row, dates: Row, items: list[Row], refunds: list[Row], rates: dict[int, Row]) -> Row:
    details = row["details"]
    by_type: dict[str, list[Row]] = {"line_item": [], "shipping": [], "fee": [], "coupon": []}
    for item in items:
        by_type[item["type"]].append(item)
    return {
        "id": row["id"],
        "number": str(row["id"]),
        "status": row["status"],
        "currency": row["currency"],
        **dates,
        **{name: money(row[name]) for name in _SUMS},
        "prices_include_tax": False,
        "customer_id": row["customer_id"] or 0,
        **details,
        "billing": {**ADDRESS, "email": "", **details["billing"]},
        "shipping": {**ADDRESS, **details["shipping"]},
        "line_items": [_show_line(item) for item in by_type["line_item"]],
        "tax_lines": _show_taxes(items, rates),
        "shipping_lines": [_show_shipping(item) for item in by_type["shipping"]],
        "fee_lines": [_show_fee(item) for item in by_type["fee"]],
        "coupon_lines": [_show_coupon(item) for item in by_type["coupon"]],
        "refunds": refunds,
        "meta_data": row["meta_data"],
    }


def _show_sums(item: Row) -> Row:
    return {
        "total": money(item["total"]),
        "total_tax": money(item["total_tax"]),
        "taxes": item["taxes"],
        "meta_data": item["meta_data"],
    }


def _show_line(item: Row) -> Row:
    return {
        "id": item["id"],
        "name": item["name"],
        "product_id": item["product_id"] or 0,
        "variation_id": item["variation_id"] or 0,
        "quantity": item["quantity"],
        "tax_class": "" if item["code"] == UNTAXED else item["code"],
        "subtotal": money(item["subtotal"]),
        "subtotal_tax": money(item["subtotal_tax"]),
        **_show_sums(item),
        "sku": item["sku"] or "",
        "price": round(item["total"] / item["quantity"] / 100, 6),
    }


def _show_shipping(item: Row) -> Row:
    names = {"method_title": item["name"], "method_id": item["code"]}
    return {"id": item["id"], **names, **_show_sums(item)}


def _show_fee(item: Row) -> Row:
    names = {"name": item["name"], "tax_class": item["code"]}
    return {"id": item["id"], **names, **_show_sums(item)}


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
