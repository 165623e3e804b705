"""CommonsWorld: two players harvest a shared stock, which grows again after each round.

The game is a finite "fish war" with simultaneous moves (Levhari and Mirman, "The Great Fish War",
Bell Journal of Economics 11, 1980). Integer amounts allow exact solutions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
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

_TEXTS = TEXTS["commons"]
_MAX_ROUNDS = 2_000  # solving takes about a millisecond per round
_GROWTH = (0, 25, 50, 100)  # growth in percent; at higher rates, the stock would always recover
_DRAWS = 50  # maximum number of attempts to draw an instance
_NUMBERS = re.compile(r"[0-9]+")
_TASK = re.compile(
    r"You are (?P<seat>player_[01])\.\nRounds: [0-9]+\n(?:Stock: (?P<stock>[0-9]+)\n)?"
    r"Largest stock: (?P<capacity>[0-9]+)\nLimit per round: (?P<limit>[0-9]+)\n"
    r"Growth after each round in %: (?P<growth>[0-9, ]+)\n"
    r"(?:Rule: .*\nTarget: .* (?P<target>[0-9]+) units)?"
)
_LINE = re.compile(
    r"Round (?P<round>[0-9]+): player_0 took (?P<first>[0-9]+), player_1 took (?P<second>[0-9]+)\. "
    r"Stock: (?P<stock>[0-9]+)"
)
_STATE = re.compile(
    r"Rounds played: (?P<round>[0-9]+)\nStock: (?P<stock>[0-9]+)\n"
    r"Taken: player_0 (?P<first>[0-9]+), player_1 (?P<second>[0-9]+)"
    r"(?:\nNext demand of player_[01]: (?P<demand>[0-9]+))?"
)

Opponent = Literal["imitator", "grudger", "greedy"]


@dataclass(frozen=True, kw_only=True)
class CommonsConfig(TurnBudget):
    """Options of CommonsWorld.

    Attributes:
        rounds: The number of rounds.
        limit: The maximum number of units that a player may take in a round.
        capacity: The largest stock.
        opponent: The rule of the scripted player: `imitator` demands what the agent took last,
            `grudger` demands half of the limit until the agent takes more, and `greedy` demands the
            limit.
    """

    rounds: Annotated[int, Field(ge=2, le=_MAX_ROUNDS)] = 8
    limit: Annotated[int, Field(ge=1, le=20)] = 6
    capacity: Annotated[int, Field(ge=4, le=200)] = 24
    opponent: Opponent = "imitator"


class Commons(NamedTuple):
    """The dynamics of an instance; `growth` lists the growth after each round in percent."""

    growth: tuple[int, ...]
    capacity: int
    limit: int
    rule: Opponent

    @property
    def rounds(self) -> int:
        return len(self.growth)

    def most(self, stock: int) -> int:
        """Return the maximum number of units that a player may take."""
        return min(self.limit, stock // 2)

    def next_stock(self, number: int, stock: int, taken: int) -> int:
        """Return the stock after round `number` (from 0), given the total taken."""
        left = stock - taken - taken % 2
        return min(self.capacity, left + left * self.growth[number] // 100)

    def first_demand(self) -> int:
        """Return the scripted player's demand in the first round."""
        return self.limit if self.rule == "greedy" else max(1, self.limit // 2)

    def next_demand(self, demand: int, take: int) -> int:
        """Return the scripted player's demand after the agent takes `take` units."""
        if self.rule == "imitator":
            return take
        if self.rule == "grudger" and take > demand:
            return self.limit
        return demand

    def after(self, number: int, stock: int, demand: int, take: int) -> tuple[int, int]:
        """Return the stock and the next demand after a round against the scripted player."""
        other = min(demand, self.most(stock))
        return self.next_stock(number, stock, take + other), self.next_demand(demand, take)


@lru_cache(maxsize=64)
def best_totals(game: Commons) -> list[dict[tuple[int, int], int]]:
    """Return the maximum total that a player can still take against the scripted player.

    Each round has a dict that maps (stock, scripted player's demand) to the maximum total.
    """
    pairs = list(product(range(game.capacity + 1), range(game.limit + 1)))
    totals = [dict.fromkeys(pairs, 0)]
    for number in reversed(range(game.rounds)):
        later, now = totals[-1], {}
        for stock, demand in pairs:
            values = []
            for take in range(game.most(stock) + 1):
                values.append(take + later[game.after(number, stock, demand, take)])
            now[stock, demand] = max(values)
        totals.append(now)
    return totals[::-1]


@lru_cache(maxsize=64)
def equilibrium(game: Commons) -> tuple[list[list[int]], list[list[int]]]:
    """Return the best symmetric subgame-perfect equilibrium in pure strategies.

    The lists contain each player's take in a round, and the total that each gets from this round
    on, indexed by round and stock. The stock loses an extra unit if the sum of the takes is odd, so
    one player's extra unit costs the stock two units. Hence every x that maximises
    2x + V(stock after both take x) is an equilibrium of a round.
    """
    later = [0] * (game.capacity + 1)
    takes, values = [], [later]
    for number in reversed(range(game.rounds)):
        now, chosen = [], []
        for stock in range(game.capacity + 1):
            best = take = future = -1
            for x in range(game.most(stock) + 1):
                left = later[game.next_stock(number, stock, 2 * x)]
                # If several x are equally good, prefer the smallest, which leaves the largest
                # stock.
                if 2 * x + left > best:
                    best, take, future = 2 * x + left, x, left
            chosen.append(take)
            now.append(take + future)
        takes.append(chosen)
        values.append(now)
        later = now
    return takes[::-1], values[::-1]


class CommonsWorld(GameWorld[CommonsConfig]):
    """Share a stock with another player over several rounds and take as much as possible.

    Both players take units at the same time, and the remaining stock grows. A single agent plays
    against a known rule and must reach the largest possible total. In a match, each agent earns its
    total divided by its equilibrium total: 1.0 for equilibrium play, and more if both players take
    less.
    """

    Config = CommonsConfig
    texts = _TEXTS
    move_call = ("take", "units")
    task_format, situation_format, line_format = _TASK, _STATE, _LINE

    def generate(self) -> None:
        """Draw an instance that, if possible, cannot be solved by taking a constant amount."""
        config, rng = self.config, self.rng
        for _ in range(_DRAWS):
            growth = tuple(rng.choice(_GROWTH, size=config.rounds).tolist())
            game = Commons(growth, config.capacity, config.limit, config.opponent)
            self._start(game, int(rng.integers(config.capacity // 2, config.capacity + 1)))
            self.target = self._best(self.stock, self.demand, 0)
            constants = map(self._constant, range(config.limit + 1))
            if self.target > max(constants):
                break
        self.max_turns = config.budget(config.rounds)

    def _start(self, game: Commons, stock: int) -> None:
        self.game, self.stock, self.round = game, stock, 0
        self._first = stock
        self.demand, self.target = game.first_demand(), 0
        self.totals = dict.fromkeys(self.players, 0)

    def _constant(self, amount: int) -> int:
        stock, demand, total = self.stock, self.demand, 0
        for number in range(self.game.rounds):
            take = min(amount, self.game.most(stock))
            stock, demand = self.game.after(number, stock, demand, take)
            total += take
        return total

    def _best(self, stock: int, demand: int, number: int, turns: int = _MAX_ROUNDS) -> int:
        growth = self.game.growth[: number + turns]
        return best_totals(self.game._replace(growth=growth))[number][stock, demand]

    @property
    def fair(self) -> int:
        _, values = equilibrium(self.game)
        return values[0][self._first]

    def instance_key(self) -> str:
        return digest([*self.game, self._first])

    def task(self) -> str:
        return f"{self._task([f'Stock: {self.stock}'])}\nTurn budget: {self.max_turns}"

    def restate(self) -> str:
        return self._task([])

    def _task(self, stock: Sequence[str]) -> str:
        game = self.game
        growth = ", ".join(map(str, game.growth))
        lines = [
            f"You are {self.seat}.",
            f"Rounds: {game.rounds}",
            *stock,
            f"Largest stock: {game.capacity}",
            f"Limit per round: {game.limit}",
            f"Growth after each round in %: {growth}",
        ]
        if self.in_match:
            lines.append(_TEXTS["match"].format(other=self.other, value=self.fair))
        else:
            rule = _TEXTS[game.rule].format(other=self.other)
            demand = game.first_demand()
            lines.append(_TEXTS["alone"].format(rule=rule, demand=demand, target=self.target))
        return "\n".join(lines)

    @tool
    def take(self, units: int) -> str:
        """Take units from the stock. The other player takes in the same round.

        Args:
            units: The number of units, from 0 to the most that you may take now.
        """
        most = self.game.most(self.stock)
        if not 0 <= units <= most:
            raise ToolError(f"units must be from 0 to {most} in this round, got {echo(units)}")
        return self.make_move(units)

    def movers(self) -> Sequence[str]:
        return self.players

    def play(self, moves: Mapping[str, Move]) -> str:
        takes = {player: int(moves[player]) for player in self.players}
        for player, units in takes.items():
            self.totals[player] += units
        self.stock = self.game.next_stock(self.round, self.stock, sum(takes.values()))
        self.demand = self.game.next_demand(self.demand, takes[self.seat])
        self.round += 1
        self.done = self.stock == 0 or self.round == self.game.rounds
        took = ", ".join(f"{player} took {units}" for player, units in takes.items())
        return f"Round {self.round}: {took}. Stock: {self.stock}"

    def read_move(self, found: re.Match[str]) -> None:
        takes = self.by_player(map(int, found.group("first", "second")))
        demand = self.game.next_demand(self.demand, takes[self.seat])
        self._set(int(found["round"]), int(found["stock"]), demand)
        for player, units in takes.items():
            self.totals[player] += units

    def _set(self, number: int, stock: int, demand: int) -> None:
        game = self.game
        if number > game.rounds or stock > game.capacity or demand > game.limit:
            raise ValueError(
                f"the task has no round {number} with stock {stock} and demand {demand}"
            )
        self.round, self.stock, self.demand = number, stock, demand
        self.done = stock == 0 or number == game.rounds

    def scripted_move(self, player: str) -> Move:
        return min(self.demand, self.game.most(self.stock))

    def payoff(self) -> float:
        return self.totals[self.seat] / self.fair

    def has_won(self) -> bool:
        return self.totals[self.seat] >= self.target

    def report(self) -> Mapping[str, Any]:
        """Return both players' totals, and the equilibrium total."""
        return {"totals": dict(self.totals), "equilibrium": self.fair}

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        check_int("horizon", steps, 2, _MAX_ROUNDS)
        return {"rounds": steps}

    def best_moves(self) -> Collection[Move]:
        if self.in_match:
            return [equilibrium(self.game)[0][self.round][self.stock]]
        missing = self.target - self.totals[self.seat]
        turns = self.known_turns - 1
        good = []
        for take in self.legal_moves():
            after = self.game.after(self.round, self.stock, self.demand, take)
            if take + self._best(*after, self.round + 1, turns) >= missing:
                good.append(take)
        return good

    def legal_moves(self) -> Collection[int]:
        return range(self.game.most(self.stock) + 1)

    def action_catalog(self) -> Sequence[ToolCall]:
        return self.calls(range(self.config.limit + 1))

    def features(self) -> NDArray[np.float32]:
        """Return float32 features in [-1, 1], shape `(rounds + 5,)`.

        The features are: the stock, the other player's next demand, the rounds played, this
        player's progress towards the target, the turns left as a share of the rounds, and the
        growth rates of the remaining rounds (padded with -1).
        """
        config, rounds = self.config, self.game.rounds
        shares = (
            self.stock / config.capacity,
            self.demand / config.limit,
            self.round / rounds,
            share(self.totals[self.seat], self.target),
            share(self.turns_left, rounds),
        )
        growth = np.full(rounds, -1.0)
        coming = self.game.growth[self.round :]
        growth[: len(coming)] = np.divide(coming, max(_GROWTH))
        return as_row(shares, growth)

    def situation(self) -> str:
        taken = ", ".join(f"{player} {units}" for player, units in self.totals.items())
        lines = [f"Rounds played: {self.round}", f"Stock: {self.stock}", f"Taken: {taken}"]
        if not self.in_match:
            lines.append(f"Next demand of {self.other}: {self.demand}")
        return "\n".join(lines)

    def read_instance(self, found: re.Match[str]) -> None:
        rules: tuple[Opponent, ...] = ("imitator", "grudger")
        known = (rule for rule in rules if _TEXTS[rule].partition("}")[2] in found.string)
        rule: Opponent = next(known, "greedy")
        growth = tuple(map(int, _NUMBERS.findall(found["growth"])))
        game = Commons(growth, int(found["capacity"]), int(found["limit"]), rule)
        self._start(game, int(found["stock"] or 0))
        self.target = int(found["target"] or 0)

    def read_situation(self, found: re.Match[str]) -> None:
        self._set(int(found["round"]), int(found["stock"]), int(found["demand"] or 0))
        self.totals = self.by_player(map(int, found.group("first", "second")))
