"""Statements of a warehouse: parsed in its dialect, checked, resolved against the catalogue, run on the engine.

What a statement does is told from its syntax tree. Every table that it names is looked up in the catalogue and every function is
one that the dialect has, so nothing of the engine itself can be reached.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar

from agentgym.envs.loca.servers.sql import Column, Engine, Rows, Schema, Table, TableName, check_length, declare, path, quote
from agentgym.tools import ToolError, echo

try:
    import sqlglot
    from sqlglot import exp
except ImportError as error:  # the servers import this module when the first statement comes
    raise ImportError("SQL needs DuckDB and SQLGlot: pip install 'agentgym[office]'") from error

logging.getLogger("sqlglot").addHandler(logging.NullHandler())  # it warns on standard error otherwise

READS = (exp.Query, exp.Values, exp.Show, exp.Describe)
_RANDOM = (exp.Rand, exp.Randn, exp.Uuid, exp.TableSample)


@dataclass
class Outcome:
    """What a statement did.

    Attributes:
        kind: What it is: SELECT, INSERT, CREATE_TABLE, …
        rows: What it gives, of a query.
        counts: How many records it inserted, updated and deleted.
        target: The table that it changed.
        message: What there is to say besides.
    """

    kind: str
    rows: Rows | None = None
    counts: dict[str, int] = field(default_factory=dict)
    target: TableName | None = None
    message: str = ""


class Warehouse:
    """One dialect on an engine, at a moment.

    Args:
        engine: The tables.
        now: The present.
    """

    dialect: ClassVar[str]
    functions: ClassVar[frozenset[str]]
    """Functions that SQLGlot does not know but that DuckDB has with the same meaning."""
    cascades: ClassVar[bool]
    """Whether a schema is dropped with the tables in it."""

    def __init__(self, engine: Engine, now: datetime) -> None:
        self.engine = engine
        self.now = now
        self._lent: list[str] = []

    # What a dialect says.

    def locate(self, table: exp.Table) -> TableName:
        """The table of the engine that is named so, whether or not there is one."""
        raise NotImplementedError

    def locate_schema(self, table: exp.Table, kind: str) -> str:
        """The schema that a CREATE or DROP of a schema or database names."""
        raise NotImplementedError

    def rewrite(self, tree: exp.Expression) -> None:
        """Change a tree so that SQLGlot writes the SQL of DuckDB that means the same."""
        raise NotImplementedError

    def information(self, table: exp.Table) -> tuple[Sequence[str], list[Sequence[Any]]] | None:
        """Columns and records of a view of the information schema, if the name is that of one."""
        raise NotImplementedError

    def wildcard(self, table: exp.Table) -> list[TableName]:
        """The tables that a name with a `*` stands for, if it is one."""
        return []

    def list_things(self, tree: exp.Expression) -> Rows:
        """What SHOW or DESCRIBE gives."""
        raise ToolError(f"invalid argument: {tree.key.upper()} is not a statement of {self.dialect}; query INFORMATION_SCHEMA")

    def command(self, text: str) -> exp.Expression | None:
        """The tree of a statement that SQLGlot cannot parse."""
        return None

    def unnamed(self, item: exp.Expression, number: int) -> str:
        """The name of a column that a query does not name."""
        raise NotImplementedError

    # What all do.

    def parse(self, sql: str) -> exp.Expression:
        """The tree of one statement.

        Raises:
            ToolError: It cannot be parsed, or there are several.
        """
        try:
            trees = [tree for tree in sqlglot.parse(check_length(sql), read=self.dialect) if tree is not None]
        except sqlglot.errors.SqlglotError as error:
            problem = getattr(error, "errors", None) or [{"description": str(error), "line": 1, "col": 1}]
            what = str(problem[0]["description"]).rstrip(".")
            raise ToolError(f"invalid argument: syntax error: {what} at [{problem[0]['line']}:{problem[0]['col']}]") from None
        except (RecursionError, ValueError):
            raise ToolError("invalid argument: syntax error: the statement is nested too deeply") from None
        if len(trees) != 1:
            raise ToolError(f"invalid argument: one statement a call, got {len(trees)}; make a call for each")
        tree = trees[0]
        if isinstance(tree, exp.Command):
            tree = self.command(sql.strip().rstrip(";")) or tree
        return tree

    def run(self, tree: exp.Expression, writes: bool, limit: int) -> Outcome:
        """Carry out a statement.

        Args:
            tree: The statement.
            writes: Whether it may change anything.
            limit: The most records to give.

        Raises:
            ToolError: It is refused; nothing has changed.
        """
        try:
            if is_reading(tree):
                return self._read(tree, limit)
            if isinstance(tree, READS):
                raise ToolError("permission denied: a query cannot hold a statement that changes something")
            if not writes:
                raise ToolError(f"permission denied: only SELECT, SHOW and DESCRIBE can be run here, not {kind_of(tree)}")
            actions: dict[type, Callable[[Any], Outcome]] = {
                exp.Insert: self._change, exp.Update: self._change, exp.Delete: self._change, exp.Merge: self._change,
                exp.TruncateTable: self._truncate, exp.Create: self._create, exp.Drop: self._drop, exp.Alter: self._alter,
                exp.Comment: self._comment,
            }  # fmt: skip
            if type(tree) not in actions:
                raise ToolError(f"invalid argument: {kind_of(tree)} is not supported")
            return actions[type(tree)](tree)
        except RecursionError:
            raise ToolError("invalid argument: the statement is nested too deeply") from None
        except sqlglot.errors.SqlglotError as error:
            raise ToolError(f"invalid argument: {str(error)[:300]}") from None

    def find(self, table: exp.Table) -> TableName:
        """The table that is named.

        Raises:
            ToolError: There is none.
        """
        name = self.locate(table)
        if name not in self.engine.tables:
            raise ToolError(f"not found: there is no table {'.'.join(name)}")
        return name

    def _read(self, tree: exp.Expression, limit: int) -> Outcome:
        if isinstance(tree, (exp.Show, exp.Describe)):
            rows = self.list_things(tree)
            rows.records = rows.records[:limit]
            return Outcome(tree.key.upper(), rows)
        sql, needed, seed = self._translate(tree)
        return Outcome("SELECT", self.engine.read(sql, needed, self.now, limit, seed))

    def _translate(self, tree: exp.Expression) -> tuple[str, list[TableName], str]:
        """A statement in the SQL of DuckDB, the tables that it needs, and what its random functions depend on."""
        seed = tree.sql(self.dialect) if any(tree.find(kind) for kind in _RANDOM) else ""
        self._check(tree)
        self._name_columns(tree)
        needed = self._resolve(tree)
        self.rewrite(tree)
        return self.write_out(tree), needed, seed

    def write_out(self, tree: exp.Expression) -> str:
        """A tree in the SQL of DuckDB."""
        return tree.sql("duckdb", unsupported_level=sqlglot.ErrorLevel.IGNORE, comments=False)

    def _check(self, tree: exp.Expression) -> None:
        for node in tree.walk():
            if isinstance(node, exp.Anonymous) and node.name.lower() not in self.functions:
                raise ToolError(f"invalid argument: function not found: {echo(node.name)}")
            if isinstance(node, (exp.Parameter, exp.Placeholder, exp.SessionParameter, exp.Command, exp.Into)):
                raise ToolError(f"invalid argument: {echo(node.sql(self.dialect))} cannot be used here; write the value itself")
            if isinstance(node, exp.Table) and (node.args.get("when") or node.args.get("version")):
                raise ToolError("invalid argument: tables are kept as they are now only; earlier versions cannot be read")

    def _name_columns(self, tree: exp.Expression) -> None:
        query: Any = tree.expression if isinstance(tree, (exp.Insert, exp.Create)) else tree
        while isinstance(query, (exp.SetOperation, exp.Subquery)):
            query = query.this
        number = 0
        for item in list(query.expressions) if isinstance(query, exp.Select) else []:
            if isinstance(item, (exp.Alias, exp.Aliases, exp.Column)) or item.is_star:
                continue
            name = item.output_name if isinstance(item, exp.Dot) else self.unnamed(item, number)
            number += 1
            item.replace(exp.alias_(item.copy(), name, quoted=True))

    def _resolve(self, tree: exp.Expression) -> list[TableName]:
        """Write the engine's name for every table; those tables, without repetition."""
        needed: dict[TableName, None] = {}
        for table in list(tree.find_all(exp.Table)):
            if _is_cte(table):
                continue
            if not isinstance(table.this, exp.Identifier):
                raise ToolError(f"invalid argument: {echo(table.sql(self.dialect)[:60])} is not a table")
            shown = self.information(table)
            many = [] if shown else self.wildcard(table)
            if shown:
                name = ("lib", f"information {len(self._lent)}")
                self.engine.lend(name, *shown)
                self._lent.append(name[1])
                _point(table, name, alias=table.alias or table.name.rsplit(".", 1)[-1])
            elif many:
                needed |= dict.fromkeys(many)
                table.replace(_union(table, many))
            else:
                name = self.find(table)
                needed[name] = None
                _point(table, name)
        for column in tree.find_all(exp.Column):
            column.set("db", None)
            column.set("catalog", None)
        return list(needed)

    def _change(self, tree: Any) -> Outcome:
        if isinstance(tree, exp.Delete) and not tree.this:
            tree.set("this", tree.args["tables"][0])
            tree.set("tables", None)
        table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        if not isinstance(table, exp.Table):
            raise ToolError(f"invalid argument: {kind_of(tree)} needs the name of a table")
        target = self.find(table)
        if self.engine.tables[target].view:
            raise ToolError(f"invalid argument: {'.'.join(target)} is a view; its rows cannot be changed")
        for assignment in tree.find_all(exp.EQ):
            if isinstance(assignment.parent, exp.Update) and isinstance(assignment.this, exp.Column):
                assignment.this.set("table", None)
        first = f"DELETE FROM {path(target)}" if tree.args.get("overwrite") else ""
        tree.set("overwrite", None) if first else None
        sql, needed, seed = self._translate(tree)
        merges = isinstance(tree, exp.Merge)
        statements = [first, sql] if first else [sql + " RETURNING merge_action"] if merges else [sql]
        answer = self.engine.write(statements, [*needed, target], [target], self.now, seed)
        if merges:
            done = [row[0] for row in answer]
            counts = {
                name: done.count(action) for name, action in _ACTIONS.items() if action in ("INSERT", "UPDATE") or action in done
            }
        else:
            counts = {{"insert": "inserted", "update": "updated", "delete": "deleted"}[tree.key]: int(answer[0][0])}
        return Outcome(tree.key.upper(), counts=counts, target=target)

    def _truncate(self, tree: exp.TruncateTable) -> Outcome:
        name = self.locate(tree.expressions[0])
        if tree.args.get("exists") and name not in self.engine.tables:
            return Outcome("TRUNCATE_TABLE")
        name = self.find(tree.expressions[0])
        answer = self.engine.write([f"DELETE FROM {path(name)}"], [name], [name], self.now)
        return Outcome("TRUNCATE_TABLE", counts={"deleted": int(answer[0][0])}, target=name)

    def _create(self, tree: exp.Create) -> Outcome:
        kind = str(tree.kind).upper()
        if kind in ("SCHEMA", "DATABASE"):
            return self.create_schema(self.locate_schema(tree.this, kind), tree, kind)
        if kind not in ("TABLE", "VIEW"):
            raise ToolError(f"invalid argument: CREATE {kind} is not supported; TABLE, VIEW and SCHEMA are")
        named = tree.this if isinstance(tree.this, exp.Schema) else None
        target = named.this if named else tree.this
        name = self.locate(target)
        self.check_schema(name[0])
        old = self.engine.tables.get(name)
        if old and not tree.args.get("replace"):
            if tree.args.get("exists"):
                return Outcome(f"CREATE_{kind}", target=name, message=f"{'.'.join(name)} already exists, statement succeeded.")
            raise ToolError(f"conflict: {'.'.join(name)} already exists")
        columns = self._declared(named.expressions if named else [])
        made = self._make_view(tree, name, columns) if kind == "VIEW" else self._make_table(tree, name, columns)
        comment = _said(tree.args.get("properties"))
        self.engine.define(name, replace(made, comment=comment or made.comment, created=self.now.isoformat()))
        return Outcome(f"CREATE_{kind}", target=name)

    def create_schema(self, name: str, tree: exp.Create, kind: str) -> Outcome:
        """Make a schema."""
        if name in self.engine.schemas:
            if tree.args.get("exists"):
                return Outcome(f"CREATE_{kind}", message=f"{name} already exists, statement succeeded.")
            raise ToolError(f"conflict: {name} already exists")
        self.engine.schemas[name] = Schema(_said(tree.args.get("properties")), self.now.isoformat())
        return Outcome(f"CREATE_{kind}", message=f"{kind.capitalize()} {name} successfully created.")

    def check_schema(self, name: str) -> None:
        """Refuse a schema that there is not."""
        if name not in self.engine.schemas:
            raise ToolError(f"not found: there is no {'dataset' if self.dialect == 'bigquery' else 'schema'} {name}")

    def _make_table(self, tree: exp.Create, name: TableName, columns: list[Column]) -> Table:
        old, comment = self.engine.tables.get(name), ""
        start = [f"DROP VIEW {path(name)}"] if old and old.view else []
        make = f"CREATE OR REPLACE TABLE {path(name)}"
        held = [name] if old else []
        seed = ""
        like, copies = _source(tree)
        if like is not None:
            source = self.find(like)
            columns, comment = list(self.engine.tables[source].columns), self.engine.tables[source].comment
            held.append(source)
            filling = f" INSERT INTO {path(name)} SELECT * FROM {path(source)}"
            statements = [f"{make} ({', '.join(map(declare, columns))})", *([filling] if copies else [])]
        elif tree.expression:
            tree.set("this", exp.to_identifier("x"))
            _, needed, seed = self._translate(tree)
            held += needed
            query = self.write_out(tree.expression)
            if columns:
                labels = ", ".join(quote(column.name) for column in columns)
                parts = ", ".join(f"CAST({quote(column.name)} AS {column.type}) AS {quote(column.name)}" for column in columns)
                query = f"SELECT {parts} FROM ({query}) AS _({labels})"
            statements = [f"{make} AS {query}"]
            statements += [f"ALTER TABLE {path(name)} ALTER {quote(c.name)} SET NOT NULL" for c in columns if not c.nullable]
        elif columns:
            statements = [f"{make} ({', '.join(map(declare, columns))})"]
        else:
            raise ToolError("invalid argument: CREATE TABLE needs columns or a query")
        self.engine.write([*start, *statements], held, [], self.now, seed, name[0])
        return Table(self.engine.columns_of(name, columns), comment=comment)

    def _make_view(self, tree: exp.Create, name: TableName, columns: list[Column]) -> Table:
        if not tree.expression:
            raise ToolError("invalid argument: CREATE VIEW needs a query")
        tree.set("this", exp.to_identifier("x"))
        _, needed, _ = self._translate(tree)
        if name in needed or self._lent:
            raise ToolError("invalid argument: a view cannot read itself or INFORMATION_SCHEMA")
        query = self.write_out(tree.expression)
        if columns:
            query = f"SELECT * FROM ({query}) AS _({', '.join(quote(column.name) for column in columns)})"
        old = self.engine.tables.get(name)
        start = [f"DROP TABLE {path(name)}"] if old and not old.view else []
        made = [*start, f"CREATE OR REPLACE VIEW {path(name)} AS {query}"]
        self.engine.write(made, [*needed, *([name] if old else [])], [], self.now, schema=name[0])
        return Table(self.engine.columns_of(name, columns), view=query, needs=tuple(needed))

    def _declared(self, items: Sequence[exp.Expression]) -> list[Column]:
        keys = {part.name.lower() for item in items for key in item.find_all(exp.PrimaryKey) for part in key.expressions}
        return [self.declared(item, keys) for item in items if isinstance(item, (exp.ColumnDef, exp.Identifier, exp.Column))]

    def declared(self, item: exp.Expression, keys: set[str]) -> Column:
        """A column as a statement declares it."""
        made = Column(item.name, "VARCHAR", key=item.name.lower() in keys)
        if not isinstance(item, exp.ColumnDef) or not item.kind:
            return made
        kind = exp.Paren(this=item.kind.copy())
        self.rewrite(kind)
        made = replace(made, type=self.write_out(kind.this))
        for constraint in item.constraints:
            made = self._constrain(made, constraint.kind)
        return made

    def _constrain(self, column: Column, kind: Any) -> Column:
        if isinstance(kind, exp.NotNullColumnConstraint):
            return replace(column, nullable=bool(kind.args.get("allow_null")))
        if isinstance(kind, exp.PrimaryKeyColumnConstraint):
            return replace(column, key=True, nullable=False)
        if isinstance(kind, exp.DefaultColumnConstraint):
            return replace(column, default=self.value_of(kind.this))
        if isinstance(kind, exp.CommentColumnConstraint):
            return replace(column, comment=kind.this.name)
        if isinstance(
            kind, (exp.AutoIncrementColumnConstraint, exp.GeneratedAsIdentityColumnConstraint, exp.ComputedColumnConstraint)
        ):
            raise ToolError(f"invalid argument: column {column.name}: values that make themselves are not supported; give them")
        return replace(column, comment=_said(kind)) if isinstance(kind, exp.Properties) else column

    def value_of(self, item: exp.Expression) -> str:
        """An expression without tables, in the SQL of DuckDB."""
        holder = exp.Paren(this=item.copy())
        self._check(holder)
        if holder.find(exp.Table, exp.Query):
            raise ToolError("invalid argument: a default value cannot be a query")
        self.rewrite(holder)
        return self.write_out(holder.this)

    def _drop(self, tree: exp.Drop) -> Outcome:
        kind = str(tree.args["kind"]).upper()
        for table in tree.args["tables"]:
            if kind in ("SCHEMA", "DATABASE"):
                self._drop_schema(self.locate_schema(table, kind), tree, kind)
            elif kind in ("TABLE", "VIEW"):
                self._drop_table(self.locate(table), tree, kind)
            else:
                raise ToolError(f"invalid argument: DROP {kind} is not supported; TABLE, VIEW and SCHEMA are")
        return Outcome(
            f"DROP_{kind}", message=f"{', '.join(t.sql(self.dialect) for t in tree.args['tables'])} successfully dropped."
        )

    def _drop_table(self, name: TableName, tree: exp.Drop, kind: str) -> None:
        held = self.engine.tables.get(name)
        if held is None and tree.args.get("exists"):
            return
        if held is None or bool(held.view) != (kind == "VIEW"):
            raise ToolError(f"not found: there is no {kind.lower()} {'.'.join(name)}")
        self.engine.forget(name)

    def _drop_schema(self, name: str, tree: exp.Drop, kind: str) -> None:
        within = [other for other in self.engine.schemas if other == name or (kind == "DATABASE" and other.startswith(f"{name}."))]
        if not within and tree.args.get("exists"):
            return
        if not within:
            raise ToolError(f"not found: there is no {kind.lower()} {name}")
        tables = [table for table in self.engine.tables if table[0] in within]
        if tables and (tree.args.get("restrict") or not (self.cascades or tree.args.get("cascade"))):
            raise ToolError(f"conflict: {name} is still in use: it has {len(tables)} tables; drop them first or add CASCADE")
        for table in tables:
            self.engine.forget(table)
        for other in within:
            del self.engine.schemas[other]

    def _comment(self, tree: exp.Comment) -> Outcome:
        kind, text = str(tree.args["kind"]).upper(), tree.expression.name
        if kind not in ("TABLE", "VIEW", "COLUMN"):
            raise ToolError(f"invalid argument: COMMENT ON {kind} is not supported; TABLE, VIEW and COLUMN are")
        column = tree.this.name if kind == "COLUMN" else ""
        table = exp.Table(**_without_last(tree.this)) if column else tree.this
        name = self.locate(table)
        if tree.args.get("exists") and name not in self.engine.tables:
            return Outcome("COMMENT")
        name = self.find(table)
        self.say(name, column, text)
        return Outcome("COMMENT", target=name)

    def say(self, name: TableName, column: str, text: str) -> None:
        """Set the comment of a table or, with its name, of a column."""
        table = self.engine.tables[name]
        if column:
            held = self.column_of(name, column)
            self.engine.tables[name] = replace(
                table, columns=tuple(replace(c, comment=text) if c is held else c for c in table.columns)
            )
        else:
            self.engine.tables[name] = replace(table, comment=text)

    def column_of(self, name: TableName, column: str) -> Column:
        """A column of a table, in whatever case its name is written.

        Raises:
            ToolError: There is none.
        """
        for held in self.engine.tables[name].columns:
            if held.name.lower() == column.lower():
                return held
        raise ToolError(f"not found: {'.'.join(name)} has no column {echo(column)}")

    def _alter(self, tree: exp.Alter) -> Outcome:
        from agentgym.envs.loca.servers.sql_alter import alter

        return alter(self, tree)


_ACTIONS = {"inserted": "INSERT", "updated": "UPDATE", "deleted": "DELETE"}


def is_reading(tree: exp.Expression) -> bool:
    """Whether a statement can change nothing: a query, SHOW or DESCRIBE without a statement of another kind in it."""
    return isinstance(tree, READS) and not tree.find(exp.DML, exp.DDL, exp.Command, exp.Into) and not isinstance(tree, exp.DML)


def kind_of(tree: exp.Expression) -> str:
    """What a statement is, in capitals: INSERT, CREATE TABLE, …"""
    if isinstance(tree, exp.Command):
        return str(tree.this).upper()
    return " ".join(filter(None, [tree.key.upper(), str(tree.args.get("kind") or "").upper()]))


def _is_cte(table: exp.Table) -> bool:
    """Whether a name is that of a common table expression which is visible there."""
    if table.args.get("db") or not table.name:
        return False
    child: Any = table
    while child is not None:
        parent = child.parent
        within = child
        holder = parent.args.get("with_") if parent is not None else None
        if isinstance(parent, exp.With):
            child = parent
            seen = parent.expressions
            place = next((k for k, each in enumerate(seen) if each is within), len(seen))
            visible = seen if parent.args.get("recursive") else seen[:place]
        else:
            child, visible = parent, holder.expressions if holder is not None and holder is not within else []
        if any(each.alias.lower() == table.name.lower() for each in visible):
            return True
    return False


def _point(table: exp.Table, name: TableName, alias: str = "") -> None:
    table.set("this", exp.to_identifier(name[1], quoted=True))
    table.set("db", exp.to_identifier(name[0], quoted=True))
    table.set("catalog", None)
    if alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))


def _union(table: exp.Table, names: Sequence[TableName]) -> exp.Expression:
    """All the tables one below the other, with the part of the name that the `*` stands for in `_TABLE_SUFFIX`."""
    start = len(table.name.rstrip("*"))
    parts = [f"SELECT *, '{name[1][start:].replace(chr(39), chr(39) * 2)}' AS _TABLE_SUFFIX FROM {path(name)}" for name in names]
    query = sqlglot.parse_one(" UNION ALL BY NAME ".join(parts), read="duckdb")
    return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(table.alias or table.name, quoted=True)))


def _said(properties: Any) -> str:
    """The comment (or, in BigQuery, the description) among properties."""
    for item in properties.expressions if properties else []:
        if isinstance(item, exp.SchemaCommentProperty):
            return str(item.this.name)
        if isinstance(item, exp.Property) and item.name.lower() == "description":
            return str(item.args["value"].name)
    return ""


def _source(tree: exp.Create) -> tuple[exp.Table | None, bool]:
    """The table that one is made like, and whether its rows are copied."""
    if tree.args.get("clone"):
        return tree.args["clone"].this, True
    for item in tree.args["properties"].expressions if tree.args.get("properties") else []:
        if isinstance(item, exp.LikeProperty):
            return item.this, False
    return None, False


def _without_last(column: exp.Expression) -> dict[str, Any]:
    """The parts of the table in the name of a column."""
    parts = column.args
    return {"this": parts.get("table"), "db": parts.get("db"), "catalog": parts.get("catalog")}
