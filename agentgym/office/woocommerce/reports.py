"""Sales reports.

Sales are completed, processing or on-hold orders by creation date in site time, minus refunds. A
fully refunded order does not count.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import date, datetime, time, timedelta
from typing import Literal

from agentgym.office.server import page_of
from agentgym.office.store import Row
from agentgym.office.woocommerce.context import ShopPart
from agentgym.office.woocommerce.money import money
from agentgym.office.woocommerce.views import select_products
from agentgym.text.tools import ToolError, echo, tool

Period = Literal["week", "month", "last_month", "year"]
_SOLD = "status IN ('completed', 'processing', 'on-hold')"  # SQL: counts as a sale

_STOCKED = "(manage_stock AND status <> 'trash')"  # SQL: has managed stock

_DAY = timedelta(days=1)
_FIRST_DAY, _LAST_DAY = date(1900, 1, 1), date(9000, 12, 31)  # far from `date`'s limits


class Reports(ShopPart):
    """Reports on sales, customers, orders, products and stock."""

    @tool
    def woo_reports_sales(
        self, period: Period | None = None, dateMin: str | None = None, dateMax: str | None = None
    ) -> Row:
        """Sum up the sales, by default of all time.

        Args:
            period: Last 7 days, this month, last month or this year; overrides the dates.
            dateMin: First day, such as 2025-01-15.
            dateMax: Last day, included.
        """
        where, values = self._created(period, dateMin, dateMax)
        sql = f"""SELECT count(*) AS orders, coalesce(sum(total), 0) - coalesce(sum(
                (SELECT sum(amount) FROM refunds WHERE order_id = orders.id)), 0) AS total
            FROM orders WHERE {_SOLD} AND {where}"""
        [sums] = self._store.rows(sql, *values)
        return {
            "total_sales": money(sums["total"]),
            "total_orders": sums["orders"],
            "average_order_value": money(sums["total"] // max(1, sums["orders"])),
        }

    @tool
    def woo_reports_top_sellers(
        self,
        period: Period | None = None,
        dateMin: str | None = None,
        dateMax: str | None = None,
        perPage: int = 10,
        page: int = 1,
    ) -> list[Row]:
        """List the best-selling products, by default of all time.

        Args:
            period: Last 7 days, this month, last month or this year; overrides the dates.
            dateMin: First day, such as 2025-01-15.
            dateMax: Last day, included.
            perPage: Items per page, at most 100.
            page: Page, from 1.
        """
        sales = self._sales(*self._created(period, dateMin, dateMax))
        products = {row["id"]: row for row in self._shop.rows_by_id("products", sales)}
        best = sorted(products, key=lambda key: (-sales[key]["items_sold"], key))
        shown = []
        for key in page_of(best, page, perPage):
            sold = sales[key]["items_sold"]
            shown.append({"product_id": key, "name": products[key]["name"], "quantity": sold})
        return shown

    @tool
    def woo_reports_customers(
        self, period: Period | None = None, dateMin: str | None = None, dateMax: str | None = None
    ) -> Row:
        """Count customers and their orders, by default of all time.

        Args:
            period: Last 7 days, this month, last month or this year; overrides the dates.
            dateMin: First day, such as 2025-01-15.
            dateMax: Last day, included.
        """
        where, values = self._created(period, dateMin, dateMax)
        count = "SELECT count(*) FROM {} AND " + where
        customers = self._store.value(count.format("customers WHERE role = 'customer'"), *values)
        orders = self._store.value(count.format("orders WHERE status <> 'trash'"), *values)
        return {
            "total_customers": customers,
            "total_orders": orders,
            "average_orders_per_customer": round(orders / max(1, customers), 2),
        }

    @tool
    def woo_reports_orders(
        self, period: Period | None = None, dateMin: str | None = None, dateMax: str | None = None
    ) -> Row:
        """Count orders by status, by default of all time.

        Args:
            period: Last 7 days, this month, last month or this year; overrides the dates.
            dateMin: First day, such as 2025-01-15.
            dateMax: Last day, included.
        """
        where, values = self._created(period, dateMin, dateMax)
        sql = f"""SELECT status, count(*) AS total FROM orders
            WHERE status <> 'trash' AND {where} GROUP BY status ORDER BY status"""
        counts = {row["status"]: row["total"] for row in self._store.rows(sql, *values)}
        return {"total_orders": sum(counts.values()), "by_status": counts}

    @tool
    def woo_reports_products(
        self,
        period: Period | None = None,
        dateMin: str | None = None,
        dateMax: str | None = None,
        perPage: int = 10,
        page: int = 1,
    ) -> list[Row]:
        """List products with their sales, by default of all time.

        Args:
            period: Last 7 days, this month, last month or this year; overrides the dates.
            dateMin: First day, such as 2025-01-15.
            dateMax: Last day, included.
            perPage: Items per page, at most 100.
            page: Page, from 1.
        """
        where = {"type <> ?": "variation", "status <> ?": "trash"}
        products = select_products(self._shop, where, "date_created DESC, id", page, perPage)
        sales = self._sales(*self._created(period, dateMin, dateMax))
        return [product | sales[product["id"]] for product in products]

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

    # Helpers.

    def _sales(self, where: str, values: tuple[str, ...]) -> defaultdict[int, Row]:
        sql = f"""SELECT i.product_id, sum(i.quantity) AS items, sum(i.total) AS total,
              count(DISTINCT i.order_id) AS orders
            FROM items AS i JOIN (SELECT * FROM orders WHERE {_SOLD} AND {where}) AS o
            ON o.id = i.order_id WHERE i.type = 'line_item' AND i.product_id IS NOT NULL
            GROUP BY i.product_id"""
        sales: defaultdict[int, Row] = defaultdict(
            lambda: {"items_sold": 0, "net_revenue": money(0), "orders_count": 0}
        )
        for row in self._store.rows(sql, *values):
            sales[row["product_id"]] = {
                "items_sold": row["items"],
                "net_revenue": money(row["total"]),
                "orders_count": row["orders"],
            }
        return sales

    def _range(
        self, period: Period | None, first: str | None, last: str | None
    ) -> tuple[date, date]:
        today = (self._shop.clock.now() + self._shop.offset()).date()
        if period == "last_month":
            end = today.replace(day=1) - _DAY
            return end.replace(day=1), end
        if period:
            first_days = {
                "week": today - 6 * _DAY,
                "month": today.replace(day=1),
                "year": today.replace(month=1, day=1),
            }
            return first_days[period], today
        start, end = _day(first, "dateMin") or _FIRST_DAY, _day(last, "dateMax") or _LAST_DAY
        if start > end:
            raise ToolError("invalid argument: dateMax must not be before dateMin")
        return start, end

    def _created(
        self, period: Period | None, first: str | None, last: str | None
    ) -> tuple[str, tuple[str, ...]]:
        if not (period or first or last):
            return "1", ()
        start, end = self._range(period, first, last)
        # Records are in GMT, days in site time.
        midnights = datetime.combine(start, time()), datetime.combine(end + _DAY, time())
        bounds = [(midnight - self._shop.offset()).isoformat() for midnight in midnights]
        return "date_created >= ? AND date_created < ?", tuple(bounds)


def _day(text: str | None, name: str) -> date | None:
    """Parse a day, ignoring a time after it."""
    if not text:
        return None
    try:  # the first ten characters are the day: 2025-01-15
        day = date.fromisoformat(text.strip()[:10])
    except ValueError:
        day = date.min
    if not _FIRST_DAY <= day <= _LAST_DAY:
        raise ToolError(
            f"invalid argument: {name} must be a day such as 2025-01-15, got {echo(text)}"
        )
    return day
