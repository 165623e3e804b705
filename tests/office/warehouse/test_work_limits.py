"""Long statements end by a work limit equal on every host; ordinary ones keep their results."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlglot.errors import SqlglotError

from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.office.warehouse import database, work_limits
from agentgym.office.warehouse.dialects.bounded_parser import parse_sql
from agentgym.office.warehouse.dialects.macros import COUNTERS
from agentgym.office.warehouse.snowflake import Snowflake
from agentgym.text.tools import HostLimitError, ToolError
from tests.helpers import calls_of
from tests.office.warehouse.test_database import DIALECTS, Account


def chain(first: str, then: str, last: str, length: int = 40) -> str:
    parts = [f"c0 AS ({first})", *(f"c{k} AS ({then.format(k - 1)})" for k in range(1, length))]
    return f"WITH {', '.join(parts)} {last.format(length - 1)}"


def nested(call: str, start: str, levels: int) -> str:
    for _ in range(levels):
        start = call.format(start)
    return start


GENERATED = {
    "snowflake": ["SELECT SUM(SEQ4()) AS c FROM TABLE(GENERATOR(ROWCOUNT => 20000000000))"],
    "bigquery": [
        "SELECT COUNT(*) AS c FROM UNNEST(GENERATE_ARRAY(1, 1000000)) a, UNNEST(GENERATE_ARRAY(1, 1000000)) b",
        "SELECT COUNT(*) AS c FROM UNNEST(GENERATE_DATE_ARRAY('2000-01-01', '2900-01-01')) a, UNNEST(GENERATE_ARRAY(1, 1000000)) b",
    ],
}
# Statements by a word in the limit that ends them: written ones, and long ones.
HEAVY: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("work_limits.toml").read_text(encoding="utf-8")
)["heavy"]
LONG = {
    "rows": [
        chain(
            "SELECT 1 AS x",
            "SELECT * FROM c{0} UNION ALL SELECT * FROM c{0}",
            "SELECT COUNT(*) AS c FROM c{0}",
        ),
        chain(
            "SELECT x FROM {{n}}",
            "SELECT a.x FROM c{0} a, c{0} b",
            "SELECT COUNT(*) AS c FROM c{0}",
            4,
        ).replace("{{n}}", "{n}"),
        "SELECT COUNT(*) AS c FROM " + ", ".join(f"{{t}} t{k}" for k in range(20)),
    ],
    "too long": [
        chain(
            "SELECT 'ab' AS x", "SELECT x || x AS x FROM c{0}", "SELECT LENGTH(x) AS c FROM c{0}"
        ),
    ],
    "query planning": [
        f"SELECT {nested('(x / {0})', 'x', 16)} AS c FROM {{t}}",
        f"SELECT {nested('CAST({0} AS STRING)', 'x', 14)} AS c FROM {{t}}",
    ],
}
for word, statements in LONG.items():
    HEAVY[word] = [*HEAVY.get(word, []), *statements]


@pytest.fixture(scope="module", params=DIALECTS)
def account(request: pytest.FixtureRequest) -> Iterator[Account]:
    yield (made := filled(request.param))
    made.server.engine.close()


def filled(dialect: str) -> Account:
    made = Account(dialect)
    rows = [(k, 1) for k in range(1000)]
    if dialect == "bigquery":
        made.server.bigquery.load("ds", "n", {"x": "INT64", "one": "INT64"}, rows)  # type: ignore[union-attr]
    else:
        made.server.load("DB.PUBLIC.N", {"X": "INTEGER", "ONE": "INTEGER"}, rows)  # type: ignore[union-attr]
    return made


def in_place(account: Account, sql: str) -> str:
    if account.table == "ds.t":
        sql = (
            sql.replace("REGEXP_LIKE", "REGEXP_CONTAINS")
            .replace("REGEXP_SUBSTR", "REGEXP_EXTRACT")
            .replace("{near}", "EDIT_DISTANCE")
        )
        sql = sql.replace("{upto}", "GENERATE_ARRAY").replace("ARRAY_SIZE", "ARRAY_LENGTH")
        return sql.replace("{n}", "ds.n")
    return (
        sql.replace("{n}", "DB.PUBLIC.N")
        .replace("{near}", "EDITDISTANCE")
        .replace("{upto}", "ARRAY_GENERATE_RANGE")
    )


def run(account: Account, sql: str) -> Any:
    return account.run(in_place(account, sql))


def check(account: Account, word: str, sql: str) -> None:
    with pytest.raises(ToolError, match=r"limit exceeded|too long") as caught:
        run(account, sql)
    assert not isinstance(caught.value, HostLimitError), sql
    assert word in str(caught.value), sql


def test_heavy_statements_end_by_a_limit_on_work(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {
        d: {
            **c,
            "rows": 100_000,
            "long": 50,
            "huge": 20,
            "compared": 300,
            "matched": 9_000,
            "searched": 90,
        }
        for d, c in COUNTERS.items()
    }
    monkeypatch.setattr(database, "COUNTERS", few)
    monkeypatch.setattr(work_limits, "MAX_FREE_ROWS", 10_000)
    for dialect in DIALECTS:
        account = filled(dialect)
        for word, statements in HEAVY.items():
            more = GENERATED[dialect] if word == "rows" else []
            for sql in [*statements, *more]:
                check(account, word, sql)
        assert account.sum() == 10
        account.server.engine.close()


@pytest.mark.exhaustive
@pytest.mark.parametrize("dialect", DIALECTS)
def test_heavy_statements_end_by_the_limits_that_there_are(dialect: str) -> None:
    account = filled(dialect)
    for statements in HEAVY.values():
        for sql in statements:
            try:
                run(account, sql)
            except ToolError as error:
                assert not isinstance(error, HostLimitError), sql  # noqa: PT017
    account.server.engine.close()


# Calls nested as in typical text cleaning.
REPLACED = nested("REPLACE({0}, 'c', 'd')", "'ab'", 12)


def test_each_statement_has_the_whole_limit_and_gives_what_it_gave(account: Account) -> None:
    queries = {
        "SELECT COUNT(*) AS c FROM {n} a, {n} b, {t} c": 5_000_000,
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 90) SELECT MAX(n) AS c FROM r": 90,
        "SELECT SUM(LENGTH(REPEAT('x', a.x + 2000))) AS c FROM {n} a": 2_499_500,
        "SELECT COUNT(*) AS c FROM {n} a JOIN {n} b ON a.x = b.x JOIN {n} c ON c.x = b.x": 1000,
        "SELECT COUNT(*) AS c FROM {n} a LEFT JOIN {n} b ON a.x = b.x + 500 WHERE b.x IS NULL": 500,
        "SELECT COUNT(*) AS c FROM {n} a WHERE EXISTS (SELECT 1 FROM {n} b WHERE b.x = a.x + 500)": 500,
        "SELECT COUNT(*) AS c FROM {n} a, {n} b WHERE {near}(CAST(a.x AS STRING), CAST(b.x AS STRING)) = 0": 1000,
        f"SELECT LENGTH({REPLACED}) AS c FROM {{t}} WHERE x = 3": 2,
    }
    for query, value in [*queries.items()] * 2:
        [row] = account.rows(in_place(account, query))
        assert int(next(iter(row.values()))) == value, query


@pytest.mark.parametrize("dialect", ["bigquery", "snowflake"])
@pytest.mark.parametrize(
    "name", ["DATE", "TIMESTAMP", "STRING", "TIME", "DATETIME", "CHAR", "ARRAY"]
)
def test_the_work_to_parse_names_of_types_is_bounded(dialect: str, name: str) -> None:
    """A possible type or function would be parsed twice per level."""

    def parse(depth: int) -> None:
        with contextlib.suppress(SqlglotError, RecursionError):
            parse_sql(f"SELECT {f'{name}(' * depth}x{')' * depth}", dialect)

    assert calls_of(parse, 40) <= 400_000


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT {'DATE(' * 40}x{')' * 40}",
        f"SELECT {'STRING(TIMESTAMP(' * 20}x{'))' * 20}",
    ],
)
def test_deep_types_are_refused(query: str) -> None:
    with pytest.raises(ToolError, match="nested too deeply"):
        GoogleCloud().bigquery.bigquery_run_query(query)


# These repeat an argument, so each nesting level multiplies the size.
COPYING = [
    ("snowflake", "REPLACE('a', {}, 'b')", "'a'"),
    ("bigquery", "EXTRACT(WEEK FROM DATE_ADD(CURRENT_DATE(), INTERVAL {} DAY))", "1"),
    ("bigquery", "REPLACE('a', {}, 'b')", "'a'"),
    ("bigquery", "REGEXP_REPLACE('a', 'b', {})", "'c'"),
    ("bigquery", "ARRAY_LENGTH(GENERATE_ARRAY({}, 5))", "1"),
    ("bigquery", "ARRAY(SELECT x FROM UNNEST({}) AS x WITH OFFSET o)", "[1]"),
    ("bigquery", "EDIT_DISTANCE('a', CAST({} AS STRING))", "'b'"),
]


@pytest.mark.parametrize(("dialect", "call", "start"), COPYING)
def test_arguments_that_are_written_twice_do_not_multiply(
    dialect: str, call: str, start: str
) -> None:
    google, snowflake = GoogleCloud().bigquery, Snowflake()
    ask = google.bigquery_run_query if dialect == "bigquery" else snowflake.read_query

    def run_nested() -> None:
        with pytest.raises(ToolError, match=r"nested too deeply|nest fewer"):
            ask(f"SELECT {nested(call, start, 18)} AS X")

    assert calls_of(run_nested) <= 2_000_000
