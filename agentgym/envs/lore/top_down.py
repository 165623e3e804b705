"""Growing top-down: children tell what their parent is worth, so reading starts at the root
(TaskWeaver, section 3).
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
class Modules:
    """What a top-down domain decides about new documents.

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
    """Children tell what their parent is worth.

    No evaluation calls a shared document twice: that would take exponential time.
    """

    def __init__(self, *given: Any, modules: Modules) -> None:
        super().__init__(*given)
        self.modules = modules

    def grow(self) -> Graph:
        for leaf in self.run(self._module(0)):
            leaf.content = self.modules.constant(self.rng)
        operators = {
            operator.name: operator for operator in (*self.operators, self.modules.redirect)
        }
        values = _evaluate(self.nodes, operators)
        _mark_needed(self.nodes, operators, values)
        graph = self.finished(self.nodes[:1], values[0], top_down=True)
        _check(graph)
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
        hub, redirect = self._module(1 + max(node.depth for node in picked)), self.modules.redirect
        for node in picked:
            node.content = Rule(redirect.name, redirect.draw(self.rng, 1), (hub.uid,))
            node.children = (hub.uid,)
        return hub

    def _module(self, depth: int) -> Node:
        return self.add("module", depth, file=self.modules.name(self.rng, len(self.nodes)))


def grow_top_down(
    rng: Random,
    shape: Shape,
    operators: Sequence[Operator],
    modules: Modules,
    weights: Mapping[str, float] | None = None,
) -> Graph:
    """A graph whose documents are worth what their rules make of others: reading starts at the
    root, constants are at the leaves.

    `Node.needed` and `Graph.needed` are what a lazy evaluation asks for.

    Args:
        rng: The only source of randomness.
        shape: How much it grows, and how deep.
        operators: What may be computed.
        modules: What the domain decides about new documents.
        weights: How often each operator is used, by name, as shares of any sum; all alike if None.
    """
    return _TopDown(rng, shape, operators, weights, modules=modules).grow()


def _evaluate(nodes: Sequence[Node], operators: Mapping[str, Operator]) -> list[Any]:
    """The values of all nodes by uid, each computed once, children first."""
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
    """Mark what a lazy evaluation of the root asks for; parents are older, so one pass will do."""
    for node in nodes:
        node.needed = node.uid == 0
    for node in nodes:
        if node.needed and isinstance(rule := node.content, Rule):
            needs = operators[rule.operator].needs
            everything = range(len(rule.operands))
            for place in (
                needs(rule.drawn, [values[uid] for uid in rule.operands]) if needs else everything
            ):
                nodes[rule.operands[place]].needed = True


def _check(graph: Graph) -> None:
    """Ids differ, and by induction from the constants all values are defined."""
    check_order(graph, {node.uid for node in graph.nodes if not isinstance(node.content, Rule)})
