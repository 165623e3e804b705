"""BigQuery: GoogleSQL against hand-computed rows, the eight tools, jobs and files."""

from __future__ import annotations

import pickle
import random
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from agentgym.envs.loca.results import listed_items, query_rows
from agentgym.office.gcloud.cloud import PROJECT
from agentgym.text.tools import ToolError
from tests.office.direct import DirectCloud
from tests.office.test_laws import digest, draw_call, run

SALES = [
    (1, "north", "2025-01-05", 10.0, "a"),
    (2, "north", "2025-01-06", 30.0, "b"),
    (3, "south", "2025-02-01", 5.0, None),
    (4, "south", "2025-02-28", None, "a"),
    (5, "west", "2025-03-31", 7.5, "c"),
]


@pytest.fixture
def server() -> DirectCloud:
    made = DirectCloud()
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


def ask(server: DirectCloud, query: str) -> list[tuple[Any, ...]]:
    answer = server.bigquery_run_query(query)
    return [tuple(row.values()) for row in query_rows(answer)]


QUERIES: dict[str, list[tuple[Any, ...]]] = {
    # Names with and without the project, in one or three pairs of backticks, and unquoted with a
    # hyphen.
    f"SELECT id FROM `{PROJECT}.shop.sales` WHERE id < 2": [(1,)],
    f"SELECT id FROM `{PROJECT}`.`shop`.`sales` WHERE id < 2": [(1,)],
    f"SELECT s.id FROM {PROJECT}.shop.sales AS s WHERE s.id < 2": [(1,)],
    "SELECT sales.id FROM shop.sales WHERE shop.sales.id < 2": [(1,)],
    # Common table expressions, QUALIFY, windows.
    "WITH r AS (SELECT region, SUM(amount) AS s FROM shop.sales GROUP BY region) SELECT * FROM r WHERE s > 6 ORDER BY s": [
        ("west", 7.5), ("north", 40.0),
    ],
    "SELECT region, id FROM shop.sales QUALIFY ROW_NUMBER() OVER (PARTITION BY region ORDER BY day DESC) = 1 ORDER BY 1": [
        ("north", 2), ("south", 4), ("west", 5),
    ],
    "SELECT id, SUM(amount) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) FROM shop.sales ORDER BY id": [
        (1, 10.0), (2, 40.0), (3, 45.0), (4, 45.0), (5, 52.5),
    ],
    "WITH RECURSIVE n AS (SELECT 1 AS k UNION ALL SELECT k * 2 FROM n WHERE k < 8) SELECT * FROM n ORDER BY k": [(1,), (2,), (4,), (8,)],
    # Arrays and structs.
    "SELECT ARRAY_AGG(id ORDER BY amount DESC), ARRAY_AGG(DISTINCT region ORDER BY region) FROM shop.sales WHERE id < 3": [
        ([2, 1], ["north"]),
    ],
    "SELECT STRING_AGG(code, '-' ORDER BY id), STRING_AGG(DISTINCT code, ',' ORDER BY code DESC) FROM shop.sales": [
        ("a-b-a-c", "c,b,a"),
    ],
    "SELECT x, o FROM UNNEST(['p', 'q']) AS x WITH OFFSET AS o ORDER BY o": [("p", 0), ("q", 1)],
    "SELECT id, x FROM shop.sales, UNNEST([id, id * 10]) AS x WHERE id = 2 ORDER BY x": [(2, 2), (2, 20)],
    "SELECT p.b, p.a FROM UNNEST([STRUCT(1 AS a, 'x' AS b), (2, 'y')]) AS p ORDER BY p.a": [("x", 1), ("y", 2)],
    "SELECT [1, 2][OFFSET(0)], [1, 2][ORDINAL(2)], SPLIT('a,b', ',')[SAFE_OFFSET(5)], ARRAY_LENGTH([1, 2]), 2 IN UNNEST([1, 2])": [
        (1, 2, None, 2, True),
    ],
    "SELECT STRUCT(1 AS a, 'x' AS b) AS s": [({"a": 1, "b": "x"},)],
    # `/` returns a fraction, DIV and MOD truncate towards zero, casts round away from
    # zero.
    "SELECT 7 / 2, DIV(-7, 2), MOD(-7, 2), SAFE_DIVIDE(1, 0), SAFE_DIVIDE(1, 4), CAST(2.5 AS INT64), CAST(-2.5 AS INT64), ROUND(2.5)": [
        (3.5, -3, -1, None, 0.25, 3, -3, 3.0),
    ],
    "SELECT NUMERIC '0.1' + NUMERIC '0.2' = NUMERIC '0.3', 0.1 + 0.2 = 0.3, GREATEST(1, NULL), CONCAT('a', NULL)": [
        (True, False, None, None),
    ],
    "SELECT CAST('12' AS INT64), SAFE_CAST('1.5' AS INT64), CAST(1.0 AS STRING), CAST(TRUE AS STRING), SAFE_CAST('x' AS FLOAT64)": [
        (12, None, "1", "true", None),
    ],
    # Weeks start on Sunday (5 January 2025 is one), weekdays count from Sunday = 1.
    "SELECT EXTRACT(DAYOFWEEK FROM day), EXTRACT(WEEK FROM day), EXTRACT(ISOWEEK FROM day) FROM shop.sales WHERE id = 1": [(1, 1, 1)],
    "SELECT DATE_TRUNC(DATE '2025-01-15', WEEK), DATE_TRUNC(DATE '2025-01-15', ISOWEEK), DATE_TRUNC(DATE '2025-01-15', MONTH)": [
        ("2025-01-12", "2025-01-13", "2025-01-01"),
    ],
    "SELECT DATE_ADD(DATE '2025-01-31', INTERVAL 1 MONTH), DATE_SUB(DATE '2025-01-01', INTERVAL 1 DAY), LAST_DAY(DATE '2024-02-03')": [
        ("2025-02-28", "2024-12-31", "2024-02-29"),
    ],
    "SELECT DATE_DIFF(DATE '2025-01-05', DATE '2025-01-04', WEEK), DATE_DIFF(DATE '2025-03-01', DATE '2025-02-01', DAY)": [(1, 28)],
    "SELECT TIMESTAMP_DIFF(TIMESTAMP '2025-01-01 02:00:00', TIMESTAMP '2025-01-01 00:30:00', HOUR), "
    "DATETIME_DIFF(DATETIME '2025-01-02 00:00:00', DATETIME '2025-01-01 23:00:00', DAY)": [(1, 1)],
    "SELECT FORMAT_DATE('%d/%m/%Y', DATE '2025-02-03'), PARSE_DATE('%m/%d/%Y', '01/02/2025'), FORMAT('%05d|%s', 42, 'x')": [
        ("03/02/2025", "2025-01-02", "00042|x"),
    ],
    "SELECT CURRENT_DATE(), CURRENT_TIMESTAMP(), CURRENT_DATETIME('Asia/Tokyo')": [
        ("2025-01-15", "2025-01-15T09:00:00Z", "2025-01-15T18:00:00"),
    ],
    "SELECT v FROM shop.live WHERE ts BETWEEN '2025-08-19 11:30:00' AND TIMESTAMP '2025-08-19 12:30:00+00' ORDER BY ts": [(11.0,), (12.0,)],
    "SELECT PARSE_TIMESTAMP('%Y-%m-%d %H:%M', '2025-01-02 03:04'), TIMESTAMP_TRUNC(ts, DAY), EXTRACT(DATE FROM ts) "
    "FROM shop.live WHERE v = 11": [("2025-01-02T03:04:00Z", "2025-08-19T00:00:00Z", "2025-08-19")],
    # NULLs come first, and last when descending.
    "SELECT code FROM shop.sales ORDER BY code, id": [(None,), ("a",), ("a",), ("b",), ("c",)],
    "SELECT amount FROM shop.sales ORDER BY amount DESC LIMIT 5": [(30.0,), (10.0,), (7.5,), (5.0,), (None,)],
    # UNPIVOT, set operations, EXCEPT of columns, the information schema.
    "SELECT k, v FROM (SELECT 1 AS a, 2 AS b) UNPIVOT(v FOR k IN (a, b)) ORDER BY k": [("a", 1), ("b", 2)],
    "SELECT 1 UNION ALL SELECT 2 EXCEPT DISTINCT SELECT 1": [(2,)],
    "SELECT * EXCEPT (amount, code) REPLACE (id + 1 AS id) FROM shop.sales WHERE id = 1": [(2, "north", "2025-01-05")],
    "SELECT table_name, table_type FROM shop.INFORMATION_SCHEMA.TABLES ORDER BY 1 LIMIT 2": [("ab_one", "BASE TABLE"), ("ab_two", "BASE TABLE")],
    f"SELECT column_name, data_type FROM `{PROJECT}.shop.INFORMATION_SCHEMA.COLUMNS` WHERE table_name = 'sales' AND ordinal_position < 4": [
        ("id", "INT64"), ("region", "STRING"), ("day", "DATE"),
    ],
    "SELECT schema_name FROM INFORMATION_SCHEMA.SCHEMATA": [("shop",)],
    "SELECT table_id, row_count FROM shop.__TABLES__ WHERE table_id LIKE 'ab%' ORDER BY 1": [("ab_one", 3), ("ab_two", 1)],
    # JSON and texts.
    "SELECT JSON_VALUE('{\"a\": {\"b\": 1}}', '$.a.b'), TO_JSON_STRING(STRUCT(1 AS a)), REGEXP_EXTRACT('ab12', r'(\\d+)')": [
        ("1", '{"a":1}', "12"),
    ],
    "SELECT REGEXP_EXTRACT('ab', r'\\d'), REGEXP_CONTAINS('ab', 'b$'), SUBSTR('abc', -2), SAFE.PARSE_DATE('%Y', 'x')": [
        (None, True, "bc", None),
    ],
    "SELECT COUNTIF(amount > 6), IF(COUNT(*) > 4, 'many', 'few'), IFNULL(MAX(NULL), 0), APPROX_COUNT_DISTINCT(region) FROM shop.sales": [
        (3, "many", 0, 3),
    ],
}  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
def test_queries(server: DirectCloud, query: str) -> None:
    assert ask(server, query) == QUERIES[query]


def test_a_result_has_the_number_of_rows(server: DirectCloud) -> None:
    shown = server.bigquery_run_query(
        "SELECT id, COUNT(*), [1] AS list, day FROM shop.sales GROUP BY id, day ORDER BY id",
        max_results=2,
    )
    assert shown == (
        "Query executed successfully\nTotal rows: 5\nExecution time: 1000ms\n\nResults (2 rows):\n"
        "Only the first 2 of 5 rows are shown, because of the limit on their number; use LIMIT and OFFSET.\n"
        '[\n  {\n    "id": 1,\n    "f0_": 1,\n    "list": [\n      1\n    ],\n    "day": "2025-01-05"\n  },\n'
        '  {\n    "id": 2,\n    "f0_": 1,\n    "list": [\n      1\n    ],\n    "day": "2025-01-06"\n  }\n]'
    )
    assert server.bigquery_run_query("SELECT 1 FROM shop.sales WHERE FALSE") == (
        "Query executed successfully\nTotal rows: 0\nExecution time: 1000ms\n\nNo rows."
    )
    statement = "DELETE FROM shop.sales WHERE TRUE"
    assert server.bigquery_run_query(statement, dry_run=True) == (
        "Query executed successfully\nTotal rows: 0\nExecution time: 0ms\n\n"
        "No rows: a dry run checks the statement (DELETE) and runs nothing."
    )
    for statement, error in (
        ("SELECT id FROM shop.nope", "not found: there is no table shop.nope"),
        ("SELECT nope FROM shop.sales", 'Referenced column "nope" not found'),
        ("SELECT id + code FROM shop.sales", "No function matches|Could not|Cannot"),
    ):
        with pytest.raises(ToolError, match=error):
            server.bigquery_run_query(statement, dry_run=True)
    assert "(SELECT)" in server.bigquery_run_query(
        "SELECT 1 / (id - 1) FROM shop.sales", dry_run=True
    )
    assert len(server.bigquery.rows("shop", "sales")) == 5


def test_random_functions_depend_on_the_statement_only(server: DirectCloud) -> None:
    query = "SELECT RAND() AS r, GENERATE_UUID() AS u FROM shop.sales"
    assert ask(server, query) == ask(server, query) == ask(copy_of(server), query)
    assert len({row[0] for row in ask(server, query)}) == 5


def effects(answer: str) -> dict[str, int]:
    _, mark, effect = answer.partition("\n\nNo rows: ")
    assert mark
    return {part.split()[2]: int(part.split()[0]) for part in effect.split(", ")}


def copy_of(server: DirectCloud) -> DirectCloud:
    copied: DirectCloud = pickle.loads(pickle.dumps(server))
    return copied


def test_rows_are_changed_and_counted(server: DirectCloud) -> None:
    def change(query: str) -> dict[str, int]:
        return effects(server.bigquery_run_query(query))

    assert change("INSERT shop.sales (id, region) VALUES (6, 'east'), (7, 'east')") == {
        "inserted": 2
    }
    assert change(
        "UPDATE shop.sales SET amount = amount * 2, code = 'z' WHERE region = 'north'"
    ) == {"updated": 2}
    assert change("DELETE shop.sales WHERE id > 5") == {"deleted": 2}
    merged = change(
        "MERGE shop.sales AS t USING (SELECT 1 AS id, 'n' AS r UNION ALL SELECT 9, 'new') AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET t.region = s.r WHEN NOT MATCHED THEN INSERT (id, region) VALUES (s.id, s.r)"
    )
    assert merged == {"inserted": 1, "updated": 1}
    assert ask(server, "SELECT id, region, amount FROM shop.sales ORDER BY id") == [
        (1, "n", 20.0), (2, "north", 60.0), (3, "south", 5.0), (4, "south", None), (5, "west", 7.5), (9, "new", None),
    ]  # fmt: skip
    for refused in ("UPDATE shop.sales SET id = 1", "DELETE FROM shop.sales"):
        with pytest.raises(ToolError, match="must have a WHERE clause"):
            server.bigquery_run_query(refused)
    with pytest.raises(ToolError, match="division by zero"):
        server.bigquery_run_query("SELECT id / (id - 1) FROM shop.sales")
    assert change("TRUNCATE TABLE shop.sales") == {"deleted": 6}


def test_tables_are_defined_and_altered(server: DirectCloud) -> None:
    server.bigquery_run_query(
        "CREATE TABLE shop.c (id INT64 NOT NULL OPTIONS(description = 'the key'), s STRUCT<a STRING, b ARRAY<INT64>>, n NUMERIC, "
        "at TIMESTAMP DEFAULT CURRENT_TIMESTAMP(), PRIMARY KEY (id) NOT ENFORCED) OPTIONS(description = 'all of them')"
    )
    server.bigquery_run_query(
        "INSERT shop.c (id, s, n) VALUES (1, STRUCT('q', [1, 2]), 123456789012345678.123456789)"
    )
    assert server.bigquery.rows("shop", "c") == [
        {
            "id": 1,
            "s": {"a": "q", "b": [1, 2]},
            "n": "123456789012345678.123456789",
            "at": "2025-01-15T09:00:01Z",
        }
    ]
    for statement in (
        "ALTER TABLE shop.c ADD COLUMN z INT64 OPTIONS(description = 'more')",
        "ALTER TABLE shop.c ADD COLUMN IF NOT EXISTS z INT64",
        "ALTER TABLE shop.c ALTER COLUMN n SET OPTIONS (description = 'number')",
        "ALTER TABLE shop.c DROP COLUMN s",
        "ALTER TABLE shop.c RENAME COLUMN z TO zz",
        "ALTER TABLE shop.c RENAME TO d",
    ):
        server.bigquery_run_query(statement)
    assert server.bigquery.comments("shop", "d") == {
        "id": "the key",
        "n": "number",
        "at": "",
        "zz": "more",
    }
    assert server.engine.tables["shop", "d"].comment == "all of them"
    assert ask(
        server,
        "SELECT column_name, data_type, is_nullable, description FROM shop.INFORMATION_SCHEMA.COLUMNS "
        "WHERE table_name = 'd' AND ordinal_position = 1",
    ) == [("id", "INT64", "NO", "the key")]
    server.bigquery_run_query(
        "CREATE OR REPLACE TABLE shop.d AS SELECT id, COUNT(*) AS n FROM shop.d GROUP BY id"
    )
    server.bigquery_run_query("CREATE VIEW shop.v AS SELECT n FROM shop.d")
    assert ask(server, "SELECT * FROM shop.v") == [(1,)]
    for statement, error in (
        ("CREATE TABLE shop.d (a INT64)", "conflict: shop.d already exists"),
        ("CREATE TABLE nope.d (a INT64)", "not found: there is no dataset nope"),
        ("DROP TABLE shop.nope", "not found: there is no table shop.nope"),
        ("DROP SCHEMA shop", "conflict: shop is still in use: it has 6 tables"),
        ("CREATE SCHEMA shop", "conflict: shop already exists"),
        (
            "SELECT * FROM `other-project.shop.d`",
            "permission denied: there is no access to project",
        ),
        ("SELECT * FROM sales", "must be qualified with a dataset"),
        ("SELECT nope FROM shop.d", 'invalid argument: Referenced column "nope" not found'),
        ("SELECT FOO(1)", "invalid argument: function not found"),
        ("INSERT INTO shop.v VALUES (1)", "shop.v is a view"),
        (
            "SELECT a.id, b.id FROM shop.d a, shop.d b",
            "several columns of the result are called id",
        ),
    ):
        with pytest.raises(ToolError, match=error):
            server.bigquery_run_query(statement)
    server.bigquery_run_query("DROP SCHEMA shop CASCADE")
    assert server.bigquery_list_datasets() == "There are no datasets."


def test_datasets(server: DirectCloud) -> None:
    made = server.bigquery_create_dataset("crm", "customers", "EU")
    assert made == "Created dataset crm in EU"
    assert server.bigquery_get_dataset_info("crm") == (
        "Dataset crm\nFull Name: local-project:crm\nLocation: EU\nDescription: customers\n"
        "Created: 2025-01-15T09:00:01Z\nModified: 2025-01-15T09:00:01Z\nLabels: None"
    )
    assert server.bigquery_list_datasets() == (
        "Datasets (2):\n- crm (Project: local-project)\n- shop (Project: local-project)"
    )
    with pytest.raises(ToolError, match="conflict: Already Exists"):
        server.bigquery_create_dataset("crm")
    for wrong in ("", "a-b", "é", "a.b", "x" * 2000):
        with pytest.raises(ToolError, match=r"invalid argument|permission denied"):
            server.bigquery_create_dataset(wrong)
    with pytest.raises(ToolError, match=f"not found: Not found: Dataset {PROJECT}:nope"):
        server.bigquery_get_dataset_info("nope")


@pytest.mark.parametrize(
    "statement",
    [
        "DECLARE x INT64 DEFAULT 1",
        "-- a comment\n/* another */ begin transaction; SELECT 1",
        "SET x = 1",
        "IF TRUE THEN SELECT 1; END IF",
        "FOR r IN (SELECT 1) DO SELECT 1; END FOR",
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "CALL shop.f()",
        "CREATE FUNCTION f(x) AS x",
        "CREATE OR REPLACE TABLE FUNCTION shop.f() AS SELECT 1",
        "CREATE PROCEDURE shop.f() BEGIN SELECT 1; END",
        "DROP FUNCTION shop.f",
        "CREATE TEMP TABLE x AS SELECT 1 AS x",
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_the_procedural_language_is_not_enabled(
    server: DirectCloud, statement: str, dry_run: bool
) -> None:
    with pytest.raises(ToolError, match="not enabled for this project"):
        server.bigquery_run_query(statement, dry_run)


def test_jobs_are_listed(server: DirectCloud) -> None:
    ask(server, "SELECT 1 AS a")
    server.bigquery_run_query("DELETE FROM shop.sales WHERE id = 1")
    with pytest.raises(ToolError):
        server.bigquery_run_query("SELECT nope")
    jobs = listed_items(server.bigquery_list_jobs())
    assert [job.partition(": ")[2] for job in jobs] == [
        "QUERY DELETE (1 rows deleted), DONE, 2025-01-15T09:00:02Z",
        "QUERY SELECT, DONE, 2025-01-15T09:00:01Z",
    ]
    assert listed_items(server.bigquery_list_jobs(1)) == jobs[:1]
    assert server.bigquery_list_jobs(state_filter="running") == "There are no such jobs."


def test_laws_of_servers_hold_for_this_part_alone() -> None:
    rng = np.random.default_rng(11)
    server, again = DirectCloud(), DirectCloud()
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
    server, model, next_id = DirectCloud(), {}, 0
    server.bigquery.load("d", "t", {"id": "INT64", "v": "INT64"}, [])
    for step in range(60):
        low, high = sorted(rng.sample(range(-1, 30), 2))
        what = rng.choice(["insert", "insert", "update", "delete"])
        if what == "insert":
            value = rng.randrange(9)
            server.bigquery_run_query(
                f"INSERT d.t (id, v) VALUES ({next_id}, {value}), ({next_id + 1}, NULL)"
            )
            model |= {next_id: value, next_id + 1: None}
            next_id += 2
        elif what == "update":
            shown = server.bigquery_run_query(
                f"UPDATE d.t SET v = IFNULL(v, 0) + 1 WHERE id BETWEEN {low} AND {high}"
            )
            hit = [key for key in model if low <= key <= high]
            assert effects(shown) == {"updated": len(hit)}
            model |= {key: (model[key] or 0) + 1 for key in hit}
        else:
            server.bigquery_run_query(f"DELETE FROM d.t WHERE id BETWEEN {low} AND {low + 2}")
            model = {key: value for key, value in model.items() if not low <= key <= low + 2}
        if step % 20 == 19:
            server = copy_of(server)
        assert dict(ask(server, "SELECT id, v FROM d.t")) == model
