"""Check that mutations of the final state fail unless the task lists them as harmless."""

from __future__ import annotations

import contextlib
import fnmatch
import pickle
import random
import re
import runpy
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

import pytest

from agentgym import worlds
from agentgym.envs.loca.plan import CLAIM
from agentgym.envs.loca.task import OfficeTask
from agentgym.office.spreadsheet.workbooks import read_workbook
from agentgym.text.tools import BoundTool, ToolError, tools_of
from tests import sampling
from tests.envs.loca.observed import differences, observe
from tests.envs.loca.office import TASKS, fresh, solved
from tests.laws.test_refusals import PROGRAMS
from tests.office.test_published import ROOT

CASES = [
    (entry.id, server)
    for entry in worlds()
    if issubclass(entry.world, OfficeTask)
    for server in entry.world.servers
    if server not in ("claim_done", "python_execute", "terminal")
]
SIZE = 12  # small, because each call gets a copy of the state
TRIES, CHANGES = 40, 4
"""Maximum numbers of calls drawn per tool, and of changes judged."""

_TIMES = ("2025-10-01T00:00:00Z", "2025-10-01T01:00:00Z")
# Plausible values by parameter name, in addition to the values in the records.
NAMES: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        ("startcell", "endcell", "cell", "targetcell", "targetstart"), ("A1", "B2", "C3", "A9")
    ),
    **dict.fromkeys(("sourcestart", "sourceend", "range", "datarange"), ("A1:B2", "A1", "A2:C4")),
    **dict.fromkeys(("startrow", "startcol", "count", "start", "index", "number"), (0, 1, 2)),
    "formula": ("=1+1",),
    "data": (["mutated", 7], [1]),
    "ranges": ({"A1": [["mutated"]]}, {"B2": [[7]]}),
    "charttype": ("line", "bar"),
    "rows": (["Year"],),
    "values": (["Year"],),
    "datetime": _TIMES,
    "date": ("2025-10-01", "2025-10-02"),
    "timemin": _TIMES,
    "timemax": _TIMES,
    "status": ("read", "unread", "important", "publish", "draft", "processing"),
    "methodid": ("flat_rate",),
    "deliveryurl": ("https://mutated.example.org",),
    "email": ("mutated@mcp.com",),
    "password": ("long enough",),
    "to": ("mutated@mcp.com", "other@example.org"),
    "zone": ("us-central1-a",),
    "recipients": ("course_1", "1", "2"),
    "bucketname": ("mutated-bucket",),
    "instancename": ("mutated",),
    "attachments": ("/workspace/own.txt",),
    "foldername": ("Mutated",),
}

WHOLE_YEAR = {"timeMin": "2025-01-01T00:00:00Z", "timeMax": "2026-01-01T00:00:00Z"}

# Names in braces are replaced by names from the server's catalog.
STATEMENTS = {
    "google_cloud": (
        "ALTER TABLE {table} SET OPTIONS (description = 'mutated')",
        "ALTER TABLE {table} ALTER COLUMN {column} SET OPTIONS (description = 'mutated')",
        "ALTER SCHEMA {schema} SET OPTIONS (description = 'mutated')",
        "INSERT INTO {table} SELECT * FROM {table} LIMIT 1",
        "DELETE FROM {table} WHERE {column} IN (SELECT {column} FROM {table} LIMIT 1)",
        "UPDATE {table} SET {column} = NULL WHERE TRUE",
        "CREATE TABLE {table}_mutated AS SELECT * FROM {table}",
        "CREATE OR REPLACE TABLE {table} AS SELECT * FROM {table} WHERE FALSE",
        "CREATE SCHEMA mutated",
        "DROP TABLE {table}",
        "TRUNCATE TABLE {table}",
    ),
    "snowflake": (
        "COMMENT ON TABLE {table} IS 'mutated'",
        "COMMENT ON COLUMN {table}.{column} IS 'mutated'",
        "COMMENT ON SCHEMA {schema} IS 'mutated'",
        "CREATE OR REPLACE TABLE {table} AS SELECT *, 1 AS MUTATED FROM {table}",
        "INSERT INTO {table} SELECT * FROM {table} LIMIT 1",
        "DELETE FROM {table} WHERE {column} IN (SELECT {column} FROM {table} LIMIT 1)",
        "UPDATE {table} SET {column} = NULL",
        "CREATE TABLE {table}_MUTATED AS SELECT * FROM {table}",
        "CREATE SCHEMA PURCHASE_INVOICE.MUTATED",
        "CREATE DATABASE MUTATED",
        "DROP TABLE {table}",
        "TRUNCATE TABLE {table}",
    ),
}


WORDS: tuple[Any, ...] = (
    *("", " ", "0", "no such thing", "x" * 70_000, "../../etc/passwd", "/etc/passwd", "/workspace"),
    *("a\n\nb", "é" * 300, "null", "=1+", "SELECT", "DROP TABLE a, b", "2025-13-45", "*"),
    *(-1, 0, 1, 2, 2**31, 2**63, 10**30, 0.5, 1e308, True, None, [], [None], [[]], {}, {"a": 1}),
)
TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def values_in(world: Any) -> list[Any]:
    office = getattr(world, "office", None)
    found: dict[Any, None] = {}
    for server in office.toolsets() if office is not None else ():
        for table in server.store.tables():
            for row in server.store.rows(f'SELECT * FROM "{table}" LIMIT 5'):
                found |= {value: None for value in row.values() if isinstance(value, (str, int))}
        for name in (*server.context.files.walk(), *server.context.files.folders()):
            found[name] = None
        engine = getattr(server, "engine", None)
        for schema, table in list(engine.tables)[:5] if engine is not None else ():
            found |= dict.fromkeys((schema, table, f"{schema}.{table}"))
    return [value for value in found if len(str(value)) < 200]


def draw(schema: Mapping[str, Any], pool: list[Any], rng: random.Random, types: Any) -> Any:
    if "$ref" in schema:
        return draw(types[schema["$ref"].rsplit("/", 1)[-1]], pool, rng, types)
    if "anyOf" in schema:
        return draw(rng.choice(schema["anyOf"]), pool, rng, types)
    if "enum" in schema:
        return rng.choice([*schema["enum"], "no such choice"])
    if schema.get("type") == "array":
        items = schema.get("items", {})
        return [draw(items, pool, rng, types) for _ in range(rng.choice((0, 1, 1, 2, 200)))]
    if schema.get("properties"):
        return {key: draw(item, pool, rng, types) for key, item in schema["properties"].items()}
    kind = TYPES.get(schema.get("type", ""), object)
    fitting = [value for value in WORDS if isinstance(value, kind)]
    known = [value for value in pool if isinstance(value, kind)]
    return rng.choice(known if known and rng.random() < 0.6 else fitting or [None])


def _plain(name: str) -> str:
    return re.sub("[^a-z]", "", name.lower())


class Arguments:
    """Generator for tool arguments, which uses the tool schemas and the records of the state."""

    def __init__(self, world: Any, server: Any, rng: random.Random) -> None:
        self._rng, self._server = rng, server
        self._pool = values_in(world)
        self._named: dict[str, list[Any]] = {name: list(values) for name, values in NAMES.items()}
        for table in server.store.tables():
            for row in server.store.rows(f'SELECT * FROM "{table}" LIMIT 100'):
                self._note_row(table, row)
        for step in world.progress.completed():
            self._note("", step.call.arguments)
        if engine := getattr(server, "engine", None):
            self._named["dataset"] = self._named["datasetid"] = list(engine.schemas)
            self._named["tableid"] = [name for _, name in engine.tables]
            self._named["tablename"] = [".".join(name) for name in engine.tables]
            self._named["database"] = [name for name in engine.schemas if "." not in name]
            self._named["schema"] = [name.split(".")[-1] for name in engine.schemas]
        if server.name == "calendar":
            ids = re.findall(r'"id": "([^"]+)"', world.office.call("list_events", WHOLE_YEAR))
            self._named["eventid"] = ids
        self._note_files(world.office.context.files)

    def _note_row(self, table: str, row: Mapping[str, Any]) -> None:
        for column, value in row.items():
            names = (
                (f"{table[:-1]}{column}", f"{table[:-1]}")
                if column in ("id", "name", "title")
                else (column,)
            )
            for name in names:
                self._note(name, value)

    def _note_files(self, files: Any) -> None:
        paths = files.walk()
        books = [path for path in paths if path.endswith(".xlsx")]
        texts = [*paths, "/workspace/own.txt"]
        more = {
            "path": texts,
            "filepath": books or ["/workspace/own.xlsx"],
            "sheetname": ["Mutated"],
        }
        more["attachments"] = more["sourcefilepath"] = texts
        for path in books:
            more["sheetname"] += read_workbook(files.read(path))
        for name, values in more.items():
            self._named.setdefault(name, []).extend(values)

    def _note(self, name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                self._note(key, item)
        elif isinstance(value, list):
            for item in value[:3]:
                self._note(name, item)
        elif isinstance(value, (str, int, float)) and len(str(value)) < 2_000:
            values = self._named.setdefault(_plain(name), [])
            if value not in values:
                values.append(value)

    def of(self, tool: BoundTool) -> dict[str, Any]:
        return self._object(tool.schema.parameters, tool.schema.parameters.get("$defs", {}))

    def another(self, tool: BoundTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments after changing or adding one argument.

        Keep all arguments if the old and the new value name the same file.
        """
        schema = tool.schema.parameters
        name = self._rng.choice(list(schema["properties"]))
        value = self._value(name, schema["properties"][name], schema.get("$defs", {}))
        path = PurePath(value) if isinstance(value, str) and "/" in value else None
        if path and path.name in str(arguments.get(name)):
            return dict(arguments)
        return {**arguments, name: value}

    def _object(self, schema: Mapping[str, Any], types: Any) -> dict[str, Any]:
        required, share = schema.get("required", ()), self._rng.choice((0.3, 0.3, 1.0))
        return {
            key: self._value(key, item, types)
            for key, item in schema.get("properties", {}).items()
            if key in required or self._rng.random() < share
        }

    def _value(self, name: str, schema: Mapping[str, Any], types: Any) -> Any:
        if "$ref" in schema:
            return self._value(name, types[schema["$ref"].rsplit("/", 1)[-1]], types)
        if "anyOf" in schema:
            return self._value(name, self._rng.choice(schema["anyOf"]), types)
        if schema.get("properties"):
            return self._object(schema, types)
        if schema.get("type") == "array":
            count = self._rng.choice((1, 1, 2))
            return [self._value(name, schema.get("items", {}), types) for _ in range(count)]
        if "enum" in schema:
            return self._rng.choice(schema["enum"])
        if name in ("query", "sql") and self._server.name in STATEMENTS:
            return self._statement()
        known = self._known(_plain(name), TYPES.get(schema.get("type", ""), object))
        if known and self._rng.random() < 0.9:
            return self._rng.choice(known)
        return draw(schema, self._pool, self._rng, types)

    def _known(self, name: str, kind: Any) -> list[Any]:
        for key in (name, *(name[k:] for k in range(1, len(name) - 1)), f"{name}s"):
            values = [
                str(value) if kind is str and isinstance(value, int) else value
                for value in self._named.get(key.removesuffix("s"), []) + self._named.get(key, [])
            ]
            fitting = [
                value
                for value in values
                if isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
            ]
            if fitting:
                return fitting
        return []

    def _statement(self) -> str:
        engine = self._server.engine
        name = self._rng.choice(sorted(engine.tables))
        column = self._rng.choice(engine.tables[name].columns).name
        template = self._rng.choice(STATEMENTS[self._server.name])
        return template.format(table=".".join(name), schema=name[0], column=column)


def mutations(world: Any, server_name: str, rng: random.Random) -> Iterator[tuple[str, Any, Any]]:
    image = pickle.dumps(world)
    server = next(each for each in world.office.toolsets() if each.name == server_name)
    drawn = Arguments(world, server, rng)
    for name, bound in tools_of(server).items():
        if name.rsplit(".")[-1] in PROGRAMS:
            continue
        copy, changes = pickle.loads(image), 0
        for _ in range(TRIES):
            arguments = drawn.of(bound)
            try:
                copy.office.call(name, arguments)
            except ToolError:
                continue
            yield name, arguments, copy
            copy = pickle.loads(image)
            changes += 1
            if changes == CHANGES:
                break


def variations(task: str, rng: random.Random) -> Iterator[tuple[str, Any, Any]]:
    world = fresh(task, size=SIZE)
    images, steps = [], []
    while (pending := world.progress.pending()) != [CLAIM]:
        images.append(pickle.dumps(world))
        steps.append(pending[0])
        call = steps[-1].call
        world.read_result(call, world.office.call(call.name, call.arguments))
    last = {step.call.name: k for k, step in enumerate(steps) if step.changes}
    for server in world.office.toolsets():
        drawn = Arguments(world, server, rng)
        for name, bound in tools_of(server).items():
            for _ in range(TRIES if name in last and name not in PROGRAMS else 0):
                copy, place = pickle.loads(images[last[name]]), last[name]
                arguments = drawn.another(bound, steps[place].call.arguments)
                with contextlib.suppress(ToolError):
                    copy.office.call(name, arguments)
                    for step in steps[place + 1 :]:
                        copy.office.call(step.call.name, step.call.arguments)
                    copy.done = True
                    yield name, arguments, copy


def harmful(kind: type[OfficeTask[Any]], names: set[str]) -> set[str]:
    patterns = kind.harmless_differences()
    return {
        name
        for name in names
        if not any(
            fnmatch.fnmatchcase(form, each)
            for each in patterns
            for form in (name, name.removeprefix("own:"))
        )
    }


def test_the_page_of_the_checks_is_what_the_tasks_say() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "build_checks.py"))["page"]()
    committed = (ROOT / "docs" / "loca_checks.md").read_text(encoding="utf-8")
    assert committed == page, "run `make docs`"


@pytest.mark.rotation(case=CASES)
def test_a_difference_fails_unless_it_is_listed_as_harmless(case: tuple[str, str]) -> None:
    env_id, server = case
    task = env_id.removeprefix("agentgym/").removesuffix("-v0")
    world = solved(task, size=SIZE)
    assert world.score() == 1.0
    start = observe(fresh(task, size=SIZE).office)
    before = observe(world.office)
    wrong = []
    for tool, arguments, mutated in mutations(
        world, server, random.Random(f"{sampling.current.seed} {env_id} {server}")
    ):
        names = differences(start, before, observe(mutated.office), world.outputs)
        if bool(mutated.score()) == bool(harmful(type(world), names)):
            wrong.append((tool, str(arguments)[:300], mutated.score(), sorted(names)))
    assert not wrong, wrong


@pytest.mark.family(task=list(TASKS))
def test_another_argument_in_a_call_of_the_plan_fails(task: str) -> None:
    world = solved(task, size=SIZE)
    start, right = observe(fresh(task, size=SIZE).office), observe(world.office)
    wrong = []
    for tool, arguments, varied in variations(
        task, random.Random(f"{sampling.current.seed} {task}")
    ):
        names = harmful(
            type(world), differences(start, right, observe(varied.office), world.outputs)
        )
        if names and varied.score():
            wrong.append((tool, str(arguments)[:300], sorted(names)))
    assert not wrong, wrong
