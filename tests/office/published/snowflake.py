"""The published Snowflake server's calls, and the differences."""

from __future__ import annotations

from agentgym.office.warehouse.snowflake import Snowflake
from tests.office.published import Call, Difference

TABLE = "SALES.PUBLIC.ORDERS"


def prepared() -> Snowflake:
    server = Snowflake()
    columns = {"ID": "INTEGER", "NOTE": "VARCHAR", "TOTAL": "NUMBER(12,2)"}
    server.load(TABLE, columns, [(1, "first", "9.50"), (2, None, "3")])
    return server


def block(records: str, *lines: str) -> str:
    head = r"type: data\ndata_id: [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\n"
    return head + "".join(f"{line}\n" for line in lines) + f"data:\n{records}"


def record(*fields: str) -> str:
    return "\n".join(["- ", *(f"  {field}" for field in fields)])


DATA_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
CALLS = [
    Call("list_databases", {}, block(record("DATABASE_NAME: SALES"))),
    Call(
        "list_schemas",
        {"database": "sales"},
        block(record("SCHEMA_NAME: PUBLIC"), "database: sales"),
    ),
    Call(
        "list_tables",
        {"database": "SALES", "schema": "public"},
        block(
            record(
                "TABLE_CATALOG: SALES",
                "TABLE_SCHEMA: PUBLIC",
                "TABLE_NAME: ORDERS",
                "COMMENT: null",
            ),
            "database: SALES",
            "schema: public",
        ),
    ),
    Call(
        "describe_table",
        {"table_name": TABLE},
        block(
            "\n".join(
                record(
                    f"COLUMN_NAME: {name}",
                    "COLUMN_DEFAULT: null",
                    "IS_NULLABLE: YES",
                    f"DATA_TYPE: {kind}",
                    "COMMENT: null",
                )
                for name, kind in (
                    ("ID", r"NUMBER\(38,0\)"),
                    ("NOTE", r"VARCHAR\(16777216\)"),
                    ("TOTAL", r"NUMBER\(12,2\)"),
                )
            ),
            "database: SALES",
            "schema: PUBLIC",
            "table: ORDERS",
        ),
    ),
    Call(
        "read_query",
        {"query": f"SELECT ID, NOTE, TOTAL FROM {TABLE} ORDER BY ID"},
        block(
            "\n".join(
                [
                    record("ID: 1", "NOTE: first", r"TOTAL: 9\.5"),
                    record("ID: 2", "NOTE: null", "TOTAL: 3"),
                ]
            )
        ),
    ),
    Call(
        "read_query",
        {"query": f"SELECT ID FROM {TABLE} WHERE 1 = 0"},
        rf"type: data\ndata_id: {DATA_ID}\ndata: \[\]",
    ),
    Call(
        "write_query",
        {"query": f"UPDATE {TABLE} SET NOTE = 'x'"},
        rf"Query succeeded: 2 rows affected \(2 updated\)\. data_id: {DATA_ID}",
    ),
    Call(
        "create_table",
        {"query": "CREATE TABLE SALES.PUBLIC.MORE (A INT)"},
        rf"Table MORE successfully created\. data_id: {DATA_ID}",
    ),
    Call("append_insight", {"insight": "Two orders."}, "Insight added to memo"),
]

DIFFERENCES = {
    "list_schemas": Difference("A database that is not there is an error, as in Snowflake."),
    "list_tables": Difference(
        "A database or schema that is not there is an error, as in Snowflake."
    ),
    "describe_table": Difference(
        "Types are those that Snowflake shows, names of one or two parts are completed from the session, and a table that is not "
        "there is an error."
    ),
    "read_query": Difference(
        "Snowflake's own SQL runs: WITH, SHOW, DESCRIBE, names of one or two parts and INFORMATION_SCHEMA; a text with a line "
        "break is written as a JSON string; beyond 10,000 rows or 1 MiB a line `note` tells how many rows there are."
    ),
    "write_query": Difference(
        "Snowflake's own SQL runs (MERGE, COMMENT ON, USE, transactions); the answer tells the effect in parentheses, and a DDL "
        "statement counts 0 rows, not -1."
    ),
    "create_table": Difference(
        "A table that is there already is an error, unless the statement says IF NOT EXISTS or OR REPLACE."
    ),
}
