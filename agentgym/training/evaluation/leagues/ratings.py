"""Bradley-Terry ratings on the Elo scale."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentgym.training.evaluation.statistics import Interval, t_quantile

# Elo points per unit of log-odds: 400 points correspond to odds of 10 to 1.
ELO = 400 / log(10)
# Newton's method needs about ten steps.
_STEPS = 50
_CONVERGED = 1e-9
_FloatArray = NDArray[np.float64]


class Outcome(NamedTuple):
    """The result of a game: both players' numbers, and the first player's score (1, 0.5 or 0)."""

    first: int
    second: int
    score: float
    instance: str


def ratings(outcomes: Sequence[Outcome], players: int) -> list[Interval]:
    """Return each player's Elo points above player 0, with 95% intervals.

    The estimate maximises the Bradley-Terry likelihood, with a draw as half a win and half a loss.
    For each pair that met, half a win and half a loss are added, so that estimates stay finite.
    Intervals use the sandwich estimator over instances (Liang and Zeger 1986).

    An interval has an upper bound only if a chain of wins and draws leads from player 0 to the
    player, and a lower bound only if a chain leads back (Ford 1957). If no games connect the player
    to player 0, the value is nan.

    Raises:
        ValueError: A player number is out of range, or a player plays against itself.
    """
    for outcome in outcomes:
        pair = {outcome.first, outcome.second}
        if len(pair) < 2 or not pair <= set(range(players)):
            raise ValueError(f"a game needs two different player numbers from 0 to {players - 1}")
    instances = {outcome.instance for outcome in outcomes}
    strength, variance = _fit(outcomes, players)
    half = np.full(players - 1, inf)
    if len(instances) > 1:  # a variance requires at least two instances
        unbiased = variance * len(instances) / (len(instances) - 1)
        half = t_quantile(len(instances) - 1) * np.sqrt(unbiased)
    above, connected = _chains(outcomes, players)
    intervals = [Interval(0.0, 0.0, 0.0)]
    for player in range(1, players):
        if not connected[0, player]:
            intervals.append(Interval(nan, -inf, inf))
            continue
        value = ELO * float(strength[player - 1])
        width = ELO * float(half[player - 1])
        low = value - width if above[player, 0] else -inf
        high = value + width if above[0, player] else inf
        intervals.append(Interval(value, low, high))
    return intervals


def _fit(outcomes: Sequence[Outcome], players: int) -> tuple[_FloatArray, _FloatArray]:
    """Return the players' strengths in log-odds, with cluster-robust variances."""
    games = list(outcomes)
    pairs = sorted({outcome[:2] for outcome in outcomes})
    for number, (one, two) in enumerate(pairs):
        if one > two and (two, one) in pairs:
            continue
        for score in (0.0, 1.0):  # each of these games forms its own cluster
            games.append(Outcome(one, two, score, f"imaginary {number} {score}"))
    # +1 for the first player and -1 for the second, shape (games, players - 1)
    contrast = np.zeros((len(games), players))
    for row, game in enumerate(games):
        contrast[row, game.first], contrast[row, game.second] = 1, -1
    contrast = contrast[:, 1:]  # player 0 is the reference
    weight = np.ones(len(games))
    weight[len(outcomes) :] = 0.5
    scores = np.array([game.score for game in games])
    strength = np.zeros(players - 1)
    for _ in range(_STEPS):
        expected = 1 / (1 + np.exp(-contrast @ strength))
        information = (contrast.T * weight * expected * (1 - expected)) @ contrast
        # The information matrix is singular if some players are not connected by games.
        inverse = np.linalg.pinv(information)
        pull = contrast.T * weight * (scores - expected)
        step = inverse @ pull.sum(axis=1)
        strength = strength + np.clip(step, -1, 1)
        if np.abs(step).max(initial=0) < _CONVERGED:
            break
    _, cluster = np.unique([game.instance for game in games], return_inverse=True)
    sums = np.zeros((cluster.max(initial=-1) + 1, len(strength)))
    np.add.at(sums, cluster, pull.T)
    return strength, ((sums @ inverse) ** 2).sum(axis=0)


def _chains(
    outcomes: Sequence[Outcome], players: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which players are linked by chains of wins and draws, and which by any games."""
    scored = np.eye(players, dtype=bool)
    for outcome in outcomes:
        scored[outcome.first, outcome.second] |= outcome.score > 0
        scored[outcome.second, outcome.first] |= outcome.score < 1
    met = scored | scored.T
    for _ in range(players):
        scored, met = scored @ scored, met @ met
    return scored, met
