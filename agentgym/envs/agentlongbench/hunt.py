"""Knowledge of a puzzle with several hidden items, which are looked for in turn."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from agentgym.envs.agentlongbench.belief import Belief
from agentgym.envs.agentlongbench.engine import TOOL, dumps, read_feedback, read_lists
from agentgym.messages import ToolCall
from agentgym.world import CallSet

_LISTED = "All items: "
_HEAD = re.compile(r"Hidden item ([0-9]+)( \(next\))?:\n")


@dataclass
class Hunt:
    """Knowledge of the hidden items of a puzzle that are not found yet.

    After each guess the next of them is to be guessed, so that feedback on one is needed again only
    after guesses of all others.

    Attributes:
        beliefs: The knowledge of each, by number from 1.
        number: The number of the one that is to be guessed next.
    """

    beliefs: dict[int, Belief] = field(default_factory=dict)
    number: int = 1

    @classmethod
    def from_opening(cls, feedback: str, puzzle: int) -> Self:
        """Begin a puzzle with one hidden item, from the feedback on the guess that was drawn.

        Raises:
            ValueError: There is no feedback in the text.
        """
        heard = read_feedback(feedback)
        if not heard:
            raise ValueError(f"there is no feedback in {feedback[:100]!r}")
        belief = Belief(puzzle=puzzle)
        belief.add_feedback(heard[-1])
        return cls({1: belief})

    @classmethod
    def begin(cls, items: Sequence[str], hidden: int, puzzle: int, rounds: int) -> Self:
        """Begin a puzzle with several hidden items, of which only the names of all are known."""
        numbers = range(1, hidden + 1)
        return cls(
            {k: Belief(pool=[*items], puzzle=puzzle, left=rounds, items=items) for k in numbers}
        )

    @property
    def belief(self) -> Belief:
        """The knowledge of the item that is to be guessed next."""
        return self.beliefs[self.number]

    def add_result(self, conditions: Sequence[Mapping[str, Any]], result: str) -> None:
        """Take in the result of a query, for each hidden item that is certainly in its lists.

        Raises:
            ValueError: The text is not a result.
        """
        lists = read_lists(conditions, result)
        for belief in self.beliefs.values():
            belief.add_lists(lists)

    def advance(self, *, solved: bool) -> None:
        """Go on to the next hidden item."""
        before = self.number
        if solved:
            del self.beliefs[before]
        later = [number for number in self.beliefs if number > before]
        self.number = min(later or self.beliefs, default=before)

    def lines(self) -> list[str]:
        """Write the knowledge of each hidden item in words; after the first puzzle, whose items the
        task lists, with the items.
        """
        parts = [
            "\n".join([f"Hidden item {k}{' (next)' * (k == self.number)}:", *belief.lines(), ""])
            for k, belief in self.beliefs.items()
        ]
        if self.belief.items and self.belief.puzzle > 1:
            return [f"{_LISTED}{dumps(list(self.belief.items))}\n", *parts]
        return parts

    @classmethod
    def from_lines(cls, text: str, items: Sequence[str]) -> Self:
        """Read the text of `lines`, for a task that lists these items.

        Raises:
            ValueError: The text is not one that `lines` wrote.
        """
        hunt = cls()
        for part in text.rstrip("\n").split("\n\n"):
            head = _HEAD.match(part)
            if part.startswith(_LISTED):
                items = json.loads(part[len(_LISTED) :])
            elif head is None:
                raise ValueError(f"this is not a state of a puzzle: {text[:100]!r}")
            else:
                number = int(head[1])
                hunt.beliefs[number] = Belief.from_lines(part[head.end() :], items)
                hunt.number = number if head[2] else hunt.number
        return hunt


class OptimalMoves(Sequence[ToolCall]):
    """Optimal calls while a turn is to spare: queries that make the candidates of some hidden item
    exact, and guesses of the next one where its candidates are exact.

    A query serves as well now as later, since nothing is learnt of an item before it is guessed
    again. Listed is one query, or the guesses.
    """

    def __init__(self, hunt: Hunt) -> None:
        # Labels look a call up after it was played, so the guesses are those of now; a query
        # changes nothing that decides whether it makes candidates exact.
        belief = hunt.belief
        query = ToolCall(TOOL, {"conditions": belief.conditions()})
        guesses = CallSet("guess", "name", belief.pool or ())
        self._listed: Sequence[ToolCall] = guesses if belief.exact else (query,)
        self._open = [belief for belief in hunt.beliefs.values() if not belief.exact]

    def __contains__(self, call: object) -> bool:
        if isinstance(call, ToolCall) and call.name == TOOL:
            conditions = call.arguments.get("conditions")
            return any(belief.makes_exact(conditions) for belief in self._open)
        return call in self._listed

    def __iter__(self) -> Iterator[ToolCall]:
        return iter(self._listed)

    def __getitem__(self, index: Any) -> Any:
        return self._listed[index]

    def __len__(self) -> int:
        return len(self._listed)
