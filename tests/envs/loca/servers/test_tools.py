"""The servers offer the tools of the published ones: names, parameters, their types and which are
required.

The tables in `tool_tables/` hold one line a tool; a type that begins with `?` is that of an
optional parameter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.loca.servers.office import SERVERS, server_class
from agentgym.tools import tools_of

TABLES = Path(__file__).parent / "tool_tables"


def spell(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """A type in the words of the tables; what may be null is what it is otherwise."""
    if "anyOf" in schema:
        return "|".join(
            spell(item, definitions) for item in schema["anyOf"] if item.get("type") != "null"
        )
    if "$ref" in schema:
        return spell(definitions[schema["$ref"].rsplit("/", 1)[-1]], definitions)
    if "enum" in schema:
        return f"{schema['type']} {'|'.join(schema['enum'])}"
    if schema.get("type") == "array":
        item = spell(schema["items"], definitions) if schema["items"] else "any"
        return f"array<{item.split('<')[0]}>"
    return str(schema.get("type", "any"))


def offered(name: str) -> dict[str, dict[str, str]]:
    shown = {}
    for tool, bound in tools_of(server_class(name)()).items():
        parameters = bound.schema.parameters
        required = parameters.get("required", [])
        shown[tool] = {
            key: ("" if key in required else "?") + spell(value, parameters.get("$defs", {}))
            for key, value in parameters.get("properties", {}).items()
        }
    return shown


def fits(ours: str, theirs: str) -> bool:
    """Whether a type is the published one; an id that they call a number is an integer with us."""
    return ours == theirs or theirs.replace("number", "integer") == ours


@pytest.mark.parametrize("name", SERVERS)
def test_tools_are_the_published_ones(name: str) -> None:
    published = json.loads((TABLES / f"{name}.json").read_text())
    ours = offered(name)
    assert list(ours) == list(published)
    for tool, parameters in published.items():
        assert list(ours[tool]) == list(parameters), tool
        assert not {
            key: (ours[tool][key], kind)
            for key, kind in parameters.items()
            if not fits(ours[tool][key], kind)
        }, tool
