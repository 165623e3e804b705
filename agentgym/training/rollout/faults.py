"""Errors of policies and episodes."""

from __future__ import annotations

from agentgym.play.policy import PolicyError

# Number of consecutive policy faults that stop a run; three are unlikely to be accidental.
IN_A_ROW = 3


class CollectionError(RuntimeError):
    """Many consecutive episodes failed."""


class PolicyFault(PolicyError):
    """A policy raised an exception or returned something other than replies.

    `trace` is the traceback from the policy's first frame; empty for a wrong return value.
    """

    def __init__(self, cause: str, trace: str = "") -> None:
        super().__init__(cause, trace)
        self.cause, self.trace = cause, trace

    def __str__(self) -> str:
        return self.cause


def describe(error: BaseException) -> str:
    """Format an error as one line."""
    if isinstance(error, PolicyFault):
        return error.cause
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class FaultStreak:
    """Detector of consecutive episodes that failed because of the policy."""

    def __init__(self) -> None:
        # Episodes are numbered as they start, so the number of slots does not affect detection.
        self._lost: set[int] = set()

    def add(self, number: int, fault: PolicyFault) -> None:
        """Record a failed episode; raise `CollectionError` at `IN_A_ROW` consecutive failures."""
        self._lost.add(number)
        first = last = number
        while first - 1 in self._lost:
            first -= 1
        while last + 1 in self._lost:
            last += 1
        if last - first + 1 >= IN_A_ROW:
            trace = f"\n{fault.trace}" if fault.trace else ""
            raise CollectionError(
                f"{IN_A_ROW} consecutive episodes failed because of the policy; the last failure: "
                f"{fault.cause}{trace}"
            )
