from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from agentgym.envs.loca.tasks.woocommerce_stock_alert import (
    ALERTS,
    COLUMNS,
    SUPPLIERS,
    WoocommerceStockAlert,
)
from agentgym.office.email.server import Email
from agentgym.office.spreadsheet.google_sheet import GoogleSheet
from agentgym.office.woocommerce.server import WooCommerce
from tests.envs.loca.office import (
    Change,
    carry_out,
    enter,
    final_state_tests,
    fresh,
    resend,
    unsent,
)

TASK = "WoocommerceStockAlert"


def table(world: WoocommerceStockAlert) -> list[list[Any]]:
    return world.office.get(GoogleSheet).values(world.truth["sheet"], ALERTS)


def cell(world: WoocommerceStockAlert, place: str, value: Any) -> None:
    enter(world, world.truth["sheet"], ALERTS, place, [[value]])


def last(world: WoocommerceStockAlert, column: int, value: Callable[[Any], Any]) -> None:
    rows = table(world)
    cell(world, f"{'ABCDEFGH'[column]}{len(rows)}", value(rows[-1][column]))


def without_last(world: WoocommerceStockAlert) -> None:
    for column in range(8):
        last(world, column, lambda _: "")


def more(world: WoocommerceStockAlert, row: list[Any]) -> None:
    enter(world, world.truth["sheet"], ALERTS, f"A{len(table(world)) + 1}", [row])


def at_threshold(world: WoocommerceStockAlert) -> None:
    product = next(
        p
        for p in world.office.get(WooCommerce).products.all()
        if str(p.get("stock_quantity")) == custom(p)["stock_threshold"]
    )
    stock = product["stock_quantity"]
    more(world, [product["id"], product["name"], product["sku"], stock, stock, "x", "y", "z"])


# Handwritten pattern, independent of the package's parsers.
GONE = re.compile(
    r"(Discontinued|No longer ordered):|closed, so we can|not order another|not order it any|not ordered any more|do not reorder|"
    r"have stopped ordering|stopped making|not ordering any|order no new|not order it again|ended in spring, and|last delivery|"
    r"Please choose soon|has run out|one is no longer|for the last time|mould broke, and|will not reorder|off our order list"
)


def gone(world: WoocommerceStockAlert) -> None:
    product = next(
        p for p in world.office.get(WooCommerce).products.all() if GONE.search(p["description"])
    )
    stock, limit = product["stock_quantity"], custom(product)["stock_threshold"]
    more(world, [product["id"], product["name"], product["sku"], stock, limit, "x", "y", "z"])


def custom(product: dict[str, Any]) -> dict[str, str]:
    return {meta["key"]: meta["value"] for meta in product["meta_data"]}


def mail(world: WoocommerceStockAlert, **changes: Any) -> None:
    resend(world, unsent(world), **changes)


def rewritten(world: WoocommerceStockAlert) -> None:
    old = len(world.truth["old"])
    rows = [[f"'{value}" for value in row] for row in table(world)[1:]]
    new = sorted(rows[old:], key=lambda row: row[1])
    enter(world, world.truth["sheet"], ALERTS, "A2", [*rows[:old], [""] * 8, *new])


def above(world: WoocommerceStockAlert) -> None:
    rows = table(world)[1:]
    enter(world, world.truth["sheet"], ALERTS, "A2", [rows[-1], *rows[:-1]])


def renamed(world: WoocommerceStockAlert) -> None:
    names = {"sheet": ALERTS, "new_name": "X"}
    world.office.call("rename_sheet", {"spreadsheet": world.truth["sheet"], **names})


NEAR_MISSES: dict[str, tuple[Change, str]] = {
    "the sheet has another name": (renamed, "has the columns []"),
    "a new row above the old ones": (above, "must come first"),
    "one row is missing": (without_last, "is missing"),
    "a row twice": (lambda world: more(world, table(world)[-1]), "should not be there"),
    "a product at its threshold": (at_threshold, "should not be there"),
    "a product that is not ordered any more": (gone, "should not be there"),
    "another stock": (lambda world: last(world, 3, lambda stock: stock + 1), "Current Stock of"),
    "stock and threshold swapped": (
        lambda world: last(world, 4, lambda _: table(world)[-1][3]),
        "Safety Threshold of",
    ),
    "the name of another supplier": (
        lambda world: last(world, 5, lambda name: f"{name} Co"),
        "Supplier Name of",
    ),
    "no contact": (lambda world: last(world, 7, lambda _: ""), "Supplier Contact of"),
    "an old row was brought up to date": (lambda world: cell(world, "D2", 999), "expected"),
    "a field of the template is left": (
        lambda world: mail(world, body="Supplier: {supplier_name}"),
        "does not match the template",
    ),
    "a line more": (
        lambda world: mail(world, body=world.office.get(Email).sent()[-1].body + "\nUrgent!"),
        "does not match the template",
    ),
}

EQUIVALENTS: dict[str, Change] = {
    "another order, texts, an empty row": rewritten,
    "numbers with a point": lambda world: last(world, 4, lambda value: f"'{value}.0"),
    "a formula": lambda world: last(world, 4, lambda value: f"={value - 1}+1"),
    "blanks around": lambda world: last(world, 6, lambda value: f" {value} "),
}


test_near_misses_fail, test_equivalents_pass = final_state_tests(
    TASK, NEAR_MISSES, EQUIVALENTS, seed=2
)


@pytest.mark.parametrize("seed", range(3))
def test_the_truth_is_what_shop_and_sheets_tell(seed: int) -> None:
    world = fresh(TASK, 48_000, seed)
    sheets = world.office.get(GoogleSheet)
    reported = {row[2] for row in table(world)[1:]}
    suppliers = {row[0]: row for row in sheets.values(world.truth["sheet"], SUPPLIERS)[1:]}
    expected = []
    for product in world.office.get(WooCommerce).products.all():
        stock, limit = product.get("stock_quantity"), int(custom(product)["stock_threshold"])
        if stock is None or stock >= limit or GONE.search(product["description"]):
            continue
        if product["status"] == "publish" and product["sku"] not in reported:
            by = suppliers[custom(product)["supplier_id"]]
            head = [product["id"], product["name"], product["sku"], stock, limit]
            expected.append([*head, by[1], by[0], by[2]])
    assert [list(row.values()) for row in world.truth["new"]] == expected
    assert list(world.truth["new"][0]) == list(COLUMNS)
    carry_out(world)
    assert sorted(table(world)[1 + len(reported) :]) == sorted(expected)


@pytest.mark.exhaustive
def test_many_alerts_need_more_rows_than_the_sheet_has() -> None:
    world = carry_out(fresh(TASK, size=1_100, low_stock=1_050))
    assert list(world.task_failures()) == []
    assert len(table(world)) > 1_050
