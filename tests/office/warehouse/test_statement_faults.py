from __future__ import annotations

import random
import re

import pytest

from agentgym.office.warehouse import database
from agentgym.text.tools import HostLimitError, ToolError
from tests.office.warehouse.test_database import DIALECTS, Account
from tests.office.warehouse.test_statement_growth import SHAPES, statement

WORDS = (
    *("SELECT", "FROM", "WHERE", "WITH", "RECURSIVE", "AS", "UNION ALL", "EXCEPT", "JOIN", "ON", "USING", "GROUP BY"),
    *("ORDER BY", "LIMIT 1", "OFFSET 1", "QUALIFY", "HAVING", "OVER", "PARTITION BY", "ROWS BETWEEN", "UNNEST", "LATERAL"),
    *("CREATE", "OR REPLACE", "TEMP", "TABLE", "VIEW", "SCHEMA", "FUNCTION f(x)", "DROP", "IF EXISTS", "ALTER", "ADD COLUMN"),
    *("RENAME TO", "INSERT INTO", "VALUES", "UPDATE", "SET", "DELETE", "MERGE INTO", "WHEN MATCHED THEN", "COMMENT ON"),
    *("TRUNCATE", "CLONE", "LIKE", "COPY", "SHOW TABLES", "DESCRIBE", "USE", "PIVOT", "UNPIVOT", "TABLESAMPLE", "FOR"),
    *("CASE", "WHEN", "THEN", "END", "CAST(", "EXTRACT(", "DATE", "INTERVAL", "ARRAY", "STRUCT", "JSON", "INT64", "STRING"),
    *("{t}", "x", "*", "(", ")", "[", "]", "{", "}", ",", ".", ";", "=", "<", ">", "=>", "->", "::", ":", "||", "@x", "?", "$1"),
    *("1", "1.5", "-1", "'a'", '"a"', "`a`", "NULL", "TRUE", "''", "0", "1e400", "x.y.z", "a", "$$", "/*", "--", "\\", "DESC"),
    *("TABLE(GENERATOR(ROWCOUNT => 3))", "COUNT(*)", "IN", "IS", "NOT", "BETWEEN", "ANY", "ALL", "DISTINCT", "PRIMARY KEY"),
    *("DEFAULT", "OPTIONS(description='a')", "INFORMATION_SCHEMA.TABLES", "EXCEPT(x)", "REPLACE(1 AS x)", "WITH OFFSET"),
    *("REGEXP_REPLACE('a', 'b', 'c')", "SAFE.", "IGNORE NULLS", "WITHIN GROUP", "AT TIME ZONE", "GRANT", "EXPLAIN", "CALL"),
)  # fmt: skip


def drawn(rng: random.Random) -> str:
    """Return random words, or a statement in which words are replaced, removed or added."""
    if rng.random() < 0.3:
        return " ".join(rng.choices(WORDS, k=rng.randint(2, 12)))
    parts = re.findall(r"\w+|\{t\}|'[^']*'|[^\w\s]", statement(rng.choice(SHAPES), 40))
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(parts))
        parts[place : place + rng.randint(0, 2)] = rng.choices(WORDS, k=rng.randint(0, 2))
    return " ".join(parts)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_statement_is_a_fault(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "SECONDS", 0.1)  # some statements would run too long
    rng, account = random.Random(dialect), Account(dialect)
    for number in range(200):
        sql = drawn(rng)
        try:
            account.run(sql)
        except ToolError as error:
            assert not isinstance(error, HostLimitError), sql  # noqa: PT017 - results are allowed too
            assert len(str(error)) < 2_000, sql  # noqa: PT017
        if number == 100:
            account = Account(dialect)
    account.server.engine.close()
