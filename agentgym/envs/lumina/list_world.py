"""ListWorld: prune a list to a target, left to right (LUMINA, section 4.1 and appendix A.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, perm
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agentgym.envs.lumina.prompts import TEXTS, LuminaConfig, without_frame
from agentgym.envs.reading import expect
from agentgym.text.messages import ToolCall
from agentgym.text.tools import ToolError, echo, tool
from agentgym.text.validation import check_int
from agentgym.world.digests import digest
from agentgym.world.world import CallSet, World

_DONE = ToolCall("done", {})
_MAX_ITEMS = 10_000  # a task of this length has 50,000 characters
_RESTATED = "Turn the current list into the target list."
_LOST = "The target can no longer be reached."
# Maximum list length for counting instances; longer lists have even more instances.
_COUNTED = 50
_NUMBERS = re.compile(r"-?[0-9]+")
_STATE = re.compile(
    r"(?m)^Current list \(index: value\): (?P<items>.*)\nTarget list: (?P<target>.*)\n"
    r"Locked: .*?(?<![0-9])(?P<locked>[0-9]+)\nTurns left: (?P<left>[0-9]+)"
)

# Maximum numbers of elements to draw, in total and before the lock, to fit into 80 columns.
_DRAWN, _DRAWN_LOCKED = 15, 2


@dataclass(frozen=True, kw_only=True)
class ListConfig(LuminaConfig):
    """Options of ListWorld.

    Attributes:
        items: The length of the initial list.
        removals: The number of elements to remove, at most `items`; an optimal policy takes
            `removals + 1` turns.
        duplicates: Whether values may repeat. With duplicates, several removals can be optimal, and
            a removal can make success impossible.
    """

    texts: ClassVar[Mapping[str, str]] = TEXTS["list"]

    items: Annotated[int, Field(ge=1, le=_MAX_ITEMS)] = 10
    removals: Annotated[int, Field(ge=0, le=_MAX_ITEMS)] = 4
    duplicates: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("removals", self.removals, 0, self.items)


class ListWorld(World[ListConfig]):
    """Turn a list into a target list by popping elements from left to right.

    After a pop, the elements to the left of the popped element are locked. The agent never sees the
    list again and must track how the indices shift.
    """

    Config = ListConfig
    parallel_calls = False

    def generate(self) -> None:
        config, rng = self.config, self.rng
        if config.duplicates:
            items = rng.integers(10, _highest_value(config) + 1, size=config.items).tolist()
        else:
            values = rng.choice(_highest_value(config) - 9, size=config.items, replace=False)
            items = (10 + values).tolist()
        removed = set(rng.choice(config.items, size=config.removals, replace=False).tolist())
        self._start(items, [value for k, value in enumerate(items) if k not in removed])
        self.max_turns = config.budget(config.removals + 1)

    def _start(self, items: list[int], target: list[int]) -> None:
        self.items = items
        self.target = target
        self.locked = 0
        self._origins = list(range(len(items)))

    def instance_key(self) -> str:
        return digest([self.items, self.target])

    @classmethod
    def instance_count(cls, config: ListConfig) -> float:
        """Count the instances, assuming that different removals give different targets."""
        values = _highest_value(config) - 9
        if config.duplicates:
            return float(values) ** min(config.items, _COUNTED)
        items = min(config.items, _COUNTED)
        return perm(values, items) * comb(items, min(config.removals, items))

    def rules(self) -> str:
        return self.config.rules()

    def task(self) -> str:
        lists = f"Initial list: {self.items}\nTarget list: {self.target}"
        return self.config.frame(f"{lists}\nTurn budget: {self.max_turns}")

    def board(self) -> str:
        """Draw the list, with `|` after the locked elements, above the target list."""
        first = max(0, self.locked - _DRAWN_LOCKED)
        end = first + _DRAWN
        items = self.items[first:end]
        numbers = (*items, *self.target, len(self.items))
        width = max(map(len, map(str, numbers)))
        rows = {
            "index ": range(first, first + len(items)),
            "list  ": items,
            "target": self.target[first:end],
        }
        lines = []
        for name, values in rows.items():
            cells = [f"{value:{width}}" for value in values]
            cells.insert(self.locked - first, " " if name == "target" else "|")
            lines.append(" ".join((name, *cells)).rstrip())
        if end < len(self.items):
            lines.append(f"and {len(self.items) - end} more")
        return "\n".join(lines)

    @tool
    def pop(self, id: int) -> str:
        """Remove one element from the list. Later elements move down by one index.

        Args:
            id: The current index of the element to remove, counted from 0.
        """
        if not 0 <= id < len(self.items):
            raise ToolError(f"the list has no index {echo(id)}")
        if id < self.locked:
            raise ToolError(
                f"index {id} lies to the left of an element removed before, so it can no longer be "
                "removed"
            )
        del self.items[id], self._origins[id]
        self.locked = id
        return "The element has been removed."

    @tool(final=True, name="done")
    def finish(self) -> str:
        """Finish the task, once the list equals the target."""
        return "The task is finished."

    def score(self) -> float:
        """Return 1 if `done` was called on a list equal to the target, else 0."""
        return float(self.done and self.items == self.target)

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        check_int("horizon", steps, 1, _MAX_ITEMS // 2)
        return {"items": 2 * steps, "removals": steps - 1}

    def optimal_calls(self) -> Sequence[ToolCall]:
        """Return the pops after which the target is still reachable, or `done` at the target."""
        pops = len(self.items) - len(self.target)
        if self.done or self.turns_left < pops + 1:
            return ()
        if self.items == self.target:
            return (_DONE,)
        return CallSet("pop", "id", self._optimal_pops())

    def _optimal_pops(self) -> range:
        items, target = self.items, self.target
        # A pop at i is optimal if the list equals the target before i, and the rest of the target
        # is a subsequence of the elements after i.
        last = len(target)
        for place, (item, wanted) in enumerate(zip(items, target, strict=False)):
            if item != wanted:
                last = place
                break
        # Match from the right. The first `missing` target elements still need a match.
        missing, first = len(target), last + 1
        for position in range(len(items) - 1, self.locked - 1, -1):
            if position <= last and missing <= position:
                first = position
            if missing and items[position] == target[missing - 1]:
                missing -= 1
        return range(first, last + 1)

    def legal_calls(self) -> Sequence[ToolCall]:
        return (*CallSet("pop", "id", range(self.locked, len(self.items))), _DONE)

    def action_catalog(self) -> Sequence[ToolCall]:
        return (*CallSet("pop", "id", range(self.config.items)), _DONE)

    def features(self) -> NDArray[np.float32]:
        """Return float32 features in [-1, 1], shape `(5 * items + 1,)`.

        The first two rows of length `items` are the list and the target, divided by the largest
        value and padded with -1. Three rows of flags mark equal, locked and present elements. The
        last feature is the turns left divided by `removals + 1`.
        """
        length, max_turns = self.config.items, self.config.removals + 1
        rows = np.zeros((5, length), np.float32)
        rows[:2] = -1
        for row, values in enumerate((self.items, self.target)):
            rows[row, : len(values)] = np.divide(values, _highest_value(self.config))
        rows[2] = (rows[0] == rows[1]) & (rows[0] >= 0)
        rows[3, : self.locked] = 1
        rows[4, : len(self.items)] = 1
        return np.append(rows, np.float32(min(self.turns_left / max_turns, 1)))

    def state(self) -> str:
        items = ", ".join(f"{k}: {value}" for k, value in enumerate(self.items)) or "empty"
        return (
            f"Current list (index: value): {items}\nTarget list: {self.target}\n"
            f"Locked: elements whose index is below {self.locked}\nTurns left: {self.turns_left}"
        )

    def restate(self) -> str:
        return self.config.frame(_RESTATED)

    def subtask(self, with_state: bool) -> str:
        """Return the instruction to remove the first element that does not fit the target.

        `with_state` selects between the current index (True) and the initial index (False).
        """
        calls = self.optimal_calls()
        # The last optimal pop removes the first element that does not fit the target.
        return self.subtask_for(calls[-1], with_state) if calls else _LOST

    def subtask_for(self, call: ToolCall, with_state: bool) -> str:
        if call == _DONE:
            return "The list equals the target: finish."
        index = call.arguments["id"]
        position = f"had index {self._origins[index]} in the initial list"
        if with_state:
            position = f"has index {index} in the current list"
        return f"Remove the element that {position} (value {self.items[index]})."

    def reasoning(self, call: ToolCall) -> str:
        end = call.arguments["id"] if call.name == "pop" else len(self.items)
        stay = self.items[self.locked : end]
        lines = [f"{k}: {value} keep" for k, value in enumerate(stay, self.locked)]
        if end < len(self.items):
            lines.append(f"{end}: {self.items[end]} pop")
        return "\n".join(lines)

    @classmethod
    def read_task(cls, task: str) -> Self:
        world, task = cls(ListConfig(), 0), without_frame(task)
        # A restated task does not contain the lists, which are part of the state.
        if task.startswith(_RESTATED):
            world._start([], [])
            return world
        if not task.startswith("Initial list:"):
            raise ValueError(f"the task must start with the initial list, got {task[:100]!r}")
        initial, target, budget = map(_read_numbers, task.split("\n")[:3])
        world._start(initial, target)
        world.max_turns = budget[0]
        return world

    def read_result(self, call: ToolCall, result: str) -> None:
        if call.name == "pop" and self.locked <= call.arguments["id"] < len(self.items):
            self.pop(call.arguments["id"])

    def read_state(self, state: str) -> None:
        match = expect(_STATE.search(state), "a state of ListWorld", state)
        self._start(_read_numbers(match["items"])[1::2], _read_numbers(match["target"]))
        self.locked = int(match["locked"])
        self.set_turns_left(int(match["left"]))

    def read_subtask(self, subtask: str) -> ToolCall | None:
        if subtask.startswith("The list equals"):
            return _DONE
        number = _NUMBERS.search(subtask)
        if number is None or " list " not in subtask:
            return None
        index = int(number[0])
        if "current list" not in subtask:
            if index not in self._origins:
                return None
            index = self._origins.index(index)
        return ToolCall("pop", {"id": index})


def _read_numbers(text: str) -> list[int]:
    return list(map(int, _NUMBERS.findall(text)))


def _highest_value(config: ListConfig) -> int:
    # With duplicates, values come from a small range, so most values repeat.
    return 11 + config.items // 3 if config.duplicates else max(99, 3 * config.items + 9)
