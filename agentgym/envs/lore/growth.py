"""Grow bottom-up or top-down graphs (TaskWeaver, section 3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, product
from random import Random
from typing import TYPE_CHECKING, Any

from agentgym.envs.lore.config import LoreConfig
from agentgym.envs.lore.graph import (
    Graph,
    Node,
    Operator,
    Rule,
    Value,
    among,
    below,
    deal,
    number,
    shuffled,
    uids_of,
)

if TYPE_CHECKING:
    from agentgym.envs.lore.document_world import DocumentConfig

# The letters i, l and o are omitted because they resemble other characters, and x because X marks a
# value to compute. Both cases omit the same letters, so that swapping the case is safe.
LETTERS = "abcdefghjkmnpqrstuvwyzABCDEFGHJKMNPQRSTUVWYZ"

# Maximum number of irrelevant values per document, to limit the size of a document.
MOST_IRRELEVANT = 8

# Drawing pairs of letters is faster than drawing single letters.
_PAIRS = list(map("".join, product(LETTERS, repeat=2)))


def letters(rng: Random, count: int) -> str:
    """Draw `count` letters."""
    text = _PAIRS[int(rng.random() * len(_PAIRS))]
    while len(text) < count:
        text += _PAIRS[int(rng.random() * len(_PAIRS))]
    return text if len(text) == count else text[:count]


class Grower(ABC):
    """Algorithm 1 of the paper; subclasses define how to expand leaves and how to gather leaves."""

    def __init__(self, rng: Random, config: LoreConfig) -> None:
        self.rng = rng
        self.config = config
        self.nodes: list[Node] = []
        self.operators = config.operators
        self._arities = list(map(self._arity, self.operators))
        self._weights = list(accumulate(operator.weight for operator in self.operators))

    def _arity(self, operator: Operator) -> tuple[int, int]:
        most = max(operator.least, min(operator.most, self.config.max_arity))
        return min(max(operator.least, self.config.min_arity), most), most

    @abstractmethod
    def expand(self, parent: Node, operator: Operator, operands: int) -> list[Node]:
        """Turn a leaf into an inner node and return its children."""

    @abstractmethod
    def gather(self, picked: list[Node]) -> Node:
        """Give leaves a common child and return the child."""

    def run(self, root: Node) -> list[Node]:
        """Expand and gather leaves; return the remaining leaves in order."""
        leaves, rng, config, weights = [root], self.rng, self.config, self._weights
        for _ in range(config.operations):
            parent = leaves.pop(below(rng, len(leaves)))
            index = bisect(weights, rng.random() * weights[-1])
            leaves += self.expand(
                parent, self.operators[index], operands=among(rng, *self._arities[index])
            )
            if len(leaves) > config.theta and rng.random() < config.p:
                # A child of only one leaf would merely make the path longer.
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
        """Return the finished graph; all documents must have ids."""
        nodes = self.nodes
        return Graph(
            nodes=nodes,
            start=uids_of(start),
            answer=answer,
            height=max([node.depth for node in nodes]),
            needed=sum([node.needed for node in nodes]),
            uids={node.file: node.uid for node in nodes},
        )


class BottomUp(Grower):
    """Grows graphs that are read from the leaves; the root contains the answer.

    `value` draws an operand and its note, and `field` draws an irrelevant value.
    """

    def __init__(
        self,
        rng: Random,
        config: DocumentConfig,
        value: Callable[[Random, Operator], tuple[Value, Any]],
        field: Callable[[Random], Value],
    ) -> None:
        super().__init__(rng, config)
        self.value, self.field = value, field
        self.field_rate, self.document_rate = config.distractor_fields, config.distractor_documents
        self._numbers = 0

    def grow(self) -> Graph:
        """Return a new graph."""
        (root,) = self._values([("", None)], 0)
        leaves = self._among_decoys(self.run(root))
        for leaf in leaves:
            leaf.file = self._file(self._letters(1, 4))
        if self.document_rate:
            self._renumber()
        # The answer has eight letters, so that it cannot be guessed.
        root.content = self._letters(8, 8)
        return self.finished(leaves, root.content)

    def expand(self, parent: Node, operator: Operator, operands: int) -> list[Node]:
        rng, depth = self.rng, parent.depth + 1
        children = self._values([self.value(rng, operator) for _ in range(operands)], depth)
        order = shuffled(rng, children)
        parameters = operator.draw(rng, operands)
        parent.file = self._file(operator.execute(parameters, [node.content for node in order]))
        rule = Rule(operator.name, parameters, uids_of(order))
        children.append(self.add("rule", depth, self._numbers - 1, rule))
        parent.children = uids_of(children)
        return children

    def gather(self, picked: list[Node]) -> Node:
        depth = 1 + max([node.depth for node in picked])
        picked = self._among_decoys(picked)
        hub = self.add("index", depth)
        for node in picked:
            node.file = self._file(self._letters(1, 4))
            node.children = (hub.uid,)
        hub.content = uids_of(picked)
        return hub

    def _among_decoys(self, listed: list[Node]) -> list[Node]:
        rate = self.document_rate
        if not rate:
            return listed
        # Random rounding makes the mean equal to `rate`.
        count = int(rate * len(listed) + self.rng.random())
        values = [(self.field(self.rng), None) for _ in range(count)]
        depth = min([node.depth for node in listed])
        return shuffled(self.rng, listed + self._values(values, depth, needed=False))

    def _renumber(self) -> None:
        # Shuffle the variable numbers, because irrelevant documents would otherwise have the
        # largest numbers. The root remains v0.
        nodes = [node for node in self.nodes[1:] if node.kind == "value"]
        numbers = [node.number for node in nodes]
        numbers += [number for node in self.nodes for number, _ in node.fields]
        new = iter(shuffled(self.rng, numbers))
        for node in nodes:
            node.number = next(new)
        for node in self.nodes:
            node.fields = tuple([(next(new), value) for _, value in node.fields])

    def _values(
        self, values: list[tuple[Value, Any]], depth: int, needed: bool = True
    ) -> list[Node]:
        rng = self.rng
        extra = self._counts(self.field_rate, len(values))
        irrelevant = sum(extra)
        numbers: Sequence[int] = range(self._numbers, self._numbers + len(values) + irrelevant)
        self._numbers += len(numbers)
        # Shuffle the variable numbers, so that relevant values do not come first. The root remains
        # v0.
        if irrelevant and depth:
            numbers = shuffled(rng, numbers)
        free = iter(numbers)
        new = []
        for uid, (value, note) in enumerate(values, len(self.nodes)):
            node = Node(uid, "value", depth, next(free), value, needed=needed, note=note)
            new.append(node)
        if irrelevant:
            for node, count in zip(new, extra, strict=True):
                node.fields = tuple([(next(free), self.field(rng)) for _ in range(count)])
        self.nodes += new
        return new

    def _counts(self, mean: float, size: int) -> list[int]:
        random, share = self.rng.random, mean / (1 + mean)
        counts = [0] * size
        if not share:
            return counts
        for place in range(size):
            while random() < share and counts[place] < MOST_IRRELEVANT:
                counts[place] += 1
        return counts

    def _letters(self, least: int, most: int) -> str:
        return letters(self.rng, among(self.rng, least, most))

    def _file(self, suffix: Value) -> str:
        self._numbers += 1
        return f"v{self._numbers - 1}%{suffix}"


class TopDown(Grower):
    """Grows graphs that are read from the root; the leaves contain constants.

    `Node.needed` marks the documents that lazy evaluation requires. `name` draws the name of a
    file, and the operator `redirect` gives several leaves a common child.
    """

    def __init__(
        self,
        rng: Random,
        config: LoreConfig,
        name: Callable[[Random, int], str],
        redirect: Operator,
    ) -> None:
        super().__init__(rng, config)
        self.name, self.redirect = name, redirect

    def grow(self) -> Graph:
        """Return a new graph."""
        for leaf in self.run(self._module(0)):
            leaf.content = number(self.rng)
        operators = {each.name: each for each in (*self.operators, self.redirect)}
        values = _evaluate(self.nodes, operators)
        _mark_needed(self.nodes, operators, values)
        return self.finished(self.nodes[:1], values[0])

    def expand(self, parent: Node, operator: Operator, operands: int) -> list[Node]:
        children = [self._module(parent.depth + 1) for _ in range(operands)]
        order = shuffled(self.rng, children)
        parameters = operator.draw(self.rng, operands)
        parent.content = Rule(operator.name, parameters, uids_of(order))
        parent.children = uids_of(children)
        return children

    def gather(self, picked: list[Node]) -> Node:
        hub = self._module(1 + max(node.depth for node in picked))
        redirect = self.redirect
        for node in picked:
            node.content = Rule(redirect.name, redirect.draw(self.rng, 1), (hub.uid,))
            node.children = (hub.uid,)
        return hub

    def _module(self, depth: int) -> Node:
        return self.add("module", depth, file=self.name(self.rng, len(self.nodes)))


def _evaluate(nodes: Sequence[Node], operators: Mapping[str, Operator]) -> list[Any]:
    values: list[Any] = [None] * len(nodes)
    # Visit each node once; naive recursion would take exponential time.
    for node in reversed(nodes):
        values[node.uid] = rule = node.content
        if isinstance(rule, Rule):
            operands = [values[uid] for uid in rule.operands]
            values[node.uid] = operators[rule.operator].execute(rule.drawn, operands)
    return values


def _mark_needed(
    nodes: Sequence[Node], operators: Mapping[str, Operator], values: Sequence[Any]
) -> None:
    for node in nodes:
        node.needed = node.uid == 0
    for node in nodes:
        if node.needed and isinstance(rule := node.content, Rule):
            needs = operators[rule.operator].needs
            required: Sequence[int] = range(len(rule.operands))
            if needs:
                required = needs(rule.drawn, [values[uid] for uid in rule.operands])
            for place in required:
                nodes[rule.operands[place]].needed = True
