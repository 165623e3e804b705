"""Customers and coupons of the shop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.refunds import Refunds
from agentgym.envs.loca.servers.woocommerce.shapes import CouponData, CustomerData, checked, filled, merge_meta
from agentgym.envs.loca.servers.woocommerce.shop import ADDRESS, words, words_in
from agentgym.tools import ToolError, echo, tool

_NAMES = ("email", "username", "first_name", "last_name")
_CUSTOMER: Row = {
    "email": "",
    "username": "",
    "first_name": "",
    "last_name": "",
    "role": "customer",
    "date_created": "",
    "date_modified": "",
    "details": {"billing": {}, "shipping": {}},
    "meta_data": [],
}
PAYING = "SELECT DISTINCT customer_id FROM orders WHERE status IN ('completed', 'processing') AND customer_id IS NOT NULL"
"""SQL: the customers with an order that is paid."""
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


class People(Refunds):
    """The tools for customers and coupons, and the methods that fill and read them."""

    # -- for authors of tasks --------------------------------------------------------------------------------------------------

    def add_customer(self, email: str, first_name: str = "", last_name: str = "", **fields: Any) -> int:
        """Add one customer as `add_customers` does; the id."""
        return self.add_customers([{"email": email, "first_name": first_name, "last_name": last_name, **fields}])[0]

    def add_customers(self, records: Iterable[Mapping[str, Any]]) -> list[int]:
        """Add customers; their ids, in order.

        Args:
            records: Fields of the REST API, with `email`; besides, `role` and `date_created` (a datetime, now by default).

        Raises:
            ValueError: A field is misspelt.
            ToolError: A value is wrong, or an address is taken.
        """
        made = []
        for record in records:
            data = filled(CustomerData, record, ("role", "date_created"))
            made.append({**data, "date_created": self._date(data)})
        with self.store.change():
            return self._add_customers(made)

    def add_coupon(self, code: str, amount: str, **fields: Any) -> int:
        """Add a coupon with fields of the REST API; besides, `usage_count` and `date_created` (a datetime); its id."""
        data = filled(CouponData, {"code": code, "amount": amount, **fields}, ("usage_count", "date_created"))
        with self.store.change():
            return self._add_coupon({**data, "date_created": self._date(data)})

    def customers(self) -> list[Row]:
        """All customers (the administrator too, who is the first) as the API shows them, by id."""
        return self._shown_customers(self._ids("customers", {}, "id"))

    def coupons(self) -> list[Row]:
        """All coupons as the API shows them, those in the trash too, by id."""
        return [self._shown_coupon(row) for row in self.store.find("coupons")]

    # -- tools -----------------------------------------------------------------------------------------------------------------

    @tool
    def woo_customers_list(
        self,
        perPage: int = 10,
        page: int = 1,
        search: str | None = None,
        email: str | None = None,
        role: Literal["all", "customer", "administrator", "shop_manager"] = "customer",
        orderby: Literal["id", "include", "name", "registered_date"] = "name",
        order: Literal["asc", "desc"] = "asc",
    ) -> list[Row]:
        """List customers, at most 100 a page. Each word of `search` is in a name, the user name or the email address."""
        where = {words_in(*_NAMES): words(search), "email = ?": email, "role = ?": None if role == "all" else role}
        by = {"name": "first_name || ' ' || last_name", "registered_date": "date_created"}.get(orderby, "id")
        return self._shown_customers(self._ids("customers", where, f"{by} {order}, id {order}", page, perPage))

    @tool
    def woo_customers_get(self, customerId: int) -> Row:
        """Get a customer."""
        return self._shown_customer(customerId)

    @tool
    def woo_customers_create(self, customerData: dict[str, Any]) -> Row:
        """Create a customer: `email`, and names, `username`, `billing`, `shipping`, `meta_data` if wanted."""
        data = checked(CustomerData, customerData, "customerData")
        with self.store.change():
            [made] = self._add_customers([{**data, "date_created": self._now()}])
            self._fire("customer.created", made)
        return self._shown_customer(made)

    @tool
    def woo_customers_update(self, customerId: int, customerData: dict[str, Any]) -> Row:
        """Change fields of a customer; the user name stays."""
        data = checked(CustomerData, customerData, "customerData")
        with self.store.change():
            held = self.store.get("customers", customerId)
            if data.get("username", held["username"]) != held["username"]:
                raise ToolError("invalid argument: username: a user name stays as it is")
            taken = self.store.value("SELECT id FROM customers WHERE email = ? AND id <> ?", data.get("email"), customerId)
            if taken:
                raise ToolError(f"conflict: customer {taken} has the email address {echo(data['email'])}")
            self._write("customers", _merged_customer(held, data, self._now()))
            self._fire("customer.updated", customerId)
        return self._shown_customer(customerId)

    @tool
    def woo_coupons_list(self, perPage: int = 10, page: int = 1, search: str | None = None, code: str | None = None) -> list[Row]:
        """List coupons, latest first; each word of `search` is in the code or the description."""
        where = {
            "status <> ?": "trash",
            words_in("code", "description"): words(search),
            "code = ?": code.lower() if code else None,
        }
        return [self._shown_coupon(row) for row in self._page("coupons", where, "date_created DESC, id DESC", page, perPage)]

    @tool
    def woo_coupons_get(self, couponId: int) -> Row:
        """Get a coupon."""
        return self._shown_coupon(self.store.get("coupons", couponId))

    @tool
    def woo_coupons_create(self, couponData: dict[str, Any]) -> Row:
        """Create a coupon: `code`, `amount`, `discount_type` (percent, fixed_cart, fixed_product), and limits if wanted."""
        data = checked(CouponData, couponData, "couponData")
        with self.store.change():
            made = self._add_coupon({**data, "date_created": self._now()})
            self._fire("coupon.created", made)
        return self.woo_coupons_get(made)

    @tool
    def woo_coupons_update(self, couponId: int, couponData: dict[str, Any]) -> Row:
        """Change fields of a coupon; orders keep the discounts that they have."""
        data = checked(CouponData, couponData, "couponData")
        with self.store.change():
            held = self.store.get("coupons", couponId)
            self._write("coupons", self._merged_coupon(held, data, self._now()))
            self._fire("coupon.updated", couponId)
        return self.woo_coupons_get(couponId)

    @tool
    def woo_coupons_delete(self, couponId: int, force: bool = True) -> Row:
        """Delete a coupon: for good, or into the trash without `force`."""
        with self.store.change():
            return self._discard("coupons", "coupon", couponId, force, self.woo_coupons_get)

    # -- helpers ---------------------------------------------------------------------------------------------------------------

    def _add_customers(self, records: Sequence[Row]) -> list[int]:
        """Add customers whose fields are checked; they have a `date_created`."""
        emails = {str(email).lower() for email in self._values("customers", "email")}
        users = {str(user).lower() for user in self._values("customers", "username")}
        rows = []
        for number, data in enumerate(records, self._next_id("customers")):
            email = data.get("email", "").lower()
            if not email:
                raise ToolError("invalid argument: a customer needs an email")
            if email in emails:
                raise ToolError(f"conflict: another customer has the email address {echo(data['email'])}")
            username = data.get("username") or _free(email.partition("@")[0], users)
            if username.lower() in users:
                raise ToolError(f"conflict: another customer has the user name {echo(username)}")
            emails.add(email)
            users.add(username.lower())
            base = {"id": number, **_CUSTOMER, "role": data.get("role", "customer"), "date_created": data["date_created"]}
            rows.append(_merged_customer(base, {**data, "username": username}, data["date_created"]))
        self.store.insert_all("customers", rows)
        return [row["id"] for row in rows]

    def _shown_customer(self, customer_id: int) -> Row:
        self.store.get("customers", customer_id)
        return self._shown_customers([customer_id])[0]

    def _shown_customers(self, ids: list[int]) -> list[Row]:
        """Customers as the API shows them."""
        sql = f"SELECT id FROM customers WHERE id IN (SELECT value FROM json_each(?)) AND id IN ({PAYING})"
        paying = {row["id"] for row in self.store.rows(sql, ids)}
        return [
            {
                "id": row["id"],
                **self._dates(row, "date_created", "date_modified"),
                "email": row["email"],
                "first_name": row["first_name"],
                "last_name": row["last_name"],
                "role": row["role"],
                "username": row["username"],
                "billing": {**ADDRESS, "email": "", **row["details"]["billing"]},
                "shipping": {**ADDRESS, **row["details"]["shipping"]},
                "is_paying_customer": row["id"] in paying,
                "meta_data": row["meta_data"],
            }
            for row in self._by_ids("customers", ids)
        ]

    def _add_coupon(self, data: Row) -> int:
        base: Row = {**_COUPON, "usage_count": data.get("usage_count", 0), "date_created": data["date_created"]}
        return self.store.insert("coupons", **self._merged_coupon({"id": None, **base}, data, data["date_created"]))

    def _merged_coupon(self, row: Row, data: Row, now: str) -> Row:
        """A coupon after a change."""
        code = str(data.get("code", row["code"])).strip().lower()
        taken = self.store.value("SELECT id FROM coupons WHERE code = ? AND id IS NOT ?", code, row["id"])
        if taken:
            raise ToolError(f"conflict: coupon {taken} has the code {echo(code)}")
        if not code:
            raise ToolError("invalid argument: a coupon needs a code that is not blank")
        new = {**row, **{name: data[name] for name in row.keys() & data.keys() - {"meta_data", "date_created"}}, "code": code}
        new["amount"] = new["amount"] or "0.00"
        if new["discount_type"] == "percent" and float(new["amount"]) > 100:
            raise ToolError(f"invalid argument: amount: a percentage is at most 100, got {new['amount']}")
        if "date_expires" in data:
            new["date_expires"] = self._moment(data["date_expires"], "date_expires")
        details = {**row["details"], **{name: data[name] for name in row["details"].keys() & data.keys()}}
        return {
            **new,
            "details": details,
            "date_modified": now,
            "meta_data": merge_meta(row["meta_data"], data.get("meta_data", [])),
        }

    def _shown_coupon(self, row: Row) -> Row:
        names = ("id", "code", "amount", "status", "discount_type", "description")
        return {
            **{name: row[name] for name in names},
            **self._dates(row, "date_created", "date_modified", "date_expires"),
            "usage_count": self._uses(row),
            **row["details"],
            "meta_data": row["meta_data"],
        }


def _merged_customer(row: Row, data: Row, now: str) -> Row:
    """A customer after a change."""
    new = {**row, **{name: data[name] for name in _NAMES if name in data}, "date_modified": now}
    details = {name: {**row["details"][name], **data.get(name, {})} for name in ("billing", "shipping")}
    return {**new, "details": details, "meta_data": merge_meta(row["meta_data"], data.get("meta_data", []))}


def _free(name: str, taken: set[str]) -> str:
    """A user name that is not taken, made of another."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}{number}"
    return free
