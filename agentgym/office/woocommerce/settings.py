"""Settings and system status."""

from __future__ import annotations

from typing import Literal

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import ShopPart
from agentgym.text.tools import tool

_VERSION = "9.5.1"  # the modelled release

_GROUPS = {
    "general": ("General", "Where the shop is and what it sells in."),
    "products": ("Products", "Stock, reviews and measures."),
    "tax": ("Tax", "How taxes are computed."),
    "shipping": ("Shipping", "How shipping is offered."),
    "checkout": ("Payments", "What a customer needs to pay."),
    "account": ("Accounts & Privacy", "Who may register."),
    "email": ("Emails", "Who is named as the sender."),
    "integration": ("Integration", "Other services; none is installed."),
    "advanced": ("Advanced", "Addresses of the steps of the checkout."),
    "rest-api": ("REST API", "Access by programs; this connection has all of it."),
}

GroupId = Literal[
    "general",
    "products",
    "tax",
    "shipping",
    "checkout",
    "account",
    "email",
    "integration",
    "advanced",
    "rest-api",
]


class Settings(ShopPart):
    """Settings and system status."""

    def update(self, id: str, value: str) -> None:
        """Change a setting; raise ToolError if the id is unknown."""
        self.store.get("settings", id)
        self.store.update("settings", id, value=value)
        self.session[id] = value

    @tool
    def woo_system_status(self) -> Row:
        """Show the version of the shop and how many records it has."""
        counts = {}
        for table in ("products", "orders", "customers"):
            counts[table] = self.store.value(f"SELECT count(*) FROM {table}")
        return {
            "environment": {"version": _VERSION, "database": "SQLite"},
            "database": {**counts, "coupons": 0},
        }

    @tool
    def woo_settings_list(self) -> list[Row]:
        """List the groups of settings."""
        groups = []
        for key, (label, description) in _GROUPS.items():
            groups.append({"id": key, "label": label, "description": description})
        return groups

    @tool
    def woo_settings_get(self, groupId: GroupId) -> list[Row]:
        """Get the settings of a group.

        Args:
            groupId: Group.
        """
        rows = self.store.find("settings", order="rowid", group_id=groupId)
        return [{name: row[name] for name in ("id", "label", "value")} for row in rows]
