"""TreeWorld: explore a tree to find a value (LUMINA, section 4.1 and appendix A.2)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agentgym.envs.lumina.prompts import TEXTS, LuminaConfig, without_frame
from agentgym.text.messages import ToolCall
from agentgym.text.tools import ToolError, tool
from agentgym.text.validation import check_int
from agentgym.world.config import Share
from agentgym.world.digests import digest
from agentgym.world.world import CallSet, World

_UNREACHABLE = ToolCall("unreachable", {})
_MAX_NODES = 100_000  # far fewer than `_VALUES`
_VALUES = 1_000_000  # each node gets a different value
_ID_LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))
_ID_LENGTH = 7  # with 8e9 possible ids, unseen ids cannot be guessed
_NODE = re.compile(r"\(id=([a-z]+), value=([0-9]+)\) -> (UNKNOWN|\[([a-z, ]*)\])")
_TARGET = re.compile(r"value ([0-9]+)")
_BUDGET = re.compile(r"(?:Turn budget|Turns left): ([0-9]+)")
_MAY_BE_ABSENT = "The target may be missing from the tree."
_IS_THERE = "The target is in the tree."


@dataclass(frozen=True, kw_only=True)
class TreeConfig(LuminaConfig):
    """Options of TreeWorld.

    Attributes:
        nodes: The number of nodes, unknown to the agent.
        arity: The maximum number of children of a node.
        revealed: The number of nodes that the task shows with their children, at most `nodes`.
        absent_probability: The probability that no node has the target value.
        target: Whether the target must be a `leaf` or may be `any` node.
    """

    texts: ClassVar[Mapping[str, str]] = TEXTS["tree"]

    nodes: Annotated[int, Field(ge=1, le=_MAX_NODES)] = 12
    arity: Annotated[int, Field(ge=1, le=100)] = 3
    revealed: Annotated[int, Field(ge=0, le=_MAX_NODES)] = 1
    absent_probability: Share = 0.1
    target: Literal["leaf", "any"] = "leaf"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("revealed", self.revealed, 0, self.nodes)


class TreeWorld(World[TreeConfig]):
    """Search a hidden tree for the node with a given value.

    Values are unrelated to the tree's shape, ids cannot be guessed, and unseen ids get the same
    answer as nonexistent ids. The tree is drawn uniformly from all trees with `nodes` nodes and
    `arity` child slots per node, so all unexplored nodes are equally good choices (LUMINA's optimal
    set). The optimal set ignores what the turn budget reveals about the size of the tree.

    Attributes:
        known: Maps the id of each visible node to the node's value, in order of appearance.
        children: Maps the id of each node to the ids of the children. In a world restored from a
            chat, only explored nodes have entries.
    """

    Config = TreeConfig
    parallel_calls = False
    horizon_unit = "nodes of the tree, the turns of the slowest search"

    def generate(self) -> None:
        config, rng = self.config, self.rng
        shape = uniform_tree(config.nodes, config.arity, rng)
        ids = _draw_ids(config.nodes, rng)
        values = rng.choice(_VALUES, size=config.nodes + 1, replace=False).tolist()
        self.children: dict[str, list[str]] = {}
        for node, below in zip(ids, shape, strict=True):
            self.children[node] = [ids[child] for child in below]
        self._values = dict(zip(ids, values, strict=False))
        candidates = [k for k in range(config.nodes) if config.target == "any" or not shape[k]]
        target = candidates[rng.integers(len(candidates))]
        if rng.random() < config.absent_probability:
            target = -1  # the last value belongs to no node
        self._start(values[target], config.absent_probability > 0)
        self._show(ids[0], self._values[ids[0]])
        for _ in range(config.revealed):
            frontier = list(self._frontier)
            self._expand(frontier[rng.integers(len(frontier))])
        self.max_turns = config.budget(self._longest_search())

    def instance_key(self) -> str:
        return digest([self.children, self._values, self.target])

    @classmethod
    def instance_count(cls, config: TreeConfig) -> float:
        return _VALUES

    @classmethod
    def chance(cls, config: TreeConfig) -> float:
        """Return the probability that reporting `unreachable` is correct."""
        return config.absent_probability

    def _start(self, target: int, may_be_absent: bool) -> None:
        self.target = target
        self.known: dict[str, int] = {}
        self._may_be_absent = may_be_absent
        self._by_value: dict[int, str] = {}
        self._frontier: dict[str, None] = {}
        self._correct = False

    def _show(self, node: str, value: int) -> None:
        self.known[node] = value
        self._by_value[value] = node
        self._frontier[node] = None

    def _expand(self, node: str) -> None:
        if node in self._frontier:
            del self._frontier[node]
            for child in self.children[node]:
                self._show(child, self._values[child])

    def _longest_search(self) -> int:
        if self.target in self._by_value:
            return 1
        # The budget must not depend on the position of the target.
        unexplored = len(self.children) - len(self.known) + len(self._frontier)
        # If the target must exist, the last node does not need to be explored.
        return unexplored + self._may_be_absent

    def rules(self) -> str:
        return self.config.rules()

    def task(self) -> str:
        return self.config.frame(
            f"{self._goal()}\n{self._knowledge()}\nTurn budget: {self.max_turns}"
        )

    def restate(self) -> str:
        return self.config.frame(self._goal())

    def _goal(self) -> str:
        presence = _MAY_BE_ABSENT if self._may_be_absent else _IS_THERE
        return f"Find the node with value {self.target}. {presence}"

    def _knowledge(self) -> str:
        lines = []
        for node, value in self.known.items():
            children = "UNKNOWN"
            if node not in self._frontier:
                children = f"[{', '.join(self.children[node])}]"
            lines.append(f"(id={node}, value={value}) -> {children}")
        return "\n".join(lines)

    @tool
    def get_children(self, id: str) -> list[dict[str, Any]]:
        """List the children of a node, with their ids and values.

        Args:
            id: The id of a node that you have been shown.
        """
        self._check_known(id)
        self._expand(id)
        return [{"id": child, "value": self.known[child]} for child in self.children[id]]

    @tool(final=True)
    def found(self, id: str) -> str:
        """Report the node that holds the target value. This ends the task.

        Args:
            id: The id of a node that you have been shown.
        """
        self._check_known(id)
        self._correct = self.known[id] == self.target
        return "Your report has been taken."

    @tool(final=True)
    def unreachable(self) -> str:
        """Report that no node of the tree holds the target value. This ends the task."""
        self._correct = self.target not in self._values.values()
        return "Your report has been taken."

    def _check_known(self, node: str) -> None:
        if node not in self.known:
            raise ToolError("no node with this id has been shown")

    def score(self) -> float:
        """Return 1 if the report was correct, else 0."""
        return float(self._correct)

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        # The slowest optimal search explores nearly all nodes.
        check_int("horizon", steps, 2, _MAX_NODES)
        return {"nodes": steps}

    def optimal_calls(self) -> Sequence[ToolCall]:
        """Return the correct report if known, else one call to explore each unexplored node."""
        if self.done or self.turns_left < 1:
            return ()
        if self.target in self._by_value:
            return (ToolCall("found", {"id": self._by_value[self.target]}),)
        # On the last turn only a report can succeed.
        if self._frontier and self.turns_left > 1:
            return CallSet("get_children", "id", self._frontier)
        return (_UNREACHABLE,) if self._may_be_absent else ()

    def legal_calls(self) -> Sequence[ToolCall]:
        return (
            *CallSet("get_children", "id", self.known),
            *CallSet("found", "id", self.known),
            _UNREACHABLE,
        )

    def action_catalog(self) -> Sequence[ToolCall]:
        """Return an exploration of each node, a report of each node, and `unreachable`.

        Nodes are in order of appearance; unseen nodes have empty ids.
        """
        unseen = self.config.nodes - len(self.known)
        ids = [*self.known, *[""] * unseen]
        calls = (ToolCall(name, {"id": node}) for name in ("get_children", "found") for node in ids)
        return (*calls, _UNREACHABLE)

    def features(self) -> NDArray[np.float32]:
        """Return float32 features in [0, 1], shape `(3 * nodes + 2,)`.

        Three rows of length `nodes`, in order of appearance, mark known nodes, unexplored nodes and
        the target. The last features are whether the target may be missing, and the turns left
        divided by `nodes + 1`.
        """
        nodes = self.config.nodes
        rows = np.zeros((3, nodes), np.float32)
        for slot, (node, value) in enumerate(self.known.items()):
            # Edges are omitted, because they carry no information about the target.
            rows[:, slot] = 1, node in self._frontier, value == self.target
        ends = self._may_be_absent, min(self.turns_left / (nodes + 1), 1)
        return np.concatenate((rows.ravel(), ends), dtype=np.float32)

    def board(self) -> str:
        """Draw the visible nodes as an indented tree; `?` marks unexplored nodes."""
        inner = set[str]()
        for node in self.known.keys() - self._frontier.keys():
            inner.update(self.children[node])
        rest = [(node, 0) for node in self.known if node not in inner][::-1]
        lines = [f"target {self.target}"]
        while rest:
            node, depth = rest.pop()
            unknown = " ?" if node in self._frontier else ""
            lines.append(f"{'  ' * depth}{node} = {self.known[node]}{unknown}")
            if not unknown:
                rest += [(child, depth + 1) for child in reversed(self.children[node])]
        return "\n".join(lines)

    def state(self) -> str:
        return (
            f"Looking for value {self.target}.\n{self._knowledge()}\nTurns left: {self.turns_left}"
        )

    def subtask(self, with_state: bool) -> str:
        """Return the instruction to explore the newest unexplored node, or to report."""
        calls = self.optimal_calls()
        if not calls:
            return "The task can no longer be solved."
        call = next(iter(calls))
        if call.name == "get_children":
            call = ToolCall(call.name, {"id": next(reversed(self._frontier))})
        return self.subtask_for(call, with_state)

    def subtask_for(self, call: ToolCall, with_state: bool) -> str:
        if call.name == "found":
            return f"Report {call.arguments['id']} as the node with the target value."
        if call.name == "get_children":
            return f"List the children of {call.arguments['id']}."
        return "Report that the target is unreachable."

    @classmethod
    def read_task(cls, task: str) -> Self:
        world, task = cls(TreeConfig(), 0), without_frame(task)
        world._start(int(_TARGET.findall(task)[0]), _MAY_BE_ABSENT in task)
        world._read_nodes(task)
        budget = _BUDGET.findall(task)
        world.max_turns = int(budget[-1]) if budget else None
        return world

    def _read_nodes(self, text: str) -> None:
        self.children, self._values = {}, {}
        for node, value, children, ids in _NODE.findall(text):
            self._values[node] = int(value)
            if children != "UNKNOWN":
                self.children[node] = ids.split(", ") if ids else []
        for node, value in self._values.items():
            self._show(node, value)
        for node in self.children:
            del self._frontier[node]

    def read_result(self, call: ToolCall, result: str) -> None:
        if call.name == "get_children" and (node := call.arguments["id"]) in self.known:
            children = json.loads(result)
            self.children[node] = [child["id"] for child in children]
            self._values.update({child["id"]: child["value"] for child in children})
            self._expand(node)

    def read_state(self, state: str) -> None:
        self._start(self.target, self._may_be_absent)
        self._read_nodes(state)
        self.set_turns_left(int(_BUDGET.findall(state)[-1]))

    def read_subtask(self, subtask: str) -> ToolCall | None:
        if "unreachable" in subtask:
            return _UNREACHABLE
        if report := re.fullmatch(r"Report ([a-z]+) as .*", subtask):
            return ToolCall("found", {"id": report[1]})
        lookup = re.fullmatch(r"List the children of ([a-z]+)\.", subtask)
        return ToolCall("get_children", {"id": lookup[1]}) if lookup else None


def uniform_tree(nodes: int, arity: int, rng: np.random.Generator) -> list[list[int]]:
    """Draw a uniformly random tree, and return each node's children, root first."""
    # By the cycle lemma, exactly one rotation of the child counts is the depth-first sequence of a
    # tree (Dershowitz and Zaks 1980), so all trees are equally likely.
    slots = rng.choice(arity * nodes, size=nodes - 1, replace=False)
    counts = np.bincount(slots // arity, minlength=nodes)
    sums = np.cumsum(counts - 1)
    # After this rotation, the partial sums reach their final value -1 only at the last step.
    counts = np.roll(counts, -(int(np.argmin(sums)) + 1))
    children: list[list[int]] = [[] for _ in range(nodes)]
    parents: list[int] = []  # stack with one entry per missing child
    for node, count in enumerate(counts.tolist()):
        if parents:
            children[parents.pop()].append(node)
        parents += [node] * count
    return children


def _draw_ids(count: int, rng: np.random.Generator) -> list[str]:
    ids: dict[str, None] = {}
    while len(ids) < count:
        # Redraw only the ids that collided.
        letters = rng.choice(_ID_LETTERS, size=(count - len(ids), _ID_LENGTH))
        ids |= dict.fromkeys(map("".join, letters))
    return list(ids)
