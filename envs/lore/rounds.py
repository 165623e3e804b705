"""How many rounds of reading a program takes, where each round reads all that is certainly needed by then."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agentgym.envs.lore.graph import Graph, Rule


def count_rounds(graph: Graph, read: Collection[str], known: Collection[str]) -> int:
    """The rounds until the value of the root is known. A conditional takes more than its place in the chain tells, since its
    branch is asked for only after the values that it compares are known.

    Args:
        graph: A task that was grown top-down.
        read: The documents that were read.
        known: Those among them whose values are known.
    """
    nodes, settled, seen, waiting = graph.nodes, set[int](), {0}, dict[int, list[int]]()
    running, later, rounds = [], [0], 0
    if nodes[0].file in read:
        running, later = later, running
    while running or later:
        if not running:
            rounds, running, later = rounds + 1, later, []
        uid = running.pop()
        missing = [u for u in _asked(graph, uid, settled, known) if u not in settled and nodes[u].file not in known]
        for operand in missing:
            if operand not in seen:
                seen.add(operand)
                (running if nodes[operand].file in read else later).append(operand)
        if missing:
            waiting.setdefault(missing[0], []).append(uid)
        else:
            settled.add(uid)
            running += waiting.pop(uid, ())
    return rounds


def _asked(graph: Graph, uid: int, settled: Collection[int], known: Collection[str]) -> Sequence[int]:
    """The operands that a needed module asks for by now. Of two branches only the one taken is needed: no other imports them."""
    rule = graph.nodes[uid].content
    if not isinstance(rule, Rule):
        return ()
    if rule.operator != "conditional":
        return rule.operands
    compared = rule.operands[:2]
    if all(operand in settled or graph.nodes[operand].file in known for operand in compared):
        return (*compared, *(operand for operand in rule.operands[2:] if graph.nodes[operand].needed))
    return compared
