"""CodeWorld: read files to find what a program returns (TaskWeaver, section 3, appendix B.3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, ClassVar, Literal

from agentgym.envs.lore.codebase import Codebase
from agentgym.envs.lore.config import LoreConfig
from agentgym.envs.lore.graph import Graph, Node, Operator, Rule
from agentgym.envs.lore.growth import TopDown, letters
from agentgym.envs.lore.knowledge import ReadDocuments
from agentgym.envs.lore.programs import (
    HARD,
    REDIRECTS,
    ROOT,
    STANDARD,
    Program,
    write_source,
)
from agentgym.envs.lore.world import TEXTS, LoreWorld
from agentgym.envs.reading import expect
from agentgym.text.messages import Content
from agentgym.text.tools import tool
from agentgym.text.validation import check_int
from agentgym.world.config import Choice

_TASK = re.compile(r"Find what main\(\) in main\.py of the program '[a-z]+' returns\.")
_MOST_PLAIN = 1_000  # values grow with each sum and could fill the context window
_TRIES = 100  # half of all tasks with `plain` have the answer 0, so a few attempts suffice

# Names get another letter after this many files, so that collisions remain rare.
_NAMES_PER_LETTER = 50_000


@dataclass(frozen=True, kw_only=True)
class CodeConfig(LoreConfig):
    """Options of CodeWorld.

    Attributes:
        names: `opaque` for random file names, or `sequential` for the paper's file names (v0.py,
            v1.py and so on), which can be guessed.
        consolidation: How redirect modules compute a value x from their operand y: `wrap` for x =
            (a * y + b) mod 100, or `plain` for x = y as in the paper. With `plain`, values often
            cancel, so tasks with the answer 0 are redrawn up to 100 times. With `plain`, values
            also grow, so at most 1,000 operations are allowed.
    """

    operators_of: ClassVar[Mapping[str, Sequence[Operator]]] = {"standard": STANDARD, "hard": HARD}

    names: Literal["opaque", "sequential"] = "opaque"
    consolidation: Annotated[str, Choice(REDIRECTS)] = "wrap"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.consolidation == "plain":
            check_int("operations with consolidation='plain'", self.operations, 0, _MOST_PLAIN)

    @property
    def most_documents(self) -> int:
        return 1 + self.operations * (max(4, self.max_arity) + 1)


class CodeWorld(LoreWorld[CodeConfig]):
    """Find what a program returns by reading its files, without running it.

    A file is needed if running the program evaluates it. An optimal policy reads a branch only
    after both compared values are known, even if bounds on the values already decide the branch.
    """

    Config = CodeConfig
    texts = TEXTS["code"]
    documents_per_operation = 2.3  # small tasks have 2.5 documents per operation, large tasks 2.1
    known: Codebase

    def grow(self, rng: Random) -> Graph:
        config = self.config
        for _ in range(_TRIES):
            name = _opaque() if config.names == "opaque" else _sequential
            graph = TopDown(rng, config, name, REDIRECTS[config.consolidation]).grow()
            if graph.answer != 0 or config.consolidation == "wrap":
                break
        return graph

    def task(self) -> str:
        return f"{self.restate()}\nTurn budget: {self.max_turns}"

    def restate(self) -> str:
        name = letters(Random(self._salt), 8).lower()
        return f"Find what main() in {ROOT} of the program '{name}' returns."

    def begin(self) -> Codebase:
        return Codebase.begin()

    def read_start(self, task: str) -> ReadDocuments:
        expect(_TASK.search(task), f"a task of {type(self).__name__}", task)
        return Codebase.begin()

    @tool
    def read_document(self, file_id: str) -> str | Content:
        """Read a file.

        Args:
            file_id: The name of the file, such as 'main.py'.
        """
        return super().read_document(file_id)

    def show(self, node: Node) -> str:
        rule, program = node.content, Program("constant", node.content)
        if isinstance(rule, Rule):
            operands = tuple(self.graph.nodes[uid].file for uid in rule.operands)
            program = Program(rule.operator, rule.drawn, operands)
        return write_source(program, root=node.uid == 0)

    def files(self) -> Mapping[str, str]:
        """Return all files by name; importing files precede imported files."""
        return {node.file: self.show(node) for node in self.graph.nodes}

    def needed(self) -> Sequence[str]:
        """Return the files that running the program evaluates, importing files first."""
        return [node.file for node in self.graph.nodes if node.needed]

    def shortest_rounds(self) -> int:
        return count_rounds(self.graph)


def _opaque() -> Callable[[Random, int], str]:
    names = set[str]()

    def name(rng: Random, before: int) -> str:
        if before == 0:
            return ROOT
        while True:
            file = f"m_{letters(rng, 4 + before // _NAMES_PER_LETTER).lower()}.py"
            # Random names occasionally collide.
            if file not in names:
                names.add(file)
                return file

    return name


def _sequential(_: Random, before: int) -> str:
    return f"v{before - 1}.py" if before else ROOT


def count_rounds(graph: Graph) -> int:
    """Return the minimum number of reading rounds to compute the root's value."""
    nodes, settled = graph.nodes, set[int]()
    # Map nodes to the number of missing operands, and operands to the nodes that wait for them.
    pending, askers = dict[int, int](), dict[int, list[int]]()
    running, later, rounds = list[int](), [0], 0
    while 0 not in settled:
        if not running:
            rounds, running, later = rounds + 1, later, []
        uid = running.pop()
        missing = [operand for operand in _required(nodes, uid, settled) if operand not in settled]
        later += [operand for operand in missing if operand not in askers]
        for operand in missing:
            askers.setdefault(operand, []).append(uid)
        pending[uid] = len(missing)
        if not missing:
            settled.add(uid)
            for asker in askers.pop(uid, ()):
                pending[asker] -= 1
                if not pending[asker]:
                    running.append(asker)
    return rounds


def _required(nodes: Sequence[Node], uid: int, settled: Collection[int]) -> Sequence[int]:
    rule = nodes[uid].content
    if not isinstance(rule, Rule):
        return ()
    if rule.operator != "conditional":
        return rule.operands
    left, right, then, other = rule.operands
    if left in settled and right in settled:
        return (then if nodes[then].needed else other,)
    return left, right
