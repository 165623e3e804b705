"""Customers of the shop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import (
    ShopPart,
    check_fields,
    free_name,
    given_fields,
    in_address_order,
    pick_fields,
    words,
    words_in,
)
from agentgym.text.tools import ToolError, echo, tool

_NAMES = ("email", "username", "first_name", "last_name")
_FIELDS = ("email", "first_name", "last_name", "billing")
_SHOWN = ("id", "email", "first_name", "last_name", "role")

# SQL expressions for the sort keys other than `id`.
_ORDERS = {"name": "first_name || ' ' || last_name", "registered_date": "date_created"}


class Customers(ShopPart):
    """Customers of the shop; the first customer is the administrator."""

    def add_all(self, records: Iterable[Mapping[str, Any]]) -> list[int]:
        """Add customers, created now, and return the new ids, in order.

        Each record must contain `email`, and may contain `first_name`, `last_name` and `billing`.
        Raises ValueError for an unknown field, and ToolError for a missing or taken email address.
        """
        emails = set(map(str.lower, self.column_values("customers", "email")))
        usernames = set(map(str.lower, self.column_values("customers", "username")))
        now, rows = self.now(), []
        for key, record in enumerate(records, self.next_id("customers")):
            check_fields(record, _FIELDS)
            email = record.get("email", "").lower()
            if not email or email in emails:
                raise ToolError(
                    "conflict: a customer must have a unique email address, got "
                    f"{echo(record.get('email'))}"
                )
            username = free_name(email.partition("@")[0], usernames)
            emails.add(email)
            usernames.add(username)
            billing = in_address_order(record.get("billing", {}))
            rows.append(
                {
                    "id": key,
                    "email": record["email"],
                    "username": username,
                    "first_name": record.get("first_name", ""),
                    "last_name": record.get("last_name", ""),
                    "date_created": now,
                    "date_modified": now,
                    "details": {"billing": billing, "shipping": {}},
                }
            )
        self.store.insert_all("customers", rows)
        return [row["id"] for row in rows]

    def all(self) -> list[Row]:
        """Return all customers, including the administrator, in the API's format, sorted by id."""
        return self._show(self.select_ids("customers", {}, "id"))

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
        by = f"{_ORDERS.get(orderby, 'id')} {order}, id {order}"  # break ties by id
        return self._show(self.select_ids("customers", where, by, page, perPage))

    @tool
    def woo_customers_get(self, customerId: int) -> Row:
        """Get a customer.

        Args:
            customerId: Customer.
        """
        self.store.get("customers", customerId)
        return self._show([customerId])[0]

    def _show(self, ids: list[int]) -> list[Row]:
        customers = []
        for row in self.rows_by_id("customers", ids):
            shown = pick_fields(row, _SHOWN)
            if row["username"] != row["email"].partition("@")[0].lower():  # not the default
                shown["username"] = row["username"]
            shown["billing"] = given_fields(row["details"]["billing"])
            shown |= {"shipping": {}, "meta_data": []}
            for name in ("date_created", "date_modified"):
                shown[name] = self.site_time(row[name])
            customers.append(shown)
        return customers
