"""Office servers behave like the published servers, except for intended differences (`published/`)."""

from __future__ import annotations

import contextlib
import json
import re
import runpy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from agentgym.office.office import SERVERS, server_class
from agentgym.text.tools import tools_of
from tests.helpers import needs_workbench
from tests.office.prepared import pages
from tests.office.published import FOLDER, Difference, Shape, differences, facts
from tests.office.test_laws import SLOW
from tests.office.test_sessions import read_sessions

NONE = Difference()
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
        allowed = set(meant.get(tool, NONE).params)
        assert not {path: what for path, what in faults.items() if path not in allowed}, tool
        assert not allowed - faults.keys(), f"{tool}: these do not differ"
        silent = [
            key for key, item in parameters["properties"].items() if "description" not in item
        ]
        assert not silent, f"{tool} has parameters without a description"


@pytest.mark.parametrize("name", SERVERS)
def test_answers_have_the_published_form(name: str) -> None:
    if name in SLOW:
        needs_workbench()
    published, meant = facts(name), differences(name)
    # A session file cannot contain a PDF file.
    server = pages() if name == "pdf_tools" else server_class(name)()
    shapes = {tool: Shape(entry["returns"].get("json", [])) for tool, entry in published.items()}
    called = set()
    with contextlib.closing(server):
        for step in read_sessions(FOLDER / f"{name}.txt")[""]:
            answer = step.play(server)
            if not step.call.startswith("@"):
                called.add(step.call)
                compare(answer, published[step.call]["returns"]["form"], shapes[step.call])
    disabled = {tool for tool, difference in meant.items() if difference.disabled}
    assert published.keys() - called == disabled
    for tool, shape in shapes.items():
        allowed = meant.get(tool, NONE)
        assert shape.added == set(allowed.added), f"{tool}: keys that only ours has"
        assert shape.lacking == set(allowed.lacking), f"{tool}: keys that ours lacks"
        assert shape.types.keys() == set(allowed.types), f"{tool}: {shape.types}"
        unseen = shape.empty - {*allowed.lacking, *allowed.empty}
        assert not unseen, f"{tool}: no element of these lists was seen"


def compare(answer: Any, form: str, shape: Shape) -> None:
    """Compare the JSON in an answer with the published keys and types."""
    if form == "json":
        shape.compare(json.loads(answer) if isinstance(answer, str) else answer)
    elif form == "json in text":
        start = re.search(r"^[\[{]", answer, re.MULTILINE)
        assert start, answer
        shape.compare(json.loads(answer[start.start() :]))


def test_every_difference_has_a_reason() -> None:
    for name in SERVERS:
        for tool, difference in differences(name).items():
            assert tool in facts(name), f"{name} has no {tool}"
            assert difference.disabled or re.fullmatch(r"[A-Z`].*\.", difference.because), tool


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
