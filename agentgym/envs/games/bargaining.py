"""Exact solutions of bargaining games: guaranteed totals and subgame-perfect equilibria."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentgym.text.messages import ToolCall

Items = tuple[int, int, int]  # the counts or the values of books, hats and balls
Types = frozenset[int]

KINDS = ("books", "hats", "balls")
NOTHING: Items = (0, 0, 0)
_ONE_OF_KIND: tuple[Items, ...] = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
MAX_DEALS = 30  # limits the recursion depth
_ITEMS = re.compile(r"books ([0-9]+), hats ([0-9]+), balls ([0-9]+)")


def describe(items: Items) -> str:
    """Format item counts or item values as text."""
    return "books {}, hats {}, balls {}".format(*items)


def read_items(text: str) -> list[Items]:
    """Parse all item counts in a text written by `describe`."""
    return [(int(books), int(hats), int(balls)) for books, hats, balls in _ITEMS.findall(text)]


def call_for(move: str) -> ToolCall:
    """Return the tool call for an answer or an offer; `describe` defines the format of offers."""
    if move in ("accept", "reject"):
        return ToolCall(move, {})
    return ToolCall("propose", dict(zip(KINDS, read_items(move)[0], strict=True)))


def to_items(numbers: NDArray[np.int64]) -> tuple[Items, ...]:
    """Convert the rows of an array with shape (rows, 3) to item counts."""
    return tuple((books, hats, balls) for books, hats, balls in numbers.tolist())


def add(first: Items, second: Items) -> Items:
    """Add two item counts."""
    return (first[0] + second[0], first[1] + second[1], first[2] + second[2])


def worth(values: Items, items: Items) -> int:
    """Return the total value of the items."""
    return values[0] * items[0] + values[1] * items[1] + values[2] * items[2]


def rest(pool: Items, kept: Items) -> Items:
    """Return the items of a pool that are not kept."""
    return (pool[0] - kept[0], pool[1] - kept[1], pool[2] - kept[2])


def divisions(pool: Items) -> Iterator[Items]:
    """Yield every division that a player may propose, starting with the whole pool."""
    books, hats, balls = (range(count, -1, -1) for count in pool)
    return product(books, hats, balls)


def shrink(pool: Items) -> Items:
    """Return the pool after a rejection, which removes one item of the most numerous kind."""
    counts = list(pool)
    first = counts.index(max(counts))
    counts[first] = max(0, counts[first] - 1)
    return (counts[0], counts[1], counts[2])


class Bargain(NamedTuple):
    """A bargaining instance from one player's point of view.

    `offers` is the maximum number of offers per deal. The scripted player demands `demand` percent
    of the total value.
    """

    pools: tuple[Items, ...]
    offers: int
    mine: Items
    types: tuple[Items, ...]
    demand: int

    def pool(self, deal: int, offer: int) -> Items:
        """Return the items on the table when an offer is made."""
        pool = self.pools[deal]
        for _ in range(offer):
            pool = shrink(pool)
        return pool

    def next_offer(self, deal: int, offer: int) -> tuple[int, int]:
        """Return the deal and offer indices that follow a rejected offer."""
        if offer + 1 < self.offers:
            return deal, offer + 1
        return deal + 1, 0

    def accepts(self, values: Items, pool: Items, gets: Items) -> bool:
        """Return whether the scripted player accepts a share of a pool."""
        return 100 * worth(values, gets) >= self.demand * worth(values, pool)

    def scripted_offer(self, values: Items, pool: Items) -> Items:
        """Return a share that meets the demand, adding the most valued items first."""
        kept = NOTHING
        for kind in sorted(range(3), key=lambda kind: -values[kind]):
            while kept[kind] < pool[kind] and not self.accepts(values, pool, kept):
                kept = add(kept, _ONE_OF_KIND[kind])
        return kept

    def accepting(self, pool: Items, kept: Items) -> Types:
        """Return the types of scripted player that accept the agent's offer."""
        gets = rest(pool, kept)
        return frozenset(k for k, each in enumerate(self.types) if self.accepts(each, pool, gets))

    def offering(self, pool: Items) -> dict[Items, Types]:
        """Group the types of scripted player by the share that each would keep."""
        found: dict[Items, set[int]] = defaultdict(set)
        for number, values in enumerate(self.types):
            found[self.scripted_offer(values, pool)].add(number)
        return {kept: frozenset(types) for kept, types in found.items()}


class Guarantee:
    """The largest total that the agent can still guarantee against every type of opponent.

    The totals are computed by backward induction over deals, offers, possible types and turns. Each
    offer takes one turn, whether the agent makes or answers the offer.
    """

    def __init__(self, game: Bargain) -> None:
        self.game = game
        self._values: dict[tuple[int, int, Types, int], int] = {}
        self._gains_from = cache(self._find_gains)
        self._offers_for = cache(game.offering)
        numbers = range(len(game.types))
        # Start with the last deal, so that each recursion covers only one deal.
        for deal in reversed(range(len(game.pools))):
            for size in range(1, len(numbers) + 1):
                for types in combinations(numbers, size):
                    self.value(deal, 0, frozenset(types), MAX_DEALS * game.offers)

    def value(self, deal: int, offer: int, types: Types, turns: int) -> int:
        """Return the largest total that the agent can guarantee before an offer is made."""
        game = self.game
        turns = min(turns, (len(game.pools) - deal) * game.offers - offer)
        if turns <= 0:
            return 0
        key = (deal, offer, types, turns)
        if key not in self._values:
            if (deal + offer) % 2:
                self._values[key] = self._if_other_offers(*key)
            else:
                self._values[key] = self._if_agent_offers(*key)
        return self._values[key]

    def _if_agent_offers(self, deal: int, offer: int, types: Types, turns: int) -> int:
        gains = self._gains_from(self.game.pool(deal, offer))
        values = []
        for accepting, gain in gains.items():
            values.append(self._if_offered(deal, offer, types, turns, accepting, gain))
        return max(values)

    def _if_other_offers(self, deal: int, offer: int, types: Types, turns: int) -> int:
        pool, values = self.game.pool(deal, offer), []
        for kept, offering in self._offers_for(pool).items():
            if left := types & offering:
                accepted = self.if_accepted(deal, offer, left, turns, kept)
                values.append(max(accepted, self.if_rejected(deal, offer, left, turns)))
        return min(values)

    def _find_gains(self, pool: Items) -> dict[Types, int]:
        gains: dict[Types, int] = {}
        for kept in divisions(pool):
            types = self.game.accepting(pool, kept)
            gains[types] = max(gains.get(types, 0), worth(self.game.mine, kept))
        return gains

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
        """Return the guaranteed total after the agent's offer."""
        accepting = self.game.accepting(self.game.pool(deal, offer), kept)
        gain = worth(self.game.mine, kept)
        return self._if_offered(deal, offer, types, turns, accepting, gain)

    def if_accepted(self, deal: int, offer: int, types: Types, turns: int, kept: Items) -> int:
        """Return the guaranteed total if the agent accepts and the other player keeps `kept`."""
        gets = rest(self.game.pool(deal, offer), kept)
        return worth(self.game.mine, gets) + self.value(deal + 1, 0, types, turns - 1)

    def if_rejected(self, deal: int, offer: int, types: Types, turns: int) -> int:
        """Return the guaranteed total after either player rejects an offer."""
        return self.value(*self.game.next_offer(deal, offer), types, turns - 1)


guarantee = lru_cache(maxsize=16)(Guarantee)
"""Return a cached `Guarantee` for an instance."""


@lru_cache(maxsize=4096)
def agreements(pool: Items, offers: int, mine: Items, theirs: Items) -> list[Items]:
    """Return the shares that the next proposer can get in a subgame-perfect equilibrium.

    A player accepts any share that is at least as good as rejecting. The proposer maximises its own
    value, with ties broken in favour of the other player. `mine` and `theirs` are the values of the
    proposer and the other player.
    """
    least = reserve(pool, offers, mine, theirs)
    found: dict[tuple[int, int], list[Items]] = defaultdict(list)
    for kept in divisions(pool):
        left = worth(theirs, rest(pool, kept))
        if left >= least:
            found[worth(mine, kept), left].append(kept)
    return found[max(found)]


def reserve(pool: Items, offers: int, mine: Items, theirs: Items) -> int:
    """Return how much the receiver of the next offer can get by rejecting the offer."""
    if offers == 1:
        return 0
    kept = agreements(shrink(pool), offers - 1, theirs, mine)[0]
    return worth(theirs, kept)


def equilibrium_worths(game: Bargain, values: tuple[Items, Items]) -> list[int]:
    """Return both players' equilibrium totals over all deals."""
    totals = [0, 0]
    for deal, pool in enumerate(game.pools):
        first, second = deal % 2, (deal + 1) % 2
        kept = agreements(pool, game.offers, values[first], values[second])[0]
        totals[first] += worth(values[first], kept)
        totals[second] += worth(values[second], rest(pool, kept))
    return totals
