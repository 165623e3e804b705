"""Bradley-Terry ratings on the Elo scale, with intervals that allow for dependent games."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentgym.training.evaluation.statistics import Interval, t_quantile

# Elo points per unit of log-odds: 400 points are odds of 10 to 1.
ELO = 400 / log(10)
# Newton's method needs about ten steps.
_STEPS = 50
_FloatArray = NDArray[np.float64]


class Outcome(NamedTuple):
    """Result of a game between two players, by number.

    Attributes:
        score: The first player's: 1 for a win, 0.5 for a draw, 0 for a loss.
        instance: The instance's name; games on the same one may depend on each other.
    """

    first: int
    second: int
    score: float
    instance: str


def ratings(outcomes: Sequence[Outcome], players: int) -> list[Interval]:
    """Return each player's Elo points above player 0, with 95 % intervals.

    The estimate maximises the Bradley-Terry likelihood, with a draw as half a win and half a loss.
    Each pair that met gets half an imaginary win and half a loss, which keeps estimates finite and
    intervals wide enough if one player won all games. The intervals use the sandwich estimator over
    instances (Liang and Zeger 1986), so draws and common instances do not distort them.

    A side without a bound is infinite: above, if no chain of wins and draws leads from player 0 to
    the player, below if none leads back (Ford 1957). A player without any connection to player 0
    has the value nan.

    Raises:
        ValueError: A game has another player number, or a player meets itself.
    """
    first = np.array([outcome.first for outcome in outcomes], int)
    second = np.array([outcome.second for outcome in outcomes], int)
    score = np.array([outcome.score for outcome in outcomes], float)
    known = (first >= 0) & (second >= 0) & (first < players) & (second < players)
    if not (known & (first != second)).all():
        raise ValueError(f"a game needs two different players from 0 to {players - 1}")
    names, instance = np.unique([outcome.instance for outcome in outcomes], return_inverse=True)
    met = np.unique(np.sort([first, second], axis=0), axis=1)
    pairs, instances = met.shape[1], len(names)
    # The imaginary games are independent of each other and of all instances.
    contrast = _contrasts(
        np.concatenate([first, met[0], met[0]]), np.concatenate([second, met[1], met[1]]), players
    )
    scores = np.concatenate([score, np.ones(pairs), np.zeros(pairs)])
    weight = np.concatenate([np.ones(len(score)), np.full(2 * pairs, 0.5)])
    cluster = np.concatenate([instance, instances + np.arange(2 * pairs)])
    strength, covariance = _fit(contrast, scores, weight, cluster)
    half = np.full(players - 1, inf)
    if instances > 1:  # one instance shows no variance between instances
        variance = np.diag(covariance) * instances / (instances - 1)
        half = t_quantile(instances - 1) * np.sqrt(variance)
    above, connected = _chains(first, second, score, players)
    intervals = [Interval(0.0, 0.0, 0.0)]
    for player in range(1, players):
        if not connected[0, player]:
            intervals.append(Interval(nan, -inf, inf))
            continue
        value, width = ELO * float(strength[player - 1]), ELO * float(half[player - 1])
        low = value - width if above[player, 0] else -inf
        high = value + width if above[0, player] else inf
        intervals.append(Interval(value, low, high))
    return intervals


def _contrasts(first: NDArray[np.int_], second: NDArray[np.int_], players: int) -> _FloatArray:
    """Return +1 for each game's first player and -1 for its second, without player 0."""
    rows = np.arange(len(first))
    contrast = np.zeros((len(first), players))
    contrast[rows, first] += 1
    contrast[rows, second] -= 1
    return contrast[:, 1:]


def _fit(
    contrast: _FloatArray, score: _FloatArray, weight: _FloatArray, cluster: NDArray[np.int_]
) -> tuple[_FloatArray, _FloatArray]:
    """Return the strengths in log-odds with their covariance over clusters."""
    strength = np.zeros(contrast.shape[1])
    for _ in range(_STEPS):
        expected = 1 / (1 + np.exp(-contrast @ strength))
        slope = contrast * (weight * expected * (1 - expected))[:, None]
        # Players without a connection make the information singular.
        inverse = np.linalg.pinv(contrast.T @ slope)
        pull = contrast * (weight * (score - expected))[:, None]
        step = inverse @ pull.sum(axis=0)
        strength = strength + np.clip(step, -1, 1)
        if np.abs(step).max(initial=0) < 1e-9:
            break
    sums = np.zeros((cluster.max(initial=-1) + 1, contrast.shape[1]))
    np.add.at(sums, cluster, pull)
    return strength, inverse @ sums.T @ sums @ inverse


def _chains(
    first: NDArray[np.int_], second: NDArray[np.int_], score: _FloatArray, players: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which players have a chain of wins and draws, or of games, to which others."""
    scored = np.eye(players, dtype=bool)
    scored[first[score > 0], second[score > 0]] = True
    scored[second[score < 1], first[score < 1]] = True
    met = scored | scored.T
    for _ in range(players):
        scored, met = scored @ scored, met @ met
    return scored, met
