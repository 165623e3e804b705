"""Dependency graphs, grown from the target outward (TaskWeaver, section 3 and algorithm 1).

A node is a document. An operator expands a leaf into operands; now and then a new node gathers many
leaves, which deepens the graph. Bottom-up, the operator computes the parent's id from its children;
top-down, the parent's value. A domain provides the operators and writes the texts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any, TypeVar

Value = int | str
Item = TypeVar("Item")


def below(rng: Random, limit: int) -> int:
    """Draw from [0, limit); limits must be far below 2**53."""
    # Five times faster than `Random.randrange`; the bias is negligible far below 2**53.
    return int(rng.random() * limit)


def among(rng: Random, low: int, high: int) -> int:
    """Draw from [low, high]."""
    return low + int(rng.random() * (high - low + 1))


def shuffled(rng: Random, items: Iterable[Item]) -> list[Item]:
    """Return the items in random order."""
    random = rng.random
    return sorted(items, key=lambda _: random())


def deal(rng: Random, items: list[Any], count: int) -> None:
    """Move `count` random items to the front, in random order."""
    random, size = rng.random, len(items)
    for place in range(count):
        other = place + int(random() * (size - place))
        items[place], items[other] = items[other], items[place]


def number(rng: Random) -> int:
    """Draw an operand of at most two digits."""
    return below(rng, 100)


def draw_nothing(rng: Random, operands: int) -> None:
    """Draw no parameters."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A kind of rule.

    Attributes:
        execute: Computes the result from parameters and operand values.
        write: Formats the rule from parameters and operand names.
        draw: Draws the parameters (signs, constants, a program) for a number of operands.
        child: Draws an operand's value (bottom-up).
        least: The minimum number of operands; `most` is the maximum.
        needs: Returns the indices of the operands that a lazy evaluation asks for; None for all.
        weight: The relative frequency.
    """

    name: str
    execute: Callable[[Any, Sequence[Any]], Value]
    write: Callable[[Any, Sequence[str]], str]
    draw: Callable[[Random, int], Any] = draw_nothing
    child: Callable[[Random], Value] = number
    operand: str = "number"
    least: int = 2
    most: int = 10
    needs: Callable[[Any, Sequence[Any]], Sequence[int]] | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Rule:
    """A document's rule: the operator's name, its parameters, and its operands' uids."""

    operator: str
    drawn: Any
    operands: tuple[int, ...]


@dataclass(slots=True)
class Node:
    """A document; immutable once its graph is grown.

    Attributes:
        uid: The index in creation order. Parents are older than their children.
        kind: `value`, `rule`, `index` (bottom-up) or `module` (top-down).
        depth: The number of edges in the longest chain from the document to the root.
        number: The number in the variable, or in the prefix of a rule.
        content: A value, a `Rule`, or the uids in an index.
        fields: Irrelevant variables, with values.
        note: Data that the domain adds at creation.
    """

    uid: int
    kind: str
    depth: int
    number: int = 0
    content: Any = None
    fields: tuple[tuple[int, Value], ...] = ()
    file: str = ""
    children: tuple[int, ...] = ()
    needed: bool = True
    note: Any = None


@dataclass(frozen=True, eq=False)
class Graph:
    """An immutable task, which copies share.

    Attributes:
        nodes: The documents by uid, root first.
        start: The uids named in the task.
        height: The number of edges in the longest chain from the root to a leaf.
        needed: The number of documents that the target depends on.
    """

    nodes: Sequence[Node]
    start: Sequence[int]
    answer: Value
    height: int
    needed: int
    uids: Mapping[str, int]

    def node(self, file: str) -> Node | None:
        """Return the document with this id, if any."""
        uid = self.uids.get(file)
        return None if uid is None else self.nodes[uid]

    def __copy__(self) -> Graph:
        return self

    def __deepcopy__(self, memo: Any) -> Graph:
        return self


@dataclass(frozen=True, slots=True)
class Shape:
    """Parameters of a graph's growth, as in `LoreConfig`.

    `least` and `most` bound the number of operands.
    """

    operations: int
    theta: int
    p: float
    least: int
    most: int


class Grower(ABC):
    """The loop of algorithm 1; subclasses define expanding, gathering and finishing."""

    def __init__(self, rng: Random, shape: Shape, operators: Sequence[Operator]) -> None:
        self.rng = rng
        self.shape = shape
        self.nodes: list[Node] = []
        self.operators = operators
        self._arities = [self._arity(operator) for operator in operators]
        # Cumulative weights, for the bisection in `run`.
        self._weights = list(accumulate(operator.weight for operator in operators))

    def _arity(self, operator: Operator) -> tuple[int, int]:
        most = max(operator.least, min(operator.most, self.shape.most))
        # The operator's limits take precedence over the options.
        return min(max(operator.least, self.shape.least), most), most

    @abstractmethod
    def expand(self, parent: Node, operator: Operator, operands: int) -> list[Node]:
        """Turn a leaf into an inner node and return its children."""

    @abstractmethod
    def gather(self, picked: list[Node]) -> Node:
        """Connect leaves to a new leaf, and return it."""

    def run(self, root: Node) -> list[Node]:
        """Expand and gather leaves; return the remaining leaves in order."""
        leaves, rng, shape, weights = [root], self.rng, self.shape, self._weights
        for _ in range(shape.operations):
            parent = leaves.pop(below(rng, len(leaves)))
            index = bisect(weights, rng.random() * weights[-1])
            leaves += self.expand(
                parent, self.operators[index], operands=among(rng, *self._arities[index])
            )
            if len(leaves) > shape.theta and rng.random() < shape.p:
                # Gathering a single leaf would only lengthen the chain.
                count = among(rng, 2, len(leaves))
                deal(rng, leaves, count)
                leaves = [*leaves[count:], self.gather(leaves[:count])]
        return leaves

    def add(
        self, kind: str, depth: int, number: int = 0, content: Any = None, file: str = ""
    ) -> Node:
        """Add a node."""
        node = Node(len(self.nodes), kind, depth, number, content, (), file)
        self.nodes.append(node)
        return node

    def finished(self, start: Sequence[Node], answer: Value) -> Graph:
        """Return the graph; all ids must have been assigned."""
        nodes = self.nodes
        return Graph(
            nodes=nodes,
            start=tuple(node.uid for node in start),
            answer=answer,
            height=max([node.depth for node in nodes]),
            needed=sum([node.needed for node in nodes]),
            uids={node.file: node.uid for node in nodes},
        )
