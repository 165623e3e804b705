"""Sums of an order, in whole cents: discounts of coupons, taxes, totals.

A discount is shared out over the lines in proportion to their prices; taxes are rounded line by
line, half a cent up. Both are the defaults of WooCommerce for prices entered without tax.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from agentgym.office.store import Row


def cents(text: str) -> int:
    """Convert an amount such as `12.50` to cents; an empty text is 0."""
    return int(Decimal(text or "0") * 100)


def money(amount: int) -> str:
    """Format cents as the API writes them: `12.50`."""
    return f"{'-' if amount < 0 else ''}{abs(amount) // 100}.{abs(amount) % 100:02d}"


def percentage(amount: int, percent: str) -> int:
    """Return a percentage of an amount, rounded half up to the cent."""
    return int((amount * Decimal(percent) / 100).quantize(Decimal(1), ROUND_HALF_UP))


def share(total: int, weights: Sequence[int]) -> list[int]:
    """Split an amount in proportion to weights; cents left over go to the first lines, one each."""
    whole = sum(weights)
    if not whole:
        return [0] * len(weights)
    shares = [total * weight // whole for weight in weights]
    rest = total - sum(shares)
    for k, weight in enumerate(weights):
        if rest and weight:
            shares[k] += 1
            rest -= 1
    return shares


def discounts(coupon: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the discount that a coupon gives on each of the lines that it applies to.

    Args:
        coupon: Coupon with `discount_type`, `amount` and `limit_usage_to_x_items`.
        lines: Lines with `quantity`, `subtotal` (before discounts) and `total` (so far).
    """
    limit = coupon["limit_usage_to_x_items"]
    left = sum(line["quantity"] for line in lines) if limit is None else limit
    items = []  # of each line, the number that is discounted
    for line in lines:
        items.append(min(left, line["quantity"]))
        left -= items[-1]
    worth = [
        line["subtotal"] * count // max(1, line["quantity"])
        for line, count in zip(lines, items, strict=True)
    ]
    if coupon["discount_type"] == "percent":
        amounts = share(percentage(sum(worth), coupon["amount"]), worth)
    elif coupon["discount_type"] == "fixed_cart":
        amounts = share(min(cents(coupon["amount"]), sum(worth)), worth)
    else:
        amounts = [cents(coupon["amount"]) * count for count in items]
    return [min(amount, line["total"]) for amount, line in zip(amounts, lines, strict=True)]


def rates_at(rates: Iterable[Row], place: Mapping[str, str], tax_class: str) -> list[Row]:
    """Return the tax rates for a place and class, in order of priority.

    Of several rates with one priority the one that names the place most closely counts.
    """
    chosen: dict[int, Row] = {}
    for rate in rates:
        fits = rate["country"] in ("", place["country"]) and rate["state"] in ("", place["state"])
        if fits and rate["class"] == (tax_class or "standard"):
            rival = chosen.get(rate["priority"])
            if rival is None or _closeness(rate) > _closeness(rival):
                chosen[rate["priority"]] = rate
    return [chosen[priority] for priority in sorted(chosen)]


def _closeness(rate: Row) -> tuple[bool, bool]:
    return bool(rate["country"]), bool(rate["state"])


def taxes(amount: int, rates: Iterable[Row]) -> dict[int, int]:
    """Return the tax on an amount by the id of the rate.

    A compound rate applies to the amount with the taxes before it.
    """
    by_rate: dict[int, int] = {}
    for rate in rates:
        base = amount + sum(by_rate.values()) if rate["compound"] else amount
        by_rate[rate["id"]] = percentage(base, rate["rate"])
    return by_rate


def tax_item(item: Row, rates: Sequence[Row]) -> None:
    """Set the taxes of a line, fee or way of shipping of an order."""
    after, before = taxes(item["total"], rates), taxes(item["subtotal"], rates)
    item["taxes"] = [
        {"id": rate, "total": money(after[rate]), "subtotal": money(before[rate])} for rate in after
    ]
    item["total_tax"], item["subtotal_tax"] = sum(after.values()), sum(before.values())


def totals(items: Iterable[Row]) -> dict[str, int]:
    """Return the sums of an order with these items."""
    lines = [item for item in items if item["type"] != "coupon"]
    shipping = [item for item in lines if item["type"] == "shipping"]
    shipping_tax = sum(item["total_tax"] for item in shipping)
    total_tax = sum(item["total_tax"] for item in lines)
    return {
        "discount_total": sum(item["subtotal"] - item["total"] for item in lines),
        "discount_tax": sum(item["subtotal_tax"] - item["total_tax"] for item in lines),
        "shipping_total": sum(item["total"] for item in shipping),
        "shipping_tax": shipping_tax,
        "cart_tax": total_tax - shipping_tax,
        "total_tax": total_tax,
        "total": sum(item["total"] for item in lines) + total_tax,
    }
