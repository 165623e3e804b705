from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from agentgym.envs.loca.tasks.woocommerce_new_welcome import DATASET, FROM, LETTER, NOW, TABLE
from agentgym.office.email.server import Email
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.office.woocommerce.server import WooCommerce
from tests.envs.loca import note_reader
from tests.envs.loca.office import Change, final_state_tests, fresh, sql

TASK = "WoocommerceNewWelcome"
CRM = f"{DATASET}.{TABLE}"


def new(world: Any, k: int = -1) -> dict[str, Any]:
    row: dict[str, Any] = world.truth["rows"][
        len(world.truth["rows"]) - len(world.truth["letters"]) :
    ][k]
    return row


def on_new(text: str, k: int = -1) -> Change:
    return lambda world: sql(f"{text} WHERE woocommerce_id = {new(world, k)['woocommerce_id']}")(
        world
    )


def set_new(change: str) -> Change:
    return on_new(f"UPDATE {CRM} SET {change}")


def row_for(customer: Callable[[Any], int]) -> Change:
    def apply(world: Any) -> None:
        columns = "woocommerce_id, email, welcome_email_sent"
        sql(
            f"INSERT INTO {CRM} (id, {columns}) VALUES (9999, {customer(world)}, 'a@example.com', TRUE)"
        )(world)

    return apply


def hours(world: Any) -> float:
    rows = world.office.get(WooCommerce).settings.woo_settings_get("general")
    return float(next(row["value"] for row in rows if row["id"] == "gmt_offset"))


def utc(world: Any, site_time: str) -> datetime:
    return datetime.fromisoformat(f"{site_time}+00:00") - timedelta(hours=hours(world))


def completed(world: Any) -> dict[int, list[datetime]]:
    found: dict[int, list[datetime]] = {}
    for order in world.office.get(WooCommerce).orders.all():
        if order["status"] == "completed":
            moment = utc(world, order["date_completed"])
            found.setdefault(order["customer_id"], []).append(moment)
    return found


def declined(world: Any) -> set[int]:
    return {
        order["customer_id"]
        for order in world.office.get(WooCommerce).orders.all()
        if order["status"] == "completed"
        and utc(world, order["date_completed"]) >= FROM
        and note_reader.declined(order.get("customer_note") or "")
    }


def with_several(world: Any) -> int:
    orders = completed(world)
    return next(
        owner
        for owner, dates in orders.items()
        if owner and sum(date >= FROM for date in dates) > 1
    )


def just_too_old(world: Any) -> int:
    return next(
        owner for owner, dates in completed(world).items() if dates == [FROM - timedelta(seconds=1)]
    )


def again(change: Callable[[dict[str, Any]], dict[str, Any]], k: int = -1) -> Change:
    def apply(world: Any) -> None:
        email = world.office.get(Email)
        to, subject, body = world.truth["letters"][k]
        message = email.store.value(
            "SELECT id FROM messages WHERE origin = 'sent' AND \"to\" = ?", to
        )
        email.store.delete("mails", message=message)
        email.store.delete("messages", id=message)
        world.office.call("send_email", change({"to": to, "subject": subject, "body": body}))

    return apply


def mail(**changes: Any) -> Change:
    return again(lambda held: {**held, **changes})


NEAR_MISSES: dict[str, tuple[Change, str]] = {
    "a row twice": (on_new(f"INSERT INTO {CRM} SELECT * FROM {CRM}"), "should not be there"),
    "a row for a customer with several orders": (row_for(with_several), "should not be there"),
    "a row for an order a second too old": (row_for(just_too_old), "should not be there"),
    "a row for guests": (row_for(lambda world: 0), "should not be there"),
    "ids that leave one out": (set_new("id = id + 1"), "id of"),
    "ids in another order": (sql(f"UPDATE {CRM} SET id = 10000 - id WHERE welcome_email_date = DATE '2025-11-20'"), "id of"),
    "another address": (set_new("email = CONCAT(email, 'x')"), "email of"),
    "names swapped": (set_new("first_name = last_name, last_name = first_name"), "first_name of"),
    "a blank behind a name": (set_new("last_name = CONCAT(last_name, ' ')"), "last_name of"),
    "a line end behind a phone": (set_new(r"phone = CONCAT(phone, '\n')"), "phone of"),
    "no phone": (set_new("phone = NULL"), "phone of"),
    "the site's time": (set_new("first_order_date = TIMESTAMP_ADD(first_order_date, INTERVAL 2 HOUR)"), "first_order_date"),
    "not marked as sent": (set_new("welcome_email_sent = FALSE"), "welcome_email_sent"),
    "no date of the mail": (set_new("welcome_email_date = NULL"), "welcome_email_date"),
    "the day before": (set_new("sync_date = DATE '2025-11-19'"), "sync_date"),
    "something in metadata": (set_new("metadata = '{}'"), "metadata"),
    "an old row marked as sent": (
        sql(f"UPDATE {CRM} SET welcome_email_sent = TRUE WHERE welcome_email_sent = FALSE"), "welcome_email_sent"
    ),
    "a hidden copy": (mail(bcc="a@example.com"), "should not be there"),
    "names in braces left": (mail(body=LETTER.partition("\n")[2]), "does not match the template"),
    "a sentence more": (again(lambda held: {**held, "body": held["body"] + "\nBest wishes"}), "does not match the template"),
    "a number changed": (again(lambda held: {**held, "body": held["body"].replace("10 %", "15 %")}), "does not match the template"),
}  # fmt: skip
EQUIVALENTS: dict[str, Change] = {
    "a row written anew": lambda world: [
        sql(
            f"CREATE TABLE {DATASET}.one AS SELECT * FROM {CRM} WHERE woocommerce_id = {new(world)['woocommerce_id']}"
        )(world),
        on_new(f"DELETE FROM {CRM}")(world),
        sql(f"INSERT INTO {CRM} SELECT * FROM {DATASET}.one")(world),
        sql(f"DROP TABLE {DATASET}.one")(world),
    ],
    "rows in another order": sql(
        f"CREATE OR REPLACE TABLE {CRM} AS SELECT * FROM {CRM} ORDER BY id DESC"
    ),
}


test_near_misses_fail, test_equivalents_pass = final_state_tests(
    TASK, NEAR_MISSES, EQUIVALENTS, length=16_000, seed=1
)


@pytest.mark.parametrize("seed", range(3))
def test_the_truth_by_the_records_of_the_shop(seed: int) -> None:
    world = fresh(TASK, 32_000, seed)
    shop, orders = world.office.get(WooCommerce), completed(world)
    rows = {
        row["woocommerce_id"]: row
        for row in world.office.get(GoogleCloud).bigquery.rows(DATASET, TABLE)
    }
    assert all(date <= NOW for dates in orders.values() for date in dates)
    one = {owner for owner, dates in orders.items() if sum(date >= FROM for date in dates) == 1}
    assert one & declined(world) - {0} - rows.keys(), "somebody wants no mails"
    wanted = sorted(one - {0} - rows.keys() - declined(world))
    added = [new(world, k) for k in range(len(world.truth["letters"]))]
    assert [row["woocommerce_id"] for row in added] == wanted
    top = max(row["id"] for row in rows.values())
    assert [row["id"] for row in added] == list(range(top + 1, top + 1 + len(wanted)))
    people = {each["id"]: each for each in shop.customers.all()}
    for row, (to, subject, body) in zip(added, world.truth["letters"], strict=True):
        person = people[row["woocommerce_id"]]
        assert row["email"] == to == person["email"]
        assert (row["first_name"], row["last_name"]) == (person["first_name"], person["last_name"])
        assert row["phone"] == person["billing"]["phone"]
        assert datetime.fromisoformat(row["first_order_date"]) == min(orders[row["woocommerce_id"]])
        mine = [
            order
            for order in shop.orders.all()
            if order["customer_id"] == row["woocommerce_id"] and order["status"] == "completed"
        ]
        last = max(mine, key=lambda order: order["date_completed"])
        assert (
            f"order {last['id']} of {last['total']} EUR, which was completed on "
            f"{utc(world, last['date_completed']):%Y-%m-%d} " in body
        )
        assert person["first_name"] in subject
        assert "{" not in body
