"""Calls of the memory server."""

from __future__ import annotations

from agentgym.office.memory import KnowledgeGraph
from tests.office.published import Call, Difference

prepared = KnowledgeGraph
LINE = r"[^\n]+"
FRIENDS = {"from": "Ann", "relationType": "knows", "to": "Bo"}
CALLS = [
    Call(
        "create_entities",
        {
            "entities": [
                {"name": "Ann", "entityType": "person", "observations": ["is tall"]},
                {"name": "Bo", "entityType": "person", "observations": []},
            ]
        },
    ),
    Call("create_relations", {"relations": [FRIENDS]}),
    Call("add_observations", {"observations": [{"entityName": "Bo", "contents": ["sings"]}]}),
    Call("read_graph", {}),
    Call("search_nodes", {"query": "SING"}),
    Call("open_nodes", {"names": ["Ann"]}),
    Call(
        "delete_observations",
        {"deletions": [{"entityName": "Bo", "observations": ["sings"]}]},
        LINE,
    ),
    Call("delete_relations", {"relations": [FRIENDS]}, LINE),
    Call("delete_entities", {"entityNames": ["Ann", "nobody"]}, LINE),
]
DIFFERENCES: dict[str, Difference] = {}
