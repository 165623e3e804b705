"""Settings of the shop, its payment gateways and the state of its system."""

from __future__ import annotations

from typing import Any, Literal

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.context import SITE, ShopContext
from agentgym.envs.loca.servers.woocommerce.presets import GROUPS
from agentgym.tools import ToolError, echo, tool

_TOOLS = {
    "clear_transients": ("WooCommerce transients", "Clears the cache of the shop."),
    "clear_expired_transients": ("Expired transients", "Clears what has expired of the cache."),
    "clear_orphaned_variations": (
        "Orphaned variations",
        "Deletes all variations which have no parent.",
    ),
    "add_order_indexes": ("Order address indexes", "Makes the index by which orders are searched."),
    "recount_terms": ("Term counts", "Counts the products of each category and tag."),
    "reset_roles": (
        "Capabilities",
        "Resets the roles of administrator, customer and shop manager.",
    ),
    "clear_sessions": (
        "Clear customer sessions",
        "Deletes the sessions of customers with their carts.",
    ),
    "clear_template_cache": ("Clear template cache", "Clears the cache of templates."),
    "clear_system_status_theme_info_cache": (
        "Clear system status theme info cache",
        "Clears what is cached of the theme.",
    ),
}
"""Name and description of each tool of the system."""

_CURRENCIES = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "CNY": "¥"}
"""Symbols of the common currencies; another one is shown by its code."""

ToolId = Literal[
    "clear_transients",
    "clear_expired_transients",
    "clear_orphaned_variations",
    "add_order_indexes",
    "recount_terms",
    "reset_roles",
    "clear_sessions",
    "clear_template_cache",
    "clear_system_status_theme_info_cache",
]
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


class Settings:
    """Settings, payment gateways and system of the shop.

    Args:
        shop: Context of the shop.
    """

    def __init__(self, shop: ShopContext) -> None:
        self._shop = shop

    def update(self, id: str, value: str) -> None:
        """Change a setting, such as `woocommerce_currency` or `gmt_offset` (hours).

        Raises:
            ToolError: There is no such setting.
            ValueError: It cannot have that value.
        """
        setting = self._shop.store.get("settings", id)
        options = setting["options"]
        if options and value not in options:
            raise ValueError(f"{id} must be one of {', '.join(options)}, got {value!r}")
        if setting["type"] == "number" and not value.lstrip("-").replace(".", "", 1).isdigit():
            raise ValueError(f"{id} must be a number, got {value!r}")
        self._shop.store.update("settings", id, value=value)
        self._shop.session[id] = value

    @tool
    def woo_system_status(self) -> Row:
        """The state of the shop: its time zone, its main settings, and how many records of each kind there are."""
        store = self._shop.store
        tables = ("products", "orders", "customers", "coupons", "reviews", "webhooks")
        currency = self._shop.setting("woocommerce_currency")
        sizes = {name: store.value(f"SELECT count(*) FROM {name}") for name in tables}
        sql = "SELECT type, count(*) AS count FROM products GROUP BY type ORDER BY type"
        return {
            "environment": {
                "home_url": SITE,
                "site_url": SITE,
                "store_id": "loca",
                "default_timezone": f"UTC{float(self._shop.setting('gmt_offset')):+g}",
                "date": self._shop.show_dates({"now": self._shop.now()}, "now"),
            },
            "database": {"database_tables": sizes},
            "settings": {
                "api_enabled": True,
                "currency": currency,
                "currency_symbol": _CURRENCIES.get(currency, currency),
                "number_of_decimals": int(self._shop.setting("woocommerce_price_num_decimals")),
                "taxes_enabled": self._shop.setting("woocommerce_calc_taxes") == "yes",
            },
            "post_type_counts": store.rows(sql),
        }

    @tool
    def woo_system_tools_list(self) -> list[Row]:
        """List what `woo_system_tools_run` can do."""
        return [
            {"id": key, "name": name, "description": text} for key, (name, text) in _TOOLS.items()
        ]

    @tool
    def woo_system_tools_run(self, toolId: ToolId) -> Row:
        """Run a tool of the system. This shop caches nothing and counts anew each time, so most have nothing to do."""
        store, message = self._shop.store, "Nothing was there to do."
        if toolId == "recount_terms":
            counts = [
                store.value(f"SELECT count(*) FROM {table}") for table in ("categories", "tags")
            ]
            message = f"{counts[0]} categories and {counts[1]} tags counted."
        elif toolId == "clear_orphaned_variations":
            deleted = store.delete("products", type="variation", parent_id=None)
            message = f"{deleted} orphaned variations deleted."
        name, text = _TOOLS[toolId]
        return {
            "id": toolId,
            "name": name,
            "description": text,
            "success": True,
            "message": message,
        }

    @tool
    def woo_settings_list(self) -> list[Row]:
        """List the groups of settings."""
        return [
            {"id": key, "label": label, "description": text}
            for key, (label, text) in GROUPS.items()
        ]

    @tool
    def woo_settings_get(self, groupId: GroupId) -> list[Row]:
        """The settings of a group with their values."""
        settings = []
        for row in self._shop.store.find("settings", order="rowid", group_id=groupId):
            setting = {**row, "default": row["default_value"]}
            if not setting["options"]:
                del setting["options"]
            settings.append(setting)
        return settings

    @tool
    def woo_payment_gateways_list(self) -> list[Row]:
        """List the ways to pay."""
        return [_show_gateway(row) for row in self._shop.store.find("gateways", order="menu_order")]

    @tool
    def woo_payment_gateways_get(self, gatewayId: str) -> Row:
        """Get a way to pay."""
        return _show_gateway(self._shop.store.get("gateways", gatewayId, "payment gateway"))

    @tool
    def woo_payment_gateways_update(
        self,
        gatewayId: str,
        enabled: bool | None = None,
        title: str | None = None,
        description: str | None = None,
        settings: dict[str, Any] | None = None,
    ) -> Row:
        """Change a way to pay; `settings` has title, description and instructions."""
        row = self._shop.store.get("gateways", gatewayId, "payment gateway")
        changes = dict(settings or {})
        if title is not None:
            changes["title"] = title
        if description is not None:
            changes["description"] = description
        merged = merge_settings(row["settings"], changes)
        self._shop.store.update(
            "gateways",
            gatewayId,
            enabled=row["enabled"] if enabled is None else enabled,
            settings=merged,
            title=merged["title"],
            description=merged["description"],
        )
        return self.woo_payment_gateways_get(gatewayId)


def _show_gateway(row: Row) -> Row:
    names = ("id", "title", "description", "enabled", "method_title")
    return {
        **{name: row[name] for name in names},
        "order": row["menu_order"],
        "method_supports": row["supports"],
        "settings": show_settings(row["settings"]),
    }


def show_settings(settings: Row) -> Row:
    """Return settings of a gateway or a way of shipping as the API shows them."""
    fields = {}
    for name, value in settings.items():
        label = name.replace("_", " ").capitalize()
        fields[name] = {"id": name, "label": label, "type": "text", "value": value}
    return fields


def merge_settings(settings: Row, changes: Row) -> Row:
    """Return settings with new values, all of them texts.

    Raises:
        ToolError: There is no such setting, or its value is no text or number.
    """
    for name, value in changes.items():
        if name not in settings:
            raise ToolError(
                f"invalid argument: no setting is called {echo(name)}; there are "
                f"{', '.join(settings)}"
            )
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ToolError(f"invalid argument: the setting {name} must be text, got {echo(value)}")
    return {**settings, **{name: str(value) for name, value in changes.items()}}
