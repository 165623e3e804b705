"""Reports of the shop, computed from its orders.

Sales are those of orders that are completed, processing or on hold, by the date of creation in site time; refunds of such orders
are taken off. An order that was refunded whole is no sale.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any, Literal

from agentgym.envs.loca.servers.server import page_of
from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.money import money
from agentgym.envs.loca.servers.woocommerce.people import PAYING, People
from agentgym.envs.loca.servers.woocommerce.shapes import STATUSES
from agentgym.tools import ToolError, echo, tool

Period = Literal["week", "month", "last_month", "year"]
_SOLD = "status IN ('completed', 'processing', 'on-hold')"
_SOLD_LINES = f"""FROM items AS i JOIN orders AS o ON o.id = i.order_id
    WHERE i.type = 'line_item' AND o.{_SOLD} AND o.date_created >= ? AND o.date_created < ?"""
_SUMS = ("orders", "total", "tax", "shipping", "discount", "items", "refunds", "customers")
_MONEY = ("sales", "tax", "shipping", "discount", "refunds")
_SOURCES = {
    """count(*) AS orders, sum(total) AS total, sum(total_tax) AS tax, sum(shipping_total) AS shipping,
    sum(discount_total) AS discount""": f"orders WHERE {_SOLD}",
    "sum(n) AS items": f"""orders JOIN (SELECT order_id, sum(quantity) AS n FROM items WHERE type = 'line_item' GROUP BY 1)
    ON order_id = id WHERE {_SOLD}""",
    "sum(n) AS refunds": f"orders JOIN (SELECT order_id, sum(amount) AS n FROM refunds GROUP BY 1) ON order_id = id WHERE {_SOLD}",
    "count(*) AS customers": "customers WHERE role = 'customer'",
}
"""SQL: what is summed up by day, and of what."""

_STOCKED = "(type <> 'variable' AND status NOT IN ('trash', 'draft'))"
_DAY = timedelta(days=1)


class Reports(People):
    """The tools for reports."""

    @tool
    def woo_reports_sales(self, period: Period | None = None, dateMin: str | None = None, dateMax: str | None = None) -> list[Row]:
        """Sales of a period, in all and by day (by month in a year): the last 7 days, this month, the last month, this year.

        Without `period` it is from the day `dateMin` to the day `dateMax`, both of them included; today by default.
        """
        first, last = self._range(period, dateMin, dateMax)
        monthly = period == "year" or (period is None and last - first > timedelta(days=93))
        days = dict.fromkeys((first + k * _DAY).isoformat()[: 7 if monthly else 10] for k in range((last - first).days + 1))
        groups: dict[str, Row] = {day: dict.fromkeys(_SUMS, 0) for day in days}
        for sums, source in _SOURCES.items():
            sql = f"""SELECT strftime(?, date_created, ?) AS day, {sums} FROM {source}
                AND date_created >= ? AND date_created < ? GROUP BY day"""
            shift = f"{self._offset().total_seconds():+} seconds"
            for row in self.store.rows(sql, "%Y-%m" if monthly else "%Y-%m-%d", shift, *self._bounds(first, last)):
                groups[row.pop("day")] |= row
        for group in groups.values():
            group["sales"] = group.pop("total") - group["refunds"]
        in_all = {name: sum(sums[name] for sums in groups.values()) for name in next(iter(groups.values()))}
        return [
            {
                "total_sales": money(in_all["sales"]),
                "net_sales": money(in_all["sales"] - in_all["tax"] - in_all["shipping"]),
                "average_sales": money(in_all["sales"] // len(groups)),
                "total_orders": in_all["orders"],
                "total_items": in_all["items"],
                **{f"total_{name}": money(in_all[name]) for name in ("tax", "shipping", "refunds", "discount")},
                "totals_grouped_by": "month" if monthly else "day",
                "total_customers": in_all["customers"],
                "totals": {
                    day: {name: money(n) if name in _MONEY else n for name, n in sums.items()} for day, sums in groups.items()
                },
            }
        ]

    @tool
    def woo_reports_top_sellers(
        self, period: Period | None = None, dateMin: str | None = None, dateMax: str | None = None, perPage: int = 10, page: int = 1
    ) -> list[Row]:
        """The products sold most often in a period (as for `woo_reports_sales`), most first."""
        sql = f"""SELECT i.product_id, sum(i.quantity) AS quantity {_SOLD_LINES} AND i.product_id IS NOT NULL
            GROUP BY i.product_id ORDER BY quantity DESC, i.product_id"""
        rows = page_of(self.store.rows(sql, *self._bounds(*self._range(period, dateMin, dateMax))), page, perPage)
        names = {row["id"]: row["name"] for row in self._by_ids("products", [row["product_id"] for row in rows])}
        return [{"name": names[row["product_id"]], **row} for row in rows]

    @tool
    def woo_reports_customers(
        self, period: Period | None = None, dateMin: str | None = None, dateMax: str | None = None
    ) -> list[Row]:
        """How many customers have paid for an order and how many have not; with dates, of those who registered then."""
        where, values = self._created(period, dateMin, dateMax)
        paying = f"id IN ({PAYING})"
        sql = f"SELECT count(*) FROM customers WHERE role = 'customer' AND {where} AND "
        kinds = (("paying", "Paying customer", paying), ("non_paying", "Non-paying customer", f"NOT {paying}"))
        return [{"slug": slug, "name": name, "total": self.store.value(sql + test, *values)} for slug, name, test in kinds]

    @tool
    def woo_reports_orders(self, period: Period | None = None, dateMin: str | None = None, dateMax: str | None = None) -> list[Row]:
        """How many orders have each status; with dates, of those that were created then."""
        where, values = self._created(period, dateMin, dateMax)
        counted = self.store.rows(f"SELECT status, count(*) AS total FROM orders WHERE {where} GROUP BY status", *values)
        totals = {row["status"]: row["total"] for row in counted}
        return [{"slug": slug, "name": slug.replace("-", " ").capitalize(), "total": totals.get(slug, 0)} for slug in STATUSES]

    @tool
    def woo_reports_products(
        self, period: Period | None = None, dateMin: str | None = None, dateMax: str | None = None, perPage: int = 10, page: int = 1
    ) -> list[Row]:
        """What each product sold, most items first; with dates, in orders of that time. Revenue is after discounts, without tax."""
        where, values = self._created(period, dateMin, dateMax)
        sql = f"""SELECT i.product_id, sum(i.quantity) AS items, sum(i.total) AS total, count(DISTINCT i.order_id) AS orders
            FROM items AS i JOIN (SELECT id FROM orders WHERE {_SOLD} AND {where}) AS o ON o.id = i.order_id
            WHERE i.type = 'line_item' AND i.product_id IS NOT NULL GROUP BY i.product_id ORDER BY items DESC, i.product_id"""
        best = {row["product_id"]: row for row in page_of(self.store.rows(sql, *values), page, perPage)}
        return [
            {
                "product_id": row["id"],
                "name": row["name"],
                "sku": row["sku"],
                "items_sold": best[row["id"]]["items"],
                "net_revenue": money(best[row["id"]]["total"]),
                "orders_count": best[row["id"]]["orders"],
            }
            for row in self._by_ids("products", best)
        ]

    @tool
    def woo_reports_stock(self, perPage: int = 10, page: int = 1) -> list[Row]:
        """The stock of all products and variations, by id."""
        return self._stock({}, page, perPage)

    @tool
    def woo_reports_low_stock(self, perPage: int = 10, page: int = 1) -> list[Row]:
        """Products and variations that are in stock, but not above their (or the shop's) low stock amount, least first."""
        low = "manage_stock AND stock_quantity > 0 AND stock_quantity <= coalesce(low_stock_amount, ?)"
        return self._stock({low: int(self._setting("woocommerce_notify_low_stock_amount"))}, page, perPage, "stock_quantity, id")

    def _stock(self, where: dict[str, Any], page: int, size: int, order: str = "id") -> list[Row]:
        names = ("id", "parent_id", "name", "sku", "stock_status", "stock_quantity", "manage_stock", "low_stock_amount")
        rows = self._page("products", {f"{_STOCKED} = ?": 1, **where}, order, page, size)
        return [{**{name: row[name] for name in names}, "parent_id": row["parent_id"] or 0} for row in rows]

    def _range(self, period: Period | None, first: str | None, last: str | None) -> tuple[date, date]:
        """The first and the last day of a report."""
        today = (self.context.clock.now() + self._offset()).date()
        if period == "week":
            return today - 6 * _DAY, today
        if period == "month":
            return today.replace(day=1), today
        if period == "last_month":
            end = today.replace(day=1) - _DAY
            return end.replace(day=1), end
        if period == "year":
            return today.replace(month=1, day=1), today
        least, most = _day(first, "dateMin"), _day(last, "dateMax")
        start, end = least or min(today, most or today), most or max(today, least or today)
        if not start <= end <= start + 3660 * _DAY:
            raise ToolError("invalid argument: dateMax must not be before dateMin, nor more than ten years after it")
        return start, end

    def _bounds(self, first: date, last: date) -> tuple[str, str]:
        """The days from the first to the last in GMT: from, and before."""
        offset = self._offset()
        start, end = (datetime(day.year, day.month, day.day) - offset for day in (first, last + _DAY))  # GMT as the records hold it
        return start.isoformat(), end.isoformat()

    def _created(self, period: Period | None, first: str | None, last: str | None) -> tuple[str, tuple[str, ...]]:
        """SQL: made in the days of a report; without any dates, whenever."""
        if not (period or first or last):
            return "1", ()
        return "date_created >= ? AND date_created < ?", self._bounds(*self._range(period, first, last))


def _day(text: str | None, name: str) -> date | None:
    """A day that a caller gives; a time after it does not count.

    Raises:
        ToolError: It is none.
    """
    if not text:
        return None
    try:
        day = date.fromisoformat(text.strip()[:10])
    except ValueError:
        day = date.min
    if not 1900 <= day.year <= 9000:
        raise ToolError(f"invalid argument: {name} must be a day such as 2025-01-15, got {echo(text)}")
    return day
