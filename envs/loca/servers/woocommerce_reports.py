"""Reports of the shop, computed from its orders.

Sales are those of orders that are completed, processing or on hold, by the date of creation in site time; refunds of such orders are
taken off. An order that was refunded whole is no sale.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import date, datetime, timedelta
from typing import Any, Literal

from agentgym.envs.loca.servers.server import page_of
from agentgym.envs.loca.servers.woocommerce_money import money
from agentgym.envs.loca.servers.woocommerce_people import PAYING, People
from agentgym.envs.loca.servers.woocommerce_shapes import STATUSES, Row
from agentgym.tools import ToolError, echo, tool

Period = Literal["week", "month", "last_month", "year"]
_SOLD = "status IN ('completed', 'processing', 'on-hold')"
_SOLD_LINES = f"""FROM items AS i JOIN orders AS o ON o.id = i.order_id
    WHERE i.type = 'line_item' AND o.{_SOLD} AND o.date_created >= ? AND o.date_created < ?"""
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
        orders = self._sold(first, last)
        groups: dict[str, list[Row]] = {(first + k * _DAY).isoformat()[: 7 if monthly else 10]: [] for k in range((last - first).days + 1)}
        for order in orders:
            groups[order["day"][: 7 if monthly else 10]].append(order)
        sums = _sums(orders)
        registered = self._registered(first, last, 7 if monthly else 10)
        return [{
            "total_sales": money(sums["sales"]), "net_sales": money(sums["sales"] - sums["tax"] - sums["shipping"]),
            "average_sales": money(sums["sales"] // len(groups)), "total_orders": sums["orders"], "total_items": sums["items"],
            "total_tax": money(sums["tax"]), "total_shipping": money(sums["shipping"]), "total_refunds": money(sums["refunds"]),
            "total_discount": money(sums["discount"]), "totals_grouped_by": "month" if monthly else "day",
            "totals": {day: _shown(held, registered.get(day, 0)) for day, held in groups.items()},
            "total_customers": sum(registered.values()),
        }]  # fmt: skip

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
    def woo_reports_customers(self, period: Period | None = None, dateMin: str | None = None, dateMax: str | None = None) -> list[Row]:
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
        sql = f"""SELECT i.product_id, i.quantity, i.total, i.order_id FROM items AS i JOIN (SELECT id FROM orders WHERE {_SOLD} AND {where}) AS o
            ON o.id = i.order_id WHERE i.type = 'line_item' AND i.product_id IS NOT NULL"""
        found: dict[int, list[Row]] = defaultdict(list)
        for row in self.store.rows(sql, *values):
            found[row["product_id"]].append(row)
        sold = {number: sum(row["quantity"] for row in rows) for number, rows in found.items()}
        best = page_of(sorted(found, key=lambda number: (-sold[number], number)), page, perPage)
        return [
            {
                "product_id": row["id"], "name": row["name"], "sku": row["sku"], "items_sold": sold[row["id"]],
                "net_revenue": money(sum(line["total"] for line in found[row["id"]])),
                "orders_count": len({line["order_id"] for line in found[row["id"]]}),
            }
            for row in self._by_ids("products", best)
        ]  # fmt: skip

    @tool
    def woo_reports_stock(self, perPage: int = 10, page: int = 1) -> list[Row]:
        """The stock of all products and variations, by id."""
        return self._stock({}, page, perPage)

    @tool
    def woo_reports_low_stock(self, perPage: int = 10, page: int = 1) -> list[Row]:
        """Products and variations that are in stock, but not above their low stock amount (that of the shop by default), least first."""
        low = "manage_stock AND stock_quantity > 0 AND stock_quantity <= coalesce(low_stock_amount, ?)"
        return self._stock({low: int(self._setting("woocommerce_notify_low_stock_amount"))}, page, perPage, "stock_quantity, id")

    def _stock(self, where: dict[str, Any], page: int, size: int, order: str = "id") -> list[Row]:
        names = ("id", "parent_id", "name", "sku", "stock_status", "stock_quantity", "manage_stock", "low_stock_amount")
        rows = self._page("products", {f"{_STOCKED} = ?": 1, **where}, order, page, size)
        return [{**{name: row[name] for name in names}, "parent_id": row["parent_id"] or 0} for row in rows]

    def _range(self, period: Period | None, first: str | None, last: str | None) -> tuple[date, date]:
        """The first and the last day of a report."""
        today = (self.desk.clock.now() + self._offset()).date()
        if period == "week":
            return today - 6 * _DAY, today
        if period == "month":
            return today.replace(day=1), today
        if period == "last_month":
            end = today.replace(day=1) - _DAY
            return end.replace(day=1), end
        if period == "year":
            return today.replace(month=1, day=1), today
        start, end = _day(first, "dateMin"), _day(last, "dateMax")
        start, end = start or min(today, end or today), end or max(today, start or today)
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

    def _registered(self, first: date, last: date, length: int) -> dict[str, int]:
        """How many customers registered by day, of whose name so many characters count."""
        sql = "SELECT date_created FROM customers WHERE role = 'customer' AND date_created >= ? AND date_created < ?"
        found: dict[str, int] = defaultdict(int)
        for row in self.store.rows(sql, *self._bounds(first, last)):
            found[(datetime.fromisoformat(row["date_created"]) + self._offset()).isoformat()[:length]] += 1
        return found

    def _sold(self, first: date, last: date) -> list[Row]:
        """The orders that are sales, each with its `day`, `items` and `refunds`."""
        bounds, offset = self._bounds(first, last), self._offset()
        counts = self.store.rows(f"SELECT o.id, sum(i.quantity) AS n {_SOLD_LINES} GROUP BY o.id", *bounds)
        items = {row["id"]: row["n"] for row in counts}
        refunds = {row["id"]: row["n"] for row in self.store.rows("SELECT order_id AS id, sum(amount) AS n FROM refunds GROUP BY order_id")}
        sql = f"""SELECT id, date_created, total, total_tax, shipping_total, discount_total FROM orders
            WHERE {_SOLD} AND date_created >= ? AND date_created < ?"""
        return [
            {
                **row, "day": (datetime.fromisoformat(row["date_created"]) + offset).date().isoformat(),
                "items": items.get(row["id"], 0), "refunds": refunds.get(row["id"], 0),
            }
            for row in self.store.rows(sql, *bounds)
        ]  # fmt: skip


def _sums(orders: list[Row]) -> dict[str, int]:
    names = {"tax": "total_tax", "shipping": "shipping_total", "discount": "discount_total", "items": "items", "refunds": "refunds"}
    sums = {name: sum(order[column] for order in orders) for name, column in names.items()}
    return {**sums, "orders": len(orders), "sales": sum(order["total"] for order in orders) - sums["refunds"]}


def _shown(orders: list[Row], customers: int) -> Row:
    sums = _sums(orders)
    amounts = {name: money(sums[name]) for name in ("sales", "tax", "shipping", "discount")}
    return {**amounts, "orders": sums["orders"], "items": sums["items"], "customers": customers}


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
