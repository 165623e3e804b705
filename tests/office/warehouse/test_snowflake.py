"""Snowflake: queries, long results and random changes; `recorded/snowflake.txt` has the rest."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.loca.results import data_rows
from agentgym.office.warehouse.snowflake import Snowflake
from tests.office.test_laws import call, refused
from tests.office.test_sessions import prepared

PAID = "PURCHASE_INVOICE.PUBLIC.INVOICE_PAYMENTS"
# Statements on the tables of recorded/snowflake.txt, and their rows as JSON.
QUERIES = Path(__file__).with_name("snowflake_queries.tsv").read_text(encoding="utf-8").splitlines()


def shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@pytest.mark.parametrize("line", [line for line in QUERIES if not line.startswith("#")])
def test_queries(line: str) -> None:
    query, rows = line.split("\t")
    found = data_rows(call(prepared("snowflake"), "read_query", query=query))
    expected = [[shown(value) for value in row] for row in json.loads(rows)]
    assert [list(row.values()) for row in found] == expected


def test_a_long_result_is_cut() -> None:
    query = "SELECT REPEAT('x', 1000) AS s FROM TABLE(GENERATOR(ROWCOUNT => 2000))"
    answer = call(Snowflake(), "read_query", query=query)
    assert "\nnote: Only the first 1039 of 2000 rows are shown, because" in answer
    assert len(data_rows(answer)) == 1039


def test_a_name_without_a_database_needs_a_current_one() -> None:
    refused(Snowflake(), "read_query", "no current database", query="SELECT * FROM t")


def test_random_changes_agree_with_a_model() -> None:
    rng = random.Random(8)
    server: Any = prepared("snowflake")
    model: dict[str, int] = {"INT-1": 0, "INT-2": 1, "INT-3": 1}
    for step in range(40):
        key = f"INT-{rng.randrange(8)}"
        what = rng.choice(["merge", "update", "delete"])
        if what == "merge":
            server.write_query(
                f"MERGE INTO invoice_payments t USING (SELECT '{key}' AS k) s ON t.invoice_id = s.k WHEN MATCHED THEN UPDATE SET "
                f"outstanding_flag = {step} WHEN NOT MATCHED THEN INSERT (invoice_id, outstanding_flag) VALUES (s.k, {step})"
            )
            model[key] = step
        elif what == "update":
            server.write_query(
                f"UPDATE invoice_payments SET outstanding_flag = outstanding_flag + 1 WHERE invoice_id <> '{key}'"
            )
            model = {k: v if k == key else v + 1 for k, v in model.items()}
        else:
            server.write_query(f"DELETE FROM invoice_payments WHERE invoice_id = '{key}'")
            model.pop(key, None)
        assert {row["INVOICE_ID"]: row["OUTSTANDING_FLAG"] for row in server.rows(PAID)} == model
