"""Types of the warehouses and of DuckDB, in both directions."""

from __future__ import annotations

import re

from agentgym.arguments import check_choice

_BIGQUERY = {
    "BIGINT": "INT64", "INTEGER": "INT64", "HUGEINT": "INT64", "SMALLINT": "INT64", "TINYINT": "INT64", "UBIGINT": "INT64",
    "DOUBLE": "FLOAT64", "FLOAT": "FLOAT64", "VARCHAR": "STRING", "BOOLEAN": "BOOL", "DATE": "DATE", "TIME": "TIME",
    "TIMESTAMP": "DATETIME", "TIMESTAMP WITH TIME ZONE": "TIMESTAMP", "BLOB": "BYTES", "JSON": "JSON", "INTERVAL": "INTERVAL",
    "UUID": "STRING", '"NULL"': "INT64",
}  # fmt: skip
_FROM_BIGQUERY = {
    "INT64": "BIGINT", "INTEGER": "BIGINT", "INT": "BIGINT", "FLOAT64": "DOUBLE", "FLOAT": "DOUBLE", "STRING": "VARCHAR",
    "BOOL": "BOOLEAN", "BOOLEAN": "BOOLEAN", "DATE": "DATE", "TIME": "TIME", "DATETIME": "TIMESTAMP",
    "TIMESTAMP": "TIMESTAMP WITH TIME ZONE", "NUMERIC": "DECIMAL(38,9)", "BIGNUMERIC": "DECIMAL(38,18)",
    "BYTES": "BLOB", "JSON": "JSON",
}  # fmt: skip

_SNOWFLAKE = {
    "BIGINT": "NUMBER(38,0)", "INTEGER": "NUMBER(38,0)", "HUGEINT": "NUMBER(38,0)", "SMALLINT": "NUMBER(38,0)",
    "UBIGINT": "NUMBER(38,0)", "DOUBLE": "FLOAT", "FLOAT": "FLOAT", "VARCHAR": "VARCHAR(16777216)", "BOOLEAN": "BOOLEAN",
    "DATE": "DATE", "TIME": "TIME(9)", "TIMESTAMP": "TIMESTAMP_NTZ(9)", "TIMESTAMP WITH TIME ZONE": "TIMESTAMP_LTZ(9)",
    "BLOB": "BINARY(8388608)", "JSON": "VARIANT", '"NULL"': "VARCHAR(16777216)",
}  # fmt: skip
_FROM_SNOWFLAKE = {
    "NUMBER": "DECIMAL(38,0)", "INT": "BIGINT", "INTEGER": "BIGINT", "BIGINT": "BIGINT", "FLOAT": "DOUBLE", "DOUBLE": "DOUBLE",
    "VARCHAR": "VARCHAR", "STRING": "VARCHAR", "TEXT": "VARCHAR", "BOOLEAN": "BOOLEAN", "DATE": "DATE", "TIME": "TIME",
    "TIMESTAMP_NTZ": "TIMESTAMP", "TIMESTAMP": "TIMESTAMP", "TIMESTAMP_LTZ": "TIMESTAMP WITH TIME ZONE",
    "TIMESTAMP_TZ": "TIMESTAMP WITH TIME ZONE", "VARIANT": "JSON", "OBJECT": "JSON", "ARRAY": "JSON", "BINARY": "BLOB",
}  # fmt: skip


def bigquery_type(duck: str) -> str:
    """Return BigQuery's name of a type of DuckDB."""
    if duck.endswith("[]"):
        return f"ARRAY<{bigquery_type(duck[:-2])}>"
    if duck.startswith("STRUCT("):
        return f"STRUCT<{', '.join(f'{name} {bigquery_type(kind)}' for name, kind in _fields(duck[7:-1]))}>"
    if duck.startswith("DECIMAL"):
        return "BIGNUMERIC" if int(re.findall(r"\d+", duck)[1]) > 9 else "NUMERIC"
    return _BIGQUERY.get(duck, duck)


def from_bigquery(name: str) -> str:
    """Return the DuckDB type that a type of BigQuery is kept as.

    Raises:
        ValueError: There is no such type.
    """
    if name.upper().startswith("ARRAY<"):
        return f"{from_bigquery(name[6:-1])}[]"
    check_choice("type", name.upper(), list(_FROM_BIGQUERY))
    return _FROM_BIGQUERY[name.upper()]


def _fields(text: str) -> list[tuple[str, str]]:
    """Return names and types of the fields of a DuckDB STRUCT."""
    fields, depth, start = [], 0, 0
    for k, sign in enumerate(f"{text},"):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            part = text[start:k].strip()
            name, _, kind = (
                part[1:].partition('" ') if part.startswith('"') else part.partition(" ")
            )
            fields.append((name, kind))
            start = k + 1
    return fields


def snowflake_type(duck_name: str) -> str:
    """Return Snowflake's name of a type of DuckDB."""
    if duck_name.startswith("DECIMAL"):
        return duck_name.replace("DECIMAL", "NUMBER")
    return "ARRAY" if duck_name.endswith("[]") else _SNOWFLAKE.get(duck_name, duck_name)


def snowflake_bare(duck_name: str) -> str:
    """Return Snowflake's name of a type as the information schema writes it: without precision."""
    name = snowflake_type(duck_name).partition("(")[0]
    return "TEXT" if name == "VARCHAR" else name


def from_snowflake(name: str) -> str:
    """Return the DuckDB type that a type of Snowflake is kept as.

    Raises:
        ValueError: There is no such type.
    """
    base, bracket, rest = name.upper().partition("(")
    if base in ("NUMBER", "DECIMAL", "NUMERIC") and bracket:
        return f"DECIMAL({rest}"
    check_choice("type", base, list(_FROM_SNOWFLAKE))
    return _FROM_SNOWFLAKE[base]
