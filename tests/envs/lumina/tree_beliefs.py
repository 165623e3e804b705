"""Exact search over beliefs about a hidden tree, to check TreeWorld independently."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

# A node, represented by a tuple of its children.
Tree = tuple["Tree", ...]
# Path from the root to a node.
Path = tuple[int, ...]
# Explored nodes, each with the number of children.
History = frozenset[tuple[Path, int]]
# Success probability, and the negative of the expected number of turns.
Value = tuple[Fraction, Fraction]
# Maps trees to unnormalised probabilities.
Prior = Mapping[Tree, int | Fraction]
# All nodes, the path of the target (None if missing), and the probability.
Case = tuple[dict[Path, Tree], Path | None, Fraction]


def fill(nodes: int, slots: int, arity: int) -> Iterator[tuple[Any, ...]]:
    """Yield all ways to distribute nodes over slots, each of which contains a tree or nothing."""
    if not slots:
        yield from [()] if nodes == 0 else []
        return
    for size in range(nodes + 1):
        for head in fill(size - 1, arity, arity) if size else [None]:
            yield from ((head, *rest) for rest in fill(nodes - size, slots - 1, arity))


def forget_slots(tree: tuple[Any, ...]) -> Tree:
    return tuple(forget_slots(child) for child in tree if child is not None)


def uniform(nodes: int, arity: int = 3) -> Counter[Tree]:
    """For each tree, count the ways to place its nodes in child slots."""
    return Counter(map(forget_slots, fill(nodes - 1, arity, arity)))


def mixed(nodes: int) -> Prior:
    """Return a prior in which all tree sizes up to `nodes` are equally likely."""
    shapes = {size: uniform(size) for size in range(1, nodes + 1)}
    return {
        tree: Fraction(weight, sum(trees.values()))
        for trees in shapes.values()
        for tree, weight in trees.items()
    }


def shape_of(children: Sequence[Sequence[int]], node: int = 0) -> Tree:
    return tuple(shape_of(children, child) for child in children[node])


def subtrees(tree: Tree, path: Path = ()) -> dict[Path, Tree]:
    nodes = {path: tree}
    for k, child in enumerate(tree):
        nodes |= subtrees(child, (*path, k))
    return nodes


class Beliefs:
    """Search over all ways to explore a tree that is drawn from `prior`."""

    def __init__(self, prior: Prior, target: str, absent: Fraction) -> None:
        self.cases: list[Case] = []
        for tree, weight in prior.items():
            nodes = subtrees(tree)
            targets = [path for path, children in nodes.items() if target == "any" or not children]
            share = Fraction(weight) / sum(prior.values())
            self.cases += [(nodes, path, share * (1 - absent) / len(targets)) for path in targets]
            self.cases.append((nodes, None, share * absent))
        self.consistent = functools.cache(self._consistent)
        self.value = functools.cache(self._value)

    @staticmethod
    def known(history: History) -> list[Path]:
        return [(), *((*path, k) for path, count in sorted(history) for k in range(count))]

    def frontier(self, history: History) -> list[Path]:
        return [path for path in self.known(history) if path not in dict(history)]

    def _consistent(self, history: History) -> list[Case]:
        known = self.known(history)
        return [
            (nodes, target, weight)
            for nodes, target, weight in self.cases
            if weight
            and target not in known
            and all(len(nodes.get(path, ())) == count for path, count in history)
        ]

    def histories(self) -> set[History]:
        seen: set[History] = set()
        waiting: list[History] = [frozenset()]
        while waiting:
            history = waiting.pop()
            if history not in seen and self.consistent(history):
                seen.add(history)
                trees = [nodes for nodes, _, _ in self.consistent(history)]
                waiting += [
                    history | {(path, len(nodes[path]))}
                    for nodes in trees
                    for path in self.frontier(history)
                ]
        return seen

    def _value(self, history: History, turns: int | None) -> Value:
        """Return the maximum value over all calls, with unlimited turns if `turns` is None."""
        return (
            (Fraction(0), Fraction(0)) if turns == 0 else max(self.values(history, turns).values())
        )

    def values(self, history: History, turns: int | None) -> dict[Path | str, Value]:
        cases = self.consistent(history)
        absent = sum((weight for _, target, weight in cases if target is None), Fraction(0))
        values: dict[Path | str, Value] = {
            "unreachable": (absent / sum(case[2] for case in cases), Fraction(-1))
        }
        values |= {path: self._asking(history, path, turns) for path in self.frontier(history)}
        if history:
            later = max(values.values()) if turns is None else self.value(history, turns - 1)
            values["what is known"] = (later[0], later[1] - 1)
        return values

    def _asking(self, history: History, path: Path, turns: int | None) -> Value:
        left = None if turns is None else turns - 1
        outcomes: Counter[tuple[int, bool]] = Counter()
        for nodes, target, weight in self.consistent(history):
            outcomes[len(nodes[path]), target is not None and target[:-1] == path] += weight
        total, success, cost = Fraction(outcomes.total()), Fraction(0), Fraction(1)
        for (count, revealed), weight in outcomes.items():
            report = (Fraction(left != 0), -Fraction(left != 0))
            then = report if revealed else self.value(history | {(path, count)}, left)
            success += weight / total * then[0]
            cost -= weight / total * then[1]
        return success, -cost

    def best(self, history: History, turns: int | None = None) -> set[Path | str]:
        """Return the calls with the maximum value, or an empty set if no call can succeed."""
        values = self.values(history, turns)
        best = max(values.values())
        return {call for call, value in values.items() if value == best and best[0] > 0}
