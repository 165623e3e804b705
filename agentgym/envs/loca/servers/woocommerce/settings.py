"""Shipping, taxes, the state of the system, settings, ways to pay and webhooks of the shop."""

from __future__ import annotations

from typing import Any, Literal

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.presets import GROUPS
from agentgym.envs.loca.servers.woocommerce.reports import Reports
from agentgym.envs.loca.servers.woocommerce.shapes import as_amount
from agentgym.envs.loca.servers.woocommerce.shop import SITE, stamp
from agentgym.tools import ToolError, echo, tool

_METHODS: dict[str, tuple[str, str, Row]] = {
    "flat_rate": ("Flat rate", "Charges a fixed rate.", {"title": "Flat rate", "tax_status": "taxable", "cost": ""}),
    "free_shipping": ("Free shipping", "Costs nothing.", {"title": "Free shipping", "requires": "", "min_amount": "0"}),
    "local_pickup": (
        "Local pickup",
        "Customers fetch what they ordered.",
        {"title": "Local pickup", "tax_status": "taxable", "cost": ""},
    ),
}
_TOOLS = {
    "clear_transients": ("WooCommerce transients", "Clears the cache of the shop."),
    "clear_expired_transients": ("Expired transients", "Clears what has expired of the cache."),
    "clear_orphaned_variations": ("Orphaned variations", "Deletes all variations which have no parent."),
    "add_order_indexes": ("Order address indexes", "Makes the index by which orders are searched."),
    "recount_terms": ("Term counts", "Counts the products of each category and tag."),
    "reset_roles": ("Capabilities", "Resets the roles of administrator, customer and shop manager."),
    "clear_sessions": ("Clear customer sessions", "Deletes the sessions of customers with their carts."),
    "clear_template_cache": ("Clear template cache", "Clears the cache of templates."),
    "clear_system_status_theme_info_cache": ("Clear system status theme info cache", "Clears what is cached of the theme."),
}
_CURRENCIES = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "CNY": "¥"}
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
GroupId = Literal["general", "products", "tax", "shipping", "checkout", "account", "email", "integration", "advanced", "rest-api"]


class Settings(Reports):
    """The tools for the shop itself."""

    @tool
    def woo_shipping_zones_list(self) -> list[Row]:
        """List shipping zones; zone 0 is that of all places that no other has."""
        return [_zone(row) for row in self.store.find("zones", order="id <> 0, menu_order, id")]

    @tool
    def woo_shipping_zones_get(self, zoneId: int) -> Row:
        """Get a shipping zone."""
        return _zone(self.store.get("zones", zoneId))

    @tool
    def woo_shipping_zones_create(self, name: str, order: int = 0) -> Row:
        """Create a shipping zone."""
        if not name.strip():
            raise ToolError("invalid argument: name must not be blank")
        return self.woo_shipping_zones_get(self.store.insert("zones", name=name, menu_order=order))

    @tool
    def woo_shipping_zones_update(self, zoneId: int, name: str | None = None, order: int | None = None) -> Row:
        """Change the name or the place in the list of a shipping zone."""
        held = self.woo_shipping_zones_get(zoneId)
        if zoneId == 0:
            raise ToolError("permission denied: zone 0 stays as it is")
        if name is not None and not name.strip():
            raise ToolError("invalid argument: name must not be blank")
        self.store.update("zones", zoneId, name=name or held["name"], menu_order=held["order"] if order is None else order)
        return self.woo_shipping_zones_get(zoneId)

    @tool
    def woo_shipping_zone_methods_list(self, zoneId: int) -> list[Row]:
        """List the ways of shipping to a zone."""
        self.woo_shipping_zones_get(zoneId)
        return [_method(row, order) for order, row in enumerate(self.store.find("zone_methods", zone_id=zoneId), 1)]

    @tool
    def woo_shipping_zone_methods_create(
        self, zoneId: int, methodId: str, enabled: bool = True, settings: dict[str, Any] | None = None
    ) -> Row:
        """Add a way of shipping to a zone: flat_rate, free_shipping or local_pickup, with `settings` such as title and cost."""
        self.woo_shipping_zones_get(zoneId)
        if methodId not in _METHODS:
            raise ToolError(f"invalid argument: methodId must be one of {', '.join(_METHODS)}, got {echo(methodId)}")
        known = _set(_METHODS[methodId][2], settings or {})
        known |= {name: as_amount(known[name], f"settings.{name}") for name in ("cost", "min_amount") if name in known}
        self.store.insert("zone_methods", zone_id=zoneId, method_id=methodId, enabled=enabled, settings=known)
        return self.woo_shipping_zone_methods_list(zoneId)[-1]

    @tool
    def woo_tax_rates_list(self, taxClass: str | None = None, perPage: int = 10, page: int = 1) -> list[Row]:
        """List tax rates, of one class such as standard if wanted."""
        where = {"class = ?": taxClass}
        return [_rate(row) for row in self._page("tax_rates", where, "priority, id", page, perPage)]

    @tool
    def woo_tax_rates_get(self, rateId: int) -> Row:
        """Get a tax rate."""
        return _rate(self.store.get("tax_rates", rateId))

    @tool
    def woo_tax_rates_create(
        self,
        *,
        country: str,
        state: str = "",
        rate: str,
        name: str = "Tax",
        priority: int = 1,
        compound: bool = False,
        shipping: bool = True,
        class_: str = "standard",
    ) -> Row:
        """Create a tax rate, in percent, for orders from now on. Of those with one priority the closest to the address counts.

        An empty `country` or `state` is any. `compound` taxes the taxes of lower priority too, `shipping` says whether shipping
        is taxed.
        """
        if float(percent := as_amount(rate, "rate") or "0") > 1000:
            raise ToolError(f"invalid argument: rate must be at most 1000 percent, got {echo(rate)}")
        if self.store.value("SELECT 1 FROM tax_classes WHERE slug = ?", class_) is None:
            raise ToolError(f"not found: there is no tax class {echo(class_)}")
        fields = {
            "country": country.strip().upper(),
            "state": state.strip().upper(),
            "rate": f"{float(percent):.4f}",
            "name": name,
            "priority": priority,
            "compound": compound,
            "shipping": shipping,
            "class": class_,
        }
        return self.woo_tax_rates_get(self.store.insert("tax_rates", **fields))

    @tool
    def woo_tax_classes_list(self) -> list[Row]:
        """List tax classes."""
        return self.store.find("tax_classes", order="rowid")

    @tool
    def woo_system_status(self) -> Row:
        """The state of the shop: its time zone, its main settings, and how many records of each kind there are."""
        tables = ("products", "orders", "customers", "coupons", "reviews", "webhooks")
        currency = self._setting("woocommerce_currency")
        counts = self.store.rows("SELECT type, count(*) AS count FROM products GROUP BY type ORDER BY type")
        return {
            "environment": {
                "home_url": SITE,
                "site_url": SITE,
                "store_id": "loca",
                "default_timezone": f"UTC{float(self._setting('gmt_offset')):+g}",
                "date": self._dates({"now": stamp(self.context.clock.now())}, "now"),
            },
            "database": {"database_tables": {name: self.store.value(f"SELECT count(*) FROM {name}") for name in tables}},
            "settings": {
                "api_enabled": True,
                "currency": currency,
                "currency_symbol": _CURRENCIES.get(currency, currency),
                "number_of_decimals": int(self._setting("woocommerce_price_num_decimals")),
                "taxes_enabled": self._setting("woocommerce_calc_taxes") == "yes",
            },
            "post_type_counts": counts,
        }

    @tool
    def woo_system_tools_list(self) -> list[Row]:
        """List what `woo_system_tools_run` can do."""
        return [{"id": key, "name": name, "description": text} for key, (name, text) in _TOOLS.items()]

    @tool
    def woo_system_tools_run(self, toolId: ToolId) -> Row:
        """Run a tool of the system. This shop caches nothing and counts anew each time, so most have nothing to do."""
        counts = [self.store.value(f"SELECT count(*) FROM {table}") for table in ("categories", "tags")]
        done = {"recount_terms": f"{counts[0]} categories and {counts[1]} tags counted."}
        if toolId == "clear_orphaned_variations":
            gone = self.store.delete("products", type="variation", parent_id=None)
            done[toolId] = f"{gone} orphaned variations deleted."
        name, text = _TOOLS[toolId]
        message = done.get(toolId, "Nothing was there to do.")
        return {"id": toolId, "name": name, "description": text, "success": True, "message": message}

    @tool
    def woo_settings_list(self) -> list[Row]:
        """List the groups of settings."""
        return [{"id": key, "label": label, "description": text} for key, (label, text) in GROUPS.items()]

    @tool
    def woo_settings_get(self, groupId: GroupId) -> list[Row]:
        """The settings of a group with their values."""
        rows = self.store.find("settings", order="rowid", group_id=groupId)
        shown = [{**row, "default": row.pop("default_value")} for row in rows]
        return [row if row["options"] else {name: row[name] for name in row if name != "options"} for row in shown]

    @tool
    def woo_payment_gateways_list(self) -> list[Row]:
        """List the ways to pay."""
        return [_gateway(row) for row in self.store.find("gateways", order="menu_order")]

    @tool
    def woo_payment_gateways_get(self, gatewayId: str) -> Row:
        """Get a way to pay."""
        return _gateway(self.store.get("gateways", gatewayId, "payment gateway"))

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
        held = self.store.get("gateways", gatewayId, "payment gateway")
        given = {name: text for name, text in (("title", title), ("description", description)) if text is not None}
        known = _set(held["settings"], {**(settings or {}), **given})
        new = held["enabled"] if enabled is None else enabled
        self.store.update(
            "gateways", gatewayId, enabled=new, settings=known, title=known["title"], description=known["description"]
        )
        return self.woo_payment_gateways_get(gatewayId)

    @tool
    def woo_webhooks_list(self, perPage: int = 10, page: int = 1, status: HookStatus | None = None) -> list[Row]:
        """List webhooks, latest first."""
        hooks = self._page("webhooks", {"status = ?": status}, "id DESC", page, perPage)
        return [self._hook(row) for row in hooks]

    @tool
    def woo_webhooks_create(
        self, name: str, topic: Topic, delivery_url: str, status: HookStatus = "active", secret: str | None = None
    ) -> Row:
        """Create a webhook: what happens from now on is sent to an address. It is never shown with its `secret`."""
        if not delivery_url.startswith(("http://", "https://")):
            raise ToolError(f"invalid argument: delivery_url must begin with http:// or https://, got {echo(delivery_url)}")
        now = self._now()
        given = {"name": name, "status": status, "topic": topic, "delivery_url": delivery_url, "secret": secret}
        made = self.store.insert("webhooks", **given, date_created=now, date_modified=now)
        return self._hook(self.store.get("webhooks", made))

    def _hook(self, row: Row) -> Row:
        resource, event = row["topic"].split(".")
        names = ("id", "name", "status", "topic", "delivery_url")
        shown = {name: row[name] for name in names}
        return {**shown, "resource": resource, "event": event, **self._dates(row, "date_created", "date_modified")}


def _zone(row: Row) -> Row:
    return {"id": row["id"], "name": row["name"], "order": row["menu_order"]}


def _method(row: Row, order: int) -> Row:
    title, text, _ = _METHODS[row["method_id"]]
    return {
        "id": row["id"],
        "instance_id": row["id"],
        "title": row["settings"]["title"],
        "order": order,
        "enabled": row["enabled"],
        "method_id": row["method_id"],
        "method_title": title,
        "method_description": text,
        "settings": _settings(row["settings"]),
    }


def _rate(row: Row) -> Row:
    return {**row, "order": row["id"]}


def _gateway(row: Row) -> Row:
    names = ("id", "title", "description", "enabled", "method_title")
    return {
        **{name: row[name] for name in names},
        "order": row["menu_order"],
        "method_supports": row["supports"],
        "settings": _settings(row["settings"]),
    }


def _settings(held: Row) -> Row:
    """Settings as the API shows them."""
    return {
        name: {"id": name, "label": name.replace("_", " ").capitalize(), "type": "text", "value": value}
        for name, value in held.items()
    }


def _set(held: Row, given: Row) -> Row:
    """Settings with new values.

    Raises:
        ToolError: There is no such setting, or its value is no text or number.
    """
    for name, value in given.items():
        if name not in held:
            raise ToolError(f"invalid argument: no setting is called {echo(name)}; there are {', '.join(held)}")
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ToolError(f"invalid argument: the setting {name} must be text, got {echo(value)}")
    return {**held, **{name: str(value) for name, value in given.items()}}
