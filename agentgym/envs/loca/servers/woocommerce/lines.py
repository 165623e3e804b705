"""What an order is made of, what it costs and what it takes from the stock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.money import cents, discounts, money, rates_at, share, tax_item, totals
from agentgym.envs.loca.servers.woocommerce.shapes import MAX_AMOUNT, merge_meta
from agentgym.envs.loca.servers.woocommerce.terms import Terms
from agentgym.tools import ToolError, echo

BOOKING = ("processing", "completed", "on-hold")
"""An order that comes to one of these statuses takes its products from the stock, once, and counts as sold."""

RELEASING = ("pending", "cancelled")
"""An order that comes to one of these gives back what it took; other statuses (and deletion) change no stock."""

COUNTED = ("pending", "processing", "on-hold", "completed", "refunded")
"""An order in one of these counts as a use of its coupons."""

UNTAXED = "untaxed"
"""Stands for the tax class of a product that is not taxed."""

_FIELDS = ("billing", "shipping", "payment_method", "payment_method_title", "transaction_id", "customer_note")
_KINDS = {"line_items": "line_item", "shipping_lines": "shipping", "fee_lines": "fee"}
_NEW_ITEM: Row = {
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


@dataclass(frozen=True, slots=True)
class Shelf:
    """What prices are looked up in: products by id and by SKU, and the rates of tax."""

    products: dict[int, Row]
    skus: dict[str, Row]
    rates: list[Row]


class Lines(Terms):
    """How an order is composed; the tools are in the class above."""

    def _shelf(self, records: Iterable[Row]) -> Shelf:
        lines = [line for data in records for line in data.get("line_items", [])]
        ids = {line[name] for line in lines for name in ("product_id", "variation_id") if line.get(name)}
        skus = sorted({line["sku"] for line in lines if line.get("sku")})
        named = self.store.rows("SELECT * FROM products WHERE sku IN (SELECT value FROM json_each(?))", skus) if skus else []
        rates = self.store.find("tax_rates") if self._setting("woocommerce_calc_taxes") == "yes" else []
        return Shelf({row["id"]: row for row in self._by_ids("products", ids)}, {row["sku"]: row for row in named}, rates)

    def _merged_order(self, order: Row, data: Row, now: str) -> Row:
        """An order after a change of all but its items."""
        status = data.get("status", order["status"])
        if data.get("set_paid") and status in ("pending", "on-hold", "failed", "cancelled"):
            status = "processing"
        new = {**order, "status": status, "currency": data.get("currency", order["currency"]), "date_modified": now}
        if status in ("processing", "completed") or data.get("set_paid"):
            new["date_paid"] = order["date_paid"] or now
        if status == "completed" != order["status"]:
            new["date_completed"] = now
        if "customer_id" in data:
            new["customer_id"] = data["customer_id"] or None
            if data["customer_id"]:
                self.store.get("customers", data["customer_id"])
        new["booked"] = status in BOOKING or (order["booked"] and status not in RELEASING)
        given = {name: data[name] for name in _FIELDS if name in data}
        for name in ("billing", "shipping"):
            given[name] = {**order["details"][name], **given.get(name, {})}
        new["details"] = {**order["details"], **given}
        return {**new, "meta_data": merge_meta(order["meta_data"], data.get("meta_data", []))}

    def _compose(self, order: Row, held: Sequence[Row], data: Row, shelf: Shelf) -> list[Row]:
        """The items of an order after a change, with their prices, discounts and taxes."""
        items = [dict(item) for item in held]
        for field, kind in _KINDS.items():
            for given in data.get(field, ()):
                self._put(items, kind, given, shelf)
        before = [item["code"] for item in items if item["type"] == "coupon"]
        codes = list(dict.fromkeys(line["code"].lower() for line in data["coupon_lines"])) if "coupon_lines" in data else before
        if codes != before:
            items = [item for item in items if item["type"] != "coupon"]
            self._check_coupons(order, items, codes)
            items += [{**_NEW_ITEM, "id": 0, "order_id": order["id"], "type": "coupon", "code": code} for code in codes]
        if codes != before or ("line_items" in data and codes):
            lines, coupons = ([item for item in items if item["type"] == kind] for kind in ("line_item", "coupon"))
            self._discount(lines, coupons)
        if held or shelf.rates:
            self._tax(order, items, shelf.rates)
        return items

    def _tax(self, order: Row, items: Sequence[Row], rates: list[Row]) -> None:
        base, _, state = self._setting("woocommerce_default_country").partition(":")
        places = [order["details"]["shipping"], order["details"]["billing"]]
        chosen = next((place for place in places if place.get("country")), {"country": base, "state": state})
        place = {"country": chosen["country"], "state": chosen.get("state", "")}
        for item in items:
            if item["type"] != "coupon":
                known = [rate for rate in rates if rate["shipping"]] if item["type"] == "shipping" else rates
                tax_item(item, rates_at(known, place, "" if item["type"] == "shipping" else item["code"]))
        coupons = [item for item in items if item["type"] == "coupon"]
        saved = totals(items)["discount_tax"]
        for coupon, tax in zip(coupons, share(saved, [item["total"] for item in coupons]), strict=True):
            coupon["total_tax"] = tax

    def _put(self, items: list[Row], kind: str, given: Row, shelf: Shelf) -> None:
        """Add, change or remove one item of an order."""
        found = [k for k, item in enumerate(items) if item["id"] == given.get("id") and item["type"] == kind]
        if given.get("id") and not found:
            raise ToolError(f"not found: the order has no {kind.replace('_', ' ')} with id {given['id']}")
        fresh = {**_NEW_ITEM, "id": 0, "order_id": None, "type": kind}
        held = items[found[0]] if given.get("id") else fresh
        made = self._line(held, given, shelf) if kind == "line_item" else self._extra(held, given)
        if made is None:
            del items[found[0]]
        elif given.get("id"):
            items[found[0]] = {**made, "meta_data": merge_meta(made["meta_data"], given.get("meta_data", []))}
        else:
            items.append({**made, "meta_data": merge_meta([], given.get("meta_data", []))})

    def _extra(self, held: Row, given: Row) -> Row | None:
        """A fee or a way of shipping; None when it goes."""
        field = "name" if held["type"] == "fee" else "method_id"
        if field in given and given[field] is None and held["id"]:
            return None
        if not held["id"] and not given.get(field):
            raise ToolError(f"invalid argument: a new {held['type']} line needs a {field}")
        total = cents(given["total"]) if "total" in given else held["total"]
        name, code = given.get("name") or held["name"], given.get("tax_class", held["code"])
        if held["type"] == "shipping":
            code = given.get("method_id") or held["code"]
            name = given.get("method_title") or held["name"] or code
        return {**held, "name": name, "code": code, "total": total, "subtotal": total}

    def _line(self, held: Row, given: Row, shelf: Shelf) -> Row | None:
        """A line with a product; None when it goes."""
        quantity = given.get("quantity", held["quantity"])
        if not quantity and held["id"]:
            return None
        if not quantity:
            raise ToolError("invalid argument: a new line needs a quantity of at least 1")
        if held["id"]:
            wanted = given.get("product_id")
            if wanted and wanted != held["product_id"]:
                raise ToolError("invalid argument: the product of a line stays; remove the line (quantity 0) and add another")
            line = {**held, **{name: _scaled(held[name], quantity, held["quantity"]) for name in ("subtotal", "total")}}
        else:
            line = {**held, **_priced(self._product_of(given, shelf), quantity)}
        line |= {"quantity": quantity, "name": given.get("name") or line["name"], "code": given.get("tax_class") or line["code"]}
        if given.get("subtotal"):
            line["subtotal"] = line["total"] = cents(given["subtotal"])
        if given.get("total"):
            line["total"] = cents(given["total"])
        return {**line, "subtotal": max(line["subtotal"], line["total"])}

    def _product_of(self, given: Row, shelf: Shelf) -> Row:
        """The product of a new line, given by the id of its variation, its own or its SKU."""
        wanted = given.get("variation_id") or given.get("product_id")
        row = shelf.products.get(wanted) if wanted else shelf.skus.get(given.get("sku") or "")
        if row is None:
            said = f"id {wanted}" if wanted else f"SKU {echo(given.get('sku') or '')}"
            raise ToolError(f"not found: there is no product with {said}; a line needs a product_id or a sku")
        return row

    # -- coupons ---------------------------------------------------------------------------------------------------------------

    def _check_coupons(self, order: Row, items: Sequence[Row], codes: list[str]) -> None:
        """Refuse coupons that cannot be used for an order.

        Raises:
            ToolError: Saying which and why.
        """
        lines = [item for item in items if item["type"] == "line_item"]
        worth = sum(line["subtotal"] for line in lines)
        found = {code: self._coupon(code) for code in codes}
        for code, coupon in found.items():
            why = "there is no such coupon" if coupon is None else self._why_not(coupon, order, worth, len(codes))
            if coupon is not None and not why and not self._eligible(coupon, lines):
                why = "no product of the order is one that it is for"
            if why:
                raise ToolError(f"invalid argument: coupon {echo(code)} cannot be used: {why}")

    def _coupon(self, code: str) -> Row | None:
        found = self.store.row("SELECT * FROM coupons WHERE code = ? AND status = 'publish'", code.lower())
        return found and {**found, **found["details"]}

    def _why_not(self, coupon: Row, order: Row, worth: int, together: int) -> str:
        """Why a coupon cannot be used; nothing if it can."""
        by_user = {"customer": order["customer_id"], "email": order["details"]["billing"].get("email", "").lower()}
        emails = [pattern.lower() for pattern in coupon["email_restrictions"]]
        reasons = {
            "it has expired": coupon["date_expires"] and coupon["date_expires"] <= order["date_modified"],
            "its limit of uses is reached": coupon["usage_limit"] and self._uses(coupon, order) >= coupon["usage_limit"],
            "its limit of uses by one customer is reached": coupon["usage_limit_per_user"]
            and self._uses(coupon, order, by_user) >= coupon["usage_limit_per_user"],
            f"the order must be worth {coupon['minimum_amount']}": worth < cents(coupon["minimum_amount"]),
            f"the order must be worth {coupon['maximum_amount']} at most": 0 < cents(coupon["maximum_amount"]) < worth,
            "it is for other customers": emails and not any(fnmatchcase(by_user["email"], pattern) for pattern in emails),
            "it cannot be used together with others": coupon["individual_use"] and together > 1,
        }
        return next((why for why, holds in reasons.items() if holds), "")

    def _uses(self, coupon: Row, order: Row | None = None, by_user: Row | None = None) -> int:
        """How often a coupon was used, by a customer or by all, another order than this one."""
        mine = " AND (o.customer_id = ? OR lower(json_extract(o.details, '$.billing.email')) = ?)" if by_user else ""
        sql = f"""SELECT count(DISTINCT o.id) FROM items AS i JOIN orders AS o ON o.id = i.order_id WHERE i.type = 'coupon'
            AND i.code = ? AND o.id <> ? AND o.status IN (SELECT value FROM json_each(?)){mine}"""
        values = (coupon["code"], order["id"] if order else 0, list(COUNTED), *(by_user.values() if by_user else ()))
        return int(self.store.value(sql, *values)) + (0 if by_user else coupon["usage_count"])

    def _eligible(self, coupon: Row, lines: Sequence[Row]) -> list[Row]:
        """The lines that a coupon applies to."""
        return [line for line in lines if self._applies(coupon, line)]

    def _applies(self, coupon: Row, line: Row) -> bool:
        ids = {line["product_id"], line["variation_id"]} - {None}
        linked = self.store.rows("SELECT term_id FROM product_categories WHERE product_id = ?", line["product_id"])
        terms = {row["term_id"] for row in linked}
        if coupon["product_ids"] and not ids & set(coupon["product_ids"]):
            return False
        if coupon["product_categories"] and not terms & set(coupon["product_categories"]):
            return False
        if ids & set(coupon["excluded_product_ids"]) or terms & set(coupon["excluded_product_categories"]):
            return False
        bought = line["variation_id"] or line["product_id"]
        return not (coupon["exclude_sale_items"] and self.store.value("SELECT on_sale FROM products WHERE id = ?", bought))

    def _discount(self, lines: Sequence[Row], coupons: Sequence[Row]) -> None:
        """Take off the coupons of an order, one after the other; one that was deleted since takes nothing off."""
        for line in lines:
            line["total"] = line["subtotal"]
        for item in coupons:
            coupon = self._coupon(item["code"])
            chosen = [] if coupon is None else self._eligible(coupon, lines)
            cut = [] if coupon is None else discounts(coupon, chosen)
            for line, less in zip(chosen, cut, strict=True):
                line["total"] -= less
            item["total"] = item["subtotal"] = sum(cut)

    # -- totals and stock ------------------------------------------------------------------------------------------------------

    def _totals(self, items: Sequence[Row]) -> dict[str, int]:
        sums = totals(items)
        if sums["total"] + sums["discount_total"] + sums["discount_tax"] > MAX_AMOUNT * 100:
            raise ToolError(f"limit exceeded: an order is worth {money(MAX_AMOUNT * 100)} at most")
        return sums

    def _settle(self, old: Sequence[Row], new: Sequence[Row], was: Any, booked: Any) -> None:
        """Move stock and sales as an order changes; each item notes in `reduced` what it holds of the stock.

        Args:
            old: Its items before.
            new: Its items after; their `reduced` is set.
            was: Whether it had taken its products from the stock.
            booked: Whether it has now.
        """
        before = {item["id"]: item for item in old}
        for item in new:
            held = before.get(item["id"], _NEW_ITEM | {"quantity": 0})
            grown = item["quantity"] - held["quantity"]
            wanted = max(0, held["reduced"] + grown) if was else item["quantity"]
            self._take(item, held["reduced"], wanted if booked else 0)
            self._count_sold(item, item["quantity"] * bool(booked) - held["quantity"] * bool(was))
        for gone in before.keys() - {item["id"] for item in new}:
            self._take(dict(before[gone]), before[gone]["reduced"], 0)
            self._count_sold(before[gone], -before[gone]["quantity"] * bool(was))

    def _take(self, item: Row, held: int, wanted: int) -> None:
        """Let an item hold a number of its product, where the stock of that (or of what it is a variation of) is managed."""
        item["reduced"] = min(held, wanted)
        for product in (item["variation_id"], item["product_id"]):
            if item["type"] == "line_item" and product and held != wanted and self._move_stock(product, held - wanted):
                item["reduced"] = wanted
                break

    def _count_sold(self, item: Row, count: int) -> None:
        if count and item["type"] == "line_item" and item["product_id"]:
            sold = self.store.value("SELECT total_sales FROM products WHERE id = ?", item["product_id"])
            self.store.update("products", item["product_id"], total_sales=max(0, sold + count))


def _scaled(worth: int, quantity: int, before: int) -> int:
    """What a line is worth when its quantity changes and its price does not, rounded half up."""
    return worth if quantity == before else (2 * worth * quantity + before) // (2 * before)


def _priced(row: Row, quantity: int) -> Row:
    """A new line with a product at its price now."""
    worth = cents(row["price"]) * quantity
    parent, details = row["parent_id"], row["details"]
    return {
        "product_id": parent or row["id"],
        "variation_id": row["id"] if parent else None,
        "name": row["name"],
        "code": details["tax_class"] if details["tax_status"] == "taxable" else UNTAXED,
        "subtotal": worth,
        "total": worth,
    }
