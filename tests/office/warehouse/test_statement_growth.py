"""Work grows at most linearly with a statement's length, whatever its shape."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from agentgym.text.tools import ToolError
from tests.helpers import calls_of
from tests.office.warehouse.test_database import DIALECTS, Account

# Start, repeated part, end; `{}` is the part's number.
CHAINS = {
    "sum": ("SELECT ", "1+", "1 AS x"),
    "quotient": ("SELECT ", "1/", "1 AS x"),
    "remainder": ("SELECT ", "7%", "2 AS x"),
    "text": ("SELECT ", "'a'||", "'a' AS x"),
    "integers": ("SELECT x FROM {t} WHERE x IN (", "1,", "1)"),
    "texts": ("SELECT x FROM {t} WHERE 'b' IN (", "'a',", "'b')"),
    "decimals": ("SELECT x FROM {t} WHERE x IN (", "1.5,", "1)"),
    "union": ("SELECT 1 AS x", " UNION ALL SELECT 1", ""),
    "union of tables": ("SELECT x FROM {t}", " UNION ALL SELECT x FROM {t}", ""),
    "intersection": ("SELECT 1 AS x", " INTERSECT DISTINCT SELECT 1", ""),
    "and": ("SELECT x FROM {t} WHERE x=1", " AND x=1", ""),
    "or": ("SELECT x FROM {t} WHERE x=1", " OR x=1", ""),
    "not": ("SELECT ", "NOT ", "TRUE AS x"),
    "minus": ("SELECT ", "- ", "1 AS x"),
    "like": ("SELECT 'a'", " LIKE 'a'", " AS x"),
    "is": ("SELECT x", " IS NULL", " AS x FROM {t}"),
    "between": ("SELECT x FROM {t} WHERE TRUE", " AND x BETWEEN 1 AND 2", ""),
    "exists": ("SELECT x FROM {t} WHERE TRUE", " AND EXISTS(SELECT 1)", ""),
    "case": ("SELECT CASE ", "WHEN x=1 THEN 2 ", "END AS x FROM {t}"),
    "coalesce": ("SELECT COALESCE(", "NULL,", "1) AS x"),
    "concat": ("SELECT CONCAT(", "'a',", "'a') AS x"),
    "numbers": ("SELECT ", "1,", "1"),
    "columns": ("SELECT 1 AS c", ", 1 AS c{}", ""),
    "scalars": ("SELECT 1 AS c", ", (SELECT 1) AS c{}", ""),
    "windows": ("SELECT 1 AS c", ", SUM(x) OVER (ORDER BY x) AS c{}", " FROM {t}"),
    "tables": ("SELECT 1 AS x FROM {t} t", ", {t} t{}", ""),
    "joins": ("SELECT 1 AS x FROM {t} t", " JOIN {t} t{} ON t.x=t{}.x", ""),
    "expressions": ("WITH c AS (SELECT 1 AS x)", ", c{} AS (SELECT x FROM c)", " SELECT x FROM c"),
    "casts": ("SELECT 1", "::INT64", " AS x"),
    "fields": ("SELECT a", ".b", " AS x FROM {t}"),
    "json": ("SELECT PARSE_JSON('{}'):a", ".b", " AS x"),
    "items": ("SELECT x", "[0]", " AS x FROM {t}"),
    "array": ("SELECT [", "1,", "1] AS x"),
    "struct": ("SELECT STRUCT(", "1,", "1) AS x"),
    "rows": ("INSERT INTO {t} VALUES (1)", ",(1)", ""),
    "values": ("SELECT * FROM (VALUES (1)", ",(1)", ") AS t"),
    "groups": ("SELECT 1 AS x FROM {t} GROUP BY ", "x,", "x"),
    "orders": ("SELECT x FROM {t} ORDER BY ", "x,", "x"),
    "intervals": ("SELECT DATE '2020-01-01'", " + INTERVAL 1 DAY", " AS x"),
    "zones": ("SELECT CURRENT_TIMESTAMP()", " AT TIME ZONE 'UTC'", " AS x"),
    "collations": ("SELECT x", " COLLATE 'a'", " AS x FROM {t}"),
    "unpivot": ("SELECT * FROM {t} UNPIVOT(v FOR k IN (x", ",x", "))"),
    "definition": ("CREATE TABLE {t}9 (c INT64", ", c{} INT64", ")"),
    "type": ("SELECT CAST(NULL AS STRUCT<a INT64", ", a{} INT64", ">) AS x"),
    "alterations": ("ALTER TABLE {t} ADD COLUMN c INT64", ", ADD COLUMN c{} INT64", ""),
    "column options": ("ALTER TABLE {t}", " ALTER COLUMN x", " SET OPTIONS (description='a')"),
    "literal": ("SELECT '", "a", "' AS x"),
    "number": ("SELECT ", "1", " AS x"),
    "name": ("SELECT x AS ", "a", " FROM {t}"),
    "semicolons": ("SELECT 1 AS x", ";", ""),
    "statements": ("SELECT 1", ";SELECT 1", ""),
    "comments": ("", "/* a */", "SELECT 1 AS x"),
    "open comments": ("", "/*", "SELECT 1 AS x"),
    "lines": ("", "-- a\n", "DECLARE x INT64"),
    "words": ("", "a ", ""),
    "aliases": ("SELECT x FROM {t} ", "AS t ", ""),
}  # fmt: skip
# Start, each level's opening and closing, middle, end.
NESTS = {
    "brackets": ("SELECT ", "(", "1", ")", " AS x"),
    "queries": ("", "SELECT * FROM (", "SELECT 1 AS x", ")", ""),
    "cases": ("SELECT ", "CASE WHEN x=1 THEN 2 ELSE ", "1", " END", " AS x FROM {t}"),
    "calls": ("SELECT ", "ABS(", "1", ")", " AS x"),
    "conditions": ("SELECT ", "IF(TRUE,1,", "1", ")", " AS x"),
    "replacements": ("SELECT ", "REPLACE(", "'a'", ",'a','b')", " AS x"),
    "conversions": ("SELECT ", "CAST(", "1", " AS STRING)", " AS x"),
    "arrays": ("SELECT ", "[", "1", "]", " AS x"),
    "types": ("SELECT CAST(NULL AS ", "ARRAY<", "INT64", ">", ") AS x"),
    "dates": ("SELECT ", "DATE(", "x", ")", " AS x FROM {t}"),
}  # fmt: skip
SHAPES = [*CHAINS, *NESTS]


def statement(shape: str, size: int) -> str:
    if shape in NESTS:
        start, opening, middle, closing, end = NESTS[shape]
        levels = size // len(opening + closing)
        return start + opening * levels + middle + closing * levels + end
    start, part, end = CHAINS[shape]
    count = size // len(part.replace("{}", "1234").replace("{t}", "DB.PUBLIC.T"))
    return start + "".join(part.replace("{}", str(k)) for k in range(count)) + end


def attempt(account: Account, sql: str) -> None:
    """Run a statement that may be refused, but must not fail otherwise."""
    if account.table != "ds.t":
        sql = sql.replace("INT64", "INTEGER").replace("AS STRING", "AS VARCHAR")
    with contextlib.suppress(ToolError):
        account.run(sql[:100_000])


def child_seconds(account: Account) -> float:
    live = account.server.engine._live
    if live is None or not live.usable:
        return 0.0
    fields = Path(f"/proc/{live.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@pytest.fixture(scope="module", params=DIALECTS)
def account(request: pytest.FixtureRequest) -> Iterator[Account]:
    yield (made := Account(request.param))
    made.server.engine.close()


def too_steep(work: list[int]) -> bool:
    """Return whether work grows faster than length, which quadruples each time."""
    return any(long > 8 * short + 20_000 for short, long in pairwise(work))


@pytest.mark.rotation(shape=SHAPES)
def test_work_grows_no_faster_than_a_statement(account: Account, shape: str) -> None:
    sizes = (500, 2_000, 8_000)
    attempt(account, "SELECT 1 AS x")  # the first statement starts DuckDB
    work = [calls_of(attempt, account, statement(shape, size)) for size in sizes]
    assert not too_steep(work), work


def test_the_law_finds_work_that_grows_with_the_square() -> None:
    assert too_steep([n * n // 9 for n in (500, 2_000, 8_000)])
    assert not too_steep([40 * n for n in (500, 2_000, 8_000)])
