"""The memory tools' effects on the graph and its file."""

from __future__ import annotations

import copy
import json

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
