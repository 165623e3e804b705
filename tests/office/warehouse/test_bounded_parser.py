from __future__ import annotations

import contextlib
import sys

import pytest
from sqlglot.errors import SqlglotError

from agentgym.office.warehouse.dialects.bounded_parser import parse_sql
from tests.helpers import calls_of, run_python
from tests.office.warehouse.test_database import DIALECTS

ERRORS = """
import sys
from sqlglot import Dialect
from sqlglot.errors import SqlglotError
from agentgym.office.warehouse.dialects.bounded_parser import parse_sql

dialect = sys.argv[1]
whole = [
    "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN UPDATE SET a = 1",
    "CREATE TABLE t (a INT64 NOT NULL, b STRING) AS SELECT CAST(a AS DATE) BETWEEN 1 AND 2 FROM s",
    "SELECT CASE WHEN a THEN b END OVER (PARTITION BY c ORDER BY d) FROM t JOIN u ON a = b LIMIT 3",
]
texts = [" ".join(sql.split()[:n]) for sql in whole for n in range(1, len(sql.split()))]
for name in sorted(Dialect.get_or_raise(dialect).parser_class.FUNCTIONS):
    texts += [f"SELECT {name}({arguments})" for arguments in ("", "1", "1, 2", "1, 2, 3, 4, 5, 6")]
for sql in texts:
    try:
        print(sql, [str(tree) for tree in parse_sql(sql, dialect)])
    except Exception as error:  # the package replaces the messages of other exceptions
        print(sql, error if isinstance(error, SqlglotError) else "")
"""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_error_is_the_same_in_a_process_that_hashes_otherwise(dialect: str) -> None:
    path = {"PYTHONPATH": ":".join(sys.path)}
    told = [
        run_python("-c", ERRORS, dialect, env={"PYTHONHASHSEED": seed, **path}, check=True).stdout
        for seed in ("1", "2")
    ]
    assert told[0].count("Required keyword") > 300
    assert told[0] == told[1]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "name", ["DATE", "TIMESTAMP", "STRING", "TIME", "DATETIME", "CHAR", "ARRAY"]
)
def test_the_work_to_parse_names_of_types_is_bounded(dialect: str, name: str) -> None:
    """Without a bound, the parser would read a type or function twice per nesting level."""

    def parse() -> None:
        with contextlib.suppress(SqlglotError, RecursionError):
            parse_sql(f"SELECT {f'{name}(' * 40}x{')' * 40}", dialect)

    assert calls_of(parse) <= 400_000
