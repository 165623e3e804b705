"""BigQuery: datasets, tables, queries and jobs. It is the first part of the server `google_cloud`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from agentgym.envs.loca.servers.context import OfficeContext, iso
from agentgym.envs.loca.servers.gcloud.cloud import PROJECT
from agentgym.envs.loca.servers.server import Server
from agentgym.envs.loca.servers.warehouse.bigquery_files import as_csv, as_lines, load_csv
from agentgym.envs.loca.servers.warehouse.engine import Engine, install_hint
from agentgym.envs.loca.servers.warehouse.tables import Column, Schema, TableName, path
from agentgym.envs.loca.servers.warehouse.types import bigquery_field, from_bigquery
from agentgym.envs.loca.servers.warehouse.values import ConversionResult, Rows, fit
from agentgym.tools import ToolError, echo, tool

if TYPE_CHECKING:
    from agentgym.envs.loca.servers.warehouse.bigquery_dialect import GoogleSQL

MAX_ROWS = 10_000
_ALL = 10_000_000

BIGQUERY_SCHEMA = """
CREATE TABLE bigquery_jobs (
    id TEXT PRIMARY KEY, kind TEXT, statement TEXT, query TEXT, target TEXT, affected INTEGER, created TEXT, place INTEGER
);
"""


class BigQuery(Server):
    """The eight `bigquery_*` tools, and what tasks fill and read datasets with.

    Attributes:
        engine: The tables.
    """

    name: ClassVar[str] = "google_cloud"
    schema: ClassVar[str] = BIGQUERY_SCHEMA
    episode_state: ClassVar[tuple[str, ...]] = ("context", "store", "session", "engine")

    def __init__(self, context: OfficeContext | None = None) -> None:
        super().__init__(context)
        self.engine = Engine(dialect="bigquery")

    @tool
    def bigquery_run_query(self, query: str, dry_run: bool = False, max_results: int = 1000) -> dict[str, Any]:
        """Run one GoogleSQL statement: a query, DML or DDL.

        Dates are ISO 8601, moments in UTC; NUMERIC is a number, or text where a number would lose digits.

        Args:
            query: The statement; tables are called `project.dataset.table` or `dataset.table`.
            dry_run: Only check that the statement can be parsed and say what it is.
            max_results: The most rows to return, up to 10000; `totalRows` tells how many there are.
        """
        if not 1 <= max_results <= MAX_ROWS:
            raise ToolError(f"invalid argument: max_results must be between 1 and {MAX_ROWS}, got {max_results}")
        house = self._house()
        tree = house.parse(query)
        if dry_run:
            return {"dryRun": True, "statementType": house.kind(tree).replace(" ", "_")}
        outcome = house.run(tree, writes=True, limit=max_results)
        affected = sum(outcome.counts.values()) if outcome.counts else None
        job = self._job("QUERY", outcome.kind, query, ".".join(outcome.target or ()), affected)
        return self._shown(outcome, job)

    @tool
    def bigquery_list_datasets(self) -> list[dict[str, Any]]:
        """List the datasets of the project."""
        return [self._dataset(name) for name in sorted(self.engine.schemas)]

    @tool
    def bigquery_create_dataset(self, dataset_id: str, description: str = "", location: str = "US") -> dict[str, Any]:
        """Create a dataset.

        Args:
            dataset_id: Its name: letters, digits and underscores.
            description: What is said of it.
            location: Where its data are kept.
        """
        name = self._house().check_dataset(dataset_id)
        if name in self.engine.schemas:
            raise ToolError(f"conflict: Already Exists: Dataset {PROJECT}:{name}")
        self.engine.schemas[name] = Schema(description, self.context.clock.tick().isoformat(), location)
        return self._dataset(name)

    @tool
    def bigquery_get_dataset_info(self, dataset_id: str) -> dict[str, Any]:
        """Get a dataset with its tables and their columns."""
        self._check_dataset(dataset_id)
        tables = [self._table(name) for name in self._tables(dataset_id)]
        return self._dataset(dataset_id) | {"numTables": len(tables), "tables": tables}

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
        rows = load_csv(self, (dataset_id, table_id), self.read_uri(csv_file_path), int(skip_header), write_mode)
        job = self._job("LOAD", "LOAD", csv_file_path, f"{dataset_id}.{table_id}", rows)
        return {
            "jobReference": job["jobReference"],
            "status": job["status"],
            "outputRows": rows,
            "table": self._table((dataset_id, table_id)),
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
        name, destination = self._check_table(dataset_id, table_id), f"gs://{destination_bucket}/{destination_path}"
        found = self._all(name)
        self.write_uri(destination, as_csv(found) if file_format == "CSV" else as_lines(found))
        job = self._job("EXTRACT", "EXTRACT", destination, f"{dataset_id}.{table_id}", found.total)
        shown = {"destinationUri": destination, "exportedRows": found.total}
        return {"jobReference": job["jobReference"], "status": job["status"], **shown}

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
            raise ToolError(f"invalid argument: max_results must be between 1 and 1000, got {max_results}")
        if state_filter in ("pending", "running"):
            return []
        found = self.store.rows("SELECT * FROM bigquery_jobs ORDER BY place DESC LIMIT ?", max_results)
        return [_job_shown(job) for job in found]

    @tool
    def bigquery_cancel_job(self, job_id: str) -> dict[str, Any]:
        """Ask to cancel a job; one that is done stays as it is."""
        job = _job_shown(self.store.get("bigquery_jobs", job_id, "job"))
        return {"kind": "bigquery#jobCancelResponse", "job": job}

    # For tasks.

    def load(self, dataset: str, table: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> None:
        """Make or replace a table (and its dataset) with records.

        Args:
            dataset: The dataset.
            table: The table.
            columns: The BigQuery type of each column, such as STRING, INT64, FLOAT64, NUMERIC, DATE, DATETIME, TIMESTAMP.
            rows: The records, their values in the order of the columns.
        """
        now = self.context.clock.now()
        self.engine.schemas.setdefault(dataset, Schema("", now.isoformat(), "US"))
        self.engine.load((dataset, table), [Column(name, from_bigquery(kind)) for name, kind in columns.items()], rows, now)

    def rows(self, dataset: str, table: str) -> list[dict[str, Any]]:
        """All records of a table, in the order in which they were put in.

        Raises:
            ToolError: There is no such table.
        """
        return self._all(self._check_table(dataset, table)).objects()

    def tables(self, dataset: str) -> list[str]:
        """The names of the tables of a dataset."""
        return [name for _, name in self._tables(dataset)]

    def comments(self, dataset: str, table: str) -> dict[str, str]:
        """The description of each column of a table."""
        return {column.name: column.comment for column in self.engine.tables[self._check_table(dataset, table)].columns}

    def read_uri(self, uri: str) -> bytes:
        """The bytes of a file in the workspace; Cloud Storage adds what `gs://` names."""
        return self.context.files.read(_local(uri))

    def write_uri(self, uri: str, data: bytes) -> None:
        """Write a file in the workspace; Cloud Storage adds what `gs://` names."""
        self.context.files.write(_local(uri), data)

    def close(self) -> None:
        """Let go of the engine's memory outside of Python."""
        self.engine.close()

    def _house(self) -> GoogleSQL:
        with install_hint():
            from agentgym.envs.loca.servers.warehouse.bigquery_dialect import GoogleSQL  # noqa: PLC0415 - it takes 0.3 s to load

        return GoogleSQL(self.engine, self.context.clock.now(), PROJECT)

    def _tables(self, dataset: str) -> list[TableName]:
        return sorted(name for name in self.engine.tables if name[0] == dataset)

    def _all(self, name: TableName) -> Rows:
        return self.engine.read(f"SELECT * FROM {path(name)}", [name], self.context.clock.now(), _ALL)

    def _check_dataset(self, dataset: str) -> None:
        if dataset not in self.engine.schemas:
            raise ToolError(f"not found: Not found: Dataset {PROJECT}:{echo(dataset)[1:-1]}")

    def _check_table(self, dataset: str, table: str) -> TableName:
        self._check_dataset(dataset)
        if (dataset, table) not in self.engine.tables:
            raise ToolError(f"not found: Not found: Table {PROJECT}:{dataset}.{echo(table)[1:-1]}")
        return dataset, table

    def _dataset(self, name: str) -> dict[str, Any]:
        held = self.engine.schemas[name]
        reference = {"projectId": PROJECT, "datasetId": name}
        return {
            "kind": "bigquery#dataset", "id": f"{PROJECT}:{name}", "datasetReference": reference, "location": held.notes or "US",
            "description": held.comment, "creationTime": held.created,
        }  # fmt: skip

    def _table(self, name: TableName) -> dict[str, Any]:
        held = self.engine.table(name)
        reference = {"projectId": PROJECT, "datasetId": name[0], "tableId": name[1]}
        return {
            "tableReference": reference, "type": "VIEW" if held.view else "TABLE", "description": held.comment,
            "numRows": held.rows,
            "schema": {"fields": [bigquery_field(column) for column in held.columns]}, "creationTime": held.created,
        }  # fmt: skip

    def _job(self, kind: str, statement: str, query: str, target: str, affected: int | None) -> dict[str, Any]:
        created = iso(self.context.clock.tick())
        place = int(self.store.value("SELECT count(*) FROM bigquery_jobs"))
        job = {
            "id": f"job_{self.context.new_id('job')}",
            "kind": kind,
            "statement": statement,
            "query": query[:2000],
            "target": target,
        }
        self.store.insert("bigquery_jobs", **job, affected=affected, created=created, place=place)
        return _job_shown(job | {"affected": affected, "created": created})

    def _shown(self, outcome: ConversionResult, job: Mapping[str, Any]) -> dict[str, Any]:
        shown = {"jobReference": job["jobReference"], "jobComplete": True, "statementType": outcome.kind}
        if outcome.rows is None:
            return shown | _counts(outcome) | ({"message": outcome.message} if outcome.message else {})
        rows, note = fit(outcome.rows)
        fields = [bigquery_field(Column(name, kind)) for name, kind in zip(outcome.rows.names, outcome.rows.types, strict=True)]
        shown |= {"schema": {"fields": fields}, "totalRows": outcome.rows.total, "rows": rows}
        return shown | note


def _job_shown(job: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "jobReference": {"projectId": PROJECT, "jobId": job["id"]}, "jobType": job["kind"], "statementType": job["statement"],
        "query": job["query"], "target": job["target"], "status": {"state": "DONE"}, "affectedRows": job["affected"],
        "creationTime": job["created"],
    }  # fmt: skip


def _local(uri: str) -> str:
    if "://" in uri:
        raise ToolError(f"invalid argument: {echo(uri)} is neither gs://bucket/object nor the path of a file in the workspace")
    return uri


def _counts(outcome: ConversionResult) -> dict[str, Any]:
    """What a statement changed, as the statistics of its job say it."""
    shown: dict[str, Any] = {}
    if outcome.counts:
        shown["numDmlAffectedRows"] = sum(outcome.counts.values())
        shown["dmlStats"] = {f"{done}RowCount": count for done, count in outcome.counts.items()}
    if outcome.target:
        shown["ddlTargetTable" if not outcome.counts else "destinationTable"] = ".".join(outcome.target)
    return shown
