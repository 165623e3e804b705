"""BigQuery: queries, exports and random changes. Other tests are in `recorded/google_cloud.txt`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym.envs.loca.results import query_rows
from agentgym.office.gcloud.google_cloud import GoogleCloud
from tests.office.test_laws import digest, draw_call, run

# SQL statements on the test tables, with the resulting rows as JSON.
QUERIES = Path(__file__).with_name("bigquery_queries.tsv").read_text(encoding="utf-8").splitlines()

SALES = [
    (1, "north", "2025-01-05", 10.0, "a"),
    (2, "north", "2025-01-06", 30.0, "b"),
    (3, "south", "2025-02-01", 5.0, None),
    (4, "south", "2025-02-28", None, "a"),
    (5, "west", "2025-03-31", 7.5, "c"),
]


@pytest.fixture
def server() -> GoogleCloud:
    made = GoogleCloud()
    columns = {
        "id": "INT64",
        "region": "STRING",
        "day": "DATE",
        "amount": "FLOAT64",
        "code": "STRING",
    }
    made.bigquery.load("shop", "sales", columns, SALES)
    made.bigquery.load(
        "shop", "ab_one", {"clicks": "INT64", "views": "INT64"}, [(10, 7), (0, 0), (10, 9)]
    )
    made.bigquery.load("shop", "ab_two", {"clicks": "INT64", "views": "INT64"}, [(5, 1)])
    made.bigquery.load(
        "shop",
        "live",
        {"ts": "TIMESTAMP", "v": "FLOAT64"},
        [(datetime(2025, 8, 19, h, 30, tzinfo=UTC), float(h)) for h in (11, 12, 13)],
    )
    return made


def ask(server: GoogleCloud, query: str) -> list[tuple[Any, ...]]:
    answer = server.bigquery.bigquery_run_query(query)
    return [tuple(row.values()) for row in query_rows(answer)]


@pytest.mark.parametrize("line", [line for line in QUERIES if not line.startswith("#")])
def test_queries(server: GoogleCloud, line: str) -> None:
    query, rows = line.split("\t")
    assert [list(row) for row in ask(server, query)] == json.loads(rows)


def test_laws_of_servers_hold_for_this_part_alone() -> None:
    rng = np.random.default_rng(11)
    server, again = GoogleCloud(), GoogleCloud()
    for each in (server, again):
        each.bigquery.load("a", "t", {"x": "INT64"}, [(1,)])
    calls = (draw_call(server, rng) for _ in range(600))
    for tool, arguments in (each for each in calls if each[0].startswith("bigquery_")):
        before = digest(server)
        shown = run(server, tool, arguments)
        assert shown == run(again, tool, arguments)
        if shown.startswith("error:"):
            assert digest(server) == before, (tool, arguments)
