"""Base class for games in which a player makes one move per turn."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentgym.envs.reading import expect, load_texts
from agentgym.text.messages import ToolCall
from agentgym.world.seated import WAIT, Move, SeatedWorld
from agentgym.world.world import CallSet

ConfigT = TypeVar("ConfigT")
ValueT = TypeVar("ValueT")

TEXTS: Mapping[str, Mapping[str, str]] = load_texts(__file__, "prompts")
# The tasks of matches contain this phrase; other tasks do not.
FREE = "decides freely"
# More turns than any game has, used if the number of remaining turns is unknown.
_MANY = 1_000_000
_BUDGET = re.compile(r"Turn budget: ([0-9]+)")
_LEFT = re.compile(r"Turns left: ([0-9]+)")


class GameWorld(SeatedWorld[ConfigT]):
    """Game for one or two agents; by default, every move calls the same tool with one argument.

    Attributes:
        texts: The rules, the hint for a move (`plan`) and the hint for a lost game (`lost`).
        move_call: The name of the move tool, and the name of the argument.
        task_format: The format of the texts from `task()` and `restate()`.
        line_format: The format of a line returned by `play`.
        turn_of: The player who moves next, if players take turns.
    """

    texts: ClassVar[Mapping[str, str]]
    move_call: ClassVar[tuple[str, str]]
    task_format: ClassVar[re.Pattern[str]]
    situation_format: ClassVar[re.Pattern[str]]
    line_format: ClassVar[re.Pattern[str]]
    turn_of: str

    @abstractmethod
    def situation(self) -> str:
        """Return the state text without the number of remaining turns."""

    @abstractmethod
    def legal_moves(self) -> Collection[Move]:
        """Return the legal moves of this player."""

    @abstractmethod
    def best_moves(self) -> Collection[Move]:
        """Return the optimal moves of this player; empty if the goal is out of reach."""

    @abstractmethod
    def has_won(self) -> bool:
        """Return whether a single agent has reached the goal."""

    @abstractmethod
    def read_instance(self, found: re.Match[str]) -> None:
        """Parse the instance from a task or a restated task."""

    @abstractmethod
    def read_situation(self, found: re.Match[str]) -> None:
        """Parse the situation from a task or a state."""

    @abstractmethod
    def read_move(self, found: re.Match[str]) -> None:
        """Parse a line returned by `play` and update the situation."""

    @property
    def other(self) -> str:
        return next(player for player in self.players if player != self.seat)

    @property
    def known_turns(self) -> int:
        """The number of remaining turns; a very large number if unknown."""
        return _MANY if self.max_turns is None else self.turns_left

    def by_player(self, values: Iterable[ValueT]) -> dict[str, ValueT]:
        """Map each player to a value; the values must be in turn order."""
        return dict(zip(self.players, values, strict=True))

    def movers(self) -> Sequence[str]:
        return (self.turn_of,)

    def rules(self) -> str:
        return self.texts["rules"]

    def task(self) -> str:
        return f"{self.restate()}\n{self.situation()}\nTurn budget: {self.max_turns}"

    def board(self) -> str:
        return self.situation()

    def state(self) -> str:
        return f"{self.situation()}\nTurns left: {self.turns_left}"

    def score(self) -> float:
        """Return 1 if the goal was reached, else 0; in a match, return the payoff, at most 1."""
        if self.in_match:
            return min(1.0, self.payoff())
        return float(self.has_won())

    def calls(self, moves: Collection[Move]) -> Sequence[ToolCall]:
        """Return the tool calls that make the given moves."""
        return CallSet(*self.move_call, moves)

    def optimal_calls(self) -> Sequence[ToolCall]:
        if self.done or not self.is_due or self.known_turns < 1:
            return ()
        return self.calls(self.best_moves())

    def legal_calls(self) -> Sequence[ToolCall]:
        return self.calls(self.legal_moves())

    def subtask(self, with_state: bool) -> str:
        if not self.is_due:
            return WAIT
        if calls := self.optimal_calls():
            return self.subtask_for(calls[0], with_state)
        return self.texts["lost"]

    def subtask_for(self, call: ToolCall, with_state: bool) -> str:
        return self.texts["plan"].format(call.arguments[self.move_call[1]])

    def read_subtask(self, subtask: str) -> ToolCall | None:
        found = re.match(self.texts["plan"].format(r"(\w{1,18})"), subtask)
        if found is None:
            return None
        move: Move = int(found[1]) if found[1].isdecimal() else found[1]
        return ToolCall(self.move_call[0], {self.move_call[1]: move})

    @classmethod
    def read_task(cls, task: str) -> Self:
        world = cls(cls.Config(), 0)
        found = expect(cls.task_format.match(task), f"a task of {cls.__name__}", task)
        world.seat, world.in_match = found["seat"], FREE in task
        world.read_instance(found)
        if situation := cls.situation_format.search(task):
            world.read_situation(situation)
        if budget := _BUDGET.search(task):
            world.max_turns = int(budget[1])
        return world

    def read_state(self, state: str) -> None:
        what = f"a state of {type(self).__name__}"
        left = expect(_LEFT.search(state), what, state)
        self.read_situation(expect(self.situation_format.search(state), what, state))
        self.set_turns_left(int(left[1]))

    def read_line(self, line: str) -> None:
        what = f"a move of {type(self).__name__}"
        self.read_move(expect(self.line_format.fullmatch(line), what, line))


def share(part: float, whole: float) -> float:
    """Return a part as a fraction of the whole, capped at 1."""
    return min(1.0, part / max(1, whole))


def as_row(*parts: ArrayLike) -> NDArray[np.float32]:
    """Concatenate arrays and numbers into one row of features."""
    return np.concatenate(parts, axis=None).astype(np.float32)
