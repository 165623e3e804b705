"""BigQuery: datasets, tables, queries and jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentgym.office.gcloud.cloud import PROJECT, listing
from agentgym.office.store import Row
from agentgym.office.warehouse.database import sql_hint
from agentgym.office.warehouse.engine import Column, Schema
from agentgym.office.warehouse.engine_server import EngineServer
from agentgym.office.warehouse.values import ConversionResult, fit, from_bigquery
from agentgym.text.tool_results import to_content
from agentgym.text.tools import ToolError, echo, tool

if TYPE_CHECKING:
    from agentgym.office.warehouse.dialects.bigquery import GoogleSQL

MAX_ROWS = 10_000  # see the tool's description
QUERY_MS = 1000

BIGQUERY_SCHEMA = """
CREATE TABLE bigquery_jobs (id TEXT PRIMARY KEY, statement TEXT);
"""


class BigQuery:
    """The `bigquery_*` tools, and methods that tasks call."""

    def __init__(self, server: EngineServer) -> None:
        self._server = server

    @tool
    def bigquery_run_query(self, query: str, dry_run: bool = False, max_results: int = 1000) -> str:
        """Run one GoogleSQL statement: a query, DML or DDL.

        Dates are ISO 8601 and timestamps in UTC; a NUMERIC that would lose digits as a number is text.

        Args:
            query: The SQL; tables are named `project.dataset.table` or `dataset.table`.
            dry_run: Only check the SQL; nothing runs.
            max_results: Maximum number of rows to show, up to 10000.
        """
        if not 1 <= max_results <= MAX_ROWS:
            raise ToolError(
                f"invalid argument: max_results must be between 1 and {MAX_ROWS}, got {echo(max_results)}"
            )
        if dry_run:
            kind = self._warehouse().check_statement(query)
            return f"{_head(0, 0)}\n\nNo rows: a dry run checks the statement ({kind}) and runs nothing."
        outcome = self._warehouse().run(query, max_results)
        context = self._server.context
        context.clock.tick()
        job_id = f"job_{context.new_id('job')}"
        self._server.store.insert("bigquery_jobs", id=job_id, statement=outcome.kind)
        return _response(outcome, max_results)

    @tool
    def bigquery_list_datasets(self) -> str:
        """List the datasets of the project."""
        names = sorted(self._server.engine.schemas)
        lines = [f"{name} (Project: {PROJECT})" for name in names]
        return listing("Datasets", lines, "There are no datasets.")

    @tool
    def bigquery_create_dataset(
        self, dataset_id: str, description: str = "", location: str = "US"
    ) -> str:
        """Create a dataset.

        Args:
            dataset_id: Name of the dataset: letters, digits and underscores.
            description: Description of the dataset.
            location: Location of the data, such as US or EU.
        """
        if not re.fullmatch(r"\w{1,1024}", dataset_id, re.ASCII):
            raise ToolError(
                f"invalid argument: a dataset name must consist of letters, digits and underscores, got {echo(dataset_id)}"
            )
        schemas = self._server.engine.schemas
        if dataset_id in schemas:
            raise ToolError(f"conflict: Already Exists: Dataset {PROJECT}:{dataset_id}")
        created = self._server.context.clock.tick().isoformat()
        schemas[dataset_id] = Schema(description, created, location)
        return f"Created dataset {dataset_id} in {location}"

    def load(
        self, dataset: str, table: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]
    ) -> None:
        """Create or replace a table; create the dataset if necessary.

        `columns` maps names to BigQuery types, such as STRING, INT64, FLOAT64, NUMERIC, DATE,
        DATETIME or TIMESTAMP; `rows` contain values in that order.
        """
        now, engine = self._server.context.clock.now(), self._server.engine
        engine.schemas.setdefault(dataset, Schema("", now.isoformat(), "US"))
        declared = [Column(name, from_bigquery(kind)) for name, kind in columns.items()]
        engine.load((dataset, table), declared, rows, now)

    def rows(self, dataset: str, table: str) -> list[Row]:
        """Return a table's records in insertion order."""
        schemas, tables = self._server.engine.schemas, self._server.engine.tables
        if dataset not in schemas:
            raise ToolError(f"not found: Not found: Dataset {PROJECT}:{echo(dataset)[1:-1]}")
        if (dataset, table) not in tables:
            raise ToolError(f"not found: Not found: Table {PROJECT}:{dataset}.{echo(table)[1:-1]}")
        return self._server.read_all((dataset, table)).objects()

    def tables(self, dataset: str) -> list[str]:
        """Return a dataset's table names."""
        return sorted(name for within, name in self._server.engine.tables if within == dataset)

    def _warehouse(self) -> GoogleSQL:
        with sql_hint():
            from agentgym.office.warehouse.dialects.bigquery import GoogleSQL  # noqa: PLC0415 - it takes 0.3 s to load

        return GoogleSQL(self._server.engine, self._server.context.clock.now(), PROJECT)


def _head(total: int, milliseconds: int) -> str:
    return f"Query executed successfully\nTotal rows: {total}\nExecution time: {milliseconds}ms"


def _response(outcome: ConversionResult, limit: int) -> str:
    if outcome.rows is None:
        counts = [f"{count} rows {action}" for action, count in outcome.counts.items()]
        effect = outcome.message or ", ".join(counts) or outcome.kind
        return f"{_head(0, QUERY_MS)}\n\nNo rows: {effect}"
    rows, note = fit(outcome.rows, limit)
    head = _head(outcome.rows.total, QUERY_MS)
    if not outcome.rows.total:
        return f"{head}\n\nNo rows."
    return f"{head}\n\nResults ({len(rows)} rows):\n{note}{to_content(rows, indent=2)}"
