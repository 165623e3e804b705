from __future__ import annotations

import functools
import json
from collections.abc import Callable
from fractions import Fraction
from statistics import fmean
from typing import Any

import pytest

from agentgym.envs.loca.tasks.ab_testing import (
    BUCKET,
    COLUMNS,
    DATASET,
    LOG,
    OVERALL,
    PAYLOAD,
    RECORD,
)
from agentgym.office.gcloud.google_cloud import GoogleCloud
from tests.envs.loca.office import (
    TASKS,
    Change,
    Rows,
    call,
    faults_after,
    fresh,
    in_csv,
    solved,
    sql,
)

TASK = "ABTesting"
rewrite = functools.partial(in_csv, RECORD)


@functools.cache
def seed_of(verdict: str) -> int:
    return next(
        seed for seed in range(60) if fresh(TASK, size=40, seed=seed).truth["verdict"] == verdict
    )


def after(verdict: str, change: Change) -> list[str]:
    return faults_after(TASK, change, size=40, seed=seed_of(verdict))


def cells(change: Callable[[str], str]) -> Change:
    return rewrite(lambda rows: [rows[0], *([row[0], *map(change, row[1:])] for row in rows[1:])])


def log(message: Any, name: str = LOG) -> Change:
    return call("logging_write_log", log_name=name, message=message)


def both(*changes: Change) -> Change:
    return lambda world: [change(world) for change in changes]


def no_entry(world: Any) -> None:
    store = world.office.get(GoogleCloud).store
    for row in store.find("log_entries")[len(world.truth["entries"]) :]:
        store.delete("log_entries", id=row["id"])


def no_bucket(world: Any) -> None:
    world.office.get(GoogleCloud).store.delete("buckets", name=BUCKET)


def mean_of_the_rates(rows: Rows) -> Rows:
    scenarios = [row for row in rows[1:] if row[0] != OVERALL]
    means = [f"{fmean(float(row[k]) for row in scenarios):.2f}" for k in (1, 2)]
    return [rows[0], *scenarios, [OVERALL, *means]]


NEAR_MISSES: dict[str, tuple[str, Change, str]] = {
    "no overall row": ("B", rewrite(lambda rows: rows[:-1]), "clicks)\" is missing"),
    "the mean of the rates": ("A", rewrite(mean_of_the_rates), f"conversion % of {OVERALL}"),
    "names of tables": ("B", rewrite(lambda rows: [rows[0], *([f"ab_{r[0]}", *r[1:]] for r in rows[1:])]), "is missing"),
    "shares for percent": ("A", cells(lambda cell: str(float(cell) / 100)), "A_conversion %"),
    "one decimal": ("A", cells(lambda cell: f"{float(cell):.1f}"), "_conversion %"),
    "versions swapped": ("A", rewrite(lambda rows: [rows[0], *([r[0], r[2], r[1]] for r in rows[1:])]), "A_conversion %"),
    "no bucket": ("B", no_bucket, "there is no bucket"),
    "an entry although B won": ("B by a view", log(PAYLOAD), "a duplicate"),
    "the bucket has something in it": (
        "B", lambda world: world.office.get(GoogleCloud).storage.put_object(BUCKET, "x.txt", "x"), "should not be there"
    ),
    "a bucket though A has won": ("A by a view", call("storage_create_bucket", bucket_name=BUCKET), "should not be there"),
    "a bucket after a tie": ("tie", call("storage_create_bucket", bucket_name=BUCKET), "should not be there"),
    "no entry after a tie": ("tie", no_entry, "there is no entry"),
    "no entry though A has won": ("A", no_entry, "there is no entry"),
    "two entries": ("A", log(PAYLOAD), "a duplicate"),
    "another payload": ("A", both(no_entry, log({**PAYLOAD, "winner": "B"})), "there is no entry"),
    "a payload with more": ("A", both(no_entry, log({**PAYLOAD, "note": "x"})), "there is no entry"),
    "another log": ("tie", both(no_entry, log(PAYLOAD, "ab_testing")), "there is no entry"),
    "a text that is no JSON": ("tie", both(no_entry, log("A stays")), "there is no entry"),
    "a text that is nested deeply": ("tie", both(no_entry, log("[" * 100_000)), "there is no entry"),
    "the log was emptied": ("A", call("logging_delete_log", log_name=LOG), "was removed"),
}  # fmt: skip
EQUIVALENTS: dict[str, tuple[str, Change]] = {
    "with the sign of percent": ("B", cells(lambda cell: f"{cell}%")),
    "more decimals": (
        "tie", lambda world: rewrite(lambda rows: [rows[0], *([str(r[c]) for c in COLUMNS] for r in world.truth["rows"])])(world)
    ),
    "the payload as text": ("tie", both(no_entry, log(json.dumps(PAYLOAD, indent=1)))),
    "another severity": ("A", both(no_entry, call("logging_write_log", log_name=LOG, message=PAYLOAD, severity="NOTICE"))),
    "a bucket elsewhere": ("B", both(no_bucket, call("storage_create_bucket", bucket_name=BUCKET, location="EU"))),
    "a table written to as it was": ("A", sql(f"UPDATE {DATASET}.scenario_owners SET owner = owner WHERE TRUE")),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_fail(name: str) -> None:
    verdict, change, words = NEAR_MISSES[name]
    assert words in " ".join(after(verdict, change))


@pytest.mark.parametrize("name", EQUIVALENTS)
def test_equivalents_pass(name: str) -> None:
    assert after(*EQUIVALENTS[name]) == []


@pytest.mark.parametrize("seed", range(3))
def test_the_truth_row_by_row(seed: int) -> None:
    world = fresh(TASK, 32_000, seed)
    cloud = world.office.get(GoogleCloud)
    scenarios = {
        name.removeprefix("ab_"): cloud.bigquery.rows(DATASET, name)
        for name in cloud.bigquery.tables(DATASET)
        if name.startswith("ab_")
    }
    everything = [row for rows in scenarios.values() for row in rows]
    wanted = {}
    for name, rows in {**scenarios, OVERALL: everything}.items():
        sums = {
            v: (sum(r[f"{v}_store_views"] for r in rows), sum(r[f"{v}_clicks"] for r in rows))
            for v in "AB"
        }
        wanted[name] = tuple(Fraction(*sums[v]) if sums[v][1] else Fraction(0) for v in "AB")
    assert {row["scenario"]: (row[COLUMNS[1]], row[COLUMNS[2]]) for row in world.truth["rows"]} == {
        name: (float(100 * a), float(100 * b)) for name, (a, b) in wanted.items()
    }
    assert world.truth["winner"] == ("B" if wanted[OVERALL][1] > wanted[OVERALL][0] else "A")
    assert all(
        0 <= row[f"{v}_store_views"] <= row[f"{v}_clicks"] for row in everything for v in "AB"
    )
    assert any(0 in rates for rates in wanted.values()), "somewhere a version has no clicks"
    assert any(len({row["time_window"] for row in rows}) < len(rows) for rows in scenarios.values())
    assert any(row["A_clicks"] == row["B_clicks"] == 0 for row in everything)


def test_a_horizon_is_the_number_of_steps() -> None:
    assert 1 + len(solved(TASK, **TASKS[TASK].config_for_horizon(9)).progress.completed()) == 9
    with pytest.raises(ValueError, match=r"horizon must be an integer in \[6, 1000\], got 5"):
        TASKS[TASK].config_for_horizon(5)
