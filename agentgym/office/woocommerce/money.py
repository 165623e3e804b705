"""Order totals in whole cents."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from agentgym.office.store import Row


def cents(text: str) -> int:
    """Convert an amount such as `12.50` to cents; an empty text is 0."""
    return int(Decimal(text or "0") * 100)


def money(amount: int) -> str:
    """Format cents as the API writes them: `12.50`."""
    sign = "-" if amount < 0 else ""
    return f"{sign}{abs(amount) // 100}.{abs(amount) % 100:02d}"


def totals(items: Sequence[Row]) -> dict[str, int]:
    """Return discount, shipping cost and total of an order."""
    return {
        "discount_total": sum(item["subtotal"] - item["total"] for item in items),
        "shipping_total": sum(item["total"] for item in items if item["type"] == "shipping"),
        "total": sum(item["total"] for item in items),
    }
