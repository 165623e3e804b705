"""Play logs of a given number of rounds or tokens (AgentLongBench, sections 2.2, C.1 to C.4)."""

from __future__ import annotations

from math import ceil

import numpy as np

from agentgym.envs.agentlongbench import CAPS
from agentgym.envs.agentlongbench.agent import SimulatedGame
from agentgym.envs.agentlongbench.config import QAConfig
from agentgym.envs.agentlongbench.items import ItemTable
from agentgym.envs.agentlongbench.logs import Log, Peak
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


def draw_log(
    config: QAConfig, rng: np.random.Generator, counter: TokenCounter, *, isolate: bool, peak: bool
) -> Log:
    """Draw items and play whole rounds without guessing the hidden item.

    The log and the question fill 90 to 100 % of `config.length`, if it is given. Time and memory
    are linear in the size. With `isolate`, only the hidden item occurs in every list, but early
    lists alone do not reveal the hidden item. With `peak`, an item with the largest number is first
    guessed in a random round.

    Raise ValueError if no log of the configured size meets the requirements.
    """
    problem, place = ValueError(), rng.random() if peak else None
    # Keep `place` in all attempts; otherwise, positions that often fail would become rarer.
    for _ in range(_DRAWS):
        table = config.table(rng)
        target = next(config.targets(table, rng, config.shortest_list(table)))
        seed = int(rng.integers(2**63))
        try:
            return play(table, target, config, seed, counter, isolate=isolate, peak=place)
        except ValueError as error:  # other items may work
            problem = error
    raise problem


def play(
    table: ItemTable,
    target: int,
    config: QAConfig,
    seed: int,
    counter: TokenCounter,
    *,
    isolate: bool = False,
    peak: float | None = None,
) -> Log:
    """Play a log about given items as `draw_log` does.

    `peak` in [0, 1) determines in which round an item with the largest number is first guessed.
    """
    limit, most = _limits(config)
    cap = max(CAPS[config.style], most) + 1

    def finished(top: Peak | None) -> Log | None:
        for attempt in range(_ATTEMPTS):
            # Later attempts give the agent more rounds to isolate the hidden item.
            late = min(0.9, _LATE * (1 + attempt // 2))
            rng = np.random.default_rng((seed, attempt))
            game = SimulatedGame(table, target, config, rng, counter, cap, top)
            if game.run(limit, (1 - late) * limit if isolate else None):
                return game.log()
        return None

    log = None
    if config.length or peak is None:
        log = finished(None)
        most = ceil(_MARGIN * len(log.rounds)) if log else 0
    if log and peak is None:
        return log
    if peak is not None and most:
        rng = np.random.default_rng((seed, _ATTEMPTS))
        for _ in range(_REPLAYS):
            top = Peak.draw(table, target, 1 + int(peak * most), rng)
            if top and (log := finished(top)):
                if top.number <= len(log.rounds):
                    return log
                # If the log is too short, redraw the round, so that all rounds stay equally likely.
                peak = rng.random()
    raise ValueError(
        f"cannot generate a log of {limit} {'tokens' if config.length else 'rounds'}; increase the "
        f"length, or use a min_list below {config.min_list}"
    )


def _limits(config: QAConfig) -> tuple[int, int]:
    if not config.length:
        return config.rounds, config.rounds
    tokens = config.length - RESERVE
    return tokens, ceil(tokens / _ROUND_TOKENS[config.style])
