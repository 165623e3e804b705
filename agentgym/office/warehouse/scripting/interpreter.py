"""Interpreter of GoogleSQL scripts, statement by statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from agentgym.office.warehouse.scripting.parser import (
    Assert,
    Assign,
    Block,
    Body,
    Branch,
    Declare,
    Execute,
    Jump,
    Loop,
    Raise,
    Sql,
    Transaction,
    parse_script,
)
from agentgym.office.warehouse.scripting.scope import (
    TEMPORARY,
    Scope,
    Value,
    read_function,
    temporary_mark,
)
from agentgym.office.warehouse.statements import run
from agentgym.office.warehouse.tables import Schema, TableName
from agentgym.office.warehouse.values import ConversionResult
from agentgym.text.tools import HostLimitError, ToolError, echo

if TYPE_CHECKING:
    from agentgym.office.warehouse.dialects.bigquery import GoogleSQL

MAX_STEPS = 1_000
"""Maximum statements, conditions and rounds of a script, which bounds loops equally on every host.
"""


class _Jumping(Exception):
    """A BREAK, CONTINUE or RETURN on its way to its target."""

    def __init__(self, jump: Jump) -> None:
        super().__init__(jump.kind)
        self.jump = jump


class Script:
    """A running script.

    Args:
        warehouse: The dialect; each statement runs in a copy.
        limit: The maximum number of records.
    """

    def __init__(self, warehouse: GoogleSQL, limit: int) -> None:
        self._warehouse = warehouse
        self._engine = warehouse.engine
        self._limit = limit
        self._scope = Scope()
        self._result = ConversionResult("SCRIPT")
        self._rollback: Callable[[], None] | None = None
        self._guards = 0  # surrounding blocks that handle errors
        self._error = ""

    def run(self, body: Body) -> ConversionResult:
        """Run all statements and return the last result.

        Raises:
            ToolError: A statement fails; the effects of earlier ones remain, so the caller must undo
                them.
        """
        try:
            with self._engine.allowance.shared():
                self._run_body(body)
        except _Jumping as jumping:
            if jumping.jump.kind != "RETURN":
                raise ToolError(
                    f"invalid argument: {jumping.jump.kind} stands outside of its loop"
                ) from None
        if self._rollback is not None:  # BigQuery also rolls back an open transaction
            self._rollback()
        for name in [name for name in self._engine.tables if name[0] == TEMPORARY]:
            self._engine.drop(name)
        self._engine.schemas.pop(TEMPORARY, None)
        return self._result

    def _run_body(self, body: Body) -> None:
        for statement in body:
            self._step()
            _ACTIONS[type(statement)](self, statement)

    def _step(self) -> None:
        self._scope.steps += 1
        if self._scope.steps > MAX_STEPS:
            raise ToolError(
                f"limit exceeded: a script takes at most {MAX_STEPS} steps; let one statement work on "
                "many rows instead of a loop"
            )

    def _sql(self, statement: Sql) -> None:
        warehouse = self._warehouse.in_scope(self._scope)
        tree: Any = warehouse.parse(statement.text)
        kind = warehouse.kind(tree)
        mark = temporary_mark(tree) if isinstance(tree, exp.Create) else None
        if kind == "CREATE FUNCTION" and mark:
            name, function = read_function(tree)
            if name in self._scope.functions and not tree.args.get("replace"):
                raise ToolError(f"conflict: the function {echo(name)} is there already")
            self._scope.functions[name] = function
            return
        if kind == "CREATE TABLE" and mark:
            mark.pop()
            self._redirect_temporary(tree)
        undo = self._engine.undo_point() if self._guards else None
        try:
            self._result = run(warehouse, tree, writes=True, limit=self._limit)
        except ToolError:
            if undo is not None:
                undo()
            raise
        count = sum(self._result.counts.values())
        self._scope.variables[0]["@@row_count"] = Value("BIGINT", str(count))

    def _redirect_temporary(self, tree: Any) -> None:
        """Make CREATE TEMP TABLE use the script's schema."""
        table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        if table.db not in ("", TEMPORARY):
            raise ToolError("invalid argument: the name of a temporary table has no dataset")
        table.set("db", exp.to_identifier(TEMPORARY))
        self._engine.schemas.setdefault(TEMPORARY, Schema())

    def _values(self, query: str, limit: int) -> list[list[tuple[str, Value]]]:
        """Return the rows of a query, each value with its name."""
        warehouse = self._warehouse.in_scope(self._scope)
        tree = warehouse.parse(query)
        if not warehouse.reads(tree):
            raise ToolError("invalid argument: this must be a query or an expression")
        return self._fetch(*warehouse.translate(tree), limit)

    def _fetch(
        self, sql: str, needed: Sequence[TableName], seed: str, limit: int
    ) -> list[list[tuple[str, Value]]]:
        sql = f'SELECT *, COLUMNS(*)::VARCHAR AS "text \\0" FROM ({sql})'
        rows = self._engine.read(sql, needed, self._warehouse.now, limit, seed)
        width = len(rows.names) // 2
        types = ["BIGINT" if kind == '"NULL"' else kind for kind in rows.types[:width]]
        return [
            [
                (name, Value(kind, text))
                for name, kind, text in zip(rows.names, types, record[width:], strict=False)
            ]
            for record in rows.records
        ]

    def _value(self, expression: str) -> Value:
        [[(_, value)]] = self._values(f"SELECT ({expression}) AS value", 1)
        return value

    def _truth(self, condition: str) -> bool:
        self._step()
        value = self._value(condition)
        if value.text is not None and value.type != "BOOLEAN":
            raise ToolError(f"invalid argument: the condition {echo(condition)} is no BOOL")
        return value.text == "true"

    def _declare(self, statement: Declare) -> None:
        expression = statement.default or "NULL"
        if statement.type:
            expression = f"CAST(({expression}) AS {statement.type})"
        for name in statement.names:
            if name.lower() in self._scope.variables[-1]:
                raise ToolError(f"conflict: the variable {echo(name)} is declared already")
            self._scope.variables[-1][name.lower()] = self._value(expression)

    def _assign(self, statement: Assign) -> None:
        fields = (
            [self._value(statement.expression)]
            if len(statement.names) == 1
            else self._fields(statement.expression)
        )
        if len(fields) != len(statement.names):
            raise ToolError(
                f"invalid argument: SET needs a struct of {len(statement.names)} fields, got {len(fields)}"
            )
        for target, part in zip(statement.names, fields, strict=True):
            self._set(target, part)

    def _fields(self, expression: str) -> list[Value]:
        """Return a struct's fields; it may be written as a row: (1, 'x')."""
        tree: Any = self._warehouse.parse(f"SELECT {expression}")
        if isinstance(tree.expressions[0], exp.Tuple):
            return [self._value(item.sql("bigquery")) for item in tree.expressions[0].expressions]
        value = self._value(expression)
        if not value.type.startswith("STRUCT("):
            return []
        [row] = self._fetch(f"SELECT unnest({_cast(value)})", [], "", 1)
        return [part for _, part in row]

    def _set(self, name: str, value: Value) -> None:
        """Set a variable to a value of its type."""
        old = self._scope.find(name)
        if old is not None and old.type != value.type:
            [[(_, value)]] = self._fetch(f"SELECT CAST({_cast(value)} AS {old.type})", [], "", 1)
        self._scope.assign(name, value)

    def _execute(self, statement: Execute) -> None:
        text = self._value(statement.sql).text
        if text is None:
            raise ToolError("invalid argument: EXECUTE IMMEDIATE needs a text, got NULL")
        values = [(name, self._value(expression)) for name, expression in statement.using]
        [inner, *others] = parse_script(text)
        if others or not isinstance(inner, Sql):
            raise ToolError("invalid argument: EXECUTE IMMEDIATE runs one statement of SQL")
        with self._parameters(values):
            if not statement.into:
                self._sql(inner)
                return
            rows = self._values(inner.text, 2)
        if len(rows) > 1:
            raise ToolError("invalid argument: EXECUTE IMMEDIATE … INTO gives more than one row")
        row = rows[0] if rows else [("", Value("BIGINT", None))] * len(statement.into)
        if len(row) != len(statement.into):
            raise ToolError(
                f"invalid argument: INTO has {len(statement.into)} variables, the row {len(row)} columns"
            )
        for name, (_, value) in zip(statement.into, row, strict=True):
            self._set(name, value)

    @contextmanager
    def _parameters(self, values: list[tuple[str, Value]]) -> Iterator[None]:
        scope = self._scope
        before = scope.parameters, scope.positional
        scope.parameters = {name.lower(): value for name, value in values if name}
        scope.positional = [value for name, value in values if not name]
        yield
        scope.parameters, scope.positional = before

    def _branch(self, statement: Branch) -> None:
        for condition, body in statement.cases:
            if not condition or self._truth(condition):
                self._run_body(body)
                return

    def _loop(self, loop: Loop) -> None:
        rows = iter(self._values(loop.query, MAX_STEPS + 1) if loop.row else [])
        while True:
            self._step()
            if loop.row:
                row = next(rows, None)
                if row is None:
                    return
                self._scope.variables.append({f"{loop.row}.{k}".lower(): v for k, v in row})
            elif loop.condition and not loop.until and not self._truth(loop.condition):
                return
            try:
                self._run_body(loop.body)
            except _Jumping as jumping:
                jump = jumping.jump
                if jump.kind == "RETURN" or jump.label not in ("", loop.label.lower()):
                    raise
                if jump.kind == "BREAK":
                    return
            finally:
                if loop.row:
                    self._scope.variables.pop()
            if loop.until and self._truth(loop.condition):
                return

    def _block(self, block: Block) -> None:
        depth = len(self._scope.variables)
        self._scope.variables.append({})
        try:
            if block.handler is None:
                self._run_body(block.body)
            else:
                self._run_guarded(block.body, block.handler)
        except _Jumping as jumping:
            if (
                jumping.jump.kind != "BREAK"
                or not block.label
                or jumping.jump.label != block.label.lower()
            ):
                raise
        finally:
            del self._scope.variables[depth:]

    def _run_guarded(self, body: Body, handler: Body) -> None:
        """Run statements, and their error handler if one fails."""
        depth, before = len(self._scope.variables), self._error
        self._guards += 1
        try:
            self._run_body(body)
        except HostLimitError:
            raise
        except ToolError as error:
            if self._scope.steps > MAX_STEPS:
                raise
            self._error = str(error)
        else:
            return
        finally:
            self._guards -= 1
        del self._scope.variables[depth:]
        self._scope.variables.append({"@@error.message": Value("VARCHAR", self._error)})
        self._run_body(handler)
        self._error = before

    def _jump(self, jump: Jump) -> None:
        raise _Jumping(jump)

    def _raise(self, statement: Raise) -> None:
        if statement.message:
            raise ToolError(f"invalid argument: {self._value(statement.message).text}")
        raise ToolError(self._error or "invalid argument: RAISE needs USING MESSAGE = …")

    def _assert(self, statement: Assert) -> None:
        if not self._truth(statement.condition):
            text = self._value(statement.message).text if statement.message else statement.condition
            raise ToolError(f"invalid argument: assertion failed: {text}")

    def _transaction(self, statement: Transaction) -> None:
        if statement.kind == "BEGIN":
            if self._rollback is not None:
                raise ToolError("conflict: a transaction is under way already")
            self._rollback = self._engine.undo_point()
            return
        if self._rollback is None:
            raise ToolError(
                f"conflict: {statement.kind} needs a transaction; begin it in the same script with "
                "BEGIN TRANSACTION"
            )
        if statement.kind == "ROLLBACK":
            self._rollback()
        self._rollback = None


def check_lasting(tree: Any) -> None:
    """Refuse a standalone statement that creates something temporary.

    Raises:
        ToolError: It creates something temporary.
    """
    if isinstance(tree, exp.Create) and temporary_mark(tree):
        raise ToolError(
            "invalid argument: what is temporary lasts as long as its script; send the statements "
            "that use it in the same call"
        )


def _cast(value: Value) -> str:
    """Return a value in DuckDB SQL."""
    text = "NULL" if value.text is None else "'" + value.text.replace("'", "''") + "'"
    return f"CAST({text} AS {value.type})"


_ACTIONS: dict[type, Callable[[Script, Any], None]] = {
    Sql: Script._sql,
    Declare: Script._declare,
    Assign: Script._assign,
    Execute: Script._execute,
    Branch: Script._branch,
    Loop: Script._loop,
    Block: Script._block,
    Jump: Script._jump,
    Raise: Script._raise,
    Assert: Script._assert,
    Transaction: Script._transaction,
}
