"""Products for the shops of office tasks; many names are the beginning of another, so that a
search by name matches several.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np

KINDS = {
    "Kitchen": "Tea Kettle|Bread Knife|Mixing Bowl|Pepper Mill|Salad Spinner|Stock Pot",
    "Outdoor": "Trail Bottle|Camp Stove|Head Lamp|Rain Jacket|Hiking Pole|Sleeping Bag",
    "Office": "Desk Lamp|Paper Tray|Fountain Pen|Wall Planner|Cable Box|Note Book",
    "Garden": "Watering Can|Plant Pot|Pruning Saw|Garden Hose|Seed Tray|Bird Feeder",
    "Toys": "Train Set|Puzzle Box|Story Cubes|Kite|Marble Run|Toy Crane",
    "Home": "Floor Cushion|Wall Clock|Door Mat|Candle Holder|Wool Blanket|Picture Frame",
}
"""The names of the products of each department."""

# An empty variant or colour is twice as likely, so that plain names occur that others begin with.
_VARIANTS = ("", "", " Pro", " Mini", " Plus", " Pro Plus", " Classic", " Set")
_COLOURS = ("", "", " Red", " Blue", " Green", " Grey", " Blue Grey", " Oak")
_PRAISE = (
    "Made to last and easy to clean.", "Our customers like it for its plain shape.", "Packed without plastic.",
    "Now in a better box, at the same price as before.", "A present for everybody who has everything else.",
    "Comes with a warranty of two years.", "Tested by our own team on many long days.", "Spare parts are in stock for ten years.",
)  # fmt: skip


def make_products(rng: np.random.Generator, count: int) -> list[dict[str, str]]:
    """Draw products with `name`, `sku`, `description` and `department`; names and SKUs
    differ, and neither reveals the order.

    Args:
        rng: The generator to draw from.
        count: The number of products, at most 900,000, as many as there are SKUs.
    """
    products: list[dict[str, str]] = []
    seen: dict[str, int] = {}
    numbers = rng.choice(np.arange(100_000, 1_000_000), count, replace=False)
    for number in map(int, numbers):
        department = str(rng.choice(list(KINDS)))
        base = KINDS[department].split("|")[int(rng.integers(6))]
        name = f"{base}{_VARIANTS[int(rng.integers(len(_VARIANTS)))]}{_COLOURS[int(rng.integers(len(_COLOURS)))]}"
        seen[name] = seen.get(name, 0) + 1
        name = name if seen[name] == 1 else f"{name} No. {seen[name]}"
        praise = " ".join(
            _PRAISE[int(k)]
            for k in rng.choice(len(_PRAISE), int(rng.integers(1, 4)), replace=False)
        )
        sku = f"{department[:3].upper()}-{number}"
        products.append({"name": name, "sku": sku, "description": praise, "department": department})
    return products


def cents(rng: np.random.Generator, low: int, high: int) -> str:
    """Draw a price in `[low, high)` cents, written with two decimals."""
    return str(Decimal(int(rng.integers(low, high))).scaleb(-2).quantize(Decimal("0.01")))
