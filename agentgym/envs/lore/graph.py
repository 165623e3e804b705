"""Dependency graphs, grown outwards from the target (TaskWeaver, section 3, algorithm 1).

Each node is a document. An operator turns a leaf into a parent whose children are the operands.
Occasionally, many leaves get a common child, which makes the graph deeper. The operator computes
the parent's id (in bottom-up domains) or value (in top-down domains) from the children.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

Value = int | str
Item = TypeVar("Item")


def below(rng: Random, limit: int) -> int:
    """Draw an integer from [0, limit); `limit` must be far below 2**53."""
    # Scaling `random()` is five times faster than `Random.randrange`, and the bias is negligible.
    return int(rng.random() * limit)


def among(rng: Random, low: int, high: int) -> int:
    """Draw an integer from [low, high]."""
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
    """Draw an operand from 0 to 99."""
    return below(rng, 100)


def draw_nothing(rng: Random, operands: int) -> None:
    """Draw no parameters."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A kind of rule.

    Attributes:
        execute: Computes the result from the parameters and the operand values.
        write: Formats the rule with the given parameters and operand names.
        draw: Draws the parameters (for example signs or constants) for a given number of operands.
        child: Draws the value of an operand; used only in bottom-up domains.
        least: The minimum number of operands; `most` is the maximum.
        needs: Returns the indices of the operands that lazy evaluation requires. If `needs` is
            None, all operands are required.
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
    """A rule: the name of an operator, its parameters, and the uids of its operands."""

    operator: str
    drawn: Any
    operands: tuple[int, ...]


@dataclass(slots=True)
class Node:
    """A document of a graph; must not be modified once the graph is complete.

    Attributes:
        uid: The document's index in order of creation. Parents are created before their children.
        kind: `value`, `rule` or `index` in bottom-up domains, `module` in top-down domains.
        depth: The length of the longest path from the document to the root, in edges.
        number: The number in the variable name, or in the prefix of a rule.
        content: A value, a `Rule`, or the uids in an index.
        fields: The irrelevant variables, each as its number and its value.
        note: Domain-specific data.
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


def uids_of(nodes: Iterable[Node]) -> tuple[int, ...]:
    """Return the uids of nodes."""
    return tuple([node.uid for node in nodes])


@dataclass(frozen=True, eq=False)
class Graph:
    """An immutable dependency graph; copying returns the same object.

    Attributes:
        nodes: The documents, indexed by uid; the root comes first.
        start: The uids of the documents named in the task.
        height: The length of the longest path from the root to a leaf, in edges.
        needed: The number of documents that the target depends on.
    """

    nodes: Sequence[Node]
    start: Sequence[int]
    answer: Value
    height: int
    needed: int
    uids: Mapping[str, int]

    def node(self, file: str) -> Node | None:
        """Return the document with this id, or None."""
        uid = self.uids.get(file)
        return None if uid is None else self.nodes[uid]

    def __copy__(self) -> Graph:
        return self

    def __deepcopy__(self, memo: Any) -> Graph:
        return self
