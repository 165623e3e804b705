"""SQL functions return the documented values, and cannot read the environment."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import duckdb
import pytest

from agentgym.envs.loca.results import query_rows
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.office.warehouse.database import _MACROS
from agentgym.office.warehouse.snowflake import Snowflake
from agentgym.text.tools import ToolError, tools_of

FOLDER = Path(__file__).parent
GOOGLE = GoogleCloud()
SNOWFLAKE = Snowflake()


def ask_google(*items: str) -> list[str]:
    query = "SELECT " + ", ".join(f"{item} AS c{k}" for k, item in enumerate(items))
    (row,) = query_rows(GOOGLE.bigquery.bigquery_run_query(query))
    return [json.dumps(value, ensure_ascii=False) for value in row.values()]


def ask_snowflake(*items: str) -> list[str]:
    query = "SELECT " + ", ".join(f"{item} AS C{k}" for k, item in enumerate(items))
    text = str(tools_of(SNOWFLAKE)["read_query"]({"query": query}))
    values = re.findall(r"^\s*-?\s*C[0-9]+: ?(.*)$", text, re.MULTILINE)
    assert len(values) == len(items), text
    return values


def parts(items: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    rest = iter(items)
    while part := tuple(islice(rest, 40)):
        yield part


ASK: dict[str, Callable[..., list[str]]] = {"googlesql": ask_google, "snowflake": ask_snowflake}


@pytest.mark.parametrize("dialect", ASK)
def test_functions_have_the_values_of_the_manual(dialect: str) -> None:
    lines = (FOLDER / f"{dialect}.tsv").read_text(encoding="utf-8").splitlines()
    items, values = zip(*(line.split("\t") for line in lines), strict=True)
    assert len(items) > 140
    found = [value for part in parts(items) for value in ASK[dialect](*part)]
    wrong = [row for row in zip(items, values, found, strict=True) if row[1] != row[2]]
    assert wrong == []


REFUSED = (FOLDER / "refused.tsv").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_computed_is_refused_and_not_computed_wrong(line: str) -> None:
    dialect, item = line.split("\t")
    with pytest.raises(ToolError, match=r"not supported|not found|invalid argument"):
        ASK[dialect](item)


def outside_names() -> list[str]:
    """Return DuckDB's functions that depend on session or time, or need no parentheses."""
    rows = duckdb.sql(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE len(parameters) = 0 AND "
        "(stability <> 'CONSISTENT' OR macro_definition ILIKE '%current%')"
    ).fetchall()
    seeded = {"random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7"}
    by_name_only = {"current_connection_id", "current_query", "current_query_id", "current_transaction_id",
                    "pg_conf_load_time", "pg_postmaster_start_time", "txid_current"}  # fmt: skip
    bare = {*"localtime localtimestamp current_time current_timestamp user current_role".split()}
    return sorted(
        {name for (name,) in rows} - seeded - by_name_only | bare | {*_MACROS["hidden"].values()}
    )


@pytest.mark.parametrize("dialect", ASK)
def test_no_statement_tells_of_the_process(dialect: str) -> None:
    own = ("2025-01-1", "T09:", "09:")
    for name in outside_names():
        for form in (name, f'"{name}"', f"`{name}`", f"{name}()"):
            try:
                (value,) = ASK[dialect](form)
            except ToolError:
                continue
            told = value.strip('"') in ("", "null", name) or any(part in value for part in own)
            assert told, (form, value)


def test_columns_may_have_the_names_of_functions() -> None:
    google: Callable[[str], str] = GOOGLE.bigquery.bigquery_run_query
    for name in ("user", "version", "today", "localtime"):
        query = f"SELECT {name} FROM (SELECT 5 AS {name}) ORDER BY {name}"
        assert query_rows(google(query)) == [{name: 5}]


def test_an_error_names_what_was_to_be_made() -> None:
    with pytest.raises(ToolError, match="not supported: CREATE TASK"):
        tools_of(SNOWFLAKE)["write_query"]({"query": "CREATE TASK K AS SELECT 1"})
