"""The memory server: a graph of entities and relations in a file of the workspace, one JSON object
a line.

It keeps the file as the Model Context Protocol's own memory server does, so tools that work on
files see the same graph.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from agentgym.office.context import OfficeContext
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
    """What to add to an entity."""

    entityName: Annotated[str, Field(description="Name of the entity.")]
    contents: Annotated[list[str], Field(description="Observations to add.")]


class Deleted(TypedDict):
    """What to take from an entity."""

    entityName: Annotated[str, Field(description="Name of the entity.")]
    observations: Annotated[list[str], Field(description="Observations to remove.")]


class Graph(TypedDict):
    """A graph or a part of one."""

    entities: list[Entity]
    relations: list[Relation]


class KnowledgeGraph(Server):
    """What is remembered of the world, as a graph.

    Args:
        context: Clock, identifiers and files. One of its own by default.

    Attributes:
        path: The file of the graph; a task may set another before the episode.
    """

    name: ClassVar[str] = "memory"
    episode_state: ClassVar[tuple[str, ...]] = (*Server.episode_state, "path")

    def __init__(self, context: OfficeContext | None = None) -> None:
        super().__init__(context)
        self.path = "memory/memory.json"

    @tool
    def create_entities(self, entities: list[Entity]) -> list[Entity]:
        """Add entities; those whose name is there already are left as they are. What was added is given.

        Args:
            entities: The entities.
        """
        graph = self.load()
        names = {entity["name"] for entity in graph["entities"]}
        new = [
            entity
            for name, entity in {entity["name"]: entity for entity in reversed(entities)}.items()
            if name not in names
        ][::-1]
        graph["entities"] += new
        self.save(graph)
        return new

    @tool
    def create_relations(self, relations: list[Relation]) -> list[Relation]:
        """Add relations between entities, in the active voice; those that are there already are left. What was added is given.

        Args:
            relations: The relations.
        """
        graph = self.load()
        new = [
            relation
            for place, relation in enumerate(relations)
            if relation not in (*graph["relations"], *relations[:place])
        ]
        graph["relations"] += new
        self.save(graph)
        return new

    @tool
    def add_observations(self, observations: list[Added]) -> list[dict[str, Any]]:
        """Add observations to entities; what was new is given.

        Args:
            observations: What to add to which entity.
        """
        graph = self.load()
        additions = []
        for item in observations:
            entity = _find_entity(graph, item["entityName"])
            if entity is None:
                raise ToolError(f"not found: there is no entity called {echo(item['entityName'])}")
            new = [
                content
                for content in dict.fromkeys(item["contents"])
                if content not in entity["observations"]
            ]
            entity["observations"] += new
            additions.append({"entityName": item["entityName"], "addedObservations": new})
        self.save(graph)
        return additions

    @tool
    def delete_entities(self, entityNames: list[str]) -> str:
        """Remove entities with their relations.

        Args:
            entityNames: Names of the entities.
        """
        graph, names = self.load(), set(entityNames)
        graph["entities"] = [entity for entity in graph["entities"] if entity["name"] not in names]
        graph["relations"] = [
            relation
            for relation in graph["relations"]
            if not {relation["from"], relation["to"]} & names
        ]
        self.save(graph)
        return "Entities deleted successfully"

    @tool
    def delete_observations(self, deletions: list[Deleted]) -> str:
        """Remove observations from entities.

        Args:
            deletions: What to remove from which entity.
        """
        graph = self.load()
        for item in deletions:
            entity = _find_entity(graph, item["entityName"])
            if entity is not None:
                entity["observations"] = [
                    text for text in entity["observations"] if text not in item["observations"]
                ]
        self.save(graph)
        return "Observations deleted successfully"

    @tool
    def delete_relations(self, relations: list[Relation]) -> str:
        """Remove relations.

        Args:
            relations: The relations.
        """
        graph = self.load()
        graph["relations"] = [
            relation for relation in graph["relations"] if relation not in relations
        ]
        self.save(graph)
        return "Relations deleted successfully"

    @tool
    def read_graph(self) -> Graph:
        """Give the whole graph."""
        return self.load()

    @tool
    def search_nodes(self, query: str) -> Graph:
        """Give the entities that have a text in their name, type or observations, upper or lower case, with all their relations.

        Args:
            query: The text.
        """
        graph, part = self.load(), query.lower()
        hits = [
            e
            for e in graph["entities"]
            if any(
                part in text.lower() for text in (e["name"], e["entityType"], *e["observations"])
            )
        ]
        return _subgraph(graph, hits)

    @tool
    def open_nodes(self, names: list[str]) -> Graph:
        """Give the entities of some names, with all their relations.

        Args:
            names: Names of the entities.
        """
        graph = self.load()
        return _subgraph(graph, [entity for entity in graph["entities"] if entity["name"] in names])

    def load(self) -> Graph:
        """Return the graph; an empty one where there is no file.

        Raises:
            ToolError: The file is something else.
        """
        graph = Graph(entities=[], relations=[])
        if not self.context.files.exists(self.path):
            return graph
        for number, line in enumerate(self.context.files.read_text(self.path).split("\n"), 1):
            if line.strip():
                try:
                    item = _line().validate_json(line)
                except ValidationError:
                    raise ToolError(
                        f"conflict: line {number} of {self.path} is no entity and no relation: "
                        f"{echo(line)}"
                    ) from None
                kind = item.pop("type")
                graph["entities" if kind == "entity" else "relations"].append(item)
        return graph

    def set_person(self, name: str, observations: Sequence[str]) -> None:
        """Write a graph of one person into the file."""
        person = {"name": name, "entityType": "person", "observations": observations}
        self.context.files.write(self.path, json.dumps({"type": "entity", **person}) + "\n")

    def save(self, graph: Graph) -> None:
        """Write the graph into the file."""
        entities = [{"type": "entity", **entity} for entity in graph["entities"]]
        relations = [{"type": "relation", **relation} for relation in graph["relations"]]
        encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
        self.context.files.write(self.path, "\n".join(map(encode, [*entities, *relations])))


def _find_entity(graph: Graph, name: str) -> Entity | None:
    return next((entity for entity in graph["entities"] if entity["name"] == name), None)


def _subgraph(graph: Graph, entities: list[Entity]) -> Graph:
    """Entities with all relations that one of them has."""
    names = {entity["name"] for entity in entities}
    return Graph(
        entities=entities,
        relations=[
            relation
            for relation in graph["relations"]
            if {relation["from"], relation["to"]} & names
        ],
    )


class _EntityLine(Entity):
    type: Literal["entity"]


class _RelationLine(Relation):
    type: Literal["relation"]


@functools.cache
def _line() -> TypeAdapter[Any]:
    """Return the validator of a line of the file; made on first use, since it takes
    milliseconds.
    """
    return TypeAdapter(_EntityLine | _RelationLine)
