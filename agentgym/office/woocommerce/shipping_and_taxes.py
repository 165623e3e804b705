"""Shipping zones and tax rates of the shop."""

from __future__ import annotations

from typing import Any

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import ShopPart
from agentgym.office.woocommerce.settings import merge_settings, show_settings
from agentgym.office.woocommerce.shapes import parse_amount
from agentgym.text.tools import ToolError, echo, tool

_METHODS: dict[str, Row] = {
    "flat_rate": {"title": "Flat rate", "tax_status": "taxable", "cost": ""},
    "free_shipping": {"title": "Free shipping", "requires": "", "min_amount": "0"},
    "local_pickup": {"title": "Local pickup", "tax_status": "taxable", "cost": ""},
}
"""Default settings of each shipping method."""


class Shipping(ShopPart):
    """Shipping zones and the ways of shipping to them."""

    @tool
    def woo_shipping_zones_list(self) -> list[Row]:
        """List shipping zones; zone 0 has all places that no other has."""
        return [
            _show_zone(row) for row in self._store.find("zones", order="id <> 0, menu_order, id")
        ]

    @tool
    def woo_shipping_zones_get(self, zoneId: int) -> Row:
        """Get a shipping zone.

        Args:
            zoneId: Shipping zone.
        """
        return _show_zone(self._store.get("zones", zoneId))

    @tool
    def woo_shipping_zones_create(self, name: str, order: int = 0) -> Row:
        """Create a shipping zone.

        Args:
            name: Name.
            order: Place in the list.
        """
        if not name.strip():
            raise ToolError("invalid argument: name must not be blank")
        return self.woo_shipping_zones_get(self._store.insert("zones", name=name, menu_order=order))

    @tool
    def woo_shipping_zones_update(
        self, zoneId: int, name: str | None = None, order: int | None = None
    ) -> Row:
        """Change a shipping zone.

        Args:
            zoneId: Shipping zone.
            name: Name.
            order: Place in the list.
        """
        zone = self.woo_shipping_zones_get(zoneId)
        if zoneId == 0:
            raise ToolError("permission denied: zone 0 stays as it is")
        if name is not None and not name.strip():
            raise ToolError("invalid argument: name must not be blank")
        place = zone["order"] if order is None else order
        self._store.update("zones", zoneId, name=name or zone["name"], menu_order=place)
        return self.woo_shipping_zones_get(zoneId)

    @tool
    def woo_shipping_zone_methods_list(self, zoneId: int) -> list[Row]:
        """List the shipping methods of a zone.

        Args:
            zoneId: Shipping zone.
        """
        self.woo_shipping_zones_get(zoneId)
        return [_show_method(row) for row in self._store.find("zone_methods", zone_id=zoneId)]

    @tool
    def woo_shipping_zone_methods_create(
        self,
        zoneId: int,
        methodId: str,
        enabled: bool = True,
        settings: dict[str, Any] | None = None,
    ) -> Row:
        """Add a shipping method to a zone.

        Args:
            zoneId: Shipping zone.
            methodId: flat_rate, free_shipping or local_pickup.
            enabled: Offer it.
            settings: Such as title and cost.
        """
        self.woo_shipping_zones_get(zoneId)
        if methodId not in _METHODS:
            raise ToolError(
                f"invalid argument: methodId must be one of {', '.join(_METHODS)}, got "
                f"{echo(methodId)}"
            )
        merged = merge_settings(_METHODS[methodId], settings or {})
        for name in ("cost", "min_amount"):
            if name in merged:
                merged[name] = parse_amount(merged[name], f"settings.{name}")
        self._store.insert(
            "zone_methods", zone_id=zoneId, method_id=methodId, enabled=enabled, settings=merged
        )
        return self.woo_shipping_zone_methods_list(zoneId)[-1]


class Taxes(ShopPart):
    """Tax rates and classes."""

    @tool
    def woo_tax_rates_list(
        self, taxClass: str | None = None, perPage: int = 10, page: int = 1
    ) -> list[Row]:
        """List tax rates.

        Args:
            taxClass: Only of this class, such as standard.
            perPage: Items a page, at most 100.
            page: Page, from 1.
        """
        return self._shop.select_page(
            "tax_rates", {"class = ?": taxClass}, "priority, id", page, perPage
        )

    @tool
    def woo_tax_rates_get(self, rateId: int) -> Row:
        """Get a tax rate.

        Args:
            rateId: Tax rate.
        """
        return self._store.get("tax_rates", rateId)

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
        """Create a tax rate for orders from now on.

        Args:
            country: Country code; empty for any.
            state: State code; empty for any.
            rate: Percent.
            name: Name.
            priority: Of rates with one priority the closest to the address counts.
            compound: Tax the taxes of lower priority too.
            shipping: Tax shipping too.
            class_: Tax class.
        """
        percent = float(parse_amount(rate, "rate") or "0")
        if percent > 1000:
            raise ToolError(
                f"invalid argument: rate must be at most 1000 percent, got {echo(rate)}"
            )
        if self._store.value("SELECT 1 FROM tax_classes WHERE slug = ?", class_) is None:
            raise ToolError(f"not found: there is no tax class {echo(class_)}")
        fields = {
            "country": country.strip().upper(),
            "state": state.strip().upper(),
            "rate": f"{percent:.4f}",
            "name": name,
            "priority": priority,
            "compound": compound,
            "shipping": shipping,
            "class": class_,
        }
        return self.woo_tax_rates_get(self._store.insert("tax_rates", **fields))

    @tool
    def woo_tax_classes_list(self) -> list[Row]:
        """List tax classes."""
        return self._store.find("tax_classes", order="rowid")


def _show_zone(row: Row) -> Row:
    return {"id": row["id"], "name": row["name"], "order": row["menu_order"]}


def _show_method(row: Row) -> Row:
    settings = {name: value for name, value in row["settings"].items() if name != "title"}
    return {
        "id": row["id"],
        "zone_id": row["zone_id"],
        "method_id": row["method_id"],
        "method_title": row["settings"]["title"],
        "enabled": row["enabled"],
        "settings": show_settings(settings, _METHODS[row["method_id"]]),
    }
