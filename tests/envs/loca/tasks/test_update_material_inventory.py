from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from agentgym.envs.loca.tasks.update_material_inventory import (
    RECIPES,
    STOCK,
    UpdateMaterialInventory,
)
from agentgym.office.spreadsheet.google_sheet import GoogleSheet
from agentgym.office.woocommerce.server import WooCommerce
from tests.envs.loca.note_reader import amended
from tests.envs.loca.office import Change, carry_out, final_state_tests, fresh, solved
from tests.envs.loca.office import enter as enter_into
from tests.envs.loca.office import update_product as update

TASK = "UpdateMaterialInventory"
World = UpdateMaterialInventory
MOMENT = "2025-01-12T18:00:00"


def table(world: World, sheet: str = STOCK) -> list[list[Any]]:
    return world.office.get(GoogleSheet).values(world.truth["sheet"], sheet)


def enter(world: World, place: str, data: list[list[Any]], sheet: str = STOCK) -> None:
    enter_into(world, world.truth["sheet"], sheet, place, data)


def cell(column: str, value: Callable[[Any], Any], sheet: str = STOCK) -> Change:
    def mutate(world: World) -> None:
        enter(world, f"{column}3", [[value(table(world, sheet)[2]["ABCDEF".index(column)])]], sheet)

    return mutate


def before() -> dict[Any, Any]:
    return {row[0]: row[2] for row in table(fresh(TASK))}


def used(world: World) -> int:
    stocks = before()
    return next(k for k, row in enumerate(table(world), 1) if row[2] != stocks[row[0]])


def as_before(world: World) -> None:
    k = used(world)
    enter(world, f"C{k}", [[before()[table(world)[k - 1][0]]]])


def stock(by: int, place: int = 0) -> Change:
    def mutate(world: World) -> None:
        product = world.office.get(WooCommerce).products.all()[place]
        count = (product["stock_quantity"] or 0) + by
        update(world, product["id"], manage_stock=True, stock_quantity=count)

    return mutate


def service(world: World) -> int:
    return next(
        int(each["id"])
        for each in world.office.get(WooCommerce).products.all()
        if each["sku"] == "GIFT-CARD"
    )


def mixed(world: World) -> None:
    enter(world, "A2", sorted(table(world)[1:], key=lambda row: str(row[1])))


NEAR_MISSES: dict[str, tuple[Change, str]] = {
    "a material as it was": (as_before, "Current Stock of"),
    "another order of the rows": (mixed, "not in the required order"),
    "a hundredth more": (cell("C", lambda value: round(value + 0.01, 2)), "Current Stock of"),
    "rounded to whole numbers": (
        lambda world: enter(world, f"C{used(world)}", [["=ROUND(2.5)"]]),
        "Current Stock of",
    ),
    "no number": (cell("C", lambda value: f"{value} m"), "Current Stock of"),
    "an empty cell": (cell("C", lambda _: ""), "Current Stock of"),
    "the least stock was changed": (cell("E", lambda value: value + 1), "Min Stock of"),
    "the supplier was changed": (cell("F", lambda value: f"{value} Inc"), "Supplier of"),
    "a row is missing": (lambda world: enter(world, "A3", [[""] * 6]), "is missing"),
    "a row more": (
        lambda world: enter(world, f"A{len(table(world)) + 1}", [table(world)[1]]),
        "should not be there",
    ),
    "one piece less": (stock(-1), "has the stock"),
    "one piece more": (stock(1), "has the stock"),
    "stock for a product without material": (
        lambda world: update(world, service(world), manage_stock=True, stock_quantity=5),
        "has the stock",
    ),
    "stock that is not managed": (
        lambda world: update(world, 1, manage_stock=False),
        "has the stock",
    ),
}

EQUIVALENTS: dict[str, Change] = {
    "texts in place of numbers": cell("C", lambda value: f"'{value:.2f}"),
    "the noise of floats": cell("C", lambda value: value + 1e-11),
    "a formula": cell("C", lambda value: f"={value:.2f}+0"),
    "commas between thousands": cell("C", lambda value: f"'{value:,.2f}"),
    "a name with blanks around": cell("B", lambda value: f" {value} "),
    "the stock was set twice": stock(0),
}


test_near_misses_fail, test_equivalents_pass = final_state_tests(TASK, NEAR_MISSES, EQUIVALENTS)


def expected(world: World) -> tuple[dict[str, Fraction], dict[str, int]]:
    """Deduct the new orders, and return the remaining materials and the possible product stock."""
    recipes = [(row[0], row[2], Fraction(str(row[4]))) for row in table(world, RECIPES)[1:]]
    left = {row[0]: Fraction(str(row[2])) for row in table(world)[1:]}
    shop = world.office.get(WooCommerce)
    skus = {product["id"]: product["sku"] for product in shop.products.all()}
    for each in shop.orders.all():
        if each["status"] != "processing" or each["date_paid"] <= MOMENT:
            continue
        listed = {line["name"]: line["quantity"] for line in each["line_items"]}
        pieces = amended(listed, each.get("customer_note") or "")
        for line in each["line_items"]:
            for sku, material, need in recipes:
                if sku == skus[line["product_id"]]:
                    left[material] -= pieces[line["name"]] * need
    made: dict[str, int] = {}
    for sku, material, need in recipes:
        if sku in skus.values():
            most = int(left[material] / need)
            made[sku] = min(most, made.get(sku, most))
    return left, made


@pytest.mark.parametrize("seed", range(3))
def test_the_truth_is_what_sheets_and_shop_tell(seed: int) -> None:
    world = fresh(TASK, 32_000, seed)
    left, made = expected(world)
    rows = world.truth["rows"]
    assert {row["Material ID"]: Fraction(row["Current Stock"]) for row in rows} == left
    products = world.office.get(WooCommerce).products.all()
    numbers = {product["sku"]: product["id"] for product in products}
    assert {sku: world.truth["stock"][numbers[sku]][0] for sku in made} == made


def test_hostile_states_give_failures() -> None:
    world = solved(TASK)
    world.office.call(
        "rename_sheet", {"spreadsheet": world.truth["sheet"], "sheet": STOCK, "new_name": "X"}
    )
    assert "has the columns []" in " ".join(world.task_failures())
    world = solved(TASK)
    enter(world, "A1", [["x" * 40_000] * 6] * 3)
    assert all(len(fault) < 1_000 for fault in world.task_failures())
    assert list(world.task_failures())


def test_a_plan_of_a_wanted_length_has_as_many_products() -> None:
    for steps in (8, 20, 64):
        world = carry_out(fresh(TASK, **World.config_for_horizon(steps)))
        assert abs(len(world.progress.facts) + 1 - steps) <= 1
        assert list(world.task_failures()) == []
    with pytest.raises(ValueError, match=r"must be about 8 to 1007 for .*, got 7"):
        World.config_for_horizon(7)
