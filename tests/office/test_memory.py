"""The effects of the memory tools on the graph and its file."""

from __future__ import annotations

import copy
import json

import pytest

from agentgym.office.memory import KnowledgeGraph
from agentgym.text.tools import ToolError
from tests.office.test_laws import call, digest

ADA = {
    "name": "Ada",
    "entityType": "person",
    "observations": ["was born in 1815", "likes naïve maths"],
}
BOB = {"name": "Bob", "entityType": "person", "observations": []}
ORG = {"name": "Org", "entityType": "Company", "observations": ["hires Ada"]}


def filled() -> KnowledgeGraph:
    server = KnowledgeGraph()
    assert call(server, "read_graph") == {"entities": [], "relations": []}
    assert call(server, "create_entities", entities=[ADA, BOB, ORG]) == [ADA, BOB, ORG]
    return server


def test_the_error_for_a_missing_field_does_not_list_the_arguments_around_it() -> None:
    with pytest.raises(ToolError, match=r"'entities\.0\.name' is missing$"):
        call(filled(), "create_entities", entities=[{}])


def test_other_tools_may_write_the_file() -> None:
    server = filled()
    line = {"observations": ["x"], "type": "entity", "name": "New", "entityType": "t", "more": 1}
    server.context.files.write("memory/memory.json", f"\n{json.dumps(line)}\n  \n")
    assert call(server, "read_graph") == {
        "entities": [{"name": "New", "entityType": "t", "observations": ["x"]}],
        "relations": [],
    }
    server.context.files.remove(server.path)
    call(server, "create_entities", entities=[BOB])
    assert server.context.files.read_text("memory/memory.json") == json.dumps(
        {"type": "entity", **BOB}, separators=(",", ":")
    )
    for bad in (
        "{",
        "[]",
        "5",
        '{"type": "entity"}',
        '{"type": "thing"}',
        '{"type":"relation","from":1,"to":"b","relationType":"c"}',
        "[" * 9_999,
    ):
        server.context.files.write(server.path, f"\n{bad}")
        before = digest(server)
        with pytest.raises(
            ToolError,
            match=r"^conflict: line 2 of memory/memory\.json is neither an entity nor a relation",
        ):
            call(server, "create_entities", entities=[ADA])
        assert digest(server) == before


def test_the_graph_belongs_to_the_episode() -> None:
    server = KnowledgeGraph()
    server.begin()
    call(server, "create_entities", entities=[ADA])
    twin = copy.deepcopy(server)
    server.begin()
    assert server.context.files.names() == []
    assert call(twin, "read_graph")["entities"] == [ADA]
    with pytest.raises(ToolError, match=r"argument 'entities\.0\.name' is missing"):
        call(server, "create_entities", entities=[{"entityType": "x", "observations": []}])


def test_additions_and_searches_give_their_part_of_the_graph() -> None:
    server = filled()
    assert call(server, "create_entities", entities=[ADA, {**BOB, "name": "Cyd"}] * 2) == [
        {**BOB, "name": "Cyd"}
    ]
    words = {"entityName": "Bob", "contents": ["knows Ada", "knows Ada"]}
    for added in (["knows Ada"], []):
        answer = call(server, "add_observations", observations=[words])
        assert answer == [{"entityName": "Bob", "addedObservations": added}]
    edge = {"type": "relation", "from": "Bob", "to": "Cyd", "relationType": "knows"}
    server.context.files.write(
        server.path, f"{server.context.files.read_text(server.path)}\n{json.dumps(edge)}"
    )
    found = call(server, "search_nodes", query="ADA")
    assert [entity["name"] for entity in found["entities"]] == ["Ada", "Bob", "Org"]
    assert [relation["to"] for relation in found["relations"]] == ["Cyd"]
    assert call(server, "open_nodes", names=["Ada"])["relations"] == []
