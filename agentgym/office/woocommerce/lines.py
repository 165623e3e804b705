"""Order items (products, fees, shipping) and their prices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import ShopPart, merge_meta
from agentgym.office.woocommerce.money import cents
from agentgym.text.tools import ToolError, echo

# Item types by order field.
_TYPES = {"line_items": "line_item", "shipping_lines": "shipping", "fee_lines": "fee"}

# A new item's defaults; its id is assigned on storing.
_NEW: Row = {
    "id": 0,
    "order_id": None,
    "name": "",
    "product_id": None,
    "quantity": 1,
    "subtotal": 0,
    "total": 0,
    "reduced": 0,
    "code": "",
    "meta_data": [],
}


@dataclass(frozen=True, slots=True)
class PriceLookup:
    """Products by id and SKU, read once for all lines of a call."""

    products: dict[int, Row]
    products_by_sku: dict[str, Row]

    def product_of(self, line: Row) -> Row:
        """Return a new line's product by id or SKU."""
        key, sku = line.get("product_id"), line.get("sku") or ""
        row = self.products.get(key) if key else self.products_by_sku.get(sku)
        if row is None:
            name = f"id {key}" if key else f"SKU {echo(sku)}"
            raise ToolError(
                f"not found: there is no product with {name}; a line needs a product_id or a sku"
            )
        return row


class OrderLines(ShopPart):
    """Changes to order items and their prices."""

    def look_up(self, records: Iterable[Row]) -> PriceLookup:
        """Read the products that orders name."""
        lines = [line for data in records for line in data.get("line_items", [])]
        ids = {line["product_id"] for line in lines if line.get("product_id")}
        skus = sorted({line["sku"] for line in lines if line.get("sku")})
        products = {row["id"]: row for row in self._shop.rows_by_id("products", ids)}
        sql = "SELECT * FROM products WHERE sku IN (SELECT value FROM json_each(?))"
        by_sku = {row["sku"]: row for row in self._store.rows(sql, skus)} if skus else {}
        return PriceLookup(products, by_sku)

    def compose(self, current: Sequence[Row], data: Row, prices: PriceLookup) -> list[Row]:
        """Return an order's items after a caller's changes."""
        items = [dict(item) for item in current]
        for field, kind in _TYPES.items():
            for line in data.get(field, ()):
                _put(items, kind, line, prices)
        return items


def _put(items: list[Row], kind: str, data: Row, prices: PriceLookup) -> None:
    key, place = data.get("id"), len(items)
    item = {**_NEW, "type": kind}
    if key:
        places = [k for k, each in enumerate(items) if (each["id"], each["type"]) == (key, kind)]
        if not places:
            raise ToolError(f"not found: the order has no {kind.replace('_', ' ')} with id {key}")
        place = places[0]
        item = items[place]
    is_line = kind == "line_item"
    changed = _product_line(item, data, prices) if is_line else _extra_line(item, data)
    if changed is None:
        del items[place]
    else:
        changed["meta_data"] = merge_meta(item, data)
        items[place : place + 1] = [changed]  # appends a new item


def _extra_line(item: Row, data: Row) -> Row | None:
    """Return a changed fee or shipping line, or None to remove it."""
    field = "name" if item["type"] == "fee" else "method_id"
    if field in data and data[field] is None and item["id"]:
        return None
    if not item["id"] and not data.get(field):
        raise ToolError(f"invalid argument: a new {item['type']} line needs a {field}")
    total = cents(data["total"]) if "total" in data else item["total"]
    if item["type"] == "fee":
        name, code = data.get("name") or item["name"], ""
    else:
        code = data.get("method_id") or item["code"]
        name = data.get("method_title") or item["name"] or code
    return {**item, "name": name, "code": code, "total": total, "subtotal": total}


def _product_line(item: Row, data: Row, prices: PriceLookup) -> Row | None:
    """Return a changed product line, or None to remove it."""
    quantity = data.get("quantity", item["quantity"])
    if not quantity and item["id"]:
        return None
    if not quantity:
        raise ToolError("invalid argument: a new line needs a quantity of at least 1")
    if item["id"]:
        if data.get("product_id") not in (None, 0, item["product_id"]):
            raise ToolError(
                "invalid argument: the product of a line cannot change; remove the line (quantity 0) and "
                "add another"
            )
        amounts = {
            name: _scale(item[name], quantity, item["quantity"]) for name in ("subtotal", "total")
        }
        line = {**item, **amounts}
    else:
        line = {**item, **_price(prices.product_of(data), quantity)}
    line["quantity"] = quantity
    line["name"] = data.get("name") or line["name"]
    if data.get("subtotal"):
        line["subtotal"] = line["total"] = cents(data["subtotal"])
    if data.get("total"):
        line["total"] = cents(data["total"])
    line["subtotal"] = max(line["subtotal"], line["total"])
    return line


def _scale(amount: int, quantity: int, before: int) -> int:
    """Scale a line's amount to a new quantity, rounding half up."""
    if quantity == before:
        return amount
    return (2 * amount * quantity + before) // (2 * before)


def _price(product: Row, quantity: int) -> Row:
    amount = cents(product["price"]) * quantity
    return {
        "product_id": product["id"],
        "name": product["name"],
        "subtotal": amount,
        "total": amount,
    }
