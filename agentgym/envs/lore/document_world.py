"""DocumentWorld: read documents with computed ids (TaskWeaver, section 3, appendix B.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from random import Random
from typing import Annotated, ClassVar

from pydantic import Field

from agentgym.envs.lore.config import LoreConfig
from agentgym.envs.lore.graph import Graph, Node, Operator, Value, below, number
from agentgym.envs.lore.growth import BottomUp
from agentgym.envs.lore.knowledge import ReadDocuments, split_list
from agentgym.envs.lore.operators import BY_NAME, HARD, STANDARD, text
from agentgym.envs.lore.records import Records, write_index, write_rule, write_values
from agentgym.envs.lore.world import TEXTS, LoreWorld
from agentgym.envs.reading import expect
from agentgym.text.messages import Content

_TASK = re.compile(r"Find the value of (v[0-9]+)\.(?: Start with these documents: (.+)\.)?")


@dataclass(frozen=True, kw_only=True)
class DocumentConfig(LoreConfig):
    """Options of DocumentWorld.

    Attributes:
        distractor_fields: The mean number of irrelevant variables per document with values.
        distractor_documents: The mean number of irrelevant documents per relevant document in a
            list. If this mean is positive, lists include the variable of each document with values,
            so that rules reveal which documents are relevant.
    """

    operators_of: ClassVar[Mapping[str, Sequence[Operator]]] = {"standard": STANDARD, "hard": HARD}

    distractor_fields: Annotated[float, Field(ge=0.0, le=4.0)] = 0.25
    distractor_documents: Annotated[float, Field(ge=0.0, le=4.0)] = 2.0

    @property
    def most_documents(self) -> int:
        return ceil((1 + self.distractor_documents) * super().most_documents) + self.operations + 1


class DocumentWorld(LoreWorld[DocumentConfig]):
    """Find the value of a variable in documents whose ids must be computed from other documents."""

    Config = DocumentConfig
    texts = TEXTS["document"]
    records: ClassVar[type[Records]] = Records

    def grow(self, rng: Random) -> Graph:
        return BottomUp(rng, self.config, _operand, _field).grow()

    def task(self) -> str:
        start = ", ".join(map(self._entry, self.graph.start))
        first = f" Start with these documents: {start}."
        return f"{self._goal(first)}\nTurn budget: {self.max_turns}"

    def restate(self) -> str:
        return self._goal()

    def _goal(self, first: str = "") -> str:
        goal = f"Find the value of v0.{first}"
        if self.config.distractor_documents:
            goal += f"\n{self.texts['doubt']}"
        return goal

    def begin(self) -> Records:
        return self.records.begin("v0", map(self._entry, self.graph.start))

    def _entry(self, uid: int, form: str = "{}") -> str:
        node = self.graph.nodes[uid]
        file = form.format(node.file)
        if self.config.distractor_documents and node.kind == "value":
            return f"{file} (v{node.number})"
        return file

    def read_start(self, task: str) -> ReadDocuments:
        match = expect(_TASK.search(task), f"a task of {type(self).__name__}", task)
        return self.records.begin(match[1], split_list(match[2]))

    def show(self, node: Node) -> str | Content:
        if node.kind == "index":
            return write_index(self._entry(uid, "'{}'") for uid in node.content)
        if node.kind == "rule":
            operand = BY_NAME[node.content.operator].operand
            return write_rule(node.number, self._expression(node), operand)
        return write_values(self.style(node), ((node.number, node.content), *node.fields))

    def _expression(self, node: Node) -> str:
        names = [f"v{self.graph.nodes[uid].number}" for uid in node.content.operands]
        return BY_NAME[node.content.operator].write(node.content.drawn, names)


def _operand(rng: Random, operator: Operator) -> tuple[Value, None]:
    return operator.child(rng), None


def _field(rng: Random) -> Value:
    return text(rng) if below(rng, 3) == 0 else number(rng)
