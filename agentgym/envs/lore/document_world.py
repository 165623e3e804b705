"""DocumentWorld: find a value in documents whose ids must be computed (TaskWeaver, section 3 and
appendix B.1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from random import Random
from typing import Annotated, ClassVar

from pydantic import Field

from agentgym.envs.lore.config import LoreConfig
from agentgym.envs.lore.graph import Graph, Node, Operator, Value, below
from agentgym.envs.lore.growth import DocumentSampler, grow_bottom_up
from agentgym.envs.lore.knowledge import ReadDocuments
from agentgym.envs.lore.operators import BY_NAME, HARD, STANDARD, number, text
from agentgym.envs.lore.records import Records, write_index, write_rule, write_values
from agentgym.envs.lore.world import LoreWorld
from agentgym.envs.reading import expect
from agentgym.text.messages import Content

_TASK = re.compile(r"Find the value of (v[0-9]+)\.(?: Start with these documents: (.+)\.)?")
_DOUBTING = (
    "Behind the id of a document that gives the value of a variable stands the variable; those "
    "that no rule asks for are irrelevant, here and in other lists."
)


@dataclass(frozen=True, kw_only=True)
class DocumentConfig(LoreConfig):
    """Options of DocumentWorld.

    Attributes:
        distractor_fields: The mean number of irrelevant variables in a document of values.
        distractor_documents: The mean number of irrelevant documents per relevant one in a list of
            documents. If there are any, lists name the variables of documents of values, so that
            rules identify the relevant ones.
    """

    operators_of: ClassVar[Mapping[str, Sequence[Operator]]] = {"standard": STANDARD, "hard": HARD}

    distractor_fields: Annotated[float, Field(ge=0.0, le=4.0)] = 0.25
    distractor_documents: Annotated[float, Field(ge=0.0, le=4.0)] = 2.0

    @property
    def most_documents(self) -> int:
        """Upper bound."""
        return ceil((1 + self.distractor_documents) * super().most_documents) + self.operations + 1


class DocumentWorld(LoreWorld[DocumentConfig]):
    """Find the value of a variable in documents whose ids must be computed from others."""

    Config = DocumentConfig
    records: ClassVar[type[Records]] = Records

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
        """Return the system message."""
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
        """Return the target, the first documents, and the budget."""
        start = ", ".join(map(self._entry, self.graph.start))
        doubt = f"\n{_DOUBTING}" if self.config.distractor_documents else ""
        return (
            f"Find the value of v0. Start with these documents: {start}.{doubt}\nTurn budget: "
            f"{self.max_turns}"
        )

    def restate(self) -> str:
        """Return the target; the state contains the rest."""
        doubt = f"\n{_DOUBTING}" if self.config.distractor_documents else ""
        return f"Find the value of v0.{doubt}"

    def begin(self) -> Records:
        """Return the initial knowledge."""
        return self.records.begin("v0", map(self._entry, self.graph.start))

    def _entry(self, uid: int, form: str = "{}") -> str:
        node = self.graph.nodes[uid]
        named = self.config.distractor_documents and node.kind == "value"
        return form.format(node.file) + (f" (v{node.number})" if named else "")

    def read_start(self, task: str) -> ReadDocuments:
        """Return the initial knowledge."""
        match = expect(_TASK.search(task), f"a task of {type(self).__name__}", task)
        return self.records.begin(match[1], match[2].split(", ") if match[2] else ())

    def show(self, node: Node) -> str | Content:
        """Return the document as text."""
        if node.kind == "index":
            return write_index(self._entry(uid, "'{}'") for uid in node.content)
        if node.kind == "rule":
            operand = BY_NAME[node.content.operator].operand
            return write_rule(node.number, self._expression(node), operand)
        return write_values(self.style(node), ((node.number, node.content), *node.fields))

    def _expression(self, node: Node) -> str:
        names = [f"v{self.graph.nodes[uid].number}" for uid in node.content.operands]
        return BY_NAME[node.content.operator].write(node.content.drawn, names)


_FUNCTIONS = (
    "In expressions, (a + b) mod m is the remainder of the sum after division by m; max, min and "
    "abs are the largest, the smallest "
    "and the absolute value; reverse(a) is the text a read backwards, upper, lower and swapcase "
    "change the case of its letters, "
    "first and last take one letter of it, and twice repeats it.\n"
)


def _field(rng: Random) -> Value:
    return text(rng) if below(rng, 3) == 0 else number(rng)
