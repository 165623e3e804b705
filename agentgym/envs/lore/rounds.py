"""Rounds of reading that a program takes, each of which reads all certainly needed files."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agentgym.envs.lore.graph import Graph, Node, Rule


def count_rounds(graph: Graph, read: Collection[str], known: Collection[str]) -> int:
    """Count the rounds until the value of the root is known.

    A conditional takes more than its depth, since its branch is asked for only after the values
    that it compares are known.

    Args:
        graph: A task that was grown top-down.
        read: The documents that were read.
        known: The documents among them whose values are known.
    """
    nodes, settled = graph.nodes, {graph.uids[file] for file in known}
    pending, askers = dict[int, int](), dict[int, list[int]]()  # missing operands, and who waits
    running, later, rounds = [], [0], 0
    if nodes[0].file in read:
        running, later = later, running
    while 0 not in settled:
        if not running:
            rounds, running, later = rounds + 1, later, []
        uid = running.pop()
        missing = [operand for operand in _required(nodes, uid, settled) if operand not in settled]
        for operand in missing:
            if operand in askers:
                askers[operand].append(uid)
            else:
                askers[operand] = [uid]
                (running if nodes[operand].file in read else later).append(operand)
        pending[uid] = len(missing)
        if not missing:
            settled.add(uid)
            for asker in askers.pop(uid, ()):
                pending[asker] -= 1
                if not pending[asker]:
                    running.append(asker)
    return rounds


def _required(nodes: Sequence[Node], uid: int, settled: Collection[int]) -> Sequence[int]:
    """Return the operands that a needed module asks for by now.

    Of two branches only the one taken is needed: no other imports them.
    """
    rule = nodes[uid].content
    if not isinstance(rule, Rule):
        return ()
    if rule.operator != "conditional":
        return rule.operands
    left, right, then, other = rule.operands
    if left in settled and right in settled:
        return (then if nodes[then].needed else other,)
    return left, right
