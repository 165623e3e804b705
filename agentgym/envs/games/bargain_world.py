"""BargainWorld: two players with different values divide items by alternating offers.

The game combines Rubinstein's bargaining ("Perfect equilibrium in a bargaining model", Econometrica
50, 1982) with a deadline and with the indivisible items and private values of "Deal or no deal"
(Lewis et al., EMNLP 2017).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agentgym.envs.games.bargaining import (
    KINDS,
    MAX_DEALS,
    NOTHING,
    Bargain,
    Items,
    Types,
    add,
    agreements,
    call_for,
    describe,
    divisions,
    equilibrium_worths,
    guarantee,
    read_items,
    reserve,
    rest,
    to_items,
    worth,
)
from agentgym.envs.games.game import TEXTS, GameWorld, as_row, share
from agentgym.text.messages import ToolCall
from agentgym.text.tools import ToolError, tool
from agentgym.text.validation import check_int
from agentgym.world.digests import digest
from agentgym.world.seated import Move
from agentgym.world.turn_budget import TurnBudget

_MOST_ITEMS = 4  # maximum number of items of each kind in a deal
_MOST_VALUE = 9
_DRAWS = 50  # maximum number of attempts to draw an instance
_TEXTS = TEXTS["bargain"]
_TYPES = "ABCD"
_ITEMS = r"books [0-9]+, hats [0-9]+, balls [0-9]+"
_HELD = rf"Held: player_0 ({_ITEMS}); player_1 ({_ITEMS})"
_TASK = re.compile(
    r"You are (?P<seat>\w+)\.\nOffers per deal: (?P<offers>[0-9]+)\nItems of each deal: (?P<pools>.*)\n"
    r"Your values: (?P<mine>.*)\n(?:Values|Possible values) of player_[01]: (?P<types>.*)\n"
    r"(?:Rule: .*? (?P<demand>[0-9]+) %.*\nTarget: [^0-9]*(?P<target>[0-9]+))?"
)
_LINE = re.compile(
    rf"Deal ([0-9]+), offer ([0-9]+): player_[01] keeps ({_ITEMS})\."
    rf"(?: player_[01] (accept|reject)s\. {_HELD})?"
)
_SITUATION = re.compile(
    rf"Deal: ([0-9]+) of .*\nOffer: ([0-9]+) of .*\nOn the table: .*\n"
    rf"Open offer: (?:none|player_[01] keeps ({_ITEMS}))\n{_HELD}(?:\nplayer_[01] may be: ([A-Z, ]+))?"
)


@dataclass(frozen=True, kw_only=True)
class BargainConfig(TurnBudget):
    """Options of BargainWorld.

    Attributes:
        deals: The number of deals.
        offers: The maximum number of offers per deal.
        types: The number of candidates for the other player's values.
        demand: The percentage of each deal's value that the scripted player demands.
    """

    deals: Annotated[int, Field(ge=2, le=MAX_DEALS)] = 6
    offers: Annotated[int, Field(ge=1, le=4)] = 3
    types: Annotated[int, Field(ge=1, le=4)] = 3
    demand: Annotated[int, Field(ge=1, le=90)] = 40


class BargainWorld(GameWorld[BargainConfig]):
    """Divide items with another player in several deals, by alternating offers.

    A single agent knows the other player's strategy and a few candidates for that player's values.
    The goal is the largest total that the agent can guarantee. In a match, both agents know all
    values, and each earns its total divided by its total in the subgame-perfect equilibrium.
    """

    Config = BargainConfig
    texts = _TEXTS
    possible: Types
    task_format, situation_format, line_format = _TASK, _SITUATION, _LINE

    def generate(self) -> None:
        """Draw an instance that, if possible, lets both players gain."""
        config, rng = self.config, self.rng
        for _ in range(_DRAWS):
            pools = to_items(rng.integers(1, _MOST_ITEMS + 1, size=(config.deals, 3)))
            mine, *types = to_items(rng.integers(1, _MOST_VALUE + 1, size=(config.types + 1, 3)))
            game = Bargain(pools, config.offers, mine, tuple(types), config.demand)
            self._start(game)
            theirs = types[int(rng.integers(config.types))]
            self.values = self.by_player([mine, theirs])
            self.worths = self.by_player(equilibrium_worths(game, (mine, theirs)))
            self.target = guarantee(game).value(0, 0, self.possible, MAX_DEALS * config.offers)
            least = min(self.target, *self.worths.values())
            if least > 0 and len(set(types)) == len(types):
                break
        self.max_turns = config.budget(config.deals * config.offers)

    def _start(self, game: Bargain) -> None:
        self.game, self.deal, self.offers_made, self.target = game, 0, 0, 0
        self.open: Items | None = None
        self.held = dict.fromkeys(self.players, NOTHING)
        self.possible = frozenset(range(len(game.types)))

    def join(self, seat: str) -> None:
        super().join(seat)
        theirs = self.values[self.other]
        self.game = self.game._replace(mine=self.values[seat], types=(theirs,))
        self.possible = frozenset([0])

    @property
    def pool(self) -> Items:
        """The items on the table; none after the last deal."""
        return NOTHING if self.done else self.game.pool(self.deal, self.offers_made)

    @property
    def earned(self) -> int:
        return worth(self.game.mine, self.held[self.seat])

    @property
    def offerer(self) -> str:
        return self.players[(self.deal + self.offers_made) % 2]

    def instance_key(self) -> str:
        return digest([*self.game, self.values])

    def restate(self) -> str:
        game = self.game
        types = list(map(describe, game.types))
        pools = "; ".join(map(describe, game.pools))
        if self.in_match:
            fair = self.worths[self.seat]
            goal = _TEXTS["match"].format(other=self.other, values=types[0], value=fair)
        else:
            named = "; ".join(f"{name}: {text}" for name, text in zip(_TYPES, types, strict=False))
            goal = _TEXTS["alone"].format(
                other=self.other, values=named, demand=game.demand, target=self.target
            )
        return (
            f"You are {self.seat}.\nOffers per deal: {game.offers}\nItems of each deal: {pools}\n"
            f"Your values: {describe(game.mine)}\n{goal}"
        )

    def situation(self) -> str:
        game, offer = self.game, "none"
        if self.open is not None:
            offer = f"{self.offerer} keeps {describe(self.open)}"
        lines = [
            f"Deal: {self.deal + 1} of {len(game.pools)}",
            f"Offer: {self.offers_made + 1} of {game.offers}",
            f"On the table: {describe(self.pool)}",
            f"Open offer: {offer}",
            self._held(),
        ]
        if not self.in_match:
            names = ", ".join(_TYPES[number] for number in sorted(self.possible))
            lines.append(f"{self.other} may be: {names}")
        return "\n".join(lines)

    def _held(self) -> str:
        held = [f"{player} {describe(items)}" for player, items in self.held.items()]
        return f"Held: {'; '.join(held)}"

    @tool
    def propose(self, books: int, hats: int, balls: int) -> str:
        """Propose a division: you keep these items, and the other player gets the rest.

        Args:
            books: The number of books that you keep.
            hats: The number of hats that you keep.
            balls: The number of balls that you keep.
        """
        if self.open is not None:
            raise ToolError("there is an open offer; accept or reject it first")
        kept = (books, hats, balls)
        if min(kept) < 0 or min(rest(self.pool, kept)) < 0:
            raise ToolError(
                f"each number must be from 0 to the number on the table: {describe(self.pool)}"
            )
        return self.make_move(describe(kept))

    @tool
    def accept(self) -> str:
        """Accept the open offer."""
        return self._answer_with("accept")

    @tool
    def reject(self) -> str:
        """Reject the open offer."""
        return self._answer_with("reject")

    def _answer_with(self, answer: str) -> str:
        if self.open is None:
            raise ToolError("there is no open offer; propose a division")
        return self.make_move(answer)

    def movers(self) -> Sequence[str]:
        moves = self.deal + self.offers_made + (self.open is not None)
        return (self.players[moves % 2],)

    def play(self, moves: Mapping[str, Move]) -> str:
        ((player, move),) = moves.items()
        answered = move in ("accept", "reject")
        if not answered:
            self._make_offer(read_items(str(move))[0])
        kept = describe(self.open or NOTHING)
        line = f"Deal {self.deal + 1}, offer {self.offers_made + 1}: {self.offerer} keeps {kept}."
        if not answered:
            return line
        self._answer(str(move))
        return f"{line} {player} {move}s. {self._held()}"

    def _make_offer(self, kept: Items) -> None:
        if min(rest(self.pool, kept)) < 0:
            raise ValueError(f"cannot offer {describe(kept)}, which is more than the table has")
        self.open = kept
        if self.offerer != self.seat:
            self._learn(self.game.offering(self.pool).get(kept, frozenset()))

    def _answer(self, answer: str) -> None:
        game, pool, offerer = self.game, self.pool, self.offerer
        kept = self.open or NOTHING
        if offerer == self.seat:
            accepting = game.accepting(pool, kept)
            self._learn(accepting if answer == "accept" else self.possible - accepting)
        if answer == "accept":
            for player in self.players:
                got = kept if player == offerer else rest(pool, kept)
                self.held[player] = add(self.held[player], got)
            self.deal, self.offers_made = self.deal + 1, 0
        else:
            self.deal, self.offers_made = game.next_offer(self.deal, self.offers_made)
        self.open, self.done = None, self.deal == len(game.pools)

    def _learn(self, types: Types) -> None:
        """Keep only the candidate types that would have made the other player's last move."""
        if self.in_match:
            return
        if not self.possible & types:
            raise ValueError(f"this move is inconsistent with all possible values of {self.other}")
        self.possible &= types

    def _place(self, deal: int, offer: int) -> None:
        last = len(self.game.pools)
        is_open = 0 <= deal < last and 0 <= offer < self.game.offers
        if not is_open and (deal, offer) != (last, 0):
            raise ValueError(f"the task has no deal {deal + 1}, offer {offer + 1}")
        self.deal, self.offers_made, self.done = deal, offer, deal == last

    def read_move(self, found: re.Match[str]) -> None:
        deal, offer, kept, answer, *held = found.groups()
        self._place(int(deal) - 1, int(offer) - 1)
        self._make_offer(read_items(kept)[0])
        if answer:
            self._answer(answer)
            self._read_held(*held)

    def _read_held(self, *held: str) -> None:
        self.held = self.by_player(read_items("; ".join(held)))

    def scripted_move(self, player: str) -> Move:
        values, pool = self.values[player], self.pool
        if self.open is None:
            return describe(self.game.scripted_offer(values, pool))
        accepts = self.game.accepts(values, pool, rest(pool, self.open))
        return "accept" if accepts else "reject"

    def payoff(self) -> float:
        return self.earned / self.worths[self.seat]

    def has_won(self) -> bool:
        return self.earned >= self.target

    def report(self) -> Mapping[str, Any]:
        """Return the value of each player's items, and each player's equilibrium total."""
        worths = {name: worth(self.values[name], items) for name, items in self.held.items()}
        return {"worths": worths, "equilibrium": dict(self.worths)}

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        check_int("horizon", steps, 3, 39)
        return {"deals": max(2, round(steps / 1.3))}

    def best_moves(self) -> Collection[Move]:
        return self._equilibrium_moves() if self.in_match else self._guaranteed_moves()

    def _guaranteed_moves(self) -> Collection[Move]:
        solver, possible, turns = guarantee(self.game), self.possible, self.known_turns
        at = (self.deal, self.offers_made, possible, turns)
        missing = self.target - self.earned
        if self.open is None:
            values = {}
            for kept in divisions(self.pool):
                values[describe(kept)] = solver.if_offered(*at, kept)
        else:
            accepted = solver.if_accepted(*at, self.open)
            values = {"accept": accepted, "reject": solver.if_rejected(*at)}
        return [move for move, value in values.items() if value >= missing]

    def _equilibrium_moves(self) -> Collection[Move]:
        left = self.game.offers - self.offers_made
        mine, theirs = self.game.mine, self.game.types[0]
        if self.open is None:
            return list(map(describe, agreements(self.pool, left, mine, theirs)))
        least = reserve(self.pool, left, theirs, mine)
        return ["accept" if worth(mine, rest(self.pool, self.open)) >= least else "reject"]

    def legal_moves(self) -> Collection[Move]:
        if self.open is not None:
            return ["accept", "reject"]
        return list(map(describe, divisions(self.pool)))

    def calls(self, moves: Collection[Move]) -> Sequence[ToolCall]:
        return tuple(call_for(str(move)) for move in moves)

    def action_catalog(self) -> Sequence[ToolCall]:
        """Return calls to accept, to reject, and to propose any division of the largest deal."""
        most = (_MOST_ITEMS, _MOST_ITEMS, _MOST_ITEMS)
        return self.calls(["accept", "reject", *map(describe, divisions(most))])

    def features(self) -> NDArray[np.float32]:
        """Return float32 features in [-1, 1], shape `(3 * deals + 3 * types + 14,)`.

        The features are: the items of each deal (-1 for past deals), the other player's possible
        values (-1 for excluded types), this player's values, the items on the table, the open offer
        (-1 if none), the progress through deals and offers and towards the target, the turns
        left as a share of `deals * offers`, and whether an offer is open.
        """
        game, config = self.game, self.config
        pools = np.full((config.deals, 3), -1.0)
        pools[self.deal :] = np.divide(game.pools, _MOST_ITEMS)[self.deal :]
        types = np.full((config.types, 3), -1.0)
        for number in self.possible:
            types[number] = np.divide(game.types[number], _MOST_VALUE)
        offer = (-_MOST_ITEMS,) * 3 if self.open is None else self.open
        shares = (
            self.deal / config.deals,
            self.offers_made / config.offers,
            share(self.earned, self.target),
            share(self.turns_left, config.deals * config.offers),
            self.open is not None,
        )
        mine = np.divide(game.mine, _MOST_VALUE)
        table = np.divide([self.pool, offer], _MOST_ITEMS)
        return as_row(pools, types, mine, table, shares)

    def subtask_for(self, call: ToolCall, with_state: bool) -> str:
        if call.name != "propose":
            return f"{call.name.capitalize()} the offer."
        kept = [f"{kind} {call.arguments[kind]}" for kind in KINDS]
        return _TEXTS["plan"].format(", ".join(kept))

    def read_subtask(self, subtask: str) -> ToolCall | None:
        if rows := read_items(subtask):
            return call_for(describe(rows[0]))
        answers = {"Accept the offer.": "accept", "Reject the offer.": "reject"}
        return call_for(answers[subtask]) if subtask in answers else None

    def read_instance(self, found: re.Match[str]) -> None:
        pools = tuple(read_items(found["pools"]))
        types = tuple(read_items(found["types"]))
        (mine,) = read_items(found["mine"])
        demand = int(found["demand"] or 0)
        self._start(Bargain(pools, int(found["offers"]), mine, types, demand))
        self.target = int(found["target"] or 0)

    def read_situation(self, found: re.Match[str]) -> None:
        deal, offer, kept, first, second, types = found.groups()
        self._place(int(deal) - 1, int(offer) - 1)
        self.open = read_items(kept)[0] if kept else None
        self._read_held(first, second)
        if types:
            names = types.split(", ")
            self.possible = frozenset(k for k in range(len(self.game.types)) if _TYPES[k] in names)
