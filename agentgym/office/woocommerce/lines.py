"""Items of an order: lines with products, fees and ways of shipping, with prices and taxes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import ShopContext, ShopPart, merge_meta
from agentgym.office.woocommerce.coupons import Coupons
from agentgym.office.woocommerce.money import cents, rates_at, share, tax_item, totals
from agentgym.text.tools import ToolError, echo

UNTAXED = "untaxed"
"""Stands for the tax class of a product that is not taxed; no rate can have it."""

_TYPES = {"line_items": "line_item", "shipping_lines": "shipping", "fee_lines": "fee"}
"""Types of items by the field of an order; coupons, which reduce the others, come after them."""

_NEW: Row = {
    "id": 0,
    "order_id": None,
    "name": "",
    "product_id": None,
    "variation_id": None,
    "quantity": 1,
    "subtotal": 0,
    "subtotal_tax": 0,
    "total": 0,
    "total_tax": 0,
    "reduced": 0,
    "code": "",
    "taxes": [],
    "meta_data": [],
}
"""A new item; it gets its id when it is written."""


@dataclass(frozen=True, slots=True)
class PriceLookup:
    """Products and tax rates, read once for all lines of a call.

    Attributes:
        products: Products by id.
        products_by_sku: Products by SKU.
        rates: Tax rates, none if taxes are off.
    """

    products: dict[int, Row]
    products_by_sku: dict[str, Row]
    rates: list[Row]

    def product_of(self, line: Row) -> Row:
        """Return the product of a new line, which names its variation, its product or its SKU.

        Raises:
            ToolError: There is no such product.
        """
        key, sku = line.get("variation_id") or line.get("product_id"), line.get("sku") or ""
        row = self.products.get(key) if key else self.products_by_sku.get(sku)
        if row is None:
            name = f"id {key}" if key else f"SKU {echo(sku)}"
            raise ToolError(
                f"not found: there is no product with {name}; a line needs a product_id or a sku"
            )
        return row


class OrderLines(ShopPart):
    """Composition of orders: changes of their items with prices, discounts and taxes.

    Args:
        shop: Context of the shop.
        coupons: Coupons, which reduce the prices.
    """

    def __init__(self, shop: ShopContext, coupons: Coupons) -> None:
        super().__init__(shop)
        self._coupons = coupons

    def look_up(self, records: Iterable[Row]) -> PriceLookup:
        """Read the products and tax rates that orders need."""
        lines = [line for data in records for line in data.get("line_items", [])]
        names = ("product_id", "variation_id")
        ids = {line[name] for line in lines for name in names if line.get(name)}
        skus = sorted({line["sku"] for line in lines if line.get("sku")})
        products = {row["id"]: row for row in self._shop.rows_by_id("products", ids)}
        sql = "SELECT * FROM products WHERE sku IN (SELECT value FROM json_each(?))"
        by_sku = {row["sku"]: row for row in self._store.rows(sql, skus)} if skus else {}
        taxed = self._shop.setting("woocommerce_calc_taxes") == "yes"
        return PriceLookup(products, by_sku, self._store.find("tax_rates") if taxed else [])

    def compose(
        self, order: Row, current: Sequence[Row], data: Row, prices: PriceLookup
    ) -> list[Row]:
        """Return the items of an order after a change.

        Args:
            order: The order, already changed.
            current: Its items before.
            data: Fields that a caller gave.
            prices: Products and rates for these fields.

        Raises:
            ToolError: An item cannot be changed so, or a coupon cannot be used.
        """
        items = [dict(item) for item in current]
        for field, kind in _TYPES.items():
            for line in data.get(field, ()):
                _put(items, kind, line, prices)
        codes = current_codes = [item["code"] for item in items if item["type"] == "coupon"]
        if "coupon_lines" in data:
            codes = list(dict.fromkeys(line["code"].lower() for line in data["coupon_lines"]))
        if codes != current_codes:
            items = [item for item in items if item["type"] != "coupon"]
            self._coupons.check_usable(order, items, codes)
            items += [
                {**_NEW, "order_id": order["id"], "type": "coupon", "code": code} for code in codes
            ]
        if codes != current_codes or ("line_items" in data and codes):
            self._coupons.apply(items)
        if current or prices.rates:
            self._tax(order, items, prices.rates)
        return items

    def _tax(self, order: Row, items: Sequence[Row], rates: list[Row]) -> None:
        """Set the taxes at the shipping address, else the billing address, else the shop's."""
        base, _, state = self._shop.setting("woocommerce_default_country").partition(":")
        shop = {"country": base, "state": state}
        addresses = (order["details"]["shipping"], order["details"]["billing"])
        address = next((each for each in addresses if each.get("country")), shop)
        place = {"country": address["country"], "state": address.get("state", "")}
        shipping_rates = rates_at([rate for rate in rates if rate["shipping"]], place, "")
        for item in items:
            if item["type"] == "shipping":
                tax_item(item, shipping_rates)
            elif item["type"] != "coupon":
                tax_item(item, rates_at(rates, place, item["code"]))
        coupons = [item for item in items if item["type"] == "coupon"]
        shares = share(totals(items)["discount_tax"], [coupon["total"] for coupon in coupons])
        for coupon, tax in zip(coupons, shares, strict=True):
            coupon["total_tax"] = tax


def _put(items: list[Row], kind: str, data: Row, prices: PriceLookup) -> None:
    """Add, change or remove one item of an order."""
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
        items[place : place + 1] = [changed]  # a new item comes last


def _extra_line(item: Row, data: Row) -> Row | None:
    """Return a fee or way of shipping after a change; None if it is removed."""
    field = "name" if item["type"] == "fee" else "method_id"
    if field in data and data[field] is None and item["id"]:
        return None
    if not item["id"] and not data.get(field):
        raise ToolError(f"invalid argument: a new {item['type']} line needs a {field}")
    total = cents(data["total"]) if "total" in data else item["total"]
    if item["type"] == "fee":
        name, code = data.get("name") or item["name"], data.get("tax_class", item["code"])
    else:
        code = data.get("method_id") or item["code"]
        name = data.get("method_title") or item["name"] or code
    return {**item, "name": name, "code": code, "total": total, "subtotal": total}


def _product_line(item: Row, data: Row, prices: PriceLookup) -> Row | None:
    """Return a line with a product after a change; None if it is removed."""
    quantity = data.get("quantity", item["quantity"])
    if not quantity and item["id"]:
        return None
    if not quantity:
        raise ToolError("invalid argument: a new line needs a quantity of at least 1")
    if item["id"]:
        if data.get("product_id") not in (None, 0, item["product_id"]):
            raise ToolError(
                "invalid argument: the product of a line stays; remove the line (quantity 0) and "
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
    line["code"] = data.get("tax_class") or line["code"]
    if data.get("subtotal"):
        line["subtotal"] = line["total"] = cents(data["subtotal"])
    if data.get("total"):
        line["total"] = cents(data["total"])
    line["subtotal"] = max(line["subtotal"], line["total"])
    return line


def _scale(amount: int, quantity: int, before: int) -> int:
    """Return the amount of a line whose quantity changes and price does not, rounded half up."""
    return amount if quantity == before else (2 * amount * quantity + before) // (2 * before)


def _price(product: Row, quantity: int) -> Row:
    """Return the fields of a new line with a product at its current price."""
    amount = cents(product["price"]) * quantity
    parent, details = product["parent_id"], product["details"]
    return {
        "product_id": parent or product["id"],
        "variation_id": product["id"] if parent else None,
        "name": product["name"],
        "code": details["tax_class"] if details["tax_status"] == "taxable" else UNTAXED,
        "subtotal": amount,
        "total": amount,
    }
