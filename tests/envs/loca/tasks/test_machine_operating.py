from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from agentgym.envs.loca.tasks.machine_operating import (
    BOOK,
    BUCKET,
    COLUMNS,
    DATASET,
    REPORT,
    SHEET,
    TABLE,
)
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.office.spreadsheet.workbooks import read_workbook
from tests.envs.loca.office import Change, Rows, call, each_cell, final_state_tests, fresh, in_csv

TASK = "MachineOperating"


def upload(world: Any) -> None:
    world.office.get(GoogleCloud).storage.put_object(
        BUCKET, REPORT, world.office.context.files.read(REPORT)
    )


def rewrite(change: Callable[[Rows], Rows], **form: Any) -> Change:
    return lambda world: (in_csv(REPORT, change, **form)(world), upload(world))


def cells(column: str, change: Callable[[str], str]) -> Change:
    return rewrite(each_cell(COLUMNS.index(column), change))


def drop(table: str, name: str) -> Change:
    return lambda world: world.office.get(GoogleCloud).store.delete(table, name=name)


def ranges_of(world: Any) -> dict[tuple[str, str], tuple[float, float]]:
    sheet = read_workbook(world.office.context.files.read(BOOK))[SHEET]
    return {(row[0], row[2]): (row[4], row[5]) for row in sheet[1:]}


FULL = f"gs://{BUCKET}/{REPORT}"
NEAR_MISSES: dict[str, tuple[Change, str]] = {
    "readings rounded": (cells("reading", lambda cell: str(round(float(cell)) + 1)), "reading of"),
    "very many blanks": (cells("timestamp", lambda cell: "x" + " " * 100_000 + "x"), "is missing"),
    "ranges turned round": (cells("normal_range", lambda cell: " - ".join(cell.split(" - ")[::-1])), "normal_range"),
    "one limit": (cells("normal_range", lambda cell: cell.split(" - ")[0]), "normal_range"),
    "ranges of last year": (
        cells("normal_range", lambda cell: " - ".join(str(float(limit) * 0.9) for limit in cell.split(" - "))), "normal_range"
    ),
    "not uploaded": (drop("objects", REPORT), f"{FULL}: not found"),
    "an old report in the bucket": (
        lambda world: world.office.get(GoogleCloud).storage.put_object(BUCKET, REPORT, ",".join(COLUMNS)), f"gs://{BUCKET}: "
    ),
    "no text in the bucket": (
        lambda world: world.office.get(GoogleCloud).storage.put_object(BUCKET, REPORT, b"\xff\xfe"), "not a text file"
    ),
}  # fmt: skip
EQUIVALENTS: dict[str, Change] = {
    "moments without a zone": cells("timestamp", lambda cell: cell.removesuffix("Z")),
    "moments as the console shows them": cells(
        "timestamp", lambda cell: cell.replace("T", " ").replace("Z", " UTC")
    ),
    "another zone": cells(
        "timestamp",
        lambda cell: cell.replace("T11:", "T13:").replace("T12:", "T14:").replace("Z", "+02:00"),
    ),
    "more decimals": cells("reading", lambda cell: f"{float(cell):.4f}"),
    "ranges with other blanks and zeros": cells(
        "normal_range", lambda cell: "-".join(f"{float(limit):.2f}" for limit in cell.split(" - "))
    ),
    "a table written to as it was": call(
        "bigquery_run_query",
        query=f"UPDATE {DATASET}.{TABLE} SET reading = reading WHERE machine_id < 'N'",
    ),
}


test_near_misses_fail, test_equivalents_pass = final_state_tests(
    TASK, NEAR_MISSES, EQUIVALENTS, length=16_000, seed=1
)


@pytest.mark.parametrize("seed", range(3))
def test_the_truth_reading_by_reading(seed: int) -> None:
    world = fresh(TASK, 32_000, seed)
    ranges = ranges_of(world)
    wanted, at_limits, spared = set(), 0, 0
    rows = world.office.get(GoogleCloud).bigquery.rows(DATASET, TABLE)
    for row in rows:
        assert row["timestamp"][-1] == "Z"
        if not "2025-08-19T11:30:00" <= row["timestamp"][:-1] <= "2025-08-19T12:30:00":
            continue
        if (row["machine_id"], row["sensor_type"]) not in ranges:
            spared += 1
            continue
        low, high = (Decimal(str(limit)) for limit in ranges[row["machine_id"], row["sensor_type"]])
        reading = Decimal(str(row["reading"]))
        at_limits += reading in (low, high)
        if reading < low or reading > high:
            wanted.add((row["timestamp"][:-1], row["machine_id"], row["sensor_type"], reading))
    truth = [
        (r["timestamp"][:19], r["machine_id"], r["sensor_type"], Decimal(str(r["reading"])))
        for r in world.truth["anomalies"]
    ]
    assert set(truth) == wanted
    assert len(truth) == len(wanted) > 0
    assert at_limits > 0
    assert spared > 0
    assert len({tuple(row.values())[:3] for row in rows}) == len(rows), (
        "a sensor has one reading at a moment"
    )
    assert len(wanted) < 0.5 * len(rows)
