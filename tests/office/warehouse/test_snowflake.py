"""Snowflake: SQL against hand-computed rows, names and comments, the eight tools."""

from __future__ import annotations

import json
import pickle
import random
import re
from typing import Any

import pytest

from agentgym.envs.loca.results import data_rows
from agentgym.office.warehouse.snowflake import Snowflake
from agentgym.text.tools import ToolError

TABLE = "PURCHASE_INVOICE.PUBLIC.INVOICES"
PAID = "PURCHASE_INVOICE.PUBLIC.INVOICE_PAYMENTS"
INVOICES = [
    ("INT-1", "Acme", "120.50", "a@x.com", "2022-03-31"),
    ("INT-2", "Acme", "80.00", "b@x.com", "2022-04-01"),
    ("INT-3", "Best", "99.99", None, "2023-01-15"),
]
PAYMENTS = [("INT-1", "120.50", 0), ("INT-2", "30.00", 1), ("INT-3", None, 1)]


@pytest.fixture
def server() -> Snowflake:
    made = Snowflake()
    columns = {
        "INVOICE_ID": "VARCHAR", "SUPPLIER_NAME": "VARCHAR", "INVOICE_AMOUNT": "NUMBER(12,2)", "PURCHASER_EMAIL": "VARCHAR",
        "INVOICE_DATE": "DATE",
    }  # fmt: skip
    made.load(TABLE, columns, INVOICES, keys=["INVOICE_ID"])
    made.load(
        PAID,
        {"INVOICE_ID": "VARCHAR", "PAYMENT_AMOUNT": "NUMBER(12,2)", "OUTSTANDING_FLAG": "INTEGER"},
        PAYMENTS,
    )
    return made


def records(server: Snowflake, query: str) -> list[dict[str, str]]:
    return data_rows(server.read_query(query))


def ask(server: Snowflake, query: str) -> list[tuple[str, ...]]:
    return [tuple(row.values()) for row in records(server, query)]


def texts(rows: list[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    return [tuple(v if isinstance(v, str) else json.dumps(v) for v in row) for row in rows]


QUERIES: dict[str, list[tuple[Any, ...]]] = {
    # Unquoted names are upper-case; quoted ones keep their case.
    "select invoice_id from purchase_invoice.public.invoices where invoice_amount > 100": [("INT-1",)],
    'SELECT i."INVOICE_ID" FROM "PURCHASE_INVOICE".public."INVOICES" i WHERE i.invoice_amount > 100': [("INT-1",)],
    "SELECT COUNT(*) FROM public.invoices": [(3,)],
    "SELECT invoices.supplier_name FROM invoices WHERE purchase_invoice.public.invoices.invoice_id = 'INT-3'": [("Best",)],
    # Common table expressions, QUALIFY, lateral aliases, GROUP BY ALL, EXCLUDE.
    "WITH s AS (SELECT supplier_name n, SUM(invoice_amount) t FROM invoices GROUP BY 1) SELECT * FROM s ORDER BY n": [
        ("Acme", 200.5), ("Best", 99.99),
    ],
    "SELECT invoice_id FROM invoices QUALIFY ROW_NUMBER() OVER (PARTITION BY supplier_name ORDER BY invoice_date DESC) = 1 ORDER BY 1": [
        ("INT-2",), ("INT-3",),
    ],
    "SELECT invoice_amount AS a, a * 2 AS b FROM invoices WHERE a < 90": [(80, 160)],
    "SELECT supplier_name, COUNT(*) FROM invoices GROUP BY ALL ORDER BY 1": [("Acme", 2), ("Best", 1)],
    "SELECT * EXCLUDE (purchaser_email) FROM invoices WHERE invoice_id = 'INT-1'": [("INT-1", "Acme", 120.5, "2022-03-31")],
    # NULLs come last, and first when descending.
    "SELECT purchaser_email FROM invoices ORDER BY 1 DESC": [(None,), ("b@x.com",), ("a@x.com",)],
    "SELECT SPLIT_PART('a-b', '-', 2)": [("b",)],
    # Dates; differences in months follow the calendar.
    "SELECT DATEADD(month, 1, '2022-01-31'::DATE), DATEADD('day', -1, invoice_date), DATEADD(hour, 1, invoice_date) "
    "FROM invoices WHERE invoice_id = 'INT-2'": [("2022-02-28", "2022-03-31", "2022-04-01T01:00:00")],
    "SELECT DATEDIFF(day, '2022-03-31', '2022-04-02'), DATEDIFF('month', '2025-01-31', '2025-02-01'), DATEDIFF(year, '2024-12-31'::DATE, "
    "'2025-01-01'::DATE)": [(2, 1, 1)],
    "SELECT DATE_TRUNC('month', invoice_date), DATE_TRUNC(week, invoice_date), LAST_DAY(invoice_date), YEAR(invoice_date), "
    "TO_CHAR(invoice_date, 'DD/MM/YYYY'), DAYOFWEEK(invoice_date) FROM invoices WHERE invoice_id = 'INT-2'": [
        ("2022-04-01", "2022-03-28", "2022-04-30", 2022, "01/04/2022", 5),
    ],
    "SELECT TO_DATE('02/03/2025', 'MM/DD/YYYY'), TO_TIMESTAMP('2025-01-01 10:00:00'), TRY_TO_DATE('x')": [
        ("2025-02-03", "2025-01-01T10:00:00", None),
    ],
    "SELECT CURRENT_DATE(), CURRENT_TIMESTAMP(), CURRENT_DATABASE(), CURRENT_SCHEMA()": [
        ("2025-01-15", "2025-01-15T09:00:00Z", "PURCHASE_INVOICE", "PUBLIC"),
    ],
    # Numbers: dividing a NUMBER by a NUMBER adds six decimal places, halves round away from zero.
    "SELECT 1 / 3, 2 / 4, 2.5::INT, -2.5::INT, DIV0(1, 0), MOD(-7, 2), TO_NUMBER('12.345', 10, 2), TRY_TO_NUMBER('x')": [
        (0.333333, 0.5, 3, -3, 0.0, -1, 12.35, None),
    ],
    "SELECT 0.1 + 0.2 = 0.3, IFF(1 > 2, 'a', 'b'), NVL(NULL, 5), ZEROIFNULL(NULL), DECODE(2, 1, 'one', 2, 'two'), GREATEST(1, NULL)": [
        (True, "b", 5, 0, "two", None),
    ],
    "SELECT LISTAGG(invoice_id, ';') WITHIN GROUP (ORDER BY invoice_amount), MEDIAN(invoice_amount), COUNT_IF(invoice_amount > 90), "
    "MAX_BY(invoice_id, invoice_amount) FROM invoices": [("INT-2;INT-3;INT-1", 99.99, 2, "INT-1")],
    "SELECT 'Abc' ILIKE 'a%', CONTAINS('abc', 'b'), CHARINDEX('c', 'abc'), REGEXP_SUBSTR('ab12', '[0-9]+'), CONCAT('a', NULL)": [
        (True, True, 3, "12", None),
    ],
    # Rows from generators, PIVOT.
    "SELECT x FROM VALUES (1, 'a'), (2, 'b') AS t (x, y) WHERE y = 'b'": [(2,)],
    "SELECT SEQ4() FROM TABLE(GENERATOR(ROWCOUNT => 3)) ORDER BY 1": [(0,), (1,), (2,)],
    "SELECT * FROM (SELECT outstanding_flag, invoice_id FROM invoice_payments) PIVOT(COUNT(invoice_id) FOR outstanding_flag IN (0, 1))": [
        (1, 2),
    ],
    # The information schema.
    "SELECT table_name, row_count FROM information_schema.tables ORDER BY 1": [("INVOICES", 3), ("INVOICE_PAYMENTS", 3)],
    "SELECT column_name, data_type, is_nullable FROM purchase_invoice.information_schema.columns "
    "WHERE table_name = 'INVOICE_PAYMENTS' ORDER BY ordinal_position": [
        ("INVOICE_ID", "TEXT", "YES"), ("PAYMENT_AMOUNT", "NUMBER", "YES"), ("OUTSTANDING_FLAG", "NUMBER", "YES"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
def test_queries(server: Snowflake, query: str) -> None:
    assert ask(server, query) == texts(QUERIES[query])


def test_columns_of_a_result_are_in_capitals(server: Snowflake) -> None:
    [shown, *others] = records(
        server,
        'SELECT invoice_id, invoice_amount AS "Amount", SUM(invoice_amount) OVER () total, COUNT(*) OVER () FROM invoices',
    )
    assert list(shown) == ["INVOICE_ID", "Amount", "TOTAL", "COUNT(*) OVER ()"]
    assert len(others) == 2


def test_an_answer_is_a_block_of_lines(server: Snowflake) -> None:
    query = (
        "SELECT 1 AS a, NULL AS b, 'null' AS c, 'x: \"y\" # é' AS d, TRUE AS e, 'one' || CHR(10) || '- two' AS f "
        "FROM invoices LIMIT 1"
    )
    answer = server.read_query(query)
    head, data_id, data = answer.split("\n", 2)
    assert head == "type: data"
    assert re.fullmatch(r"data_id: [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", data_id)
    assert data == (
        'data:\n- \n  A: 1\n  B: null\n  C: "null"\n  D: x: "y" # é\n  E: true\n  F: "one\\n- two"'
    )
    assert server.read_query(query) == answer
    assert server.read_query("SELECT 1 AS a FROM invoices LIMIT 0").endswith("\ndata: []")
    long = "SELECT REPEAT('x', 1000) AS s FROM TABLE(GENERATOR(ROWCOUNT => 2000))"
    answer = server.read_query(long)
    assert "\nnote: Only the first 1039 of 2000 rows are shown, because" in answer
    assert len(data_rows(answer)) == 1039


def test_the_task_of_the_invoices(server: Snowflake) -> None:
    server.write_query(
        f"INSERT INTO {TABLE} (invoice_id, invoice_amount, invoice_date) VALUES ('N-1', 10.25, '2024-05-06'), ('N-2', 5, NULL)"
    )
    server.write_query(
        "INSERT INTO purchase_invoice.public.invoice_payments VALUES ('N-1', 10.25, 0), ('N-2', 0, 1)"
    )
    text = "0=Paid, 1=Outstanding"
    for statement in (
        f"COMMENT ON COLUMN {PAID}.OUTSTANDING_FLAG IS '{text}'",
        f"ALTER TABLE {PAID} MODIFY COLUMN outstanding_flag COMMENT '{text}'",
        f"ALTER TABLE {PAID} ALTER outstanding_flag COMMENT '{text}'",
        f"ALTER TABLE {PAID} MODIFY (invoice_id COMMENT 'x', COLUMN outstanding_flag COMMENT '{text}')",
    ):
        server.set_comment(PAID, "OUTSTANDING_FLAG", "old")
        server.write_query(statement)
        assert server.comments(PAID)["OUTSTANDING_FLAG"] == text
    described = server.describe_table("purchase_invoice.public.invoice_payments")
    assert (
        "\ndatabase: PURCHASE_INVOICE\nschema: PUBLIC\ntable: INVOICE_PAYMENTS\ndata:\n"
        in described
    )
    names = [row["COLUMN_NAME"] for row in data_rows(described)]
    assert names == ["INVOICE_ID", "OUTSTANDING_FLAG", "PAYMENT_AMOUNT"]
    assert data_rows(described)[1] == {
        "COLUMN_NAME": "OUTSTANDING_FLAG", "COLUMN_DEFAULT": "null", "IS_NULLABLE": "YES", "DATA_TYPE": "NUMBER(38,0)",
        "COMMENT": text,
    }  # fmt: skip
    assert ask(
        server,
        "SELECT comment FROM information_schema.columns WHERE column_name = 'OUTSTANDING_FLAG'",
    ) == [(text,)]
    assert ask(server, "DESCRIBE TABLE invoice_payments")[2][-1] == text
    assert [
        row["comment"] for row in records(server, "SHOW COLUMNS IN TABLE invoice_payments")
    ] == ["x", "", text]
    assert [row["INVOICE_ID"] for row in server.rows(PAID)] == [
        "INT-1",
        "INT-2",
        "INT-3",
        "N-1",
        "N-2",
    ]
    assert server.rows(TABLE)[3] == {
        "INVOICE_ID": "N-1", "SUPPLIER_NAME": None, "INVOICE_AMOUNT": 10.25, "PURCHASER_EMAIL": None, "INVOICE_DATE": "2024-05-06",
    }  # fmt: skip
    server.write_query(f"ALTER TABLE {PAID} ALTER COLUMN outstanding_flag UNSET COMMENT")
    assert server.comments(PAID)["OUTSTANDING_FLAG"] == ""


def test_rows_are_changed_and_counted(server: Snowflake) -> None:
    def change(query: str) -> dict[str, int]:
        answer = server.write_query(query)
        done = re.fullmatch(
            r"Query succeeded: (\d+) rows affected \((.+)\)\. data_id: \S{36}", answer
        )
        assert done, answer
        counts = {part.split()[1]: int(part.split()[0]) for part in done[2].split(", ")}
        assert int(done[1]) == sum(counts.values())
        return counts

    assert change("UPDATE invoice_payments p SET outstanding_flag = 9 FROM invoices i WHERE p.invoice_id = i.invoice_id AND i.supplier_name = "
                  "'Acme'") == {"updated": 2}  # fmt: skip
    assert change(
        "DELETE FROM invoice_payments USING invoices i WHERE invoice_payments.invoice_id = i.invoice_id AND i.invoice_amount = 80"
    ) == {"deleted": 1}
    merged = change(
        "MERGE INTO invoice_payments t USING invoices s ON t.invoice_id = s.invoice_id "
        "WHEN MATCHED AND t.outstanding_flag = 9 THEN UPDATE SET t.outstanding_flag = 0, payment_amount = s.invoice_amount "
        "WHEN NOT MATCHED THEN INSERT (invoice_id, payment_amount) VALUES (s.invoice_id, 1)"
    )
    assert merged == {"inserted": 1, "updated": 1}
    assert ask(server, "SELECT * FROM invoice_payments ORDER BY 1") == [
        ("INT-1", "120.5", "0"),
        ("INT-2", "1", "null"),
        ("INT-3", "null", "1"),
    ]
    assert change("INSERT OVERWRITE INTO invoice_payments SELECT 'z', 1, 2") == {"inserted": 1}
    assert change("TRUNCATE TABLE invoice_payments") == {"deleted": 1}


def test_databases_schemas_and_tables(server: Snowflake) -> None:
    made = server.create_table(
        'CREATE TABLE t (a NUMBER(10,2) DEFAULT 1, "low Case" INT, PRIMARY KEY ("low Case"))'
    )
    assert made.startswith("Table T successfully created. data_id: ")
    server.write_query('INSERT INTO t ("low Case") VALUES (5)')
    assert records(server, 'SELECT "low Case", a FROM t') == [{"low Case": "5", "A": "1"}]
    assert [(row["name"], row["primary key"]) for row in records(server, "DESC TABLE t")] == [
        ("A", "N"),
        ("low Case", "Y"),
    ]
    for statement in ("CREATE TABLE u CLONE t", "CREATE TABLE v LIKE t", "CREATE VIEW w AS SELECT a FROM u", "ALTER TABLE u ADD COLUMN z INT",
                      "ALTER TABLE u RENAME COLUMN z TO y", "ALTER TABLE u DROP COLUMN y", "ALTER TABLE v RENAME TO x"):  # fmt: skip
        server.write_query(statement)
    assert [len(server.rows(f"PURCHASE_INVOICE.PUBLIC.{name}")) for name in ("U", "X", "W")] == [
        1,
        0,
        1,
    ]
    assert [row["name"] for row in records(server, "SHOW TABLES")] == [
        "INVOICES",
        "INVOICE_PAYMENTS",
        "T",
        "U",
        "X",
    ]
    assert [
        row["name"]
        for row in records(server, "SHOW TABLES LIKE 'inv%ES' IN DATABASE purchase_invoice")
    ] == ["INVOICES"]
    assert [
        row["name"] for row in records(server, "SHOW VIEWS IN SCHEMA purchase_invoice.public")
    ] == ["W"]
    server.write_query("CREATE DATABASE other")
    server.write_query("CREATE SCHEMA other.stage")
    server.write_query("CREATE TABLE here AS SELECT 1 AS a")
    databases = data_rows(server.list_databases())
    assert databases == [{"DATABASE_NAME": "OTHER"}, {"DATABASE_NAME": "PURCHASE_INVOICE"}]
    schemas = server.list_schemas("other")
    assert schemas.split("\n")[2:] == [
        "database: other", "data:", "- ", "  SCHEMA_NAME: PUBLIC", "- ", "  SCHEMA_NAME: STAGE",
    ]  # fmt: skip
    tables = server.list_tables("other", "stage")
    assert "\ndatabase: other\nschema: stage\ndata:\n" in tables
    assert data_rows(tables) == [
        {
            "TABLE_CATALOG": "OTHER",
            "TABLE_SCHEMA": "STAGE",
            "TABLE_NAME": "HERE",
            "COMMENT": "null",
        }
    ]
    server.write_query("USE SCHEMA purchase_invoice.public")
    assert ask(server, "SELECT COUNT(*) FROM t, other.stage.here") == [("1",)]
    server.write_query("DROP DATABASE other")
    assert data_rows(server.list_databases()) == [{"DATABASE_NAME": "PURCHASE_INVOICE"}]
    assert server.append_insight("Two are open.") == "Insight added to memo"
    assert server.insights() == ["Two are open."]


def test_errors_are_typed_and_change_nothing(server: Snowflake) -> None:
    before = pickle.dumps(server)
    for call, error in (
        (lambda: server.list_schemas("nope"), "not found: database"),
        (lambda: server.list_tables("PURCHASE_INVOICE", "nope"), "not found: schema"),
        (lambda: server.describe_table("nope"), "not found: there is no table PURCHASE_INVOICE.PUBLIC.NOPE"),
        (lambda: server.describe_table("a.b.c.d.e"), "not found|invalid argument"),
        (lambda: server.describe_table("SELECT 1"), "not found|invalid argument"),
        (lambda: server.read_query("SELECT * FROM \"invoices\""), "not found: there is no table PURCHASE_INVOICE.PUBLIC.invoices"),
        (lambda: server.read_query("SELECT 1 / 0"), "invalid argument: Division by zero"),
        (lambda: server.write_query("CREATE TABLE t (a INT AUTOINCREMENT)"), "values that make themselves are not supported"),
        (lambda: server.write_query("INSERT INTO invoices (invoice_id) VALUES (NULL)"), "NOT NULL constraint failed"),
        (lambda: server.write_query("CREATE SEQUENCE s"), "invalid argument: CREATE SEQUENCE is not supported"),
        (lambda: server.write_query("GRANT SELECT ON invoices TO ROLE r"), "invalid argument: GRANT"),
        (lambda: server.write_query("USE DATABASE nope"), "not found: database NOPE"),
        (lambda: server.read_query("SHOW GRANTS"), "permission denied|invalid argument"),
        (lambda: server.append_insight(" "), "invalid argument: the insight is empty"),
    ):  # fmt: skip
        with pytest.raises(ToolError, match=error):
            call()
        assert pickle.dumps(server) == before
    with pytest.raises(ToolError, match="no current database"):
        Snowflake().read_query("SELECT * FROM t")


def test_random_changes_agree_with_a_model(server: Snowflake) -> None:
    rng = random.Random(8)
    model: dict[str, int | None] = {row[0]: row[2] for row in PAYMENTS}
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
            model = {k: v if k == key or v is None else v + 1 for k, v in model.items()}
        else:
            server.write_query(f"DELETE FROM invoice_payments WHERE invoice_id = '{key}'")
            model.pop(key, None)
        assert {row["INVOICE_ID"]: row["OUTSTANDING_FLAG"] for row in server.rows(PAID)} == model
