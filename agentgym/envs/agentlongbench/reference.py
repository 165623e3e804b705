"""Turn budgets for a player that always guesses the first candidate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from agentgym.envs.agentlongbench.config import PuzzleConfig
from agentgym.envs.agentlongbench.items import Atom, ItemTable

_SAMPLES = 8
_SAMPLE_SEED = 20
# The turn bound lies this many standard deviations above the mean. About one draw in several
# hundred exceeds the bound.
SPREAD = 3.0


@dataclass(frozen=True)
class ReferenceTurns:
    """The numbers of turns (queries and guesses) and rounds (guesses) for each possible target.

    The random first guess uses up a round but not a turn.
    """

    turns: NDArray[np.int64]
    rounds: NDArray[np.int64]

    def bound(self, hidden: int) -> int:
        """Return a number of turns that almost always suffices for `hidden` random targets."""
        turns = self.turns[self.turns > 0]
        # The standard deviation of a sum grows with the square root of the number of terms.
        spread = SPREAD * float(turns.std()) * hidden**0.5
        expected = hidden * float(turns.mean())
        return min(hidden * int(turns.max()), int(np.ceil(expected + spread)))


def draw_reference(
    config: PuzzleConfig, table: ItemTable, rng: np.random.Generator
) -> tuple[int, ReferenceTurns]:
    """Draw the first guess and count the turns needed for each possible target."""
    first = int(rng.integers(len(table)))
    return first, count_turns(table, first if config.hidden == 1 else None)


@lru_cache(256)
def limits(config: PuzzleConfig) -> tuple[int, int]:
    """Return a puzzle's turn budget, and the maximum number of rounds for a hidden item."""
    # The fixed seed makes the limits independent of the episode.
    turns, rounds = 0, config.rounds
    for sample in range(_SAMPLES):
        rng = np.random.default_rng((_SAMPLE_SEED, sample))
        table = config.table(rng)
        next(config.targets(table, rng))  # raises ValueError if no item can be identified
        _, counts = draw_reference(config, table, rng)
        turns = max(turns, counts.bound(config.hidden))
        rounds = max(rounds, int(counts.rounds.max()))
    return turns, rounds


def count_turns(table: ItemTable, first: int | None) -> ReferenceTurns:
    """Simulate all targets of a table together; targets with equal feedback share the next guess.

    If `first` is None, the player spends a turn on guessing the first item.
    """
    turns = np.zeros(len(table), np.int64)
    rounds = np.zeros(len(table), np.int64)
    opening = first or 0
    # The first target in each group is the item to guess next.
    targets = [opening, *range(opening), *range(opening + 1, len(table))]
    groups, listed, played = [(targets, int(first is None))], first is not None, 0
    while groups:
        played += 1
        following = []
        for targets, cost in groups:
            turns[targets] += cost
            rounds[targets] = played
            alike: dict[tuple[Atom, ...], list[int]] = {}
            for target in targets[1:]:
                feedback = tuple(table.feedback_atoms(targets[0], target))
                alike.setdefault(feedback, []).append(target)
            # If only one candidate remains, no query is needed, except before the first list.
            queried = len(targets) > 2 or listed
            following += [(each, 1 + queried) for each in alike.values()]
        groups, listed = following, False
    return ReferenceTurns(turns, rounds)
