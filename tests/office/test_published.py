"""Office servers match the published ones, except for intended differences (`published/`)."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import pytest

from agentgym.office.office import SERVERS, server_class
from agentgym.text.tool_results import run_tool
from agentgym.text.tools import tools_of
from tests.office.published import FOLDER, Difference, Shape, differences, facts

NONE = Difference("")
ROOT = FOLDER.parents[2]


def resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    if "anyOf" in schema:
        kinds = [item for item in schema["anyOf"] if item.get("type") != "null"]
        if len(kinds) == 1:
            return {
                **resolved(kinds[0], definitions),
                **{k: schema[k] for k in schema if k != "anyOf"},
            }
        return {
            **schema,
            "type": [resolved(kind, definitions).get("type", "any") for kind in kinds],
        }
    if "$ref" in schema:
        found = resolved(definitions[schema["$ref"].rsplit("/", 1)[-1]], definitions)
        return {**found, **{k: schema[k] for k in schema if k != "$ref"}}
    return schema


def parameter_faults(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], definitions: Mapping[str, Any], path: str
) -> Iterator[tuple[str, str]]:
    ours = resolved(ours, definitions)
    kind, wanted = ours.get("type", "any"), theirs["type"]
    if wanted not in (kind, "any") and (kind, wanted) != ("integer", "number"):
        yield path, f"type {kind} in place of {wanted}"
    if "default" in theirs and ours.get("default") != theirs["default"]:
        yield path, f"default {ours.get('default')!r} in place of {theirs['default']!r}"
    choices = [ours["const"]] if "const" in ours else ours.get("enum")
    if "enum" in theirs and set(choices or ()) != set(theirs["enum"]):
        yield path, f"choices {choices} in place of {theirs['enum']}"
    if theirs.get("items"):
        yield from parameter_faults(
            ours.get("items", {}), theirs["items"], definitions, path + "[]"
        )
    if "properties" in theirs:
        yield from property_faults(ours, theirs["properties"], definitions, f"{path}.")


def property_faults(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], definitions: Mapping[str, Any], path: str
) -> Iterator[tuple[str, str]]:
    offered, required = ours.get("properties", {}), ours.get("required", [])
    for name in offered.keys() - theirs.keys():
        yield path + name, "only ours has it"
    for name, published in theirs.items():
        if name not in offered:
            yield path + name, "ours lacks it"
            continue
        if (name in required) != published["required"]:
            yield path + name, "required" if name in required else "not required"
        yield from parameter_faults(offered[name], published, definitions, path + name)


@pytest.mark.parametrize("name", SERVERS)
def test_parameters_are_the_published_ones(name: str) -> None:
    published, meant = facts(name), differences(name)
    offered = {tool: bound.schema for tool, bound in tools_of(server_class(name)()).items()}
    assert list(offered) == list(published)
    for tool, schema in offered.items():
        parameters = schema.parameters
        theirs = published[tool]["params"]
        shared = [key for key in parameters["properties"] if key in theirs]
        assert shared == [key for key in theirs if key in shared], f"{tool}: another order"
        faults = dict(property_faults(parameters, theirs, parameters.get("$defs", {}), ""))
        allowed = meant.get(tool, NONE).params
        assert not {path: what for path, what in faults.items() if path not in allowed}, tool
        assert not allowed - faults.keys(), f"{tool}: these do not differ"
        silent = [
            key for key, item in parameters["properties"].items() if "description" not in item
        ]
        assert not silent, f"{tool} has parameters without a description"


@pytest.mark.parametrize("name", SERVERS)
def test_answers_have_the_published_form(name: str) -> None:
    published, meant = facts(name), differences(name)
    module = import_module(f"tests.office.published.{name}")
    server = module.prepared()
    shapes = {tool: Shape(entry["returns"].get("json", [])) for tool, entry in published.items()}
    answers: list[Any] = []
    tools = tools_of(server)
    try:
        for call in module.CALLS:
            arguments = call.arguments(answers) if callable(call.arguments) else call.arguments
            answer = run_tool(tools[call.tool], arguments)
            text = answer if isinstance(answer, str) else answer.text
            answers.append(compared(text, published[call.tool]["returns"], call, shapes[call.tool]))
    finally:
        server.close()
    disabled = {tool for tool, difference in meant.items() if difference.disabled}
    assert published.keys() - {call.tool for call in module.CALLS} == disabled
    for tool, shape in shapes.items():
        allowed = meant.get(tool, NONE)
        assert shape.added == allowed.added, f"{tool}: keys that only ours has"
        assert shape.lacking == allowed.lacking, f"{tool}: keys that ours lacks"
        assert {path: v for path, v in shape.types.items() if path not in allowed.types} == {}, tool
        assert allowed.types <= shape.types.keys(), f"{tool}: these types do not differ"
        assert not shape.empty - allowed.lacking - allowed.empty, (
            f"{tool}: no element of these lists was seen"
        )


def compared(text: str, returns: Mapping[str, Any], call: Any, shape: Shape) -> Any:
    if returns["form"] == "json" and call.text is None:
        answer = json.loads(text)
        shape.compare(answer)
        return answer
    assert call.text is not None, f"{call.tool}: the form of its text is to be told"
    if returns["form"] == "json in text":
        start = re.search(r"^[\[{]", text, re.MULTILINE)
        assert start, text
        answer = json.loads(text[start.start() :])
        shape.compare(answer)
        assert re.fullmatch(call.text, text[: start.start()], re.DOTALL), text[: start.start()]
        return answer
    assert re.fullmatch(call.text, text, re.DOTALL), f"{call.tool}: {text}"
    return text


def test_every_difference_has_a_reason() -> None:
    for name in SERVERS:
        for tool, difference in differences(name).items():
            assert tool in facts(name), f"{name} has no {tool}"
            assert re.fullmatch(r"[A-Z`].*\.", difference.because), tool


def test_the_page_of_the_servers_is_what_their_tests_say() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "build_servers.py"))["page"]()
    committed = (ROOT / "docs" / "loca_servers.md").read_text(encoding="utf-8")
    assert committed == page, "run `make docs`"


def test_a_shape_that_differs_is_found() -> None:
    shape = Shape({"a": "string", "b?": "integer", "c": [{"d": "null|number"}], "e": []})
    shape.compare({"a": "x", "c": [], "e": [1, "2"]})
    assert (shape.added, shape.lacking, shape.types, shape.empty) == (set(), set(), {}, {"c"})
    shape.compare({"b": True, "c": [{"d": 1}, {"d": "x", "f": None}], "e": {}})
    assert shape.added == {"c[].f"}
    assert shape.lacking == {"a"}
    assert shape.types == {"b": True, "c[].d": "x", "e": {}}
    assert shape.empty == set()


def test_keys_of_any_name_are_compared() -> None:
    shape = Shape({"a": {"<name>": {"b": "integer"}}})
    shape.compare({"a": {"x": {"b": 1}, "y": {"c": 2}}})
    assert (shape.added, shape.lacking) == ({"a.<name>.c"}, {"a.<name>.b"})
