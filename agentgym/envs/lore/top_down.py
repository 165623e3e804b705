"""Growth top-down: children give their parent's value, so reading starts at the root (TaskWeaver,
section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from agentgym.envs.lore.graph import (
    Graph,
    Grower,
    Node,
    Operator,
    Rule,
    Shape,
    check_order,
    shuffled,
)


@dataclass(frozen=True, slots=True)
class ModuleSampler:
    """Decisions of a top-down domain about new documents.

    Attributes:
        name: The id of a document, from how many there were before it; 0 is the root. Ids must
            differ.
        constant: Draws the value of a leaf.
        redirect: The rule of one operand that gathered leaves get, over what is gathered behind.
    """

    name: Callable[[Random, int], str]
    constant: Callable[[Random], int]
    redirect: Operator


class _TopDown(Grower):
    """Grower whose children give their parent's value.

    No evaluation calls a shared document twice: that would take exponential time.
    """

    def __init__(self, *args: Any, sampler: ModuleSampler) -> None:
        super().__init__(*args)
        self.sampler = sampler

    def grow(self) -> Graph:
        for leaf in self.run(self._module(0)):
            leaf.content = self.sampler.constant(self.rng)
        operators = {
            operator.name: operator for operator in (*self.operators, self.sampler.redirect)
        }
        values = _evaluate(self.nodes, operators)
        _mark_needed(self.nodes, operators, values)
        graph = self.finished(self.nodes[:1], values[0], top_down=True)
        check_order(graph, {node.uid for node in graph.nodes if not isinstance(node.content, Rule)})
        return graph

    def expand(self, parent: Node, operator: Operator, operands: int) -> list[Node]:
        children = [self._module(parent.depth + 1) for _ in range(operands)]
        order = shuffled(self.rng, children)
        parent.content = Rule(
            operator.name, operator.draw(self.rng, operands), tuple(node.uid for node in order)
        )
        parent.children = tuple(node.uid for node in children)
        return children

    def gather(self, picked: list[Node]) -> Node:
        hub = self._module(1 + max(node.depth for node in picked))
        redirect = self.sampler.redirect
        for node in picked:
            node.content = Rule(redirect.name, redirect.draw(self.rng, 1), (hub.uid,))
            node.children = (hub.uid,)
        return hub

    def _module(self, depth: int) -> Node:
        return self.add("module", depth, file=self.sampler.name(self.rng, len(self.nodes)))


def grow_top_down(
    rng: Random,
    shape: Shape,
    operators: Sequence[Operator],
    sampler: ModuleSampler,
    weights: Mapping[str, float] | None = None,
) -> Graph:
    """Grow a graph whose documents have values by their rules: reading starts at the root,
    constants are at the leaves.

    `Node.needed` and `Graph.needed` mark the documents that a lazy evaluation asks for.

    Args:
        rng: The only source of randomness.
        shape: How much it grows, and how deep.
        operators: What may be computed.
        sampler: The domain's decisions about new documents.
        weights: The frequency of each operator, by name, with any sum; all alike if None.
    """
    return _TopDown(rng, shape, operators, weights, sampler=sampler).grow()


def _evaluate(nodes: Sequence[Node], operators: Mapping[str, Operator]) -> list[Any]:
    """Compute the values of all nodes by uid, each once, children first."""
    values: list[Any] = [None] * len(nodes)
    for node in reversed(nodes):
        if isinstance(rule := node.content, Rule):
            values[node.uid] = operators[rule.operator].execute(
                rule.drawn, [values[uid] for uid in rule.operands]
            )
        else:
            values[node.uid] = rule
    return values


def _mark_needed(
    nodes: Sequence[Node], operators: Mapping[str, Operator], values: Sequence[Any]
) -> None:
    """Mark the nodes that a lazy evaluation of the root asks for.

    Parents are older, so one pass is enough.
    """
    for node in nodes:
        node.needed = node.uid == 0
    for node in nodes:
        if node.needed and isinstance(rule := node.content, Rule):
            needs = operators[rule.operator].needs
            places: Sequence[int] = range(len(rule.operands))
            if needs:
                places = needs(rule.drawn, [values[uid] for uid in rule.operands])
            for place in places:
                nodes[rule.operands[place]].needed = True
