from __future__ import annotations

import csv
import functools
import json
import re
from collections.abc import Callable
from datetime import date, timedelta
from fractions import Fraction
from typing import Any

import pytest

from agentgym.envs.loca.tasks.filter_low_selling_products import (
    OUTLET,
    SUBSCRIBERS,
    TABLE,
    FilterLowSellingProducts,
)
from agentgym.office.email.server import Email
from agentgym.office.woocommerce.server import WooCommerce
from tests.envs.loca.office import (
    Change,
    Rows,
    carry_out,
    csv_text,
    each_cell,
    faults_after,
    final_state_tests,
    fresh,
    in_csv,
    one_cell,
    resend,
    table_of,
    unsent,
)
from tests.envs.loca.office import update_product as update

TASK = "FilterLowSellingProducts"
World = FilterLowSellingProducts
# A state with ties and cancelled subscriptions.
STATE: dict[str, Any] = {"length": 20_000, "seed": 0}
rewrite = functools.partial(in_csv, TABLE)


def swapped(rows: Rows, when: Callable[[list[str], list[str]], bool]) -> Rows:
    k = next(k for k in range(1, len(rows) - 1) if when(rows[k], rows[k + 1]))
    return [*rows[:k], rows[k + 1], rows[k], *rows[k + 2 :]]


def tied(one: list[str], two: list[str]) -> bool:
    return (one[2], one[5]) == (two[2], two[5])


def of_one_date(one: list[str], two: list[str]) -> bool:
    return one[2] == two[2] and one[5] != two[5]


def set_cell(column: int, value: Callable[[str], str]) -> Change:
    return rewrite(one_cell(2, column, value))


def in_quotes(world: World) -> str:
    return "\ufeff" + csv_text(table_of(world, TABLE), quoting=csv.QUOTE_ALL)


def outlet(world: World) -> int:
    return next(
        int(each["id"])
        for each in world.office.get(WooCommerce).categories.all()
        if each["name"] == OUTLET
    )


def stays(world: World) -> int:
    low = {row["Product ID"] for row in world.truth["rows"]}
    return next(p["id"] for p in world.office.get(WooCommerce).products.all() if p["id"] not in low)


def moves(world: World) -> int:
    return int(world.truth["rows"][0]["Product ID"])


def mail(world: World, again: bool = True, **changes: Any) -> None:
    sent = unsent(world) if again else world.office.get(Email).sent()[-1]
    resend(world, sent, **{"attachments": [TABLE], **changes})


def mail_with(data: str | bytes, name: str = f"old/{TABLE}") -> Change:
    def mutate(world: World) -> None:
        world.office.context.files.write(name, data)
        mail(world, attachments=[name])

    return mutate


def example_first(world: World) -> None:
    world.office.context.files.write(f"old/{TABLE}", world.truth["files"][f"/workspace/{TABLE}"])
    mail(world, attachments=[f"old/{TABLE}"])


def cancelled(world: World) -> None:
    listed = json.loads(world.office.context.files.read_text(SUBSCRIBERS))["subscribers"]
    mail(
        world,
        again=False,
        to=next(each["email"] for each in listed if each["status"] == "cancelled"),
    )


NEAR_MISSES: dict[str, tuple[Change, str]] = {
    "a tie the wrong way": (rewrite(lambda rows: swapped(rows, tied)), "not in the required order"),
    "the discounts of a date the wrong way": (
        rewrite(lambda rows: swapped(rows, of_one_date)),
        "not in the required order",
    ),
    "a cent off": (set_cell(4, lambda cell: f"{float(cell) + 0.01:.2f}"), "Discounted Price of"),
    "the day of another zone": (set_cell(2, lambda cell: f"{cell[:-2]}32"), "In Stock Since of"),
    "a huge attachment": (mail_with("Product ID\n" * 300_000), "has the columns"),
    "a product was not moved": (
        lambda world: update(world, moves(world), categories=[{"id": 2}]),
        "expected",
    ),
    "a product keeps its category": (
        lambda world: update(world, moves(world), categories=[{"id": 2}, {"id": outlet(world)}]),
        "expected",
    ),
    "a product too many": (
        lambda world: update(world, stays(world), categories=[{"id": outlet(world)}]),
        "expected",
    ),
    "a mail to one who has cancelled": (cancelled, "should not be there"),
    "no attachment": (lambda world: mail(world, attachments=[]), "expected"),
    "the table of the start": (example_first, "the attachment of the mail"),
    "a binary attachment": (mail_with(b"\x00\xff" * 50), "the attachment of the mail"),
    "another number": (
        lambda world: mail(
            world,
            body=world.office.get(Email)
            .sent()[-1]
            .body.replace(f"{len(world.truth['rows'])} pro", "0 pro"),
        ),
        "does not match the template",
    ),
}

EQUIVALENTS: dict[str, Change] = {
    "numbers in other forms": rewrite(each_cell(3, lambda cell: f"{float(cell):.3f}")),
    "percents without the sign, blanks around": rewrite(
        each_cell(5, lambda cell: f" {cell[:-1]} ")
    ),
    "an attachment of another form": lambda world: mail_with(in_quotes(world).replace("%", " %"))(
        world
    ),
    "a product was moved twice": lambda world: update(
        world, moves(world), categories=[{"id": outlet(world)}]
    ),
}


test_near_misses_fail, test_equivalents_pass = final_state_tests(
    TASK, NEAR_MISSES, EQUIVALENTS, **STATE
)


def test_an_attachment_is_what_the_file_was_when_it_was_sent() -> None:
    found = faults_after(TASK, rewrite(lambda rows: [*rows[:2], *rows[3:]]))
    assert not any("attachment" in fault for fault in found)


# Handwritten pattern, independent of the package's parsers.
EXCLUDED = re.compile(
    r"Never sold in|does not allow|not find it in any|however slowly|By contract|^Excluded|\. Excluded|Do not wait|do not clear it"
    r"|keep it out of|we keep out of|counter only|We have promised|outlet in vain|A reserved"
    r"|for months, it does|but this does not|is not cleared|never cleared"
    r"|except this one|is closed to it|would break"
)


@pytest.mark.parametrize("seed", range(3))
def test_the_truth_is_what_the_shop_tells(seed: int) -> None:
    world = fresh(TASK, 48_000, seed)
    expected = []
    for product in world.office.get(WooCommerce).products.all():
        sold = next(
            int(meta["value"])
            for meta in product["meta_data"]
            if meta["key"] == "sales_last_30_days"
        )
        since = date.fromisoformat(product["date_created"][:10])
        there = product["status"] == "publish" and product["stock_status"] == "instock"
        is_old = since < date(2025, 1, 15) - timedelta(days=90)
        if there and is_old and sold < 10 and not EXCLUDED.search(product["description"]):
            old = Fraction(product["regular_price"])
            new = Fraction(product.get("sale_price") or product["regular_price"])
            expected.append((since, (old - new) / old, product["name"], product["id"], old, new))
    expected.sort()
    told = []
    for row in table_of(carry_out(world), TABLE)[1:]:
        ratio, old, new = Fraction(row[5][:-1]) / 100, Fraction(row[3]), Fraction(row[4])
        told.append((date.fromisoformat(row[2]), ratio, row[1], int(row[0]), old, new))
    assert told == expected
    assert [row["Product ID"] for row in world.truth["rows"]] == [each[3] for each in expected]
