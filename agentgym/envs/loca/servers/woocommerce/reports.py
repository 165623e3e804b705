"""Reports of the shop, computed from its orders.

Sales are those of orders that are completed, processing or on hold, by the date of creation in site
time, less the refunds of such orders. An order that was refunded whole is no sale.
"""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime, time, timedelta
from typing import Any, Literal

from agentgym.envs.loca.servers.server import page_of
from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.context import ShopContext
from agentgym.envs.loca.servers.woocommerce.customers import PAYING_CUSTOMERS
from agentgym.envs.loca.servers.woocommerce.money import money
from agentgym.envs.loca.servers.woocommerce.shapes import STATUSES
from agentgym.tools import ToolError, echo, tool

Period = Literal["week", "month", "last_month", "year"]
_SOLD = "status IN ('completed', 'processing', 'on-hold')"
"""SQL: the order counts as a sale."""

_SUMS = ("orders", "total", "tax", "shipping", "discount", "items", "refunds", "customers")
"""Figures of a day, in the order of the API."""

_MONEY = ("sales", "tax", "shipping", "discount", "refunds")
"""Figures that are amounts of money."""

_SOURCES = {
    """count(*) AS orders, sum(total) AS total, sum(total_tax) AS tax,
    sum(shipping_total) AS shipping, sum(discount_total) AS discount""": f"orders WHERE {_SOLD}",
    "sum(n) AS items": f"""orders JOIN
    (SELECT order_id, sum(quantity) AS n FROM items WHERE type = 'line_item' GROUP BY 1)
    ON order_id = id WHERE {_SOLD}""",
    "sum(n) AS refunds": f"""orders JOIN
    (SELECT order_id, sum(amount) AS n FROM refunds GROUP BY 1) ON order_id = id WHERE {_SOLD}""",
    "count(*) AS customers": "customers WHERE role = 'customer'",
}
"""SQL: sums by day, and the records that they are of."""

_STOCKED = "(type <> 'variable' AND status NOT IN ('trash', 'draft'))"
"""SQL: the product has a stock of its own; that of a variable product is with its variations."""

_DAY = timedelta(days=1)
_MONTHLY_AFTER = 93 * _DAY  # a quarter is the longest time that is shown by day
_LONGEST = 3660 * _DAY  # ten years; each day costs a row


class Reports:
    """Reports on sales, customers, orders, products and stock.

    Args:
        shop: Context of the shop.
    """

    def __init__(self, shop: ShopContext) -> None:
        self._shop = shop

    @tool
    def woo_reports_sales(
        self, period: Period | None = None, dateMin: str | None = None, dateMax: str | None = None
    ) -> list[Row]:
        """Sum up the sales, of all time without period and dates.

        Args:
            period: Last 7 days, this month, the last month, or this year; goes before the dates.
            dateMin: First day, such as 2025-01-15.
            dateMax: Last day, included.
        """
        first, last = self._range(period, dateMin, dateMax)
        monthly = period == "year" or (period is None and last - first > _MONTHLY_AFTER)
        groups = self._figures(first, last, monthly)
        totals, sums = {}, Counter[str]()
        for key, group in groups.items():
            group["sales"] = group.pop("total") - group["refunds"]
            sums.update(group)
            totals[key] = {name: money(n) if name in _MONEY else n for name, n in group.items()}
        return [
            {
                "total_sales": money(sums["sales"]),
                "net_sales": money(sums["sales"] - sums["tax"] - sums["shipping"]),
                "average_sales": money(sums["sales"] // len(groups)),
                "total_orders": sums["orders"],
                "total_items": sums["items"],
                "total_tax": money(sums["tax"]),
                "total_shipping": money(sums["shipping"]),
                "total_refunds": money(sums["refunds"]),
                "total_discount": money(sums["discount"]),
                "totals_grouped_by": "month" if monthly else "day",
                "total_customers": sums["customers"],
                "totals": totals,
            }
        ]

    @tool
    def woo_reports_top_sellers(
        self,
        period: Period | None = None,
        dateMin: str | None = None,
        dateMax: str | None = None,
        perPage: int = 10,
        page: int = 1,
    ) -> list[Row]:
        """List the products sold most, of all time without period and dates.

        Args:
            period: Last 7 days, this month, the last month, or this year; goes before the dates.
            dateMin: First day, such as 2025-01-15.
            dateMax: Last day, included.
            perPage: Items a page, at most 100.
            page: Page, from 1.
        """
        sql = f"""SELECT i.product_id, sum(i.quantity) AS quantity
            FROM items AS i JOIN orders AS o ON o.id = i.order_id
            WHERE i.type = 'line_item' AND o.{_SOLD} AND o.date_created >= ? AND o.date_created < ?
            AND i.product_id IS NOT NULL
            GROUP BY i.product_id ORDER BY quantity DESC, i.product_id"""
        bounds = self._bounds(*self._range(period, dateMin, dateMax))
        rows = page_of(self._shop.store.rows(sql, *bounds), page, perPage)
        products = self._shop.rows_by_id("products", [row["product_id"] for row in rows])
        names = {product["id"]: product["name"] for product in products}
        return [{"name": names[row["product_id"]], **row} for row in rows]

    @tool
    def woo_reports_customers(
        self, period: Period | None = None, dateMin: str | None = None, dateMax: str | None = None
    ) -> list[Row]:
        """Count customers and their orders, of all time without period and dates.

        Args:
            period: Last 7 days, this month, the last month, or this year; goes before the dates.
            dateMin: First day, such as 2025-01-15.
            dateMax: Last day, included.
        """
        where, values = self._created(period, dateMin, dateMax)
        paying = f"id IN ({PAYING_CUSTOMERS})"
        sql = f"SELECT count(*) FROM customers WHERE role = 'customer' AND {where} AND "
        groups = (
            ("paying", "Paying customer", paying),
            ("non_paying", "Non-paying customer", f"NOT {paying}"),
        )
        return [
            {"slug": slug, "name": name, "total": self._shop.store.value(sql + condition, *values)}
            for slug, name, condition in groups
        ]

    @tool
    def woo_reports_orders(
        self, period: Period | None = None, dateMin: str | None = None, dateMax: str | None = None
    ) -> list[Row]:
        """Count orders by status, of all time without period and dates.

        Args:
            period: Last 7 days, this month, the last month, or this year; goes before the dates.
            dateMin: First day, such as 2025-01-15.
            dateMax: Last day, included.
        """
        where, values = self._created(period, dateMin, dateMax)
        sql = f"SELECT status, count(*) AS total FROM orders WHERE {where} GROUP BY status"
        totals = {row["status"]: row["total"] for row in self._shop.store.rows(sql, *values)}
        report = []
        for slug in STATUSES:
            name = slug.replace("-", " ").capitalize()
            report.append({"slug": slug, "name": name, "total": totals.get(slug, 0)})
        return report

    @tool
    def woo_reports_products(
        self,
        period: Period | None = None,
        dateMin: str | None = None,
        dateMax: str | None = None,
        perPage: int = 10,
        page: int = 1,
    ) -> list[Row]:
        """List products with their sales, of all time without period and dates.

        Args:
            period: Last 7 days, this month, the last month, or this year; goes before the dates.
            dateMin: First day, such as 2025-01-15.
            dateMax: Last day, included.
            perPage: Items a page, at most 100.
            page: Page, from 1.
        """
        where, values = self._created(period, dateMin, dateMax)
        sql = f"""SELECT i.product_id, sum(i.quantity) AS items, sum(i.total) AS total,
                count(DISTINCT i.order_id) AS orders
            FROM items AS i
            JOIN (SELECT id FROM orders WHERE {_SOLD} AND {where}) AS o ON o.id = i.order_id
            WHERE i.type = 'line_item' AND i.product_id IS NOT NULL
            GROUP BY i.product_id ORDER BY items DESC, i.product_id"""
        rows = page_of(self._shop.store.rows(sql, *values), page, perPage)
        sales = {row["product_id"]: row for row in rows}
        return [
            {
                "product_id": row["id"],
                "name": row["name"],
                "sku": row["sku"],
                "items_sold": sales[row["id"]]["items"],
                "net_revenue": money(sales[row["id"]]["total"]),
                "orders_count": sales[row["id"]]["orders"],
            }
            for row in self._shop.rows_by_id("products", sales)
        ]

    @tool
    def woo_reports_stock(self, perPage: int = 10, page: int = 1) -> list[Row]:
        """List products whose stock is managed.

        Args:
            perPage: Items a page, at most 100.
            page: Page, from 1.
        """
        return self._stock({}, page, perPage)

    @tool
    def woo_reports_low_stock(self, perPage: int = 10, page: int = 1) -> list[Row]:
        """List products in stock at or below their (or the shop's) low stock amount, least first.

        Args:
            perPage: Items a page, at most 100.
            page: Page, from 1.
        """
        low = """manage_stock AND stock_quantity > 0
            AND stock_quantity <= coalesce(low_stock_amount, ?)"""
        threshold = int(self._shop.setting("woocommerce_notify_low_stock_amount"))
        return self._stock({low: threshold}, page, perPage, "stock_quantity, id")

    # -- helpers -------------------------------------------------------------------------------

    def _figures(self, first: date, last: date, monthly: bool) -> dict[str, Row]:
        """Return the figures of each day or month, those without orders too."""
        groups: dict[str, Row] = {}
        for k in range((last - first).days + 1):
            day = (first + k * _DAY).isoformat()
            groups.setdefault(day[:7] if monthly else day, dict.fromkeys(_SUMS, 0))
        shift = f"{self._shop.offset().total_seconds():+} seconds"
        values = ("%Y-%m" if monthly else "%Y-%m-%d", shift, *self._bounds(first, last))
        for figures, source in _SOURCES.items():
            sql = f"""SELECT strftime(?, date_created, ?) AS day, {figures} FROM {source}
                AND date_created >= ? AND date_created < ? GROUP BY day"""
            for row in self._shop.store.rows(sql, *values):
                groups[row.pop("day")] |= row
        return groups

    def _stock(self, where: dict[str, Any], page: int, size: int, order: str = "id") -> list[Row]:
        names = (
            "id",
            "parent_id",
            "name",
            "sku",
            "stock_status",
            "stock_quantity",
            "manage_stock",
            "low_stock_amount",
        )
        rows = self._shop.select_page(
            "products", {f"{_STOCKED} = ?": 1, **where}, order, page, size
        )
        return [
            {**{name: row[name] for name in names}, "parent_id": row["parent_id"] or 0}
            for row in rows
        ]

    def _range(
        self, period: Period | None, first: str | None, last: str | None
    ) -> tuple[date, date]:
        """Return the first and the last day of a report."""
        today = (self._shop.clock.now() + self._shop.offset()).date()
        if period == "week":
            return today - 6 * _DAY, today
        if period == "month":
            return today.replace(day=1), today
        if period == "last_month":
            end = today.replace(day=1) - _DAY
            return end.replace(day=1), end
        if period == "year":
            return today.replace(month=1, day=1), today
        day_min, day_max = _day(first, "dateMin"), _day(last, "dateMax")
        start = day_min or min(today, day_max or today)
        end = day_max or max(today, day_min or today)
        if not start <= end <= start + _LONGEST:
            raise ToolError(
                "invalid argument: dateMax must not be before dateMin, nor more than ten years "
                "after it"
            )
        return start, end

    def _bounds(self, first: date, last: date) -> tuple[str, str]:
        """Return when the first day begins and the last one ends, in GMT as in the records."""
        start, end = datetime.combine(first, time()), datetime.combine(last + _DAY, time())
        offset = self._shop.offset()
        return (start - offset).isoformat(), (end - offset).isoformat()

    def _created(
        self, period: Period | None, first: str | None, last: str | None
    ) -> tuple[str, tuple[str, ...]]:
        """Return an SQL condition with its values: created in the days of a report, if given."""
        if not (period or first or last):
            return "1", ()
        return "date_created >= ? AND date_created < ?", self._bounds(
            *self._range(period, first, last)
        )


def _day(text: str | None, name: str) -> date | None:
    """Parse a caller's day; a time after it does not count.

    Raises:
        ToolError: The text is no day.
    """
    if not text:
        return None
    try:  # the first ten characters are the day: 2025-01-15
        day = date.fromisoformat(text.strip()[:10])
    except ValueError:
        day = date.min
    if not 1900 <= day.year <= 9000:
        raise ToolError(
            f"invalid argument: {name} must be a day such as 2025-01-15, got {echo(text)}"
        )
    return day
