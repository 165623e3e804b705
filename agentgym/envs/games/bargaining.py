"""Exact values of bargaining: what one player can guarantee, and the equilibrium of a deal."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentgym.text.messages import ToolCall

Items = tuple[int, int, int]  # numbers of books, hats and balls, or their values
Types = frozenset[int]

KINDS = ("books", "hats", "balls")
MAX_DEALS = 30  # bounds the recursion, which may pass through all offers
_ITEMS = re.compile(r"books ([0-9]+), hats ([0-9]+), balls ([0-9]+)")


def describe(items: Items) -> str:
    """Return items, or their values, in words."""
    return ", ".join(f"{kind} {count}" for count, kind in zip(items, KINDS, strict=True))


def read_items(text: str) -> list[Items]:
    """Return all items that a text contains in the words of `describe`."""
    return [(int(books), int(hats), int(balls)) for books, hats, balls in _ITEMS.findall(text)]


def call_for(move: str) -> ToolCall:
    """Return the call that answers, or that makes an offer in the words of `describe`."""
    if move in ("accept", "reject"):
        return ToolCall(move, {})
    return ToolCall("propose", dict(zip(KINDS, read_items(move)[0], strict=True)))


def to_items(numbers: NDArray[np.int64]) -> tuple[Items, ...]:
    """Return the rows of an array with shape (rows, 3)."""
    return tuple((books, hats, balls) for books, hats, balls in numbers.tolist())


def add(first: Items, second: Items) -> Items:
    """Return the items that both players hold."""
    return (first[0] + second[0], first[1] + second[1], first[2] + second[2])


def worth(values: Items, items: Items) -> int:
    """Return the total value of the items."""
    return sum(value * count for value, count in zip(values, items, strict=True))


def rest(pool: Items, kept: Items) -> Items:
    """Return the items left in a pool."""
    return (pool[0] - kept[0], pool[1] - kept[1], pool[2] - kept[2])


def divisions(pool: Items) -> Iterator[Items]:
    """Yield every division that a player may propose, starting with the whole pool."""
    books, hats, balls = (range(count, -1, -1) for count in pool)
    return product(books, hats, balls)


def shrink(pool: Items) -> Items:
    """Return a pool after a rejection: the most numerous kind loses one item."""
    counts = list(pool)
    first = counts.index(max(counts))
    counts[first] = max(0, counts[first] - 1)
    return (counts[0], counts[1], counts[2])


class Bargain(NamedTuple):
    """An instance as one player knows it.

    `offers` is the maximum per deal, `demand` the share in percent that the scripted player wants.
    """

    pools: tuple[Items, ...]
    offers: int
    mine: Items
    types: tuple[Items, ...]
    demand: int

    def pool(self, deal: int, offer: int) -> Items:
        """Return the items on the table for an offer."""
        pool = self.pools[deal]
        for _ in range(offer):
            pool = shrink(pool)
        return pool

    def next_offer(self, deal: int, offer: int) -> tuple[int, int]:
        """Return the numbers of the deal and the offer after a rejection."""
        return (deal, offer + 1) if offer + 1 < self.offers else (deal + 1, 0)

    def accepts(self, values: Items, pool: Items, gets: Items) -> bool:
        """Report whether the scripted player accepts a share of a pool."""
        return 100 * worth(values, gets) >= self.demand * worth(values, pool)

    def scripted_offer(self, values: Items, pool: Items) -> Items:
        """Return the scripted player's share: its most valued items, until it accepts the share."""
        kept: Items = (0, 0, 0)
        for kind in sorted(range(3), key=lambda kind: -values[kind]):
            one: Items = (int(kind == 0), int(kind == 1), int(kind == 2))
            while kept[kind] < pool[kind] and not self.accepts(values, pool, kept):
                kept = add(kept, one)
        return kept

    def accepting(self, pool: Items, kept: Items) -> Types:
        """Return the types that accept the agent's offer."""
        gets = rest(pool, kept)
        return frozenset(k for k, each in enumerate(self.types) if self.accepts(each, pool, gets))

    def offering(self, pool: Items) -> dict[Items, Types]:
        """Group the types by the share that they would offer."""
        found: dict[Items, set[int]] = defaultdict(set)
        for number, values in enumerate(self.types):
            found[self.scripted_offer(values, pool)].add(number)
        return {kept: frozenset(types) for kept, types in found.items()}


class Guarantee:
    """The largest total that the agent can still guarantee against every type.

    Computed by backward induction over the deals, the offers, the types that are still possible,
    and the turns. Each offer takes one turn, whether the agent makes or answers it.
    """

    def __init__(self, game: Bargain) -> None:
        self.game = game
        self._values: dict[tuple[int, int, Types, int], int] = {}
        self._gains: dict[Items, dict[Types, int]] = {}
        self._offers: dict[Items, dict[Items, Types]] = {}
        numbers = range(len(game.types))
        # Start from the last deal, so the recursion never goes deeper than one deal.
        for deal in reversed(range(len(game.pools))):
            for size in range(1, len(numbers) + 1):
                for types in combinations(numbers, size):
                    self.value(deal, 0, frozenset(types), MAX_DEALS * game.offers)

    def value(self, deal: int, offer: int, types: Types, turns: int) -> int:
        """Return the largest total that is guaranteed before an offer."""
        game = self.game
        turns = min(turns, (len(game.pools) - deal) * game.offers - offer)
        if turns <= 0:
            return 0
        key = (deal, offer, types, turns)
        if key not in self._values:
            agents = (deal + offer) % 2 == 0
            self._values[key] = (
                self._if_agent_offers(*key) if agents else self._if_other_offers(*key)
            )
        return self._values[key]

    def _if_agent_offers(self, deal: int, offer: int, types: Types, turns: int) -> int:
        gains = self._gains_from(self.game.pool(deal, offer))
        values = []
        for accepting, gain in gains.items():
            values.append(self._if_offered(deal, offer, types, turns, accepting, gain))
        return max(values)

    def _if_other_offers(self, deal: int, offer: int, types: Types, turns: int) -> int:
        pool, values = self.game.pool(deal, offer), []
        if pool not in self._offers:
            self._offers[pool] = self.game.offering(pool)
        for kept, offering in self._offers[pool].items():
            if left := types & offering:
                accepted = self.if_accepted(deal, offer, left, turns, kept)
                values.append(max(accepted, self.if_rejected(deal, offer, left, turns)))
        return min(values)

    def _gains_from(self, pool: Items) -> dict[Types, int]:
        if pool not in self._gains:
            gains: dict[Types, int] = {}
            for kept in divisions(pool):
                types = self.game.accepting(pool, kept)
                gains[types] = max(gains.get(types, 0), worth(self.game.mine, kept))
            self._gains[pool] = gains
        return self._gains[pool]

    def _if_offered(
        self, deal: int, offer: int, types: Types, turns: int, accepting: Types, gain: int
    ) -> int:
        values = []
        if yes := types & accepting:
            values.append(gain + self.value(deal + 1, 0, yes, turns - 1))
        if no := types - accepting:
            values.append(self.if_rejected(deal, offer, no, turns))
        return min(values)

    def if_offered(self, deal: int, offer: int, types: Types, turns: int, kept: Items) -> int:
        """Return the guarantee after the agent's offer."""
        accepting = self.game.accepting(self.game.pool(deal, offer), kept)
        gain = worth(self.game.mine, kept)
        return self._if_offered(deal, offer, types, turns, accepting, gain)

    def if_accepted(self, deal: int, offer: int, types: Types, turns: int, kept: Items) -> int:
        """Return the guarantee if the agent accepts and the other player keeps `kept`."""
        gain = worth(self.game.mine, rest(self.game.pool(deal, offer), kept))
        return gain + self.value(deal + 1, 0, types, turns - 1)

    def if_rejected(self, deal: int, offer: int, types: Types, turns: int) -> int:
        """Return the guarantee after a rejection by either player."""
        return self.value(*self.game.next_offer(deal, offer), types, turns - 1)


@lru_cache(maxsize=16)
def guarantee(game: Bargain) -> Guarantee:
    """Return the guarantees of an instance."""
    return Guarantee(game)


@lru_cache(maxsize=4096)
def agreements(pool: Items, offers: int, mine: Items, theirs: Items) -> list[Items]:
    """Return the shares that the next proposer can get in a subgame-perfect equilibrium.

    A player accepts a share that is worth as much to it as rejecting, and offers the division that
    is best for itself; ties go to the one that is best for the other. `mine` are the offerer's
    values, `theirs` the other player's.
    """
    least = reserve(pool, offers, mine, theirs)
    found: dict[tuple[int, int], list[Items]] = defaultdict(list)
    for kept in divisions(pool):
        left = worth(theirs, rest(pool, kept))
        if left >= least:
            found[worth(mine, kept), left].append(kept)
    return found[max(found)]


def reserve(pool: Items, offers: int, mine: Items, theirs: Items) -> int:
    """Return what rejecting the next offer is worth to its receiver."""
    if offers == 1:
        return 0
    kept = agreements(shrink(pool), offers - 1, theirs, mine)[0]
    return worth(theirs, kept)


def equilibrium_worths(game: Bargain, values: tuple[Items, Items]) -> list[int]:
    """Return both players' totals in the equilibrium of all deals."""
    totals = [0, 0]
    for deal, pool in enumerate(game.pools):
        first, second = deal % 2, (deal + 1) % 2
        kept = agreements(pool, game.offers, values[first], values[second])[0]
        totals[first] += worth(values[first], kept)
        totals[second] += worth(values[second], rest(pool, kept))
    return totals
