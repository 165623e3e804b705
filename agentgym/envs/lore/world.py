"""Base class for LORE worlds: read documents, then answer (TaskWeaver, sections 3 and 4)."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import ceil
from random import Random
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from agentgym.envs.lore.config import MAX_OPERATIONS, LoreConfig
from agentgym.envs.lore.graph import Graph, Node
from agentgym.envs.lore.knowledge import ReadDocuments
from agentgym.envs.reading import expect, load_texts
from agentgym.text.messages import Content, ToolCall
from agentgym.text.tools import ToolError, echo, tool
from agentgym.text.validation import check_int
from agentgym.world.world import CallSet, World

# The number of sampled tasks that determine the turn budget. About one task in nine exceeds this
# budget and is redrawn.
_SAMPLES, _FEWEST_SAMPLES = 8, 2
# Approximate total number of operations in the sampled tasks, which limits the sampling time.
_SAMPLED = 4_000
LOST_AFTER = 20
"""Turns after which an unfollowed lead counts as lost."""


_TURNS = re.compile(r"(?:Turn budget|Turns left): ([0-9]+)$")
_FINAL = re.compile(r"final answer\s*:\s*(\S.*)", re.IGNORECASE)
_SUBMIT = "Submit the answer."
_LOST = "No turn is left to find the answer out."


TEXTS: Mapping[str, Mapping[str, str]] = load_texts(__file__, "prompts")
"""Parts of the system message of each world."""

LoreT = TypeVar("LoreT", bound=LoreConfig)


def document_text(content: str | Content) -> str:
    """Return the text of a document, followed by the description of each picture."""
    if isinstance(content, str):
        return content
    return "\n".join([content.text, *(image.alt for image in content.images)])


class LoreWorld(World[LoreT], Generic[LoreT]):
    """Read documents, each of which helps to find others, until the target is known.

    An optimal call reads any unread document that the target certainly depends on. Every needed
    document must be read exactly once, in any order.

    Attributes:
        graph: The whole task; undefined in a world rebuilt from a chat.
    """

    prose_fails = False
    roles: ClassVar[Mapping[str, tuple[str, ...]]] = {"reader": (), "writer": ("submit",)}
    max_failed_rounds = 3  # TaskWeaver, appendix C
    # The mean number of needed documents per operation: three operands, a rule and a few indices.
    documents_per_operation: ClassVar[float] = 4.25
    texts: ClassVar[Mapping[str, str]]
    known: ReadDocuments
    graph: Graph

    def __init__(self, config: LoreT, seed: int) -> None:
        super().__init__(config, seed)
        self.max_calls = config.max_calls_per_turn
        self._submitted: str | None = None
        self._counts = dict.fromkeys(("reads", "redundant_reads", "guessed_reads"), 0)
        self._since: dict[str, int] = {}

    def rules(self) -> str:
        rules = self.texts["rules"]
        if self.config.difficulty == "hard":
            rules += f"\n{self.texts['hard']}"
        return f"{rules}\n{self.texts['answer']}"

    @abstractmethod
    def grow(self, rng: Random) -> Graph:
        """Draw the task."""

    @abstractmethod
    def begin(self) -> ReadDocuments:
        """Return the initial knowledge."""

    @abstractmethod
    def show(self, node: Node) -> str | Content:
        """Return the document as shown to the agent."""

    def style(self, node: Node) -> Random:
        """Return a random generator for the wording of a document."""
        # Rereading must show the same text.
        return Random(self._salt << 32 | node.uid)

    def may_reread(self, file: str) -> bool:
        """Return whether a document can be read again."""
        return self.config.rereads

    def shortest_rounds(self) -> int:
        """Return the minimum number of reading turns if a turn may contain any number of reads."""
        return self.graph.height + 1

    def turns(self) -> int:
        """Return the number of reading turns of an optimal policy in the mode `budget_by`."""
        if self.config.budget_by == "reads":
            return self.graph.needed
        return max(self.shortest_rounds(), ceil(self.graph.needed / self.config.max_calls_per_turn))

    def most_turns(self) -> int:
        """Return the maximum number of reading turns over several sampled tasks."""
        kind: Any = type(self)
        return _most_turns(kind, self.config)

    def generate(self) -> None:
        most = self.most_turns()
        self.graph = self.grow(Random(int(self.rng.integers(2**63))))
        while self.turns() > most:
            self.graph = self.grow(Random(int(self.rng.integers(2**63))))
        self._salt = int(self.rng.integers(2**32))
        self.known = self.begin()
        # The report needs the turn at which each document became known.
        self._since = dict.fromkeys(self.known.order, 0)
        self.max_turns = self.config.budget(most + 1)

    @tool
    def read_document(self, file_id: str) -> str | Content:
        """Read a document.

        Args:
            file_id: The id of the document, exactly as it was given or computed.
        """
        node = self.graph.node(file_id)
        again = file_id in self.known.read
        derivable = again or self.known.follows(file_id)
        # Reject existing ids with the same error, so that guessing does not reveal which ids exist.
        if node is None or (self.config.strict_ids and not derivable):
            raise ToolError(f"there is no document {echo(file_id)}")
        if again and not self.may_reread(file_id):
            raise ToolError(
                f"document {echo(file_id)} has already been read and cannot be read again"
            )
        self._counts["reads"] += 1
        self._counts["redundant_reads"] += again
        self._counts["guessed_reads"] += not derivable
        content = self.show(node)
        for lead in self.known.learn(file_id, document_text(content)):
            self._since[lead] = self.turn
        return content

    @tool(final=True)
    def submit(self, value: str) -> str:
        """Give the answer. This ends the task.

        Args:
            value: The answer.
        """
        self._submitted = value
        return "Your answer has been taken."

    def final_answer(self, text: str) -> ToolCall | None:
        """Parse the answer if the last line of a reply is `Final answer: ...`."""
        lines = text.strip().splitlines()
        match = _FINAL.fullmatch(lines[-1].strip()) if lines else None
        return ToolCall("submit", {"value": match[1]}) if match else None

    def right(self, value: str) -> bool:
        """Return whether a value equals the answer, as a string or as a number."""
        text = value.strip().removesuffix(".")
        if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'`":
            text = text[1:-1].strip()
        answer = self.graph.answer
        if isinstance(answer, int):
            # Python cannot parse integers with more than 4,300 digits.
            return bool(re.fullmatch("[+-]?[0-9]{1,4000}", text)) and int(text) == answer
        return text == answer

    def score(self) -> float:
        """Return 1 if the right answer was given, else 0."""
        return float(self._submitted is not None and self.right(self._submitted))

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        """Choose the number of operations so that reading takes `steps - 1` turns on average."""
        check_int("horizon", steps, 2, int(cls.documents_per_operation * MAX_OPERATIONS))
        return {"operations": round((steps - 2) / cls.documents_per_operation)}

    def optimal_calls(self) -> Sequence[ToolCall]:
        if self.done or self.turns_left < 1:
            return ()
        if self.known.answer is not None:
            return (ToolCall("submit", {"value": self.known.answer}),)
        if self.turns_left == 1:
            return ()
        return CallSet("read_document", "file_id", self.known.useful())

    def legal_calls(self) -> Sequence[ToolCall]:
        # Of the documents read, the state lists only recent ones, although all can be read again.
        files = [*self.known.unread(), *self._rereadable()]
        return (*CallSet("read_document", "file_id", files), self._answer())

    def _rereadable(self) -> list[str]:
        return self.known.recent() if self.config.rereads else []

    def _answer(self) -> ToolCall:
        return ToolCall("submit", {"value": self.known.answer or "unknown"})

    def action_catalog(self) -> Sequence[ToolCall]:
        """Return a read call for each document, and a call with the answer.

        Calls for unknown documents, and for documents that cannot be read, have an empty id.
        """
        legal = {*self.known.unread(), *self._rereadable()}
        files = [file if file in legal else "" for file in self.known.order]
        files += [""] * (self.config.most_documents - len(files))
        return (*(ToolCall("read_document", {"file_id": file}) for file in files), self._answer())

    def features(self) -> NDArray[np.float32]:
        """Return float32 features in [0, 1], shape `(2 * most_documents + 2,)`.

        The features are two flags per document (known, useful), a flag for a known answer, and the
        turns left divided by `most_documents + 1`.
        """
        most = self.config.most_documents
        useful = set(self.known.useful())
        rows = np.zeros((2, most), np.float32)
        for place, file in enumerate(self.known.order):
            rows[:, place] = 1, file in useful
        ends = self.known.answer is not None, min(self.turns_left / (most + 1), 1)
        return np.concatenate((rows.ravel(), ends), dtype=np.float32)

    def label_calls(self) -> Callable[[Sequence[ToolCall]], Sequence[str]]:
        """Label the successful calls of the next reply.

        A read is `optimal`, `redundant` (read before), `speculative` (may be irrelevant) or `lucky`
        (guessed). An answer is `optimal`, `wrong` or `lucky` (not yet certain). Other calls are
        `neutral`.
        """
        useful = {call.arguments.get("file_id") for call in self.optimal_calls()}
        derivable = frozenset(self.known.unread())
        known, reads = self.known.answer is not None, len(self.known.read)

        def label(call: ToolCall, seen: set[str]) -> str:
            if call.name == "submit":
                if not self.right(call.arguments["value"]):
                    return "wrong"
                return "optimal" if known else "lucky"
            if call.name != "read_document":
                return "neutral"
            file = call.arguments["file_id"]
            if file in seen or self.known.read.get(file, reads) < reads:
                return "redundant"
            seen.add(file)
            if file in useful:
                return "optimal"
            return "speculative" if file in derivable else "lucky"

        def labels(calls: Sequence[ToolCall]) -> list[str]:
            seen: set[str] = set()
            return [label(call, seen) for call in calls]

        return labels

    def state(self) -> str:
        return "\n".join([*self.known.lines(), f"Turns left: {self.turns_left}"])

    def subtask(self, with_state: bool) -> str:
        calls = self.optimal_calls()
        return self.subtask_for(calls[0], with_state) if calls else _LOST

    def subtask_for(self, call: ToolCall, with_state: bool) -> str:
        if call.name == "submit":
            return _SUBMIT
        return self.known.describe(call.arguments["file_id"])

    @classmethod
    def read_task(cls, task: str) -> Self:
        world = cls(cls.Config(), 0)
        world.known = world.read_start(task)
        budget = _TURNS.findall(task)
        world.max_turns = int(budget[-1]) if budget else None
        return world

    @abstractmethod
    def read_start(self, task: str) -> ReadDocuments:
        """Parse the initial knowledge from a task."""

    def read_result(self, call: ToolCall, result: str) -> None:
        if call.name == "read_document":
            self.known.learn(call.arguments["file_id"], result)

    def read_state(self, state: str) -> None:
        lines, _, last = state.rpartition("\n")
        turns = expect(_TURNS.fullmatch(last), f"a state of {type(self).__name__}", state)
        self.known = self.known.from_lines(self.known, lines)
        self.set_turns_left(int(turns[1]))

    def read_subtask(self, subtask: str) -> ToolCall | None:
        if subtask == _SUBMIT:
            return self._answer() if self.known.answer is not None else None
        file = self.known.resolve(subtask)
        return ToolCall("read_document", {"file_id": file}) if file else None

    def report(self) -> Mapping[str, Any]:
        """Report the task size, the reads, and the kind of failure (TaskWeaver, section 4.4).

        `premature_halt`: the episode failed while useful documents were unread. `lost_leads`: the
        number of useful documents that were known for more than 20 turns but not read.
        `synthesis_error`: the episode failed although all needed documents were read.
        """
        needed = {node.file for node in self.graph.nodes if node.needed}
        open_leads = needed.intersection(self.known.useful())
        since = [self._since.get(file, self.turn) for file in open_leads]
        useful, failed = len(needed.intersection(self.known.read)), not self.score()
        return {
            "operations": self.config.operations,
            "height": self.graph.height,
            "documents": len(self.graph.nodes),
            "needed": self.graph.needed,
            **self._counts,
            "useful_reads": useful,
            "answered": self._submitted is not None,
            "premature_halt": failed and bool(open_leads),
            "lost_leads": sum(self.turn - start > LOST_AFTER for start in since),
            "synthesis_error": failed and useful == self.graph.needed,
        }


@cache
def _most_turns(kind: type[LoreWorld[Any]], config: LoreConfig) -> int:
    world, turns = kind(config, 0), [0]
    # Use fixed seeds, because the budget must not depend on the episode.
    for seed in range(max(_FEWEST_SAMPLES, min(_SAMPLES, _SAMPLED // (config.operations + 1)))):
        world.graph = world.grow(Random(seed))
        turns.append(world.turns())
    return max(turns)
