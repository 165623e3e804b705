"""Memory server: a graph of entities and relations in a workspace file.

The file has the format of the MCP memory server.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from agentgym.office.disabled import with_disabled_tools
from agentgym.office.server import Server
from agentgym.text.tools import ToolError, echo, tool


class Entity(TypedDict):
    """A node of the graph."""

    name: Annotated[str, Field(description="Name of the entity.")]
    entityType: Annotated[str, Field(description="Type of the entity.")]
    observations: Annotated[list[str], Field(description="Facts about the entity.")]


Relation = TypedDict(
    "Relation",
    {
        "from": Annotated[str, Field(description="Name of the entity it starts at.")],
        "to": Annotated[str, Field(description="Name of the entity it ends at.")],
        "relationType": Annotated[str, Field(description="Type of the relation.")],
    },
)
"""An edge of the graph."""


class Added(TypedDict):
    """Observations to add to an entity."""

    entityName: Annotated[str, Field(description="Name of the entity.")]
    contents: Annotated[list[str], Field(description="Observations to add.")]


class MemoryGraph(TypedDict):
    """A graph or a part of one."""

    entities: list[Entity]
    relations: list[Relation]


@with_disabled_tools(Path(__file__).with_name("disabled_memory_tools.json"))
class KnowledgeGraph(Server):
    """The agent's memory as a graph."""

    name = "memory"
    path: ClassVar[str] = "memory/memory.json"
    tool_order = tuple(
        """
        create_entities create_relations add_observations delete_entities delete_observations
        delete_relations read_graph search_nodes open_nodes
        """.split()
    )

    @tool
    def create_entities(self, entities: list[Entity]) -> list[Entity]:
        """Create entities. Entities whose name already exists are skipped. Returns the new ones.

        Args:
            entities: The entities.
        """
        graph = self.load()
        known = {entity["name"] for entity in graph["entities"]}
        new: dict[str, Entity] = {}
        for entity in reversed(entities):  # of entities with the same name, the first one counts
            if entity["name"] not in known:
                new[entity["name"]] = entity
        added = list(reversed(new.values()))
        graph["entities"] += added
        self.save(graph)
        return added

    @tool
    def add_observations(self, observations: list[Added]) -> list[dict[str, Any]]:
        """Add observations to entities. Returns the new ones.

        Args:
            observations: The observations to add, by entity.
        """
        graph = self.load()
        additions = []
        for item in observations:
            known = _find_entity(graph, item["entityName"])["observations"]
            new = [text for text in dict.fromkeys(item["contents"]) if text not in known]
            known += new
            additions.append({"entityName": item["entityName"], "addedObservations": new})
        self.save(graph)
        return additions

    @tool
    def read_graph(self) -> MemoryGraph:
        """Read the whole graph."""
        return self.load()

    @tool
    def search_nodes(self, query: str) -> MemoryGraph:
        """Find entities with a text in their name, type or observations, ignoring case, with all
        their relations.

        Args:
            query: The text.
        """
        graph, part = self.load(), query.lower()
        hits = []
        for entity in graph["entities"]:
            texts = (entity["name"], entity["entityType"], *entity["observations"])
            if any(part in text.lower() for text in texts):
                hits.append(entity)
        return _subgraph(graph, hits)

    @tool
    def open_nodes(self, names: list[str]) -> MemoryGraph:
        """Get entities by name, with all their relations.

        Args:
            names: Names of the entities.
        """
        graph = self.load()
        return _subgraph(graph, [entity for entity in graph["entities"] if entity["name"] in names])

    def load(self) -> MemoryGraph:
        """Return the graph; if the file is missing, the graph is empty."""
        graph = MemoryGraph(entities=[], relations=[])
        if not self.context.files.exists(self.path):
            return graph
        lines = self.context.files.read_text(self.path).split("\n")
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    item = _line().validate_json(line)
                except ValidationError:
                    raise ToolError(
                        f"conflict: line {number} of {self.path} is neither an entity nor a "
                        f"relation: {echo(line)}"
                    ) from None
                if item.pop("type") == "entity":
                    graph["entities"].append(item)
                else:
                    graph["relations"].append(item)
        return graph

    def set_person(self, name: str, observations: Sequence[str]) -> None:
        """Replace the stored graph with a graph of a single person."""
        person = {"name": name, "entityType": "person", "observations": observations}
        self.context.files.write(self.path, json.dumps({"type": "entity", **person}) + "\n")

    def save(self, graph: MemoryGraph) -> None:
        """Write the graph to the file."""
        records = [{"type": "entity", **entity} for entity in graph["entities"]]
        records += [{"type": "relation", **relation} for relation in graph["relations"]]
        lines = [json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in records]
        self.context.files.write(self.path, "\n".join(lines))


def _find_entity(graph: MemoryGraph, name: str) -> Entity:
    for entity in graph["entities"]:
        if entity["name"] == name:
            return entity
    raise ToolError(f"not found: there is no entity called {echo(name)}")


def _subgraph(graph: MemoryGraph, entities: list[Entity]) -> MemoryGraph:
    names = {entity["name"] for entity in entities}
    relations = [each for each in graph["relations"] if names & {each["from"], each["to"]}]
    return MemoryGraph(entities=entities, relations=relations)


class _EntityLine(Entity):
    type: Literal["entity"]


class _RelationLine(Relation):
    type: Literal["relation"]


@functools.cache
def _line() -> TypeAdapter[Any]:
    return TypeAdapter(_EntityLine | _RelationLine)
