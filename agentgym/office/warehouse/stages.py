"""Snowflake stages: files between the workspace and the tables."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Sequence
from posixpath import basename
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import exp

from agentgym.office.context import iso
from agentgym.office.warehouse.engine_server import ALL_ROWS
from agentgym.office.warehouse.tables import Column
from agentgym.office.warehouse.values import ConversionResult, Rows
from agentgym.text.tools import ToolError, echo

if TYPE_CHECKING:
    from agentgym.office.warehouse.dialects.snowflake import SnowSQL
    from agentgym.office.warehouse.snowflake import Snowflake

MAX_BYTES = 64 * 2**20
"""Maximum total bytes of the files on all stages."""
# The options of a file format, with their defaults.
_FORMAT = {
    "TYPE": "CSV",
    "FIELD_DELIMITER": ",",
    "SKIP_HEADER": "0",
    "FIELD_OPTIONALLY_ENCLOSED_BY": "NONE",
    "NULL_IF": "",
    "COMPRESSION": "NONE",
}
_OPTIONS = ("FILE_FORMAT", "FILES", "HEADER", "SINGLE", "OVERWRITE")


class Stages:
    """Statements about stages, in a dialect and on its server's files.

    Args:
        server: Holds the stages, their files and the workspace.
        warehouse: Holds the tables.
    """

    def __init__(self, server: Snowflake, warehouse: SnowSQL) -> None:
        self._server = server
        self._warehouse = warehouse

    def reader(self, tree: Any) -> Callable[[], Rows] | None:
        """Return the handler of a reading statement, if it concerns stages."""
        if isinstance(tree, exp.ListStage):
            return lambda: self._list(tree.this.name)
        if isinstance(tree, exp.Show) and str(tree.this).upper() == "STAGES":
            return self._show
        return None

    def writer(self, tree: Any) -> Callable[[], ConversionResult] | None:
        """Return the handler of a changing statement, if it concerns stages."""
        action = self._WRITERS.get(type(tree)) or self._WRITERS.get(self._warehouse.kind(tree))
        return None if action is None else lambda: action(self, tree)

    def _show(self) -> Rows:
        stages = self._server.store.find("stages", order="name")
        names = [row["name"].split(".", 2) for row in stages]  # a quoted name may contain dots
        return Rows.of_texts(
            ("created_on", "name", "database_name", "schema_name"),
            [
                (row["created"], name, database, schema)
                for row, (database, schema, name) in zip(stages, names, strict=True)
            ],
        )

    def _list(self, place: str) -> Rows:
        return Rows.of_texts(
            ("name", "size", "md5", "last_modified"),
            [
                (row["path"], row["size"], row["md5"], row["modified"])
                for row in self._files(*self._place(place))
            ],
        )

    def _create(self, tree: Any) -> ConversionResult:
        name = self._stage_name(tree.this.sql("snowflake"))
        exists = self._server.store.find("stages", name=name)
        if exists and not tree.args.get("replace"):
            if tree.args.get("exists"):
                return ConversionResult("CREATE_STAGE", message=f"{name} already exists")
            raise ToolError(f"conflict: the stage {name} already exists")
        if exists:
            self._remove_stage(name)
        now = iso(self._server.context.clock.now())
        self._server.store.insert("stages", name=name, created=now)
        return ConversionResult("CREATE_STAGE", message=f"Stage {name} successfully created")

    def _drop(self, tree: Any) -> ConversionResult:
        for table in tree.args["tables"]:
            name = self._stage_name(table.sql("snowflake"))
            if not self._remove_stage(name) and not tree.args.get("exists"):
                raise ToolError(f"not found: the stage {name} does not exist or not authorized")
        return ConversionResult("DROP_STAGE", message="Stage successfully dropped")

    def _remove_stage(self, name: str) -> int:
        self._server.store.delete("stage_files", stage=name)
        return self._server.store.delete("stages", name=name)

    def _put(self, tree: Any) -> ConversionResult:
        stage, folder = self._place(tree.args["target"].name)
        path = _local(tree.this.name)
        data = self._server.context.files.read(path)
        self._write(stage, f"{folder.rstrip('/')}/{basename(path)}".lstrip("/"), data)
        return ConversionResult("PUT", message=f"{basename(path)} uploaded")

    def _get(self, tree: Any) -> ConversionResult:
        words = _words(tree)
        if len(words) < 2:
            raise ToolError("invalid argument: write GET @stage/path file:///workspace/folder/")
        folder = _local(words[1])
        rows = self._files(*self._place(words[0]))
        for row in rows:
            path = f"{folder.rstrip('/')}/{basename(row['path'])}"
            self._server.context.files.write(path, self._data(row["id"]))
        return ConversionResult("GET", message=f"{len(rows)} files downloaded")

    def _remove(self, tree: exp.Command) -> ConversionResult:
        rows = self._files(*self._place((_words(tree) or [""])[0]))
        for row in rows:
            self._server.store.delete("stage_files", id=row["id"])
        return ConversionResult("REMOVE", message=f"{len(rows)} files removed")

    def _copy(self, tree: Any) -> ConversionResult:
        options = _copy_options(tree)
        target, source = tree.this, tree.args["files"][0]
        if _is_stage(target):
            return self._unload(target.name, source, options)
        if not _is_stage(source):
            raise ToolError(
                "invalid argument: COPY INTO needs a stage, as in COPY INTO t FROM @s/a.csv"
            )
        return self._load(target, source.name, options)

    def _load(self, target: Any, place: str, options: dict[str, Any]) -> ConversionResult:
        table = target.this if isinstance(target, exp.Schema) else target
        name = self._warehouse.find_table(table)
        columns = list(self._server.engine.tables[name].columns)
        listed = (
            [self._warehouse.column_of(name, item.name) for item in target.expressions]
            if isinstance(target, exp.Schema)
            else columns
        )
        records = [
            record
            for row in self._files(*self._place(place))
            if not options["FILES"] or basename(row["path"]) in options["FILES"]
            for record in _parse(self._data(row["id"]), listed, options)
        ]
        places = {column: k for k, column in enumerate(listed)}
        values = [
            [record[places[column]] if column in places else None for column in columns]
            for record in records
        ]
        self._server.engine.append_rows(name, columns, values, self._warehouse.now)
        return ConversionResult("COPY", counts={"inserted": len(values)}, target=name)

    def _unload(self, place: str, source: Any, options: dict[str, Any]) -> ConversionResult:
        stage, path = self._place(place)
        form = options["FORMAT"]
        query: Any = (
            source.this if isinstance(source, exp.Subquery) else exp.select("*").from_(source)
        )
        rows = self._warehouse.run(query.copy(), writes=False, limit=ALL_ROWS).rows
        if rows is None or len(rows.records) < rows.total:
            raise ToolError("limit exceeded: the rows are too many for one file; unload fewer")
        data = (
            rows.to_json_lines()
            if form["TYPE"] == "JSON"
            else rows.to_csv(form["FIELD_DELIMITER"], header=options["HEADER"])
        )
        if not options["SINGLE"]:
            stem = f"{path}data" if path.endswith("/") or not path else path
            path = f"{stem}_0_0_0.{form['TYPE'].lower()}"
        if self._files(stage, path) and not options["OVERWRITE"]:
            raise ToolError(
                f"conflict: the file {echo(path)} is there already; add OVERWRITE = TRUE"
            )
        self._write(stage, path, data.encode())
        return ConversionResult("COPY", counts={"unloaded": rows.total})

    def _place(self, text: str) -> tuple[str, str]:
        """Return the stage and the path of `@stage/path`."""
        match = re.fullmatch(r"@([^/']*)(/[^']*)?", text.removeprefix("'").removesuffix("'"))
        if not match:
            raise ToolError(
                f"invalid argument: {echo(text)} is no stage; write @stage or @stage/path"
            )
        path = (match[2] or "").removeprefix("/")
        if match[1].startswith(("~", "%")):
            return match[1].upper(), path  # the user's own stage, and those of tables
        stage = self._stage_name(match[1])
        if not self._server.store.find("stages", name=stage):
            raise ToolError(f"not found: the stage {stage} does not exist or not authorized")
        return stage, path

    def _stage_name(self, text: str) -> str:
        schema, name = self._warehouse.resolve_table(self._warehouse.parse_name(text, "stage"))
        return f"{schema}.{name}"

    def _files(self, stage: str, prefix: str) -> list[dict[str, Any]]:
        sql = "SELECT id, path, size, md5, modified FROM stage_files WHERE stage = ? ORDER BY path"
        return [
            row for row in self._server.store.rows(sql, stage) if row["path"].startswith(prefix)
        ]

    def _data(self, number: int) -> bytes:
        return bytes(self._server.store.value("SELECT data FROM stage_files WHERE id = ?", number))

    def _write(self, stage: str, path: str, data: bytes) -> None:
        store = self._server.store
        store.delete("stage_files", stage=stage, path=path)
        if int(store.value("SELECT sum(size) FROM stage_files") or 0) + len(data) > MAX_BYTES:
            raise ToolError(
                f"limit exceeded: the files of all stages have at most {MAX_BYTES} bytes"
            )
        store.insert(
            "stage_files",
            stage=stage,
            path=path,
            data=data,
            size=len(data),
            md5=hashlib.md5(data).hexdigest(),
            modified=iso(self._server.context.clock.now()),
        )

    # Changing statements by kind or, if SQLGlot has one, by expression type.
    _WRITERS: ClassVar[dict[type | str, Callable[[Stages, Any], ConversionResult]]] = {
        "CREATE STAGE": _create,
        "DROP STAGE": _drop,
        "GET": _get,
        "REMOVE": _remove,
        "RM": _remove,
        exp.Get: _get,
        exp.Put: _put,
        exp.Copy: _copy,
    }


def _words(tree: Any) -> list[str]:
    """Return the words of a GET, REMOVE or RM after the first one."""
    if isinstance(tree, exp.Get):
        return [tree.args["target"].name, tree.this.name]
    text = tree.expression  # SQLGlot stores it as a text or as a literal
    return str(getattr(text, "name", text) or "").split()


def _is_stage(node: Any) -> bool:
    return isinstance(node, exp.Table) and node.name.startswith("@")


def _local(uri: str) -> str:
    """Return the workspace path of `file://…`."""
    text = uri.strip("'")
    if not text.startswith("file://"):
        raise ToolError(f"invalid argument: {echo(uri)} is no file; write file:///workspace/name")
    return text.removeprefix("file://")


def _copy_options(tree: Any) -> dict[str, Any]:
    """Return the options of a COPY, with those of the file format under `FORMAT`."""
    options: dict[str, Any] = {
        "FILES": [], "HEADER": False, "SINGLE": False, "OVERWRITE": False, "FORMAT": dict(_FORMAT),
    }  # fmt: skip
    for item in tree.args.get("params") or []:
        name = item.name.upper()
        if name not in _OPTIONS:
            raise ToolError(
                f"invalid argument: the option {echo(name)} is not supported; {', '.join(_OPTIONS)} are"
            )
        if name == "FILE_FORMAT":
            options["FORMAT"] |= _format(item.expressions)
        elif name == "FILES":
            holder = item.args.get("expression")
            options[name] = [literal.name for literal in holder.find_all(exp.Literal)]
        else:
            value = item.args.get("expression")
            options[name] = value is not None and value.sql().upper() == "TRUE"
    return options


def _format(items: Sequence[Any]) -> dict[str, str]:
    """Return the options of a file format."""
    options = {}
    for item in items:
        name, value = item.this.name.upper(), item.args["value"].name
        if name not in _FORMAT:
            raise ToolError(
                f"invalid argument: the file format option {echo(name)} is not supported; {', '.join(_FORMAT)} are"
            )
        options[name] = value.upper() if name in ("TYPE", "COMPRESSION") else value
    if (
        options.get("TYPE", "CSV") not in ("CSV", "JSON")
        or len(options.get("FIELD_DELIMITER", ",")) != 1
    ):
        raise ToolError(
            "invalid argument: files are CSV with a FIELD_DELIMITER of one character, or JSON"
        )
    return options


def _parse(data: bytes, columns: Sequence[Column], options: dict[str, Any]) -> list[list[Any]]:
    """Parse a file into records: CSV in column order, JSON by name."""
    form = options["FORMAT"]
    try:
        text = data.decode("utf-8-sig")
        if form["TYPE"] == "JSON":
            objects = [json.loads(line) for line in text.splitlines() if line.strip()]
            named = [{key.upper(): value for key, value in each.items()} for each in objects]
            return [[each.get(column.name.upper()) for column in columns] for each in named]
        skip = int(form["SKIP_HEADER"])
        is_quoted = form["FIELD_OPTIONALLY_ENCLOSED_BY"] != "NONE"
        lines = csv.reader(
            io.StringIO(text),
            delimiter=form["FIELD_DELIMITER"],
            quoting=csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE,
            strict=True,
        )
        rows = [row for row in lines if row][skip:]
    except (ValueError, AttributeError, csv.Error) as error:
        raise ToolError(f"invalid argument: the file is no {form['TYPE']}: {error}") from None
    wrong = next((row for row in rows if len(row) != len(columns)), None)
    if wrong is not None:
        raise ToolError(
            f"invalid argument: a row of the file has {len(wrong)} fields, the table {len(columns)} columns: {echo(wrong)}"
        )
    return [
        [None if value in ("", form["NULL_IF"], "\\N") else value for value in row] for row in rows
    ]
