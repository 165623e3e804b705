"""Order totals in whole cents."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from agentgym.office.store import Row


def cents(text: str) -> int:
    """Convert an amount such as `12.50` to cents; an empty text is 0."""
    return int(Decimal(text or "0") * 100)


def money(amount: int) -> str:
    """Format cents as the API does: `12.50`."""
    sign = "-" if amount < 0 else ""
    return f"{sign}{abs(amount) // 100}.{abs(amount) % 100:02d}"


def totals(items: Sequence[Row]) -> dict[str, int]:
    """Return an order's discount, shipping cost and total."""
    sums = {"discount_total": 0, "shipping_total": 0, "total": 0}
    for item in items:
        sums["discount_total"] += item["subtotal"] - item["total"]
        sums["total"] += item["total"]
        if item["type"] == "shipping":
            sums["shipping_total"] += item["total"]
    return sums
