from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
import tomllib
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.loca.results import data_rows, query_rows
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.office.store import Store
from agentgym.office.warehouse.dialects.bigquery import bigquery_type
from agentgym.office.warehouse.snowflake import Snowflake
from agentgym.office.warehouse.values import from_bigquery, from_snowflake, snowflake_type
from agentgym.text.tools import ToolError, tools_of
from tests.helpers import calls_of
from tests.office.warehouse.test_snowflake import shown

# Statements by expected outcome.
BANK = tomllib.loads(Path(__file__).with_name("engine.toml").read_text(encoding="utf-8"))
STAFF = [(1, "Ann", 3.5), (2, "Bob", None), (3, None, -1.0), (4, "Bob", 2.25)]


def bigquery() -> GoogleCloud:
    server = GoogleCloud()
    server.bigquery.load(
        "ds", "staff", {"id": "INT64", "name": "STRING", "score": "FLOAT64"}, STAFF
    )
    return server


def snowflake() -> Snowflake:
    server = Snowflake()
    server.load("DB.PUBLIC.STAFF", {"ID": "INTEGER", "NAME": "VARCHAR", "SCORE": "FLOAT"}, STAFF)
    return server


def ask(server: GoogleCloud, query: str) -> list[dict[str, Any]]:
    return query_rows(server.bigquery.bigquery_run_query(query))


def test_a_server_that_is_not_asked_costs_nothing() -> None:
    server = bigquery()
    assert server.engine._live is None
    copied = copy.deepcopy(server)
    assert copied.engine._live is None
    assert server.engine.tables["ds", "staff"].data is copied.engine.tables["ds", "staff"].data


def refusals() -> list[tuple[str, str]]:
    queries = [*BANK["foreign"], *BANK["writes"]]
    changes = {
        "write_query": [*BANK["reads"], *BANK["failing"]],
        "create_table": ["DELETE FROM staff", "SELECT 1"],
    }
    return [
        *(("bigquery_run_query", query) for query in BANK["foreign"]),
        *(("read_query", query) for query in queries),
        *((tool, query) for tool, listed in changes.items() for query in listed),
    ]


@pytest.mark.parametrize(("tool", "query"), refusals())
def test_a_refused_statement_changes_nothing(tool: str, query: str) -> None:
    server = bigquery() if tool.startswith("bigquery") else snowflake()
    before = pickle.dumps(server)
    with pytest.raises(ToolError, match=r"^(invalid|not|permission|conflict)[a-z ]*: "):
        tools_of(server)[tool]({"query": query})
    assert pickle.dumps(server) == before


@pytest.mark.parametrize("query", BANK["reads"])
def test_what_only_reads_is_told_from_the_tree(query: str) -> None:
    assert data_rows(snowflake().read_query(query))


def test_a_connection_that_is_asked_directly_is_locked_too() -> None:
    server = bigquery()
    ask(server, "SELECT 1 AS a")
    live = server.engine._live
    assert live is not None
    words = STAFF  # DuckDB could read a local variable as a table
    assert words
    for statement in (
        "SET threads = 2",
        "SELECT * FROM read_text('/etc/passwd')",
        "COPY (SELECT 1) TO '/tmp/x'",
        "SELECT * FROM words",
    ):
        with pytest.raises(ToolError, match=r"locked|disabled|does not exist"):
            live.request("execute", [(statement, ())])


def test_rows_and_bytes_are_limited() -> None:
    server = bigquery()
    shown = server.bigquery.bigquery_run_query(
        "SELECT x FROM UNNEST(GENERATE_ARRAY(1, 5000)) AS x ORDER BY x"
    )
    assert len(query_rows(shown)) == 1000
    assert "\nTotal rows: 5000\n" in shown
    assert (
        "\nOnly the first 1000 of 5000 rows are shown, because of the limit on their number"
        in shown
    )
    shown = server.bigquery.bigquery_run_query(
        "SELECT REPEAT('x', 1000) AS s FROM UNNEST(GENERATE_ARRAY(1, 2000)) AS x", max_results=2000
    )
    assert len(shown) < 1.2 * 2**20
    assert "a result holds at most 1048576 bytes" in shown
    with pytest.raises(ToolError, match=r"limit exceeded|nested too deeply|invalid argument"):
        server.bigquery.bigquery_run_query("SELECT " + "(" * 20_000 + "1" + ")" * 20_000)
    with pytest.raises(ToolError, match="may have at most 100000 characters"):
        server.bigquery.bigquery_run_query("SELECT '" + "x" * 100_000 + "'")
    assert ask(server, "SELECT COUNT(*) AS n FROM ds.staff") == [{"n": 4}]


def test_copies_go_on_apart_with_rows_comments_and_definitions() -> None:
    server = snowflake()
    server.write_query(
        "CREATE TABLE t (a INT NOT NULL PRIMARY KEY COMMENT 'key', b VARCHAR DEFAULT 'x') COMMENT = 'all'"
    )
    server.write_query("INSERT INTO t (a) SELECT 1")
    for other in (copy.deepcopy(server), pickle.loads(pickle.dumps(server))):
        assert pickle.dumps(other.engine) == pickle.dumps(server.engine)
        assert other.describe_table("db.public.t") == server.describe_table("db.public.t")
        other.write_query("INSERT INTO t (a) VALUES (2)")
        assert data_rows(other.read_query("SELECT * FROM t ORDER BY a")) == [
            {"A": "1", "B": "x"},
            {"A": "2", "B": "x"},
        ]
        assert data_rows(server.read_query("SELECT * FROM t")) == [{"A": "1", "B": "x"}]
    server.close()
    assert data_rows(server.read_query("SELECT a FROM t")) == [{"A": "1"}]


VALUES: dict[str, list[Any]] = {
    "STRING": ["", "a'b\"c", "line\ntwo", "NULL", "{x}", " sp ", "é😀", "\\x41", None, "[1, 2]"],
    "INT64": [0, -(2**63), 2**63 - 1, None],
    "FLOAT64": [0.1, -1e300, 1e-300, 2.0, None],
    "NUMERIC": [
        Decimal("0.000000001"),
        Decimal("12345678901234567890123456789.123456789"),
        Decimal(5),
        None,
    ],
    "BOOL": [True, False, None],
    "DATE": [date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 29), None],
    "DATETIME": [datetime(2025, 1, 1, 0, 0, 0, 123456), datetime(1900, 1, 1), None],
    "TIMESTAMP": [datetime(2025, 6, 1, 12, tzinfo=UTC), datetime(2025, 6, 1, 23, 30), None],
    "BYTES": [b"", b"\x00\xffab", None],
    "ARRAY<INT64>": [[], [1, 2, None], None],
}
SHOWN = {
    "NUMERIC": ["1E-9", "12345678901234567890123456789.123456789", 5, None],
    "DATE": ["0001-01-01", "9999-12-31", "2024-02-29", None],
    "DATETIME": ["2025-01-01T00:00:00.123456", "1900-01-01T00:00:00", None],
    "TIMESTAMP": ["2025-06-01T12:00:00Z", "2025-06-01T23:30:00Z", None],
    "BYTES": ["", "AP9hYg==", None],
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
def test_values_come_back_as_they_were_put_in(kind: str) -> None:
    server = GoogleCloud()
    server.bigquery.load("ds", "t", {"v": kind}, [(value,) for value in VALUES[kind]])
    shown = [row["v"] for row in server.bigquery.rows("ds", "t")]
    expected = SHOWN.get(kind, VALUES[kind])
    assert [float(a) if kind == "NUMERIC" and a == 1e-9 else a for a in shown] == [
        1e-9 if b == "1E-9" else b for b in expected
    ]
    server.bigquery.bigquery_run_query("INSERT INTO ds.t (v) SELECT v FROM ds.t")
    copied = pickle.loads(pickle.dumps(server))
    assert [row["v"] for row in copied.bigquery.rows("ds", "t")] == [*shown, *shown]
    assert copied.engine.tables["ds", "t"].rows == 2 * len(shown)


def test_many_records_are_loaded_in_bulk() -> None:
    records = [(f"s{k}", k, k / 7, datetime(2025, 1, 1)) for k in range(20_000)]
    columns = {"a": "STRING", "b": "INT64", "c": "FLOAT64", "d": "DATETIME"}

    def load() -> None:
        server = GoogleCloud()
        server.bigquery.load("ds", "t", columns, records)
        assert ask(server, "SELECT COUNT(*) AS n, SUM(b) AS s FROM ds.t") == [
            {"n": 20_000, "s": 199_990_000}
        ]

    load()  # exclude one-time loading
    assert calls_of(load) < 100 * 20_000, "a statement for each record would take more"


def test_random_queries_agree_with_sqlite() -> None:
    """Plain SQL means the same in both dialects and in SQLite."""
    rng = random.Random(5)
    records = [
        (k, rng.choice(["x", "y", "z", None]), rng.choice([None, *range(-3, 4)])) for k in range(60)
    ]
    ours, theirs = GoogleCloud(), Snowflake()
    ours.bigquery.load("ds", "t", {"a": "INT64", "b": "STRING", "c": "INT64"}, records)
    theirs.load("D.PUBLIC.T", {"A": "INTEGER", "B": "VARCHAR", "C": "INTEGER"}, records)
    truth = Store("CREATE TABLE t (a INTEGER, b TEXT, c INTEGER)")._db
    truth.executemany("INSERT INTO t VALUES (?, ?, ?)", records)
    terms = (
        *("c > 0", "b = 'x'", "b IS NULL", "a BETWEEN 10 AND 40", "c IN (1, 2)", "b LIKE 'y%'"),
        *("NOT (c < 2)", "a % 3 = 1"),
    )
    items = (
        *("COUNT(*)", "SUM(c)", "MIN(a)", "MAX(c)", "COUNT(DISTINCT b)"),
        "SUM(CASE WHEN c > 0 THEN 1 ELSE 0 END)",
    )
    for _ in range(60):
        where = f" {rng.choice(['AND', 'OR'])} ".join(rng.sample(terms, 2))
        chosen = ", ".join(f"{item} AS v{k}" for k, item in enumerate(rng.sample(items, 2)))
        query = f"SELECT b, {chosen} FROM {{}} WHERE {where} GROUP BY b ORDER BY b IS NULL, b"
        expected = truth.execute(query.format("t")).fetchall()
        assert [
            tuple(row.values())
            for row in ask(ours, query.format("ds.t").replace("a % 3", "MOD(a, 3)"))
        ] == expected, query
        assert [tuple(row.values()) for row in data_rows(theirs.read_query(query.format("t")))] == [
            tuple(map(shown, row)) for row in expected
        ], query
    truth.close()


def test_types_have_names_in_both_dialects() -> None:
    kinds = "INT64 FLOAT64 STRING BOOL DATE TIME DATETIME TIMESTAMP NUMERIC BIGNUMERIC BYTES JSON"
    for kind in kinds.split():
        assert bigquery_type(from_bigquery(kind)) == kind
    duck = 'STRUCT(a BIGINT, "b c" STRUCT(d VARCHAR)[])'
    assert bigquery_type(duck) == "STRUCT<a INT64, `b c` ARRAY<STRUCT<d STRING>>>"
    for kind in "NUMBER(12,2) FLOAT BOOLEAN DATE TIMESTAMP_NTZ(9) VARCHAR(16777216)".split():
        assert snowflake_type(from_snowflake(kind)) == kind
    with pytest.raises(ValueError, match="type must be one of INT64"):
        from_bigquery("NOPE")
    with pytest.raises(ValueError, match="type must be one of NUMBER"):
        from_snowflake("NOPE")
    with pytest.raises(ValueError, match=r"every row of ds.t must have 2 values"):
        GoogleCloud().bigquery.load("ds", "t", {"a": "INT64", "b": "INT64"}, [(1,)])


def test_heavy_libraries_are_not_imported_before_they_are_needed() -> None:
    code = (
        "import sys, agentgym; from agentgym.office.gcloud.google_cloud import GoogleCloud; "
        "from agentgym.office.warehouse.snowflake import Snowflake; "
        "server = GoogleCloud(); server.bigquery.load('d', 't', {'a': 'INT64'}, [(1,)]); Snowflake().list_databases(); "
        "assert not {'duckdb', 'sqlglot'} & set(sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module", ["duckdb", "sqlglot"])
def test_a_library_that_is_missing_is_named_with_its_remedy(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(WAREHOUSE)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install 'agentgym-suite\[office\]'"):
        bigquery().bigquery.bigquery_run_query("SELECT 1")


WAREHOUSE = "agentgym.office.warehouse."


def test_tables_under_a_pattern_are_refused() -> None:
    server = GoogleCloud()
    server.bigquery.load("ab", "s_1", {"a": "INT64"}, [(1,)])
    with pytest.raises(ToolError, match="not supported: wildcard tables; name each table"):
        ask(server, "SELECT a FROM `ab.s_*`")


def changed(dialect: str) -> tuple[Callable[[str], str], Callable[[], list[str]]]:
    """Return a function that alters a table, and a function that returns its comments."""
    if dialect == "snowflake":
        other = snowflake()
        return (
            lambda change: other.write_query(f"ALTER TABLE staff {change}"),
            lambda: [other.list_tables("db", "public"), other.read_query("DESCRIBE TABLE staff")],
        )
    run = bigquery().bigquery.bigquery_run_query
    return lambda change: run(f"ALTER TABLE ds.staff {change}"), lambda: list(map(run, VIEWS))


VIEWS = (
    "SELECT option_value FROM ds.INFORMATION_SCHEMA.TABLE_OPTIONS",
    "SELECT column_name, column_default, is_nullable, description FROM ds.INFORMATION_SCHEMA.COLUMNS",
)


@pytest.mark.parametrize(
    ("dialect", "fate", "change"),
    [
        (dialect, fate, change)
        for dialect in ("bigquery", "snowflake")
        for fate, listed in BANK[dialect].items()
        for change in listed
    ],
)
def test_every_alter_option_is_shown_or_refused(dialect: str, fate: str, change: str) -> None:
    alter, show = changed(dialect)
    before = show()
    if fate == "refused":
        with pytest.raises(ToolError, match=r"not supported|syntax error"):
            alter(change)
        assert show() == before
    else:
        if "NULL" in change:
            alter(change.replace("NULL", "'before'"))
            before = show()
        alter(change)
        assert show() != before
