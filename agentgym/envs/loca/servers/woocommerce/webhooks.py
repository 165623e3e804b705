"""Webhooks of the shop."""

from __future__ import annotations

from typing import Literal

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.context import ShopContext
from agentgym.tools import ToolError, echo, tool

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


class Webhooks:
    """Webhooks; `ShopContext.fire` delivers events to them.

    Args:
        shop: Context of the shop.
    """

    def __init__(self, shop: ShopContext) -> None:
        self._shop = shop

    def deliveries(self) -> list[Row]:
        """Return the delivered events, in order."""
        return self._shop.store.find("deliveries")

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
        where = {"status = ?": status}
        rows = self._shop.select_page("webhooks", where, "id DESC", page, perPage)
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
        new_id = self._shop.store.insert(
            "webhooks",
            name=name,
            status=status,
            topic=topic,
            delivery_url=delivery_url,
            secret=secret,
            date_created=now,
            date_modified=now,
        )
        return self._show(self._shop.store.get("webhooks", new_id))

    def _show(self, row: Row) -> Row:
        dates = ("date_created", "date_modified")
        return {
            **{name: row[name] for name in ("id", "name", "status", "topic", "delivery_url")},
            **{name: self._shop.site_time(row[name]) for name in dates},
        }
