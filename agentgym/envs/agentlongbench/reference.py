"""Turns of a reference player that always guesses the first candidate, for all targets of a table
at once. They set the budget without using the hidden item.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from agentgym.envs.agentlongbench.config import PuzzleConfig
from agentgym.envs.agentlongbench.items import ItemTable, Value

# Tables that determine a configuration's budget, with the turns of all their items.
_SAMPLES = 8
# Arbitrary: a configuration has the same budget for every seed.
_SAMPLE_SEED = 20
# Standard deviations from the average to the bound; one draw in several hundred exceeds it.
SPREAD = 3.0


@dataclass(frozen=True)
class ReferenceTurns:
    """Turns and rounds that each target takes.

    Attributes:
        turns: int, shape `(items,)`: queries and guesses; 0 for the drawn guess.
        rounds: int, shape `(items,)`: guesses, including the drawn one.
    """

    turns: NDArray[np.int64]
    rounds: NDArray[np.int64]

    def bound(self, hidden: int) -> int:
        """Return the turns that almost certainly find `hidden` random targets."""
        turns = self.turns[self.turns > 0]
        # The standard deviation of a sum grows with the square root of its length.
        spread = SPREAD * float(turns.std()) * hidden**0.5
        return min(hidden * int(turns.max()), int(np.ceil(hidden * float(turns.mean()) + spread)))


def draw_reference(
    config: PuzzleConfig, table: ItemTable, rng: np.random.Generator
) -> tuple[int, ReferenceTurns]:
    """Draw the first guess and count each item's turns after it."""
    first = int(rng.integers(len(table)))
    return first, count_turns(table, first if config.hidden == 1 else None)


@lru_cache(256)  # a run has few configurations
def limits(config: PuzzleConfig) -> tuple[int, int]:
    """Return the turns of a puzzle's budget, and the most rounds that a hidden item takes."""
    # They depend only on the configuration, so the budget reveals nothing about the episode.
    turns, rounds = 0, config.rounds
    for sample in range(_SAMPLES):
        rng = np.random.default_rng((_SAMPLE_SEED, sample))
        table = config.table(rng)
        next(config.targets(table, rng))  # raises if items cannot be distinguished
        _, counts = draw_reference(config, table, rng)
        turns = max(turns, counts.bound(config.hidden))
        rounds = max(rounds, int(counts.rounds.max()))
    return turns, rounds


def count_turns(table: ItemTable, first: int | None) -> ReferenceTurns:
    """Play all targets of a table at once: targets with the same feedback share their next guess.

    Without a drawn `first` guess, the player spends a turn on the first item.
    """
    size, signatures = len(table), _Signatures(table)
    turns, rounds = np.zeros(size, np.int64), np.zeros(size, np.int64)
    active, groups = np.arange(size), np.zeros(size, np.int64)
    guesses = np.full(1, first or 0)
    cost, listed = np.full(1, int(first is None)), first is not None
    played = 0
    while len(active):
        guess = guesses[groups]
        played += 1
        turns[active] += cost[groups]
        rounds[active] = played
        wrong = active != guess
        codes = signatures.codes(guess[wrong], active[wrong])
        # A single remaining candidate is known without a query, except before the first list.
        several = (np.bincount(groups, minlength=len(guesses)) > 2) | listed
        before, active = groups[wrong], active[wrong]
        _, index, groups = np.unique(
            (before << signatures.bits) | codes, return_index=True, return_inverse=True
        )
        # NumPy versions differ in the shape of the inverse.
        groups = groups.reshape(-1)
        guesses, cost, listed = active[index], 1 + several[before[index]], False
    return ReferenceTurns(turns, rounds)


class _Signatures:
    """Feedback on any guess for any target, encoded as a number."""

    def __init__(self, table: ItemTable) -> None:
        self._numeric: list[NDArray[np.int64]] = []
        self._texts: list[tuple[NDArray[np.int64], NDArray[np.bool_]]] = []
        self.bits = 0
        for section, column in zip(table.sections, table.columns, strict=True):
            if section.numeric:
                self._numeric.append(np.array([values[0] for values in column], np.int64))
                self.bits += 2
                continue
            names: dict[Value, int] = {}
            codes = [names.setdefault(value, len(names)) for row in column for value in row]
            counts = np.fromiter(map(len, column), np.int64, len(column))
            places = np.repeat(np.arange(len(column)), counts)
            ranks = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
            width = int(counts.max())
            # Items with fewer values refer to an extra one that no item has.
            values = np.full((len(column), width), len(names))
            holders = np.zeros((len(names) + 1, len(column)), np.bool_)
            values[places, ranks] = codes
            holders[codes, places] = True
            self._texts.append((values, holders))
            self.bits += width

    def codes(self, guesses: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.int64]:
        codes = np.zeros(len(targets), np.int64)
        for numbers in self._numeric:
            # Two bits: below, equal or above.
            codes = codes << 2 | (1 + np.sign(numbers[guesses] - numbers[targets]))
        for values, holders in self._texts:
            for mentioned in values[guesses].T:
                # One bit per mentioned value: the target has it or lacks it.
                codes = codes << 1 | holders[mentioned, targets]
        return codes
