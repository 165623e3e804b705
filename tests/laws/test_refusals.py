"""A refused call changes nothing, not even the episode's clock."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from agentgym import make, tool_env, worlds
from agentgym.office.office import SERVERS, Office
from agentgym.oracles import OraclePolicy
from agentgym.play.env import ToolEnv
from agentgym.text.tools import Tool, ToolError, tools_of
from tests.helpers import needs_workbench, public_state
from tests.sampling import OFFICE

# Tools that start a process. A call takes 0.1 s, so few are drawn.
PROGRAMS = ("run_command", "execute_command", "python_execute")

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


def calls_of(
    tool: Tool, pool: list[Any], rng: random.Random, count: int
) -> Iterator[dict[str, Any]]:
    properties = tool.parameters.get("properties", {})
    required, types = tool.parameters.get("required", []), tool.parameters.get("$defs", {})
    yield {}
    yield {"no_such_argument": 1}
    for _ in range(count):
        arguments = {
            key: draw(item, pool, rng, types)
            for key, item in properties.items()
            if key in required or rng.random() < 0.5
        }
        spoilt = rng.random()
        if arguments and spoilt < 0.15:
            arguments[rng.choice(list(arguments))] = rng.choice(WORDS)
        elif arguments and spoilt < 0.25:
            del arguments[rng.choice(list(arguments))]
        yield arguments


def check(tool: Tool, env: ToolEnv, rng: random.Random, count: int) -> int:
    refused = 0
    start = env.snapshot()
    pool = values_in(env.world)
    for arguments in calls_of(tool, pool, rng, count):
        before = pickle.dumps(public_state(env.world))
        try:
            env.call(tool.name, arguments)
        except ToolError:
            refused += 1
            assert pickle.dumps(public_state(env.world)) == before, (tool.name, arguments)
        else:
            env.restore(start)
    return refused


def played(env_id: str) -> ToolEnv:
    env = tool_env(make(env_id, max_failed_rounds=None, on_fault="raise"))
    chat, _ = env.reset(seed=4)
    policy = OraclePolicy(env_id)
    for _ in range(2):
        chat = env.step(policy([chat])[0].text)[0]
        if env.over:  # the world only takes an answer
            chat, _ = env.reset(seed=4)
    return env


@pytest.mark.family(env_id=[entry.id for entry in worlds()])
def test_a_refused_call_changes_nothing(env_id: str) -> None:
    env, rng = played(env_id), random.Random(env_id)
    tools = [tool for tool in env.tools if tool.name not in PROGRAMS and not tool.final]
    picked = rng.sample(tools, 12) if env_id in OFFICE else tools * 5
    assert sum(check(tool, env, rng, 5) for tool in picked) >= len(picked)


@pytest.mark.exhaustive
@pytest.mark.parametrize("env_id", [entry.id for entry in worlds()])
def test_no_refused_call_of_any_tool_changes_anything(env_id: str) -> None:
    env, rng = played(env_id), random.Random(env_id)
    for tool in env.tools:
        if not tool.final:
            check(tool, env, rng, 2 if tool.name in PROGRAMS else 40)


@pytest.mark.parametrize("name", SERVERS)
def test_a_refused_call_of_an_empty_server_changes_nothing(name: str) -> None:
    if name in ("terminal", "python_execute"):
        needs_workbench()
    rng, office = random.Random(name), Office([name])
    for tool_name, bound in tools_of(office.toolsets()[0]).items():
        count = 1 if tool_name in PROGRAMS else 5
        for arguments in calls_of(bound.schema, [], rng, count):
            before, clock = pickle.dumps(office), office.context.clock.now()
            try:
                office.call(tool_name, arguments)
            except ToolError:
                assert pickle.dumps(office) == before, (tool_name, arguments)
                assert office.context.clock.now() == clock
