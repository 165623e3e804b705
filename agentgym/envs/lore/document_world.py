"""DocumentWorld: find a value in documents whose ids have to be computed (TaskWeaver, section 3 and
appendix B.1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated

from pydantic import Field

from agentgym.envs.lore.bottom_up import MOST_IRRELEVANT, DocumentSampler, grow_bottom_up
from agentgym.envs.lore.config import PRESETS, LoreConfig
from agentgym.envs.lore.graph import Graph, Node, Operator, Value, below
from agentgym.envs.lore.knowledge import ReadDocuments
from agentgym.envs.lore.operators import BY_NAME, HARD, STANDARD, number, text
from agentgym.envs.lore.records import Records, write_index, write_rule, write_values
from agentgym.envs.lore.world import LoreWorld
from agentgym.messages import Content
from agentgym.registry import register

_TASK = re.compile(r"Find the value of (v[0-9]+)\.(?: Start with these documents: (.+)\.)?")
_DOUBTING = "Some of the documents that a record lists may be irrelevant."


@dataclass(frozen=True, kw_only=True)
class DocumentConfig(LoreConfig):
    """Options of DocumentWorld.

    Attributes:
        distractor_fields: The number of irrelevant variables in a document of values, on average.
        distractor_documents: The number of irrelevant documents in a list of documents, on average.
    """

    distractor_fields: Annotated[float, Field(ge=0.0, le=4.0)] = 0.25
    distractor_documents: Annotated[float, Field(ge=0.0, le=4.0)] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_weights([operator.name for operator in self.operators])

    @property
    def operators(self) -> Sequence[Operator]:
        """Operators of the rules."""
        return STANDARD if self.difficulty == "standard" else HARD

    @property
    def most_documents(self) -> int:
        """Upper bound of the number of documents."""
        return super().most_documents + (
            MOST_IRRELEVANT * self.operations if self.distractor_documents else 0
        )


class DocumentWorld(LoreWorld[DocumentConfig]):
    """Find the value of a variable in documents whose ids have to be computed from others."""

    Config = DocumentConfig

    def grow(self, rng: Random) -> Graph:
        """Draw the graph bottom-up."""
        config = self.config
        sampler = DocumentSampler(
            value=lambda rng, operator: (operator.child(rng), None),
            field=_field,
            field_rate=config.distractor_fields,
            document_rate=config.distractor_documents,
        )
        return grow_bottom_up(rng, config.shape, config.operators, sampler, config.weights)

    def rules(self) -> str:
        """The system message."""
        return (
            "You look for the value of a variable in a collection of documents, each of which has "
            "an id such as v12%aB or v7%-30. "
            "A document gives values of variables, or lists other documents, or says how to "
            "compute the id of another one from "
            "variables that are given elsewhere. No list of all documents exists: read those that "
            "the task names with "
            "read_document, and follow what they say, whether it is an id or has to be computed, "
            "until you find the variable of "
            "the task. Its value stands in a document as it is, and is a text of letters. Ids and "
            "texts are case-sensitive; a full "
            "stop at the end of a sentence is no part of a value. Some variables are irrelevant.\n"
            f"{_FUNCTIONS if self.config.difficulty == 'hard' else ''}"
            "When you know the value, give it with submit, or reply with a last line 'Final "
            "answer: ' and the value. This ends the "
            "task: you succeed if the value is exactly right."
        )

    def task(self) -> str:
        """The target, where to start, and the budget."""
        start = ", ".join(self.graph.nodes[uid].file for uid in self.graph.start)
        doubt = f"\n{_DOUBTING}" if self.config.distractor_documents else ""
        return (
            f"Find the value of v0. Start with these documents: {start}.{doubt}\nTurn budget: "
            f"{self.max_turns}"
        )

    def restate(self) -> str:
        """The target; the state has the documents to read."""
        doubt = f"\n{_DOUBTING}" if self.config.distractor_documents else ""
        return f"Find the value of v0.{doubt}"

    def begin(self, start: Sequence[str]) -> Records:
        """Return the knowledge of a reader of the task."""
        return Records.begin("v0", start, self.config.distractor_documents > 0)

    def read_start(self, task: str) -> ReadDocuments:
        """Return the knowledge of a reader of the task."""
        match = _TASK.search(task)
        if match is None:
            raise ValueError(f"this is not a task of {type(self).__name__}: {task[:100]!r}")
        return Records.begin(match[1], match[2].split(", ") if match[2] else (), _DOUBTING in task)

    def show(self, node: Node) -> str | Content:
        """The document as text."""
        if node.kind == "index":
            return write_index(self.graph.nodes[uid].file for uid in node.content)
        if node.kind == "rule":
            rule, operator = node.content, BY_NAME[node.content.operator]
            names = [f"v{self.graph.nodes[uid].number}" for uid in rule.operands]
            return write_rule(node.number, operator.write(rule.drawn, names), operator.operand)
        return write_values(self.style(node), ((node.number, node.content), *node.fields))


_FUNCTIONS = (
    "In expressions, (a + b) mod m is the remainder of the sum after division by m; max, min and "
    "abs are the largest, the smallest "
    "and the absolute value; reverse(a) is the text a read backwards, upper, lower and swapcase "
    "change the case of its letters, "
    "first and last take one letter of it, and twice repeats it.\n"
)


def _field(rng: Random) -> Value:
    """Draw the value of an irrelevant variable: a text in one of three."""
    return text(rng) if below(rng, 3) == 0 else number(rng)


register(DocumentWorld, presets=PRESETS)
