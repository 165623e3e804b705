"""BigQuery: queries, exports and random changes; `recorded/google_cloud.txt` has the rest."""

from __future__ import annotations

import json
import pickle
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym.envs.loca.results import query_rows
from agentgym.office.gcloud.google_cloud import GoogleCloud
from tests.office.test_laws import digest, draw_call, run

# Statements on the tables below, and their rows as JSON.
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


def effects(answer: str) -> dict[str, int]:
    _, mark, effect = answer.partition("\n\nNo rows: ")
    assert mark
    return {part.split()[2]: int(part.split()[0]) for part in effect.split(", ")}


def copy_of(server: GoogleCloud) -> GoogleCloud:
    copied: GoogleCloud = pickle.loads(pickle.dumps(server))
    return copied


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


def test_random_changes_agree_with_a_model() -> None:
    """The model is a dict; occasionally a copy takes over."""
    rng = random.Random(3)
    server, model, next_id = GoogleCloud(), {}, 0
    server.bigquery.load("d", "t", {"id": "INT64", "v": "INT64"}, [])
    for step in range(60):
        low, high = sorted(rng.sample(range(-1, 30), 2))
        what = rng.choice(["insert", "insert", "update", "delete"])
        if what == "insert":
            value = rng.randrange(9)
            server.bigquery.bigquery_run_query(
                f"INSERT d.t (id, v) VALUES ({next_id}, {value}), ({next_id + 1}, NULL)"
            )
            model |= {next_id: value, next_id + 1: None}
            next_id += 2
        elif what == "update":
            shown = server.bigquery.bigquery_run_query(
                f"UPDATE d.t SET v = IFNULL(v, 0) + 1 WHERE id BETWEEN {low} AND {high}"
            )
            hit = [key for key in model if low <= key <= high]
            assert effects(shown) == {"updated": len(hit)}
            model |= {key: (model[key] or 0) + 1 for key in hit}
        else:
            server.bigquery.bigquery_run_query(
                f"DELETE FROM d.t WHERE id BETWEEN {low} AND {low + 2}"
            )
            model = {key: value for key, value in model.items() if not low <= key <= low + 2}
        if step % 20 == 19:
            server = copy_of(server)
        assert dict(ask(server, "SELECT id, v FROM d.t")) == model
