"""The memory tools' effects on the graph and its file."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
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
WORKS = {"from": "Ada", "to": "Org", "relationType": "works at"}
KNOWS = {"from": "Ada", "to": "Bob", "relationType": "knows"}


def filled() -> KnowledgeGraph:
    server = KnowledgeGraph()
    assert call(server, "read_graph") == {"entities": [], "relations": []}
    assert call(server, "create_entities", entities=[ADA, BOB, ORG]) == [ADA, BOB, ORG]
    assert call(server, "create_relations", relations=[WORKS, KNOWS]) == [WORKS, KNOWS]
    return server


def test_the_file_is_that_of_the_public_server() -> None:
    server = filled()
    assert server.context.files.read_text("memory/memory.json").split("\n") == [
        '{"type":"entity","name":"Ada","entityType":"person","observations":["was born in 1815","likes naïve maths"]}',
        '{"type":"entity","name":"Bob","entityType":"person","observations":[]}',
        '{"type":"entity","name":"Org","entityType":"Company","observations":["hires Ada"]}',
        '{"type":"relation","from":"Ada","to":"Org","relationType":"works at"}',
        '{"type":"relation","from":"Ada","to":"Bob","relationType":"knows"}',
    ]


def test_other_tools_may_write_the_file() -> None:
    server = filled()
    line = {"observations": ["x"], "type": "entity", "name": "New", "entityType": "t", "more": 1}
    server.context.files.write("memory/memory.json", f"\n{json.dumps(line)}\n  \n")
    assert call(server, "read_graph") == {
        "entities": [{"name": "New", "entityType": "t", "observations": ["x"]}],
        "relations": [],
    }
    server.path = "elsewhere/graph.jsonl"
    call(server, "create_entities", entities=[BOB])
    assert server.context.files.read_text("elsewhere/graph.jsonl") == json.dumps(
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
            match=r"^conflict: line 2 of elsewhere/graph\.jsonl is no entity and no relation",
        ):
            call(server, "create_entities", entities=[ADA])
        assert digest(server) == before


def test_nothing_is_added_twice() -> None:
    server = filled()
    new = {"name": "Cyd", "entityType": "cat", "observations": []}
    assert call(
        server,
        "create_entities",
        entities=[{**ADA, "observations": ["other"]}, new, {**new, "entityType": "dog"}],
    ) == [new]
    back = {"from": "Org", "to": "Ada", "relationType": "works at"}
    assert call(server, "create_relations", relations=[WORKS, back, back]) == [back]
    added = call(
        server,
        "add_observations",
        observations=[{"entityName": "Org", "contents": ["hires Ada", "is big", "is big"]}],
    )
    assert added == [{"entityName": "Org", "addedObservations": ["is big"]}]
    graph = call(server, "read_graph")
    assert graph == {
        "entities": [ADA, BOB, {**ORG, "observations": ["hires Ada", "is big"]}, new],
        "relations": [WORKS, KNOWS, back]}  # fmt: skip
    before = digest(server)
    with pytest.raises(ToolError, match=r'^not found: there is no entity called "Eve"'):
        call(
            server,
            "add_observations",
            observations=[
                {"entityName": "Bob", "contents": ["x"]},
                {"entityName": "Eve", "contents": []},
            ],
        )
    assert digest(server) == before


def test_removing() -> None:
    server = filled()
    gone = [
        {"entityName": "Ada", "observations": ["was born in 1815", "no"]},
        {"entityName": "Eve", "observations": ["x"]},
    ]
    assert (
        call(server, "delete_observations", deletions=gone) == "Observations deleted successfully"
    )
    assert call(server, "open_nodes", names=["Ada"])["entities"][0]["observations"] == [
        "likes naïve maths"
    ]
    assert (
        call(server, "delete_relations", relations=[KNOWS, KNOWS])
        == "Relations deleted successfully"
    )
    assert call(server, "read_graph")["relations"] == [WORKS]
    assert (
        call(server, "delete_entities", entityNames=["Org", "Eve"])
        == "Entities deleted successfully"
    )
    assert [entity["name"] for entity in call(server, "read_graph")["entities"]] == ["Ada", "Bob"]
    assert call(server, "read_graph")["relations"] == []


@pytest.mark.parametrize(
    ("query", "names", "relations"),
    [
        ("ada", ["Ada", "Org"], [WORKS, KNOWS]), ("COMPANY", ["Org"], [WORKS]), ("naïve", ["Ada"], [WORKS, KNOWS]),
        ("bob", ["Bob"], [KNOWS]),
        ("zzz", [], []), ("", ["Ada", "Bob", "Org"], [WORKS, KNOWS]), ("works at", [], []),
    ],
)  # fmt: skip
def test_search(query: str, names: list[str], relations: list[Any]) -> None:
    found = call(filled(), "search_nodes", query=query)
    assert ([entity["name"] for entity in found["entities"]], found["relations"]) == (
        names,
        relations,
    )


def test_open_nodes() -> None:
    assert call(filled(), "open_nodes", names=["Org", "Eve", "Org"]) == {
        "entities": [ORG],
        "relations": [WORKS],
    }
    assert call(filled(), "open_nodes", names=[]) == {"entities": [], "relations": []}


def test_the_path_belongs_to_the_episode() -> None:
    server = KnowledgeGraph()
    server.path = "memory_data/memory.json"
    server.begin()
    call(server, "create_entities", entities=[ADA])
    twin = copy.deepcopy(server)
    server.path = "other.json"
    server.begin()
    assert (server.path, server.context.files.names()) == ("memory_data/memory.json", [])
    assert call(twin, "read_graph")["entities"] == [ADA]
    with pytest.raises(ToolError, match=r"argument 'entities\.0\.name' is missing"):
        call(server, "create_entities", entities=[{"entityType": "x", "observations": []}])


@pytest.mark.parametrize("seed", range(3))
def test_a_graph_is_that_of_a_small_model(seed: int) -> None:
    rng = np.random.default_rng(seed)
    server = KnowledgeGraph()
    nodes: dict[str, list[str]] = {}
    edges: list[tuple[str, str]] = []
    for _ in range(150):
        first, second, word = (f"{kind}{rng.integers(6)}" for kind in ("n", "n", "w"))
        action = rng.integers(6)
        if action == 0:
            call(
                server,
                "create_entities",
                entities=[{"name": first, "entityType": "t", "observations": [word]}],
            )
            nodes.setdefault(first, [word])
        elif action == 1:
            call(
                server,
                "create_relations",
                relations=[{"from": first, "to": second, "relationType": "r"}],
            )
            edges += [(first, second)] if (first, second) not in edges else []
        elif action == 2 and first in nodes:
            call(
                server, "add_observations", observations=[{"entityName": first, "contents": [word]}]
            )
            nodes[first] += [word] if word not in nodes[first] else []
        elif action == 3 and rng.random() < 0.3:
            call(server, "delete_entities", entityNames=[first])
            nodes.pop(first, None)
            edges = [edge for edge in edges if first not in edge]
        elif action == 4:
            call(
                server,
                "delete_observations",
                deletions=[{"entityName": first, "observations": [word]}],
            )
            nodes = {
                name: [held for held in words if (name, held) != (first, word)]
                for name, words in nodes.items()
            }
        else:
            call(
                server,
                "delete_relations",
                relations=[{"from": first, "to": second, "relationType": "r"}],
            )
            edges = [edge for edge in edges if edge != (first, second)]
    graph = call(server, "read_graph")
    assert {entity["name"]: entity["observations"] for entity in graph["entities"]} == nodes
    assert [(edge["from"], edge["to"]) for edge in graph["relations"]] == edges
    assert len(graph["entities"]) == len(nodes)
