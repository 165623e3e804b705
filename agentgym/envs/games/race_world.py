"""RaceWorld: two players take numbers from the ends of a list and compete for the larger sum.

The game is "coins in a row" (Winkler, "Mathematical Puzzles", 2004, chapter 1) with several numbers
per move. Backward induction solves the game exactly.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agentgym.envs.games.game import TEXTS, GameWorld, as_row, share
from agentgym.text.messages import ToolCall
from agentgym.text.tools import ToolError, echo, tool
from agentgym.text.validation import check_int
from agentgym.world.digests import digest
from agentgym.world.seated import Move
from agentgym.world.turn_budget import TurnBudget

_TEXTS = TEXTS["race"]
_MAX_MOVES = 400  # a list of 1,600 numbers takes about 50 ms to solve
_LARGEST = 20  # the largest number in a list
_DRAWS = 50  # maximum number of attempts to draw an instance
_TASK = re.compile(
    r"You are (?P<seat>\w+)\.\nNumbers per move: (?P<per_move>[0-9]+)\n"
    r"(?:Rule: .*\nTarget: [^0-9]*(?P<target>[0-9]+))?"
)
_COUNTS = (
    r"Taken so far: (?P<left>[0-9]+) from the left, (?P<right>[0-9]+) from the right\. "
    r"Sums: player_0 (?P<first>[0-9]+), player_1 (?P<second>[0-9]+)"
)
_LINE = re.compile(rf"player_[01] takes [0-9, ]+\. {_COUNTS}")
_SITUATION = re.compile(rf"List: (?P<numbers>[0-9, ]*)\n{_COUNTS}")

Opponent = Literal["greedy", "farsighted"]


@dataclass(frozen=True, kw_only=True)
class RaceConfig(TurnBudget):
    """Options of RaceWorld.

    Attributes:
        moves: The number of moves of each player.
        per_move: The number of list elements that a player takes per move.
        opponent: The rule of the scripted player: `greedy` maximises the sum of each move, and
            `farsighted` plays perfectly.
    """

    moves: Annotated[int, Field(ge=2, le=_MAX_MOVES)] = 8
    per_move: Annotated[int, Field(ge=1, le=6)] = 2
    opponent: Opponent = "greedy"


class Race(NamedTuple):
    """A list of numbers, with the rules of the game."""

    numbers: tuple[int, ...]
    per_move: int
    rule: Opponent

    @property
    def moves(self) -> int:
        return len(self.numbers) // self.per_move

    def sums(self, moves: int) -> NDArray[np.int32]:
        """Return the sum that each move takes from each sublist with `moves` moves left.

        Entry [i, j] is the sum for taking i numbers from the left end of the sublist that starts
        at index j.
        """
        before, length = cumulative_sums(self.numbers), moves * self.per_move
        start = np.arange(len(self.numbers) - length + 1)
        end = start + length
        sums = np.zeros((self.per_move + 1, len(start)), np.int32)
        for left in range(self.per_move + 1):
            right = self.per_move - left
            sums[left] += before[start + left] - before[start]
            sums[left] += before[end] - before[end - right]
        return sums

    def parts_after(self, values: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the value of the sublist that remains after each move, for each sublist."""
        # `sliding_window_view` returns the same values, but takes longer than solving a short list.
        parts = len(values) - self.per_move
        return np.array([values[left : left + parts] for left in range(self.per_move + 1)])


@lru_cache(maxsize=16)  # solving a game needs them once per number of moves left
def cumulative_sums(numbers: tuple[int, ...]) -> NDArray[np.int32]:
    """Return the cumulative sums of the numbers, starting with 0."""
    return np.array([0, *accumulate(numbers)], np.int32)


@lru_cache(maxsize=16)
def minimax(game: Race) -> list[NDArray[np.int32]]:
    """Return the sum that the next player gets if both play perfectly.

    Element m of the result is an array for m remaining moves, indexed by the start of the sublist.
    """
    values = [np.zeros(len(game.numbers) + 1, np.int32)]
    before = cumulative_sums(game.numbers)
    for moves in range(1, game.moves + 1):
        length = moves * game.per_move
        total = before[length:] - before[: len(before) - length]
        values.append(total - game.parts_after(values[-1]).min(axis=0))
    return values


@lru_cache(maxsize=16)
def best_sums(game: Race, turns: int) -> list[int]:
    """Return the largest sum that a player can reach after each possible next move.

    The player moves next and has at most `turns` turns; the scripted player makes the last move.
    """
    if turns <= 0:
        return []
    later = np.zeros(len(game.numbers) + 1, np.int32)
    values = np.zeros((game.per_move + 1, 1), np.int32)
    for moves in range(2, game.moves + 1, 2):
        replies = scripted_replies(game, moves - 1)
        after = later[np.arange(len(replies)) + replies]
        values = game.sums(moves) + game.parts_after(after)
        later = values.max(axis=0)
        if moves <= game.moves - 2 * turns:  # the player has no turns left for these moves
            later = np.zeros_like(later)
    return list(map(int, values[:, 0]))


def scripted_replies(game: Race, moves: int) -> NDArray[np.int64]:
    """Return how many numbers the scripted player takes from the left of each sublist."""
    worth = game.sums(moves)
    if game.rule == "farsighted":
        worth = -game.parts_after(minimax(game)[moves - 1])
    replies: NDArray[np.int64] = worth.argmax(axis=0)
    return replies


class RaceWorld(GameWorld[RaceConfig]):
    """Take numbers from the ends of a list in turn with another player, for the largest sum.

    A single agent moves first against a known rule and must reach the largest possible sum. In a
    match, each agent earns its sum divided by its sum under perfect play.
    """

    Config = RaceConfig
    texts = _TEXTS
    move_call = ("take", "from_left")
    perfect: Mapping[str, int]
    task_format, situation_format, line_format = _TASK, _SITUATION, _LINE

    def generate(self) -> None:
        """Draw a list that, if possible, cannot be solved by repeated or greedy moves."""
        config = self.config
        for _ in range(_DRAWS):
            count = 2 * config.moves * config.per_move
            numbers = tuple(self.rng.integers(1, _LARGEST + 1, size=count).tolist())
            self._start(Race(numbers, config.per_move, config.opponent))
            self.target = max(best_sums(self.game, config.moves))
            habits = (None, *range(config.per_move + 1))
            if self.target > max(map(self._sum_of, habits)):
                break
        first = int(minimax(self.game)[-1][0])
        self.perfect = self.by_player([first, sum(numbers) - first])
        self.max_turns = config.budget(config.moves)

    @classmethod
    def instance_count(cls, config: RaceConfig) -> int:
        return int(_LARGEST ** (2 * config.moves * config.per_move))

    def _start(self, game: Race) -> None:
        self.game, self.target = game, 0
        self.taken = (0, 0)
        self.sums = dict.fromkeys(self.players, 0)

    def _sum_of(self, always: int | None) -> int:
        """Return the sum of a player who repeats the move `always`, or is greedy if it is None."""
        game, total = self.game, 0
        while game.numbers:
            sums = game.sums(game.moves)[:, 0]
            move = int(sums.argmax()) if always is None else always
            total += int(sums[move])
            game = _after(game, move)
            game = _after(game, int(scripted_replies(game, game.moves)[0]))
        return total

    def movers(self) -> Sequence[str]:
        moves = sum(self.taken) // self.game.per_move
        return (self.players[moves % 2],)

    def instance_key(self) -> str:
        return digest([*self.game])

    def restate(self) -> str:
        lines = [f"You are {self.seat}.", f"Numbers per move: {self.game.per_move}"]
        if self.in_match:
            value = self.perfect[self.seat]
            lines.append(_TEXTS["match"].format(other=self.other, value=value))
        else:
            rule = _TEXTS[self.game.rule].format(other=self.other)
            lines.append(_TEXTS["alone"].format(rule=rule, target=self.target))
        return "\n".join(lines)

    def situation(self) -> str:
        return f"List: {', '.join(map(str, self.game.numbers))}\n{self._counts()}"

    def _counts(self) -> str:
        sums = ", ".join(f"{player} {total}" for player, total in self.sums.items())
        left, right = self.taken
        return f"Taken so far: {left} from the left, {right} from the right. Sums: {sums}"

    @tool
    def take(self, from_left: int) -> str:
        """Take numbers from the list: some from its left end, the rest from its right end.

        Args:
            from_left: The count of numbers from the left end, from 0 to the numbers per move.
        """
        if not 0 <= from_left <= self.game.per_move:
            raise ToolError(
                f"from_left must be from 0 to {self.game.per_move}, got {echo(from_left)}"
            )
        return self.make_move(from_left)

    def play(self, moves: Mapping[str, Move]) -> str:
        ((player, move),) = moves.items()
        left, right = int(move), self.game.per_move - int(move)
        numbers, after = self.game.numbers, _after(self.game, left)
        got = numbers[:left] + numbers[len(numbers) - right :]
        self.sums[player] += sum(got)
        taken_left, taken_right = self.taken
        self.taken = (taken_left + left, taken_right + right)
        self.game, self.done = after, not after.numbers
        return f"{player} takes {', '.join(map(str, got))}. {self._counts()}"

    def read_move(self, found: re.Match[str]) -> None:
        left, right = int(found["left"]), int(found["right"])
        numbers = self.game.numbers
        taken_left, taken_right = self.taken
        first = left - taken_left
        last = len(numbers) - (right - taken_right)
        if not 0 <= first <= last <= len(numbers):
            raise ValueError(
                f"cannot take {left} from the left and {right} from the right of this list"
            )
        self._set(numbers[first:last], found)

    def _set(self, numbers: tuple[int, ...], found: re.Match[str]) -> None:
        if len(numbers) % self.game.per_move:
            raise ValueError(f"the task does not allow a list of {len(numbers)} numbers")
        self.game = self.game._replace(numbers=numbers)
        self.taken = (int(found["left"]), int(found["right"]))
        self.sums = self.by_player(map(int, found.group("first", "second")))
        self.done = not numbers

    def scripted_move(self, player: str) -> Move:
        return int(scripted_replies(self.game, self.game.moves)[0])

    def payoff(self) -> float:
        return self.sums[self.seat] / self.perfect[self.seat]

    def has_won(self) -> bool:
        return self.sums[self.seat] >= self.target

    def report(self) -> Mapping[str, Any]:
        """Return each player's sum, and the sums if both play perfectly."""
        return {"sums": dict(self.sums), "minimax": dict(self.perfect)}

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        check_int("horizon", steps, 2, _MAX_MOVES)
        return {"moves": steps}

    def best_moves(self) -> Collection[Move]:
        game = self.game
        if self.in_match:
            later = minimax(game)[game.moves - 1]
            left = game.parts_after(later)[:, 0]
            return list(map(int, np.flatnonzero(left == left.min())))
        sums = best_sums(game, min(self.known_turns, game.moves))
        missing = self.target - self.sums[self.seat]
        return [move for move, value in enumerate(sums) if value >= missing]

    def legal_moves(self) -> Collection[Move]:
        return range(self.game.per_move + 1)

    def action_catalog(self) -> Sequence[ToolCall]:
        return self.calls(range(self.config.per_move + 1))

    def features(self) -> NDArray[np.float32]:
        """Return float32 features in [-1, 1], shape `(2 * moves * per_move + 2,)`.

        The features are: this player's progress towards the target, the turns left as a share of
        `moves`, and the list divided by the largest possible number (-1 after the last element).
        """
        config, numbers = self.config, self.game.numbers
        won = share(self.sums[self.seat], self.target)
        left = share(self.turns_left, config.moves)
        row = np.full(2 * config.moves * config.per_move, -1.0)
        row[: len(numbers)] = np.divide(numbers, _LARGEST)
        return as_row(won, left, row)

    def read_instance(self, found: re.Match[str]) -> None:
        greedy = _TEXTS["greedy"].partition("}")[2] in found.string
        rule: Opponent = "greedy" if greedy else "farsighted"
        self._start(Race((), int(found["per_move"]), rule))
        self.target = int(found["target"] or 0)

    def read_situation(self, found: re.Match[str]) -> None:
        numbers = filter(None, found["numbers"].split(", "))
        self._set(tuple(map(int, numbers)), found)


def _after(game: Race, left: int) -> Race:
    end = len(game.numbers) - (game.per_move - left)
    return game._replace(numbers=game.numbers[left:end])
