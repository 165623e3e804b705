"""Play logs of a given number of rounds or tokens (AgentLongBench, sections 2.2, C.1 to C.4)."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import numpy as np

from agentgym.envs.agentlongbench import CAPS
from agentgym.envs.agentlongbench.agent import SimulatedGame
from agentgym.envs.agentlongbench.config import QAConfig
from agentgym.envs.agentlongbench.items import ItemTable
from agentgym.envs.agentlongbench.logs import Habits, Log, Peak
from agentgym.text.tokens import TokenCounter

RESERVE = 400
"""Tokens reserved for the question."""

_DRAWS = 20  # item tables to try before giving up
_ATTEMPTS = 12  # logs to play before giving up
_REPLAYS = 30
# Fraction of a log, counted from the end, in which the agent isolates the hidden item.
_LATE = 0.15
_MARGIN = 1.5
# Minimum number of tokens per round.
_ROUND_TOKENS = {"concise": 1_000, "verbose": 4_000}


def play(
    table: ItemTable,
    target: int,
    style: str,
    habits: Habits,
    seed: int,
    *,
    rounds: int | None = None,
    length: int | None = None,
    counter: TokenCounter,
    isolate: bool = False,
    peak: float | None = None,
) -> Log:
    """Play whole rounds without guessing the hidden item, in time and memory linear in the size.

    The size is given as `rounds` (at least 3) or as `length` in tokens (at least `SHORTEST`). The
    log and the question fill 90 to 100 % of `length`. With `isolate`, only the hidden item occurs
    in every list, but early lists alone do not reveal the hidden item. `peak` in [0, 1) determines
    in which round an item with the largest number is first guessed.

    Raise ValueError if no log of this size meets the requirements.
    """
    limit, cap = _limits(style, rounds, length)
    by_rounds = rounds is not None

    def finished(top: Peak | None) -> Log | None:
        for attempt in range(_ATTEMPTS):
            # Later attempts give the agent more rounds to isolate the hidden item.
            late = min(0.9, _LATE * (1 + attempt // 2))
            rng = np.random.default_rng((seed, attempt))
            game = SimulatedGame(table, target, style, habits, rng, counter, cap, top)
            if game.run(limit, by_rounds, (1 - late) * limit if isolate else None):
                return game.log()
        return None

    log = None if by_rounds and peak is not None else finished(None)
    if peak is not None and (by_rounds or log is not None):
        most = limit if log is None else ceil(_MARGIN * len(log.rounds))
        rng = np.random.default_rng((seed, _ATTEMPTS))
        log = _with_peak(lambda n: Peak.draw(table, target, n, rng), finished, peak, most, rng)
    if log is None:
        raise ValueError(
            f"cannot generate a log of {limit} {'rounds' if by_rounds else 'tokens'}; increase the "
            f"length, or use a min_list below {habits.min_list}"
        )
    return log


def _with_peak(
    draw: Callable[[int], Peak | None],
    finished: Callable[[Peak], Log | None],
    place: float,
    most: int,
    rng: np.random.Generator,
) -> Log | None:
    for _ in range(_REPLAYS):
        top = draw(1 + int(place * most))
        if top and (log := finished(top)):
            if top.number <= len(log.rounds):
                return log
            # If the log is too short, redraw the round, so that all rounds stay equally likely.
            place = rng.random()
    return None


def _limits(style: str, rounds: int | None, length: int | None) -> tuple[int, int]:
    if rounds is not None:
        return rounds, max(CAPS[style], rounds) + 1
    limit = (length or 0) - RESERVE
    return limit, max(CAPS[style], ceil(limit / _ROUND_TOKENS[style])) + 1


def draw_log(
    config: QAConfig, rng: np.random.Generator, tokens: TokenCounter, *, isolate: bool, peak: bool
) -> Log:
    """Draw items and a log; see `play` for `isolate` and `peak`.

    Raise ValueError if no log of the configured size meets the requirements.
    """
    problem, place = ValueError(), rng.random() if peak else None
    size = {"length": config.length} if config.length else {"rounds": config.rounds}
    # Keep `place` in all attempts; otherwise, positions that often fail would become rarer.
    for _ in range(_DRAWS):
        table = config.table(rng)
        target = next(config.targets(table, rng, config.shortest_list(table)))
        seed = int(rng.integers(2**63))
        try:
            return play(
                table,
                target,
                config.style,
                config,
                seed,
                counter=tokens,
                isolate=isolate,
                peak=place,
                **size,
            )
        except ValueError as error:  # other items may work
            problem = error
    raise problem
