"""Customers of the shop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import (
    ShopPart,
    free_name,
    given_fields,
    merge_meta,
    show_meta,
    words,
    words_in,
)
from agentgym.office.woocommerce.shapes import (
    CustomerData,
    validate_record,
)
from agentgym.text.tools import ToolError, echo, tool

_NAMES = ("email", "username", "first_name", "last_name")  # settable columns
# A new customer's defaults.
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

# SQL for sort keys other than `id`.
_ORDERS = {"name": "first_name || ' ' || last_name", "registered_date": "date_created"}


class Customers(ShopPart):
    """Customers; the first is the administrator."""

    # For task authors.

    def add(self, email: str, first_name: str = "", last_name: str = "", **fields: Any) -> int:
        """Add a customer like `add_all` and return the id."""
        record = {"email": email, "first_name": first_name, "last_name": last_name, **fields}
        return self.add_all([record])[0]

    def add_all(self, records: Iterable[Mapping[str, Any]]) -> list[int]:
        """Add customers and return their ids, in order.

        Records are REST API fields with an `email`, plus `role` and `date_created` (a datetime).
        Unknown fields raise `ValueError`, invalid values `ToolError`.
        """
        customers = []
        for record in records:
            data = validate_record(CustomerData, record, ("role", "date_created"))
            customers.append({**data, "date_created": self._shop.date_of(record)})
        with self._store.change():
            return self._insert(customers)

    def all(self) -> list[Row]:
        """Return all customers, including the administrator, in API form, by id."""
        return self._show_all(self._shop.select_ids("customers", {}, "id"))

    # Tools.

    @tool
    def woo_customers_list(
        self,
        perPage: int = 10,
        page: int = 1,
        search: str | None = None,
        email: str | None = None,
        role: Literal["all", "customer", "administrator", "shop_manager"] = "customer",
        orderby: Literal["id", "include", "name", "registered_date"] = "id",
        order: Literal["asc", "desc"] = "desc",
    ) -> list[Row]:
        """List customers, highest id first.

        Args:
            perPage: Items per page, at most 100.
            page: Page, from 1.
            search: Words in names, user name or email address.
            email: Email address.
            role: Role.
            orderby: Sort key.
            order: Direction.
        """
        where = {
            words_in(*_NAMES): words(search),
            "email = ?": email,
            "role = ?": None if role == "all" else role,
        }
        by = f"{_ORDERS.get(orderby, 'id')} {order}, id {order}"  # ids break ties
        return self._show_all(self._shop.select_ids("customers", where, by, page, perPage))

    @tool
    def woo_customers_get(self, customerId: int) -> Row:
        """Get a customer.

        Args:
            customerId: Customer.
        """
        self._store.get("customers", customerId)
        return self._show_all([customerId])[0]

    # Helpers.

    def _insert(self, records: Sequence[Row]) -> list[int]:
        emails = {str(email).lower() for email in self._shop.column_values("customers", "email")}
        usernames = {
            str(name).lower() for name in self._shop.column_values("customers", "username")
        }
        rows = []
        for key, data in enumerate(records, self._shop.next_id("customers")):
            email = data.get("email", "").lower()
            if not email:
                raise ToolError("invalid argument: a customer needs an email")
            if email in emails:
                raise ToolError(
                    f"conflict: another customer has the email address {echo(data['email'])}"
                )
            username = data.get("username") or free_name(email.partition("@")[0], usernames)
            if username.lower() in usernames:
                raise ToolError(f"conflict: another customer has the user name {echo(username)}")
            emails.add(email)
            usernames.add(username.lower())
            date = data["date_created"]
            new = {
                **_CUSTOMER,
                "id": key,
                "role": data.get("role", "customer"),
                "date_created": date,
            }
            rows.append(_merge(new, {**data, "username": username}, date))
        self._store.insert_all("customers", rows)
        return [row["id"] for row in rows]

    def _show_all(self, ids: list[int]) -> list[Row]:
        """Show the user name only if it differs from the generated one."""
        return [self._show(row) for row in self._shop.rows_by_id("customers", ids)]

    def _show(self, row: Row) -> Row:
        shown = {name: row[name] for name in ("id", "email", "first_name", "last_name", "role")}
        if row["username"] != row["email"].partition("@")[0].lower():
            shown["username"] = row["username"]
        return {
            **shown,
            "billing": given_fields(row["details"]["billing"]),
            "shipping": given_fields(row["details"]["shipping"]),
            "meta_data": show_meta(row["meta_data"]),
            "date_created": self._shop.site_time(row["date_created"]),
            "date_modified": self._shop.site_time(row["date_modified"]),
        }


def _merge(row: Row, data: Row, now: str) -> Row:
    names = {name: data[name] for name in _NAMES if name in data}
    old = row["details"]
    details = {name: {**old[name], **data.get(name, {})} for name in ("billing", "shipping")}
    return {
        **row,
        **names,
        "date_modified": now,
        "details": details,
        "meta_data": merge_meta(row, data),
    }
