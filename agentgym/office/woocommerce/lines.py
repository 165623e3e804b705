"""Order items (products, fees, shipping) and their prices."""

from __future__ import annotations

from collections.abc import Iterable
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
    "reduced": 0,  # the quantity that it has taken from the stock
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
    """New order items and their prices."""

    def look_up(self, records: Iterable[Row]) -> PriceLookup:
        """Read the products that orders name."""
        lines = [line for data in records for line in data.get("line_items", [])]
        ids = {line["product_id"] for line in lines if line.get("product_id")}
        skus = sorted({line["sku"] for line in lines if line.get("sku")})
        products = {row["id"]: row for row in self._shop.rows_by_id("products", ids)}
        sql = "SELECT * FROM products WHERE sku IN (SELECT value FROM json_each(?))"
        by_sku = {row["sku"]: row for row in self._store.rows(sql, skus)} if skus else {}
        return PriceLookup(products, by_sku)

    def compose(self, data: Row, prices: PriceLookup) -> list[Row]:
        """Return the items of a new order."""
        items = []
        for field, kind in _TYPES.items():
            for line in data.get(field, ()):
                is_product = kind == "line_item"
                filled = _product_line(line, prices) if is_product else _extra_line(kind, line)
                item = {**_NEW, "type": kind, **filled}
                items.append({**item, "meta_data": merge_meta(item, line)})
        return items


def _extra_line(kind: str, data: Row) -> Row:
    """Return a new fee or shipping line."""
    field = "name" if kind == "fee" else "method_id"
    if not data.get(field):
        raise ToolError(f"invalid argument: a new {kind} line needs a {field}")
    total = cents(data["total"]) if "total" in data else 0
    code = "" if kind == "fee" else data["method_id"]
    name = data["name"] if kind == "fee" else data.get("method_title") or code
    return {"name": name, "code": code, "total": total, "subtotal": total}


def _product_line(data: Row, prices: PriceLookup) -> Row:
    """Return a new product line."""
    quantity = data.get("quantity", 1)
    if not quantity:
        raise ToolError("invalid argument: a new line needs a quantity of at least 1")
    line = {**_price(prices.product_of(data), quantity), "quantity": quantity}
    line["name"] = data.get("name") or line["name"]
    if data.get("subtotal"):
        line["subtotal"] = line["total"] = cents(data["subtotal"])
    if data.get("total"):
        line["total"] = cents(data["total"])
    line["subtotal"] = max(line["subtotal"], line["total"])
    return line


def _price(product: Row, quantity: int) -> Row:
    amount = cents(product["price"]) * quantity
    return {
        "product_id": product["id"],
        "name": product["name"],
        "subtotal": amount,
        "total": amount,
    }
