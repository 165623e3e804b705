"""Snowflake: queries, long results and changes. Other tests are in `recorded/snowflake.txt`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.loca.results import data_rows
from agentgym.office.warehouse.snowflake import Snowflake
from tests.office.test_laws import call, refused
from tests.office.test_sessions import prepared

PAID = "PURCHASE_INVOICE.PUBLIC.INVOICE_PAYMENTS"
# SQL statements on the tables of recorded/snowflake.txt, with the resulting rows as JSON.
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
