"""Intervals for shares and their differences, from the contributions of independent clusters.

Rates have Wilson intervals with the effective number of episodes (Korn and Graubard 1998).
Differences have t intervals over the clusters plus two artificial clusters, one on each side of
zero (Bonett and Price 2012). The artificial clusters ensure that no interval has zero width.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import atan, cos, isnan, nan, pi, sin, sqrt
from statistics import NormalDist
from typing import TypeVar

import numpy as np

from agentgym.text.validation import check_float, check_int

KeyT = TypeVar("KeyT", bound=Hashable)
_NORMAL = NormalDist()
# The significance level of 95% intervals, and the corresponding normal quantile.
_ALPHA = 0.05
_LEVEL = _NORMAL.inv_cdf(1 - _ALPHA / 2)
# With 1,000 degrees of freedom, Student's t is almost normal: quantiles differ by 0.1%.
_MANY = 1_000


@dataclass(frozen=True, slots=True)
class Interval:
    """A share or a difference of shares with its interval, at 95% by default.

    Attributes:
        p_value: Two-sided p-value of a difference, below 0.05 if and only if the interval excludes
            0; None for a share.
        count: The number of episodes, or of complete pairs for a difference.
        missing: The number of missing episodes.
        worst: The share if all missing episodes had failed; `best` is the share if all had
            succeeded.
    """

    value: float
    low: float
    high: float
    p_value: float | None = None  # nan is unequal to itself
    count: int = field(default=0, compare=False)
    missing: int = field(default=0, compare=False)
    worst: float = field(default=nan, compare=False)
    best: float = field(default=nan, compare=False)

    @property
    def fragile(self) -> bool:
        """Whether the missing episodes could move the share beyond the interval."""
        if isnan(self.value):  # none was played
            return self.missing > 0
        return self.worst < self.low or self.best > self.high


NO_DATA = Interval(nan, nan, nan)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Correct a family of p-values (Holm 1979), ignoring None values."""
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected, largest = list(p_values), 0.0
    for rank, (p, place) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        corrected[place] = largest
    return corrected


def holm_by_key(changes: Mapping[KeyT, Interval]) -> dict[KeyT, float | None]:
    """Return the p-values of a table's changes, corrected for multiple comparisons."""
    return dict(zip(changes, holm([change.p_value for change in changes.values()]), strict=True))


def rate(value: float, parts: np.ndarray, freedom: int, draws: float, most: float) -> Interval:
    """Return the Wilson interval of a share, given the contribution of each cluster (`parts`).

    `freedom` is the degrees of freedom of the variance. The effective number of episodes is
    `draws` if no variance is observed, and at most `most` otherwise.
    """
    variance = float(np.var(parts)) / max(1, len(parts) - 1)
    size, quantile = draws, _LEVEL
    # If the share is 0 or 1, or there is one cluster, no variance is observed; assume independence.
    one_each = draws == len(parts) and np.allclose(parts, np.round(parts))
    if not one_each and 0 < value < 1 and variance > 0:
        size, quantile = min(most, value * (1 - value) / variance), t_quantile(freedom)
    return _score_interval(value, size, quantile)


def around_zero(
    total: float, parts: np.ndarray, freedom: int, change: float, bound: float
) -> Interval:
    """Return the interval and p-value of a difference, given each cluster's contribution (`parts`).

    The artificial clusters contribute `change` and `-change`; `bound` is the largest possible
    difference.
    """
    padded = np.append(parts, [change, -change])
    # Bonett and Price assume binary outcomes with one pair per seed. For other
    # outcomes, use Student's t; artificial clusters matter only if the real clusters hardly differ.
    if change == 1.0 and np.allclose(parts, np.round(parts)):
        freedom, middle = _MANY, float(padded.mean())
        error = float(padded.std()) / sqrt(len(padded))
    else:
        middle = total
        variance = float(padded.var()) / (len(padded) - 1)
        if len(parts) > 1:
            variance = max(float(parts.var()) / (len(parts) - 1), variance)
        error = sqrt(variance)
    if not error:  # all values are equal
        return Interval(total, total, total, 1.0)
    half = t_quantile(freedom) * error
    low = max(-bound, min(middle - half, total))
    high = min(bound, max(middle + half, total))
    return Interval(total, low, high, _two_sided(abs(middle) / error, freedom))


@lru_cache
def t_quantile(freedom: int) -> float:
    """Return the 97.5% quantile of Student's t."""
    low, high = 0.0, 16.0  # with one degree of freedom, the quantile is 12.7
    for _ in range(60):
        middle = (low + high) / 2
        if _two_sided(middle, freedom) > _ALPHA:
            low = middle
        else:
            high = middle
    return high


def _two_sided(t: float, freedom: int) -> float:
    """Return P(abs(T) > t) by Abramowitz and Stegun's finite series (26.7.3, 26.7.4)."""
    freedom = max(1, freedom)
    if freedom >= _MANY:
        return 2 * _NORMAL.cdf(-t)
    angle = atan(t / sqrt(freedom))
    odd = freedom % 2
    term = cos(angle) if odd else 1.0
    series = 0.0
    for k in range(1 + odd, freedom, 2):
        series += term
        term *= cos(angle) ** 2 * k / (k + 1)
    within = sin(angle) * series
    if odd:
        within = 2 / pi * (angle + within)
    return max(0.0, 1.0 - within)


def wilson(successes: float, trials: int, confidence: float = 0.95) -> Interval:
    """Return a share with its Wilson interval; `successes` may be a sum of scores in [0, 1]."""
    check_int("trials", trials, 1, 10**9)
    check_float("successes", successes, 0, trials)
    check_float("confidence", confidence, 0.5, 0.9999)
    return _score_interval(successes / trials, trials, _NORMAL.inv_cdf((1 + confidence) / 2))


def _score_interval(share: float, trials: float, quantile: float) -> Interval:
    square = quantile**2
    middle = (share + square / (2 * trials)) / (1 + square / trials)
    spread = share * (1 - share) / trials + square / (4 * trials**2)
    half = quantile * sqrt(spread) / (1 + square / trials)
    # Rounding must not put a share of 0 or 1 outside the interval.
    low, high = min(share, middle - half), max(share, middle + half)
    return Interval(share, max(0.0, low), min(1.0, high))
