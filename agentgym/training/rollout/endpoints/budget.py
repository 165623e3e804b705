"""Cost limit for requests."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from agentgym.play.policy import PolicyError
from agentgym.training.rollout.endpoints.config import EndpointOptions
from agentgym.training.rollout.storage import append_bytes
from agentgym.training.rollout.token_usage import EndpointUsage

# Seconds between budget checks of a waiting request.
_POLL_S = 0.02
# Read only whole records, because a killed writer may leave an incomplete record.
_RECORD = struct.Struct("<d")


class BudgetError(PolicyError):
    """Error raised when the budget is spent; no more requests are sent."""

    fatal = True


class RequestBudget:
    """Limit on the total cost of requests.

    The budget is spent when the remaining money is less than the most expensive request so far. The
    first request is sent alone, because its cost is unknown.
    """

    def __init__(self, config: EndpointOptions) -> None:
        self._limit = config.max_cost
        self._prices = config.prompt_price, config.reply_price
        self._ledger = Path(config.ledger) if config.ledger else None
        self._spent = self._dearest = 0.0
        self._in_flight = self._read = 0
        self._stopped = ""

    @asynccontextmanager
    async def reserve(self) -> AsyncIterator[Callable[[EndpointUsage], None]]:
        """Wait until the budget admits a request, and yield a function that records the request's
        cost.

        Raises:
            BudgetError: The budget is spent.
        """
        while self._limit is not None and not self._fits(self._limit):
            await asyncio.sleep(_POLL_S)
        self._in_flight += 1
        try:
            yield self._pay
        finally:
            self._in_flight -= 1

    def _fits(self, limit: float) -> bool:
        self._read_ledger()
        if self._spent >= limit or (self._spent + self._dearest > limit and not self._in_flight):
            self._stopped = self._stopped or (
                f"the budget is spent: {self._spent:.6g} of max_cost {limit:g}, and a request "
                f"costs up to {self._dearest:.3g}; raise max_cost to play the rest"
            )
        if self._stopped:
            raise BudgetError(self._stopped)
        if not self._dearest:
            return not self._in_flight
        return self._spent + self._dearest * (1 + self._in_flight) <= limit

    def _pay(self, used: EndpointUsage) -> None:
        if self._limit is None:
            return
        if used.unmetered:
            self._stopped = (
                "the server reports no token counts, so max_cost cannot be checked; omit max_cost"
            )
            raise BudgetError(self._stopped)
        prompt, reply = self._prices
        cost = (used.prompt_tokens * prompt + used.completion_tokens * reply) / 1e6
        if self._ledger is None:
            self._record(cost)
            return
        self._ledger.parent.mkdir(parents=True, exist_ok=True)
        append_bytes(self._ledger, _RECORD.pack(cost))

    def _read_ledger(self) -> None:
        if self._ledger is None:
            return
        with suppress(FileNotFoundError), self._ledger.open("rb") as file:
            file.seek(self._read)
            while len(record := file.read(_RECORD.size)) == _RECORD.size:
                self._read += _RECORD.size
                self._record(*_RECORD.unpack(record))

    def _record(self, cost: float) -> None:
        self._spent += cost
        self._dearest = max(self._dearest, cost)
