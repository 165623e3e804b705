"""Shipping zones of the shop."""

from __future__ import annotations

from typing import Any

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.context import ShopContext
from agentgym.envs.loca.servers.woocommerce.settings import merge_settings, show_settings
from agentgym.envs.loca.servers.woocommerce.shapes import parse_amount
from agentgym.tools import ToolError, echo, tool

_METHODS: dict[str, Row] = {
    "flat_rate": {"title": "Flat rate", "tax_status": "taxable", "cost": ""},
    "free_shipping": {"title": "Free shipping", "requires": "", "min_amount": "0"},
    "local_pickup": {"title": "Local pickup", "tax_status": "taxable", "cost": ""},
}
"""Default settings of each shipping method."""


class Shipping:
    """Shipping zones and the ways of shipping to them.

    Args:
        shop: Context of the shop.
    """

    def __init__(self, shop: ShopContext) -> None:
        self._shop = shop

    @tool
    def woo_shipping_zones_list(self) -> list[Row]:
        """List shipping zones; zone 0 has all places that no other has."""
        return [
            _show_zone(row)
            for row in self._shop.store.find("zones", order="id <> 0, menu_order, id")
        ]

    @tool
    def woo_shipping_zones_get(self, zoneId: int) -> Row:
        """Get a shipping zone.

        Args:
            zoneId: Shipping zone.
        """
        return _show_zone(self._shop.store.get("zones", zoneId))

    @tool
    def woo_shipping_zones_create(self, name: str, order: int = 0) -> Row:
        """Create a shipping zone.

        Args:
            name: Name.
            order: Place in the list.
        """
        if not name.strip():
            raise ToolError("invalid argument: name must not be blank")
        return self.woo_shipping_zones_get(
            self._shop.store.insert("zones", name=name, menu_order=order)
        )

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
        self._shop.store.update("zones", zoneId, name=name or zone["name"], menu_order=place)
        return self.woo_shipping_zones_get(zoneId)

    @tool
    def woo_shipping_zone_methods_list(self, zoneId: int) -> list[Row]:
        """List the shipping methods of a zone.

        Args:
            zoneId: Shipping zone.
        """
        self.woo_shipping_zones_get(zoneId)
        rows = self._shop.store.find("zone_methods", zone_id=zoneId)
        return [_show_method(row) for row in rows]

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
        self._shop.store.insert(
            "zone_methods", zone_id=zoneId, method_id=methodId, enabled=enabled, settings=merged
        )
        return self.woo_shipping_zone_methods_list(zoneId)[-1]


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
