"""Budget of requests in money."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agentgym.play.policy import PolicyError
from agentgym.training.rollout.token_usage import EndpointUsage

# How often a request looks whether those in flight have left it room.
_POLL_S = 0.02


class BudgetError(PolicyError):
    """The budget is spent, so no further request is sent."""

    fatal = True


class Budget:
    """Budget that admits a request only if it is expected to fit.

    A request is expected to cost as much as the dearest so far. The first one is sent alone,
    because nothing is known about its cost.

    Args:
        limit: The maximum cost; None for no limit.
        prompt_price: The price per million prompt tokens.
        reply_price: The price per million reply tokens.
        ledger: The file that sums the cost over processes and runs; None counts in memory.
    """

    def __init__(
        self,
        limit: float | None,
        prompt_price: float = 0.0,
        reply_price: float = 0.0,
        ledger: Path | None = None,
    ) -> None:
        self.limit, self._prices, self._ledger = limit, (prompt_price, reply_price), ledger
        self._spent = self._dearest = 0.0
        self._in_flight = 0

    @classmethod
    def of(cls, config: Any) -> Budget:
        """Return the budget in an endpoint's options; without a limit if they have none."""
        if getattr(config, "max_cost", None) is None:
            return cls(None)
        ledger = Path(config.ledger) if config.ledger else None
        return cls(config.max_cost, config.prompt_price, config.reply_price, ledger)

    @property
    def spent(self) -> float:
        """Return the cost so far."""
        if self._ledger is None or not self._ledger.exists():
            return self._spent
        data = self._ledger.read_bytes()
        whole = len(data) // 8 * 8  # a killed writer may leave a part
        return sum(cost for (cost,) in struct.iter_unpack("<d", data[:whole]))

    @asynccontextmanager
    async def reserve(self) -> AsyncIterator[Callable[[EndpointUsage], None]]:
        """Wait until a request fits, and yield the function that pays for it.

        Raises:
            BudgetError: It will not fit.
        """
        while self.limit is not None and not self._fits(self.limit):
            await asyncio.sleep(_POLL_S)
        self._in_flight += 1
        try:
            yield self._pay
        finally:
            self._in_flight -= 1

    def _fits(self, limit: float) -> bool:
        spent = self.spent
        if spent >= limit or (spent + self._dearest > limit and not self._in_flight):
            raise BudgetError(
                f"the budget is spent: {spent:.6g} of max_cost {limit:g}, and a request costs up "
                f"to {self._dearest:.3g}; raise max_cost to play the rest"
            )
        if not self._dearest:
            return not self._in_flight
        return spent + self._dearest * (1 + self._in_flight) <= limit

    def _pay(self, used: EndpointUsage) -> None:
        if self.limit is None:
            return
        if used.unmetered:
            raise BudgetError(
                "the server reports no token counts, so max_cost cannot be checked; omit max_cost"
            )
        tokens = used.prompt_tokens, used.completion_tokens
        cost = (tokens[0] * self._prices[0] + tokens[1] * self._prices[1]) / 1e6
        self._dearest = max(self._dearest, cost)
        self._spent += cost
        if self._ledger is not None:
            self._ledger.parent.mkdir(parents=True, exist_ok=True)
            with self._ledger.open("ab", buffering=0) as file:
                file.write(struct.pack("<d", cost))
