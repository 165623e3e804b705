"""Settings of the shop, its payment gateways and webhooks, and the state of its system."""

from __future__ import annotations

from typing import Any, Literal

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import ShopPart
from agentgym.office.woocommerce.tables import GROUPS
from agentgym.text.tools import ToolError, echo, tool

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

_VERSION = "9.5.1"
"""The release of WooCommerce of January 2025, whose REST API is the model."""

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

Topic = Literal[
    "coupon.created",
    "coupon.updated",
    "coupon.deleted",
    "customer.created",
    "customer.updated",
    "customer.deleted",
    "order.created",
    "order.updated",
    "order.deleted",
    "product.created",
    "product.updated",
    "product.deleted",
]
HookStatus = Literal["active", "paused", "disabled"]


class Settings(ShopPart):
    """Settings, payment gateways and system of the shop."""

    def update(self, id: str, value: str) -> None:
        """Change a setting, such as `woocommerce_currency` or `gmt_offset` (hours).

        Raises:
            ToolError: There is no such setting.
            ValueError: It cannot have that value.
        """
        setting = self._store.get("settings", id)
        options = setting["options"]
        if options and value not in options:
            raise ValueError(f"{id} must be one of {', '.join(options)}, got {value!r}")
        if setting["type"] == "number" and not value.lstrip("-").replace(".", "", 1).isdigit():
            raise ValueError(f"{id} must be a number, got {value!r}")
        self._store.update("settings", id, value=value)
        self._shop.session[id] = value

    @tool
    def woo_system_status(self) -> Row:
        """Show the version of the shop and how many records it has."""
        return {
            "environment": {"version": _VERSION, "database": "SQLite"},
            "database": {
                name: self._store.value(f"SELECT count(*) FROM {name}")
                for name in ("products", "orders", "customers", "coupons")
            },
        }

    @tool
    def woo_system_tools_list(self) -> list[Row]:
        """List what woo_system_tools_run can do."""
        return [
            {"id": key, "name": name, "description": text} for key, (name, text) in _TOOLS.items()
        ]

    @tool
    def woo_system_tools_run(self, toolId: ToolId) -> Row:
        """Run a system tool.

        Args:
            toolId: Tool.
        """
        message = "Nothing was there to do."
        if toolId == "recount_terms":
            counts = [
                self._store.value(f"SELECT count(*) FROM {table}")
                for table in ("categories", "tags")
            ]
            message = f"{counts[0]} categories and {counts[1]} tags counted."
        elif toolId == "clear_orphaned_variations":
            deleted = self._store.delete("products", type="variation", parent_id=None)
            message = f"{deleted} orphaned variations deleted."
        return {"success": True, "message": message}

    @tool
    def woo_settings_list(self) -> list[Row]:
        """List the groups of settings."""
        return [
            {"id": key, "label": label, "description": text}
            for key, (label, text) in GROUPS.items()
        ]

    @tool
    def woo_settings_get(self, groupId: GroupId) -> list[Row]:
        """Get the settings of a group.

        Args:
            groupId: Group.
        """
        rows = self._store.find("settings", order="rowid", group_id=groupId)
        return [{name: row[name] for name in ("id", "label", "value")} for row in rows]

    @tool
    def woo_payment_gateways_list(self) -> list[Row]:
        """List payment gateways."""
        return [_show_gateway(row) for row in self._store.find("gateways", order="menu_order")]

    @tool
    def woo_payment_gateways_get(self, gatewayId: str) -> Row:
        """Get a payment gateway.

        Args:
            gatewayId: Payment gateway.
        """
        return _show_gateway(self._store.get("gateways", gatewayId, "payment gateway"))

    @tool
    def woo_payment_gateways_update(
        self,
        gatewayId: str,
        enabled: bool | None = None,
        title: str | None = None,
        description: str | None = None,
        settings: dict[str, Any] | None = None,
    ) -> Row:
        """Change a payment gateway.

        Args:
            gatewayId: Payment gateway.
            enabled: Offer it.
            title: Title.
            description: Description.
            settings: title, description, instructions.
        """
        row = self._store.get("gateways", gatewayId, "payment gateway")
        texts = {"title": title, "description": description}
        given = {name: text for name, text in texts.items() if text is not None}
        merged = merge_settings(row["settings"], {**(settings or {}), **given})
        self._store.update(
            "gateways",
            gatewayId,
            enabled=row["enabled"] if enabled is None else enabled,
            settings=merged,
            title=merged["title"],
            description=merged["description"],
        )
        return self.woo_payment_gateways_get(gatewayId)


class Webhooks(ShopPart):
    """Webhooks; `ShopContext.fire` delivers events to them."""

    def deliveries(self) -> list[Row]:
        """Return the delivered events, in order."""
        return self._store.find("deliveries")

    @tool
    def woo_webhooks_list(
        self, perPage: int = 10, page: int = 1, status: HookStatus | None = None
    ) -> list[Row]:
        """List webhooks, latest first.

        Args:
            perPage: Items a page, at most 100.
            page: Page, from 1.
            status: Status.
        """
        rows = self._shop.select_page("webhooks", {"status = ?": status}, "id DESC", page, perPage)
        return [self._show(row) for row in rows]

    @tool
    def woo_webhooks_create(
        self,
        name: str,
        topic: Topic,
        delivery_url: str,
        status: HookStatus = "active",
        secret: str | None = None,
    ) -> Row:
        """Create a webhook: events from now on are sent to an address.

        Args:
            name: Name.
            topic: Event.
            delivery_url: Address.
            status: Status.
            secret: Key that signs the events; never shown.
        """
        if not delivery_url.startswith(("http://", "https://")):
            raise ToolError(
                "invalid argument: delivery_url must begin with http:// or https://, got "
                f"{echo(delivery_url)}"
            )
        now = self._shop.tick()
        new_id = self._store.insert(
            "webhooks",
            name=name,
            status=status,
            topic=topic,
            delivery_url=delivery_url,
            secret=secret,
            date_created=now,
            date_modified=now,
        )
        return self._show(self._store.get("webhooks", new_id))

    def _show(self, row: Row) -> Row:
        return {
            **{name: row[name] for name in ("id", "name", "status", "topic", "delivery_url")},
            **{name: self._shop.site_time(row[name]) for name in ("date_created", "date_modified")},
        }


def _show_gateway(row: Row) -> Row:
    settings = {"instructions": row["settings"]["instructions"]}
    return {
        **{name: row[name] for name in ("id", "title", "description", "enabled")},
        "settings": show_settings(settings, {"instructions": ""}),
    }


def show_settings(settings: Row, defaults: Row) -> Row:
    """Return the settings of a gateway or a shipping method that are not the default ones."""
    return {name: {"value": value} for name, value in settings.items() if value != defaults[name]}


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
