from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from agentgym.office.office import SERVERS, Office, server_class
from agentgym.office.server import Server
from agentgym.text.tools import ToolError, tools_of
from tests.helpers import needs_workbench

# Injections, path escapes, odd Unicode and extreme or mistyped values.
HOSTILE: tuple[Any, ...] = (
    "", " ", "x" * 20_000, "0",
    "'; DROP TABLE users; --", "../../etc/passwd", "/etc/passwd", "%s%n{0}", "\u202e\ufeff", "null", "é" * 300,
    -1, 0, 1, 2**63, 10**30, 1e308, 0.5, True, None, [], [[]], [""], [None], {}, {"": None}, {"a": {"b": [1]}}, [{"a": 1}] * 50,
)  # fmt: skip


def draw(
    schema: Mapping[str, Any], rng: np.random.Generator, definitions: Mapping[str, Any]
) -> Any:
    if "$ref" in schema:
        return draw(definitions[schema["$ref"].rsplit("/", 1)[-1]], rng, definitions)
    if "anyOf" in schema:
        return draw(schema["anyOf"][int(rng.integers(len(schema["anyOf"])))], rng, definitions)
    if "enum" in schema:
        return schema["enum"][int(rng.integers(len(schema["enum"])))]
    kinds: dict[str, Any] = {
        "string": str,
        "integer": int,
        "number": float,
        "boolean": bool,
        "array": list,
        "object": dict,
    }
    if schema.get("type") == "array" and rng.random() < 0.5:
        return [draw(schema["items"], rng, definitions) for _ in range(int(rng.integers(3)))]
    if schema.get("properties"):
        return {key: draw(value, rng, definitions) for key, value in schema["properties"].items()}
    fitting = [
        value for value in HOSTILE if type(value) is kinds.get(schema.get("type", ""), type(value))
    ]
    return fitting[int(rng.integers(len(fitting)))] if fitting else None


def draw_call(server: Server, rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    tools = tools_of(server)
    name = list(tools)[int(rng.integers(len(tools)))]
    parameters = tools[name].schema.parameters
    required = parameters.get("required", [])
    return name, {
        key: draw(value, rng, parameters.get("$defs", {}))
        for key, value in parameters.get("properties", {}).items()
        if key in required or rng.random() < 0.5
    }


def digest(server: Server) -> bytes:
    """Return the episode's state, except the time and the number of identifiers drawn."""
    held = {name: getattr(server, name) for name in server.episode_state if name != "context"}
    files = [(path, server.context.files.read(path)) for path in server.context.files.walk()]
    return pickle.dumps((held, files))


def call(server: Server, tool: str, **arguments: Any) -> Any:
    return tools_of(server)[tool](arguments)


def refused(server: Server, tool: str, text: str, **arguments: Any) -> None:
    before, clock = digest(server), server.context.clock.now()
    with pytest.raises(ToolError, match=text):
        call(server, tool, **arguments)
    assert (digest(server), server.context.clock.now()) == (before, clock)


def run(server: Server, name: str, arguments: Mapping[str, Any]) -> str:
    try:
        result = tools_of(server)[name](arguments)
    except ToolError as error:
        return f"error: {error}"
    return (
        result
        if isinstance(result, str)
        else json.dumps(result, ensure_ascii=False, allow_nan=False)
    )


# Servers that start processes.
SLOW = ("terminal", "python_execute")


@pytest.fixture(autouse=True)
def _sandboxed(request: pytest.FixtureRequest) -> None:
    params = getattr(getattr(request.node, "callspec", None), "params", {})
    if params.get("name") in SLOW:
        needs_workbench()


@pytest.mark.parametrize("name", SERVERS)
def test_hostile_arguments_get_errors_and_an_error_changes_nothing(name: str) -> None:
    rng = np.random.default_rng(7)
    server = server_class(name)()
    for _ in range(6 * len(tools_of(server)) + (10 if name in SLOW else 40)):
        tool, arguments = draw_call(server, rng)
        before = digest(server)
        if run(server, tool, copy.deepcopy(arguments)).startswith("error:"):
            assert digest(server) == before, (tool, arguments)


@pytest.mark.parametrize("name", SERVERS)
def test_copies_go_on_alike_and_apart(name: str) -> None:
    rng = np.random.default_rng(3)
    server = server_class(name)()
    half = 6 if name in SLOW else 30
    calls = [draw_call(server, rng) for _ in range(2 * half)]
    for call in calls[:half]:
        run(server, *call)
    copies = [copy.deepcopy(server), pickle.loads(pickle.dumps(server)), server]
    shown = [[run(each, *call) for call in calls[half:]] for each in copies]
    assert shown[0] == shown[1] == shown[2]
    assert digest(copies[0]) == digest(copies[1]) == digest(copies[2])


@pytest.mark.parametrize("name", SERVERS)
def test_an_episode_begins_where_the_server_was_mounted(name: str) -> None:
    rng = np.random.default_rng(5)
    server = server_class(name)()
    calls = [draw_call(server, rng) for _ in range(10 if name in SLOW else 25)]
    shown = []
    for _ in range(2):
        server.begin()
        shown.append([run(server, *call) for call in calls])
    assert shown[0] == shown[1]


def test_all_servers_make_one_office() -> None:
    office = Office(SERVERS)
    names = [name for server in office.toolsets() for name in tools_of(server)]
    assert len(names) == len(set(names))
    assert pickle.dumps(pickle.loads(pickle.dumps(office)))
    office.close()
