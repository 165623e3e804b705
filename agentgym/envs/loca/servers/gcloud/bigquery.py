"""BigQuery: datasets, tables, queries and jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from agentgym.envs.loca.servers.context import OfficeContext, iso
from agentgym.envs.loca.servers.gcloud.bigquery_files import as_csv, as_lines, load_csv
from agentgym.envs.loca.servers.gcloud.cloud import PROJECT
from agentgym.envs.loca.servers.gcloud.storage import Storage
from agentgym.envs.loca.servers.store import Store
from agentgym.envs.loca.servers.warehouse.engine import Engine, sql_hint
from agentgym.envs.loca.servers.warehouse.tables import Column, Schema, TableName, path
from agentgym.envs.loca.servers.warehouse.types import bigquery_field, from_bigquery
from agentgym.envs.loca.servers.warehouse.values import ConversionResult, Rows, fit
from agentgym.tools import ToolError, echo, tool

if TYPE_CHECKING:
    from agentgym.envs.loca.servers.warehouse.bigquery_dialect import GoogleSQL

MAX_ROWS = 10_000
"""Rows of one result, as the tool says."""
_ALL = 10_000_000
"""A limit beyond the rows of any table, to read all of it."""

BIGQUERY_SCHEMA = """
CREATE TABLE bigquery_jobs (
    id TEXT PRIMARY KEY, kind TEXT, statement TEXT, query TEXT, target TEXT, affected INTEGER, created TEXT, place INTEGER
);
"""


class EngineServer(Protocol):
    """A server whose episode has an SQL engine."""

    context: OfficeContext
    store: Store
    engine: Engine


class BigQuery:
    """The eight `bigquery_*` tools, and what tasks fill and read datasets with.

    Args:
        server: The server that this is a part of.
        storage: Holds what is called `gs://bucket/object`.
    """

    def __init__(self, server: EngineServer, storage: Storage) -> None:
        self._server = server
        self._storage = storage

    @tool
    def bigquery_run_query(
        self, query: str, dry_run: bool = False, max_results: int = 1000
    ) -> dict[str, Any]:
        """Run one GoogleSQL statement: a query, DML or DDL.

        Dates are ISO 8601, moments in UTC; NUMERIC is a number, or text where a number would lose digits.

        Args:
            query: The statement; tables are called `project.dataset.table` or `dataset.table`.
            dry_run: Only check that the statement can be parsed and say what it is.
            max_results: The most rows to return, up to 10000; `totalRows` tells how many there are.
        """
        if not 1 <= max_results <= MAX_ROWS:
            raise ToolError(
                f"invalid argument: max_results must be between 1 and {MAX_ROWS}, got {max_results}"
            )
        warehouse = self._warehouse()
        tree = warehouse.parse(query)
        if dry_run:
            return {"dryRun": True, "statementType": warehouse.kind(tree).replace(" ", "_")}
        outcome = warehouse.run(tree, writes=True, limit=max_results)
        affected = sum(outcome.counts.values()) if outcome.counts else None
        job = self._job("QUERY", outcome.kind, query, ".".join(outcome.target or ()), affected)
        return self._response(outcome, job)

    @tool
    def bigquery_list_datasets(self) -> list[dict[str, Any]]:
        """List the datasets of the project."""
        return [self._dataset_resource(name) for name in sorted(self._server.engine.schemas)]

    @tool
    def bigquery_create_dataset(
        self, dataset_id: str, description: str = "", location: str = "US"
    ) -> dict[str, Any]:
        """Create a dataset.

        Args:
            dataset_id: Its name: letters, digits and underscores.
            description: What is said of it.
            location: Where its data are kept.
        """
        name = self._warehouse().check_dataset(dataset_id)
        if name in self._server.engine.schemas:
            raise ToolError(f"conflict: Already Exists: Dataset {PROJECT}:{name}")
        self._server.engine.schemas[name] = Schema(
            description, self._server.context.clock.tick().isoformat(), location
        )
        return self._dataset_resource(name)

    @tool
    def bigquery_get_dataset_info(self, dataset_id: str) -> dict[str, Any]:
        """Get a dataset with its tables and their columns."""
        self._check_dataset(dataset_id)
        tables = [self._table_resource(name) for name in self._table_names(dataset_id)]
        return self._dataset_resource(dataset_id) | {"numTables": len(tables), "tables": tables}

    @tool
    def bigquery_load_csv_data(
        self,
        dataset_id: str,
        table_id: str,
        csv_file_path: str,
        skip_header: bool = True,
        write_mode: Literal["WRITE_TRUNCATE", "WRITE_APPEND", "WRITE_EMPTY"] = "WRITE_TRUNCATE",
    ) -> dict[str, Any]:
        """Load a CSV file into a table, which is made, with types found in the data, if there is none.

        Args:
            dataset_id: The dataset.
            table_id: The table.
            csv_file_path: The path of a file in the workspace, or `gs://bucket/object`.
            skip_header: Whether the first row is no data; it then names the columns of a new table.
            write_mode: Replace the rows of the table, add to them, or refuse if it has any.
        """
        self._check_dataset(dataset_id)
        rows = load_csv(
            self._server.engine,
            (dataset_id, table_id),
            self.read_uri(csv_file_path),
            int(skip_header),
            write_mode,
            self._server.context.clock.now(),
        )
        job = self._job("LOAD", "LOAD", csv_file_path, f"{dataset_id}.{table_id}", rows)
        return {
            "jobReference": job["jobReference"],
            "status": job["status"],
            "outputRows": rows,
            "table": self._table_resource((dataset_id, table_id)),
        }

    @tool
    def bigquery_export_table(
        self,
        dataset_id: str,
        table_id: str,
        destination_bucket: str,
        destination_path: str,
        file_format: Literal["CSV", "NEWLINE_DELIMITED_JSON"] = "CSV",
    ) -> dict[str, Any]:
        """Export all rows of a table to an object of Cloud Storage.

        Args:
            dataset_id: The dataset.
            table_id: The table.
            destination_bucket: The bucket.
            destination_path: The name of the object.
            file_format: What kind of file.
        """
        name, destination = (
            self._check_table(dataset_id, table_id),
            f"gs://{destination_bucket}/{destination_path}",
        )
        rows = self._read_all(name)
        self.write_uri(destination, as_csv(rows) if file_format == "CSV" else as_lines(rows))
        job = self._job("EXTRACT", "EXTRACT", destination, f"{dataset_id}.{table_id}", rows.total)
        summary = {"destinationUri": destination, "exportedRows": rows.total}
        return {"jobReference": job["jobReference"], "status": job["status"], **summary}

    @tool
    def bigquery_list_jobs(
        self, max_results: int = 50, state_filter: Literal["", "done", "pending", "running"] = ""
    ) -> list[dict[str, Any]]:
        """List the jobs of the project, the latest first.

        Args:
            max_results: The most to return, up to 1000.
            state_filter: Only jobs in this state, if it is given; every job is done when its call returns.
        """
        if not 1 <= max_results <= 1000:
            raise ToolError(
                f"invalid argument: max_results must be between 1 and 1000, got {max_results}"
            )
        if state_filter in ("pending", "running"):
            return []
        jobs = self._server.store.rows(
            "SELECT * FROM bigquery_jobs ORDER BY place DESC LIMIT ?", max_results
        )
        return [_job_resource(job) for job in jobs]

    @tool
    def bigquery_cancel_job(self, job_id: str) -> dict[str, Any]:
        """Ask to cancel a job; one that is done stays as it is."""
        job = _job_resource(self._server.store.get("bigquery_jobs", job_id, "job"))
        return {"kind": "bigquery#jobCancelResponse", "job": job}

    # For tasks.

    def load(
        self, dataset: str, table: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]
    ) -> None:
        """Make or replace a table (and its dataset) with records.

        Args:
            dataset: The dataset.
            table: The table.
            columns: The BigQuery type of each column, such as STRING, INT64, FLOAT64, NUMERIC,
                DATE, DATETIME, TIMESTAMP.
            rows: The records, their values in the order of the columns.
        """
        now = self._server.context.clock.now()
        self._server.engine.schemas.setdefault(dataset, Schema("", now.isoformat(), "US"))
        self._server.engine.load(
            (dataset, table),
            [Column(name, from_bigquery(kind)) for name, kind in columns.items()],
            rows,
            now,
        )

    def rows(self, dataset: str, table: str) -> list[dict[str, Any]]:
        """Return all records of a table, in the order in which they were put in.

        Raises:
            ToolError: There is no such table.
        """
        return self._read_all(self._check_table(dataset, table)).objects()

    def tables(self, dataset: str) -> list[str]:
        """Return the names of the tables of a dataset."""
        return [name for _, name in self._table_names(dataset)]

    def comments(self, dataset: str, table: str) -> dict[str, str]:
        """Return the description of each column of a table."""
        return {
            column.name: column.comment
            for column in self._server.engine.tables[self._check_table(dataset, table)].columns
        }

    def read_uri(self, uri: str) -> bytes:
        """Return the bytes of gs://bucket/object, or of a file in the workspace."""
        return (
            self._storage.read_gs(uri)
            if uri.startswith("gs://")
            else self._server.context.files.read(_local(uri))
        )

    def write_uri(self, uri: str, data: bytes) -> None:
        """Write gs://bucket/object, or a file in the workspace."""
        if uri.startswith("gs://"):
            self._storage.write_gs(uri, data)
        else:
            self._server.context.files.write(_local(uri), data)

    def _warehouse(self) -> GoogleSQL:
        with sql_hint():
            from agentgym.envs.loca.servers.warehouse.bigquery_dialect import GoogleSQL  # noqa: PLC0415 - it takes 0.3 s to load

        return GoogleSQL(self._server.engine, self._server.context.clock.now(), PROJECT)

    def _table_names(self, dataset: str) -> list[TableName]:
        return sorted(name for name in self._server.engine.tables if name[0] == dataset)

    def _read_all(self, name: TableName) -> Rows:
        return self._server.engine.read(
            f"SELECT * FROM {path(name)}", [name], self._server.context.clock.now(), _ALL
        )

    def _check_dataset(self, dataset: str) -> None:
        if dataset not in self._server.engine.schemas:
            raise ToolError(f"not found: Not found: Dataset {PROJECT}:{echo(dataset)[1:-1]}")

    def _check_table(self, dataset: str, table: str) -> TableName:
        self._check_dataset(dataset)
        if (dataset, table) not in self._server.engine.tables:
            raise ToolError(f"not found: Not found: Table {PROJECT}:{dataset}.{echo(table)[1:-1]}")
        return dataset, table

    def _dataset_resource(self, name: str) -> dict[str, Any]:
        schema = self._server.engine.schemas[name]
        reference = {"projectId": PROJECT, "datasetId": name}
        return {
            "kind": "bigquery#dataset", "id": f"{PROJECT}:{name}", "datasetReference": reference, "location": schema.notes or "US",
            "description": schema.comment, "creationTime": schema.created,
        }  # fmt: skip

    def _table_resource(self, name: TableName) -> dict[str, Any]:
        table = self._server.engine.table(name)
        reference = {"projectId": PROJECT, "datasetId": name[0], "tableId": name[1]}
        return {
            "tableReference": reference, "type": "VIEW" if table.view else "TABLE", "description": table.comment,
            "numRows": table.rows,
            "schema": {"fields": [bigquery_field(column) for column in table.columns]}, "creationTime": table.created,
        }  # fmt: skip

    def _job(
        self, kind: str, statement: str, query: str, target: str, affected: int | None
    ) -> dict[str, Any]:
        created = iso(self._server.context.clock.tick())
        place = int(self._server.store.value("SELECT count(*) FROM bigquery_jobs"))
        job = {
            "id": f"job_{self._server.context.new_id('job')}",
            "kind": kind,
            "statement": statement,
            "query": query[:2000],
            "target": target,
        }
        self._server.store.insert(
            "bigquery_jobs", **job, affected=affected, created=created, place=place
        )
        return _job_resource(job | {"affected": affected, "created": created})

    def _response(self, outcome: ConversionResult, job: Mapping[str, Any]) -> dict[str, Any]:
        response = {
            "jobReference": job["jobReference"],
            "jobComplete": True,
            "statementType": outcome.kind,
        }
        if outcome.rows is None:
            return (
                response
                | _statistics(outcome)
                | ({"message": outcome.message} if outcome.message else {})
            )
        rows, note = fit(outcome.rows)
        fields = [
            bigquery_field(Column(name, kind))
            for name, kind in zip(outcome.rows.names, outcome.rows.types, strict=True)
        ]
        response |= {"schema": {"fields": fields}, "totalRows": outcome.rows.total, "rows": rows}
        return response | note


def _job_resource(job: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "jobReference": {"projectId": PROJECT, "jobId": job["id"]}, "jobType": job["kind"], "statementType": job["statement"],
        "query": job["query"], "target": job["target"], "status": {"state": "DONE"}, "affectedRows": job["affected"],
        "creationTime": job["created"],
    }  # fmt: skip


def _local(uri: str) -> str:
    if "://" in uri:
        raise ToolError(
            f"invalid argument: {echo(uri)} is neither gs://bucket/object nor the path of a file in the workspace"
        )
    return uri


def _statistics(outcome: ConversionResult) -> dict[str, Any]:
    """Return the changes of a statement as the statistics of its job say them."""
    statistics: dict[str, Any] = {}
    if outcome.counts:
        statistics["numDmlAffectedRows"] = sum(outcome.counts.values())
        statistics["dmlStats"] = {
            f"{action}RowCount": count for action, count in outcome.counts.items()
        }
    if outcome.target:
        statistics["ddlTargetTable" if not outcome.counts else "destinationTable"] = ".".join(
            outcome.target
        )
    return statistics
