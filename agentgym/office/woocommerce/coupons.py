"""Coupons of the shop, and their use by orders."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import ShopPart, merge_meta, words, words_in
from agentgym.office.woocommerce.money import cents, discounts
from agentgym.office.woocommerce.shapes import (
    CouponData,
    NewCoupon,
    validate,
    validate_record,
)
from agentgym.text.tools import ToolError, echo, tool

_USING = ("pending", "processing", "on-hold", "completed", "refunded")
"""An order in one of these statuses is a use of its coupons; a failed one may be paid once more."""

_COUPON: Row = {
    "code": "",
    "amount": "0.00",
    "status": "publish",
    "discount_type": "fixed_cart",
    "description": "",
    "date_expires": None,
    "usage_count": 0,
    "date_created": "",
    "date_modified": "",
    "details": {
        "individual_use": False,
        "product_ids": [],
        "excluded_product_ids": [],
        "usage_limit": None,
        "usage_limit_per_user": None,
        "limit_usage_to_x_items": None,
        "free_shipping": False,
        "product_categories": [],
        "excluded_product_categories": [],
        "exclude_sale_items": False,
        "minimum_amount": "0.00",
        "maximum_amount": "0.00",
        "email_restrictions": [],
    },
    "meta_data": [],
}
"""A new coupon."""

_ALWAYS = (
    "id",
    "code",
    "amount",
    "discount_type",
    "date_created",
    "date_modified",
    "usage_count",
    "individual_use",
    "product_ids",
    "excluded_product_ids",
    "usage_limit",
    "usage_limit_per_user",
    "limit_usage_to_x_items",
    "free_shipping",
    "exclude_sale_items",
)
"""Fields that each coupon of the published server has."""


class Coupons(ShopPart):
    """Coupons, and the discounts that they give on orders."""

    # -- for authors of tasks ------------------------------------------------------------------

    def add(self, code: str, amount: str, **fields: Any) -> int:
        """Add a coupon and return its id.

        Args:
            code: Code, which customers enter.
            amount: Amount of money, or percentage.
            **fields: Fields of the REST API, `usage_count` and `date_created` (a datetime).
        """
        data = validate_record(
            CouponData,
            {"code": code, "amount": amount, **fields},
            ("usage_count", "date_created"),
        )
        with self._store.change():
            return self._insert({**data, "date_created": self._shop.date_of(data)})

    def all(self) -> list[Row]:
        """Return all coupons as the API shows them, those in the trash too, by id."""
        return [self._show(row) for row in self._store.find("coupons")]

    # -- for other parts -----------------------------------------------------------------------

    def check_usable(self, order: Row, items: Sequence[Row], codes: Sequence[str]) -> None:
        """Refuse coupons that cannot be used for an order.

        Raises:
            ToolError: Naming the first such coupon and the reason.
        """
        lines = [item for item in items if item["type"] == "line_item"]
        for code in codes:
            reason = self._objection(self._published(code), order, lines, len(codes))
            if reason:
                raise ToolError(f"invalid argument: coupon {echo(code)} cannot be used: {reason}")

    def apply(self, items: Sequence[Row]) -> None:
        """Set the discounts of an order, coupon after coupon; one that is gone gives none."""
        lines = [item for item in items if item["type"] == "line_item"]
        for line in lines:
            line["total"] = line["subtotal"]
        for item in items:
            if item["type"] == "coupon":
                coupon, discount = self._published(item["code"]), 0
                if coupon is not None:
                    eligible = self._eligible(coupon, lines)
                    for line, amount in zip(eligible, discounts(coupon, eligible), strict=True):
                        line["total"] -= amount
                        discount += amount
                item["total"] = item["subtotal"] = discount

    # -- tools ---------------------------------------------------------------------------------

    @tool
    def woo_coupons_list(
        self, perPage: int = 10, page: int = 1, search: str | None = None, code: str | None = None
    ) -> list[Row]:
        """List coupons, latest first.

        Args:
            perPage: Items a page, at most 100.
            page: Page, from 1.
            search: Words in code or description.
            code: Code.
        """
        where = {
            "status <> ?": "trash",
            words_in("code", "description"): words(search),
            "code = ?": code.lower() if code else None,
        }
        rows = self._shop.select_page("coupons", where, "date_created DESC, id DESC", page, perPage)
        return [self._show(row) for row in rows]

    @tool
    def woo_coupons_get(self, couponId: int) -> Row:
        """Get a coupon.

        Args:
            couponId: Coupon.
        """
        return self._show(self._store.get("coupons", couponId))

    @tool
    def woo_coupons_create(self, couponData: NewCoupon) -> Row:
        """Create a coupon; other fields of the REST API (description, product_categories …) are accepted too.

        Args:
            couponData: The coupon.
        """
        needed = ("code", "amount", "discount_type")
        data = validate(CouponData, couponData, "couponData", needed)
        new_id = self._insert({**data, "date_created": self._shop.tick()})
        self._shop.fire("coupon.created", new_id)
        return self.woo_coupons_get(new_id)

    @tool
    def woo_coupons_update(self, couponId: int, couponData: dict[str, Any]) -> Row:
        """Change fields of a coupon; orders keep the discounts they have.

        Args:
            couponId: Coupon.
            couponData: Fields to change, as in creating.
        """
        data = validate(CouponData, couponData, "couponData")
        row = self._store.get("coupons", couponId)
        self._store.update("coupons", **self._merge(row, data, self._shop.tick()))
        self._shop.fire("coupon.updated", couponId)
        return self.woo_coupons_get(couponId)

    @tool
    def woo_coupons_delete(self, couponId: int, force: bool = True) -> Row:
        """Delete a coupon.

        Args:
            couponId: Coupon.
            force: Delete for good; otherwise it goes to the trash.
        """
        return self._shop.delete_or_trash(
            "coupons", "coupon", couponId, force, self.woo_coupons_get
        )

    # -- helpers -------------------------------------------------------------------------------

    def _insert(self, data: Row) -> int:
        date = data["date_created"]
        new = {**_COUPON, "id": None, "date_created": date}
        return self._store.insert("coupons", **self._merge(new, data, date))

    def _merge(self, row: Row, data: Row, now: str) -> Row:
        """Return a coupon after a change."""
        code = str(data.get("code", row["code"])).strip().lower()
        sql = "SELECT id FROM coupons WHERE code = ? AND id IS NOT ?"
        owner = self._store.value(sql, code, row["id"])
        if owner:
            raise ToolError(f"conflict: coupon {owner} has the code {echo(code)}")
        if not code:
            raise ToolError("invalid argument: a coupon needs a code that is not blank")
        names = row.keys() & data.keys() - {"meta_data", "date_created"}
        new = {**row, **{name: data[name] for name in names}, "code": code}
        new["amount"] = new["amount"] or "0.00"
        if new["discount_type"] == "percent" and float(new["amount"]) > 100:
            raise ToolError(
                f"invalid argument: amount: a percentage is at most 100, got {new['amount']}"
            )
        if "date_expires" in data:
            new["date_expires"] = self._shop.parse_date(data["date_expires"], "date_expires")
        old = row["details"]
        details = {**old, **{name: data[name] for name in old.keys() & data.keys()}}
        return {
            **new,
            "details": details,
            "date_modified": now,
            "meta_data": merge_meta(row, data),
        }

    def _show(self, row: Row) -> Row:
        """Return a coupon as the server shows it: with the fields that all have, and those whose
        value is not that of a new coupon.
        """
        shown = self._shop.show_fields(row, _COUPON, _ALWAYS)
        return {**shown, "usage_count": row["usage_count"] + self._orders_using(row["code"])}

    def _published(self, code: str) -> Row | None:
        sql = "SELECT * FROM coupons WHERE code = ? AND status = 'publish'"
        row = self._store.row(sql, code.lower())
        return row and {**row, **row["details"]}

    def _objection(
        self, coupon: Row | None, order: Row, lines: Sequence[Row], together: int
    ) -> str:
        """Return why a coupon cannot be used, or an empty text.

        Args:
            coupon: The coupon, if there is one.
            order: The order, whose own use of the coupon does not count.
            lines: Its lines.
            together: Number of coupons that it uses.
        """
        if coupon is None:
            return "there is no such coupon"
        worth = sum(line["subtotal"] for line in lines)
        email = order["details"]["billing"].get("email", "").lower()
        patterns = [pattern.lower() for pattern in coupon["email_restrictions"]]
        expires, minimum, maximum = (
            coupon[name] for name in ("date_expires", "minimum_amount", "maximum_amount")
        )
        limit, user_limit = coupon["usage_limit"], coupon["usage_limit_per_user"]
        uses = coupon["usage_count"] + self._orders_using(coupon["code"], order["id"])
        user = (order["customer_id"], email)
        user_uses = self._orders_using(coupon["code"], order["id"], user)
        reasons = {
            "it has expired": expires and expires <= order["date_modified"],
            "its limit of uses is reached": limit and uses >= limit,
            "its limit of uses by one customer is reached": user_limit and user_uses >= user_limit,
            f"the order must be worth {minimum}": worth < cents(minimum),
            f"the order must be worth {maximum} at most": 0 < cents(maximum) < worth,
            "it is for other customers": patterns
            and not any(fnmatchcase(email, pattern) for pattern in patterns),
            "it cannot be used together with others": coupon["individual_use"] and together > 1,
            "no product of the order is one that it is for": not self._eligible(coupon, lines),
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    def _orders_using(
        self, code: str, but: int = 0, user: tuple[int | None, str] | None = None
    ) -> int:
        """Count the orders but one that use a coupon, of all customers or of one (id and email)."""
        sql = """SELECT count(DISTINCT o.id) FROM items AS i JOIN orders AS o ON o.id = i.order_id
            WHERE i.type = 'coupon' AND i.code = ? AND o.id <> ?
            AND o.status IN (SELECT value FROM json_each(?))"""
        if user is not None:
            sql += """ AND (o.customer_id = ?
                OR lower(json_extract(o.details, '$.billing.email')) = ?)"""
        return int(self._store.value(sql, code, but, list(_USING), *(user or ())))

    def _eligible(self, coupon: Row, lines: Sequence[Row]) -> list[Row]:
        """Return the lines that a coupon applies to."""
        return [line for line in lines if self._applies(coupon, line)]

    def _applies(self, coupon: Row, line: Row) -> bool:
        ids = {line["product_id"], line["variation_id"]} - {None}
        sql = "SELECT term_id FROM product_categories WHERE product_id = ?"
        categories = {row["term_id"] for row in self._store.rows(sql, line["product_id"])}
        sold = line["variation_id"] or line["product_id"]
        sql = "SELECT on_sale FROM products WHERE id = ?"
        return (
            (not coupon["product_ids"] or not ids.isdisjoint(coupon["product_ids"]))
            and (
                not coupon["product_categories"]
                or not categories.isdisjoint(coupon["product_categories"])
            )
            and ids.isdisjoint(coupon["excluded_product_ids"])
            and categories.isdisjoint(coupon["excluded_product_categories"])
            and not (coupon["exclude_sale_items"] and self._store.value(sql, sold))
        )
