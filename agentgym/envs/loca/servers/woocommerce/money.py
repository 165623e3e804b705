"""Sums of an order, in whole cents: discounts of coupons, taxes, totals.

A discount is shared out over the lines in proportion to what they cost, taxes are rounded line by line, half a cent up (the
defaults of WooCommerce, with prices that are entered without tax).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from agentgym.envs.loca.servers.store import Row


def cents(text: str) -> int:
    """An amount such as `12.50` in cents; nothing is 0."""
    return int(Decimal(text or "0") * 100)


def money(amount: int) -> str:
    """Cents as the API writes them: `12.50`."""
    return f"{'-' if amount < 0 else ''}{abs(amount) // 100}.{abs(amount) % 100:02d}"


def part(amount: int, percent: str) -> int:
    """A percentage of an amount, rounded half up to the cent."""
    return int((amount * Decimal(percent) / 100).quantize(Decimal(1), ROUND_HALF_UP))


def share(total: int, weights: Sequence[int]) -> list[int]:
    """Split an amount in proportion to weights; the cents that are left over go to the first lines, one each."""
    whole = sum(weights)
    parts = [total * weight // whole if whole else 0 for weight in weights]
    left = (total if whole else 0) - sum(parts)
    for k, weight in enumerate(weights):
        if left and weight:
            parts[k] += 1
            left -= 1
    return parts


def discounts(coupon: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> list[int]:
    """What a coupon takes off each of the lines that it applies to.

    Args:
        coupon: With `discount_type`, `amount` and `limit_usage_to_x_items`.
        lines: With `quantity`, `subtotal` (before discounts) and `total` (what is left of it).
    """
    left = coupon["limit_usage_to_x_items"]
    items = []
    for line in lines:
        items.append(line["quantity"] if left is None else min(left, line["quantity"]))
        left = None if left is None else left - items[-1]
    worth = [line["subtotal"] * item // max(1, line["quantity"]) for line, item in zip(lines, items, strict=True)]
    if coupon["discount_type"] == "percent":
        taken = share(part(sum(worth), coupon["amount"]), worth)
    elif coupon["discount_type"] == "fixed_cart":
        taken = share(min(cents(coupon["amount"]), sum(worth)), worth)
    else:
        taken = [cents(coupon["amount"]) * item for item in items]
    return [min(each, line["total"]) for each, line in zip(taken, lines, strict=True)]


def rates_at(rates: Iterable[Row], place: Mapping[str, str], tax_class: str) -> list[Row]:
    """The rates for a place and class: of each priority the one that names the place most closely, in order of priority."""
    chosen: dict[int, Row] = {}
    for rate in rates:
        fits = rate["country"] in ("", place["country"]) and rate["state"] in ("", place["state"])
        if fits and rate["class"] == (tax_class or "standard"):
            held = chosen.get(rate["priority"])
            if held is None or _closeness(rate) > _closeness(held):
                chosen[rate["priority"]] = rate
    return [chosen[priority] for priority in sorted(chosen)]


def _closeness(rate: Row) -> tuple[bool, bool]:
    return bool(rate["country"]), bool(rate["state"])


def taxes(amount: int, rates: Iterable[Row]) -> dict[int, int]:
    """The tax on an amount by the id of the rate; a compound rate is on the amount with the taxes before it."""
    found: dict[int, int] = {}
    for rate in rates:
        found[rate["id"]] = part(amount + (sum(found.values()) if rate["compound"] else 0), rate["rate"])
    return found


def tax_item(item: Row, rates: Sequence[Row]) -> None:
    """Set the taxes of a line, fee or way of shipping of an order."""
    after, before = taxes(item["total"], rates), taxes(item["subtotal"], rates)
    item["taxes"] = [{"id": rate, "total": money(after[rate]), "subtotal": money(before[rate])} for rate in after]
    item["total_tax"], item["subtotal_tax"] = sum(after.values()), sum(before.values())


def totals(items: Iterable[Row]) -> dict[str, int]:
    """The sums of an order from its items."""
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
