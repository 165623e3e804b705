"""Reports on the stock."""

from __future__ import annotations

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import ShopPart
from agentgym.office.woocommerce.views import select_products
from agentgym.text.tools import tool

_STOCKED = "(manage_stock AND status <> 'trash')"  # SQL: has managed stock


class Reports(ShopPart):
    """Reports on the stock."""

    @tool
    def woo_reports_stock(self, perPage: int = 10, page: int = 1) -> list[Row]:
        """List products whose stock is managed.

        Args:
            perPage: Items per page, at most 100.
            page: Page, from 1.
        """
        return select_products(self._shop, {f"{_STOCKED} = ?": 1}, "id", page, perPage)

    @tool
    def woo_reports_low_stock(self, perPage: int = 10, page: int = 1) -> list[Row]:
        """List products in stock at or below their (or the shop's) low-stock amount, lowest first.

        Args:
            perPage: Items per page, at most 100.
            page: Page, from 1.
        """
        low = f"""{_STOCKED} AND stock_quantity > 0
            AND stock_quantity <= coalesce(low_stock_amount, ?)"""
        threshold = int(self._shop.setting("woocommerce_notify_low_stock_amount"))
        return select_products(self._shop, {low: threshold}, "stock_quantity, id", page, perPage)
