"""Checks and plan steps for the customer table of WoocommerceNewWelcome."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from agentgym.envs.loca.calls import Effects
from agentgym.envs.loca.checks import identical, row_failures
from agentgym.envs.loca.fragments import fields_of
from agentgym.envs.loca.plan import Piece, look, write
from agentgym.envs.loca.published.files import Rows
from agentgym.envs.loca.results import query_rows
from agentgym.office.context import iso

DATASET = "woocommerce_crm"
TABLE = "customers"
TEMPLATE = "welcome_email_template.md"
CREDENTIALS = "admin_credentials.txt"

NOW = datetime(2025, 11, 20, 9, tzinfo=UTC)
FROM = NOW - timedelta(days=7)  # the earliest order time that counts
TODAY = f"{NOW:%Y-%m-%d}"
TYPES = {
    "id": "INT64",
    "woocommerce_id": "INT64",
    "email": "STRING",
    "first_name": "STRING",
    "last_name": "STRING",
    "phone": "STRING",
    "first_order_date": "TIMESTAMP",
    "welcome_email_sent": "BOOL",
    "welcome_email_date": "DATE",
    "sync_date": "DATE",
    "metadata": "STRING",
}
# Columns that are copied from the billing address.
BILLING = ("email", "first_name", "last_name", "phone")
CHUNK = 200  # maximum rows per statement


def customer_failures(rows: Rows, expected: Rows) -> Iterator[str]:
    """Compare the rows of the customer table with the expected rows."""
    cells = dict.fromkeys(TYPES, identical)
    yield from row_failures(TABLE, rows, expected, cells, ("woocommerce_id",))


def without_own(rows: list[list[int]], _: Effects, own: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the rows that the agent has not added; see `PlanStep.mark_own`."""
    return [row for row in rows if row not in own]


def settle_rows(output: str, rows: Rows, known_owners: Collection[int]) -> Piece:
    """Check a table that off-plan calls changed; return the steps that add the missing rows."""
    seen = yield look(
        "tables",
        "Look at the new rows.",
        query_rows,
        "bigquery_run_query",
        query=f"SELECT * FROM {DATASET}.{TABLE} {_own_rows(known_owners)}",
        max_results=10_000,
    )
    if seen is not None and not any(customer_failures(seen, rows)):
        return []
    change = functools.partial(write, thing="tables")
    if seen:
        query = f"DELETE FROM {DATASET}.{TABLE} {_own_rows(known_owners)}"
        label = "Remove the new rows, some of which are wrong."
        yield change(label, output, "bigquery_run_query", query=query)
    steps = []
    for k in range(0, len(rows), CHUNK):
        chunk = rows[k : k + CHUNK]
        label = f"Add those of the rows {k + 1} to {k + len(chunk)} of the new customers that the table lacks."
        steps.append(change(label, output, "bigquery_run_query", query=_insert_missing(chunk)))
    return steps


def _own_rows(known_owners: Collection[int]) -> str:
    owners = ", ".join(map(str, sorted(known_owners)))
    others = f" OR woocommerce_id NOT IN ({owners})" if owners else " OR TRUE"
    return f"WHERE sync_date IS NULL OR sync_date >= '{TODAY}'{others}"


def row_of(
    number: int, owner: int, person: Mapping[str, Any], first_order: datetime
) -> dict[str, Any]:
    """Return the row of a new customer before the welcome email."""
    return {
        "id": number,
        "woocommerce_id": owner,
        **fields_of(person["billing"], *BILLING),
        "first_order_date": iso(first_order),
        "welcome_email_sent": False,
        "welcome_email_date": TODAY,
        "sync_date": TODAY,
        "metadata": None,
    }


def _insert_missing(rows: Rows) -> str:
    names = ", ".join(TYPES)
    form = ", ".join(map(" ".join, TYPES.items()))
    return (
        f"INSERT INTO {DATASET}.{TABLE} ({names}) SELECT {names} FROM UNNEST(ARRAY<STRUCT<{form}>>[{_values(rows)}]) "
        f"WHERE woocommerce_id NOT IN (SELECT woocommerce_id FROM {DATASET}.{TABLE})"
    )


def _values(rows: Rows) -> str:
    # For the types in TYPES, JSON literals are valid GoogleSQL literals.
    tuples = []
    for row in rows:
        values = [json.dumps(row[name], ensure_ascii=False) for name in TYPES]
        tuples.append(f"({', '.join(values)})")
    return ", ".join(tuples)
