"""Intervals for rates, paired differences, oracle effects and interactions, clustered by instance.

A rate is the mean over worlds and horizons of the mean over instances, as in LUMINA: each episode
counts once regardless of its length, and all episodes of one instance are averaged first. Episodes
with the same world and seed use similar instances in every arm and horizon, so they are not
independent: a world's seed is one cluster, and differences are taken within it. Worlds are fixed
strata; only the seeds vary by chance.

No interval has zero width. Rates have Wilson intervals, with the number of independent episodes
that matches the variance between clusters (Korn and Graubard 1998). Differences have t intervals
over the seeds plus two artificial ones, one on each side of zero (Bonett and Price 2012).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import expm1, inf, log1p, nan, sqrt
from operator import attrgetter
from statistics import NormalDist, fmean

import numpy as np

from agentgym.text.validation import check_float, check_int, list_names
from agentgym.training.evaluation.scoring import Result
from agentgym.training.rollout import Usage

Key = tuple[str | int, ...]
Terms = Sequence[tuple[float, Sequence[Result]]]
"""A weighted sum of rates: weights, and the episodes of each rate."""

TOKENS = (
    *(item.name for item in fields(Usage) if item.name.endswith("_tokens")),
    "missed_prompt_tokens",
)
"""Metrics that count tokens."""
COUNTS = (*TOKENS, "edits", "calls")
"""Metrics that are not shares."""
MIN_EPISODES = 20
"""Tables warn below this number of episodes: at 20, a rate's interval still spans 20 points on each
side.
"""
_NORMAL = NormalDist()
# The quantile of 95 % intervals.
_LEVEL = _NORMAL.inv_cdf(0.975)
# Marks a world whose instances differ from those it is compared with.
_ELSEWHERE = "elsewhere"
# Degrees of freedom at which Student's t equals the normal distribution.
_MANY = 10**9


def _share(hits: str, chances: str) -> Callable[[Result], tuple[float, float] | None]:
    def value(row: Result) -> tuple[float, float] | None:
        count = getattr(row, chances)
        return (getattr(row, hits) / count, 1 / count) if count else None

    return value


def _tokens(name: str) -> Callable[[Result], tuple[float, float] | None]:
    return lambda row: (float(getattr(row.usage, name)), 0.0) if row.usage else None


# The value of an episode in each metric, and its smallest change; None if it has none.
_VALUES: Mapping[str, Callable[[Result], tuple[float, float] | None]] = {
    "success": lambda row: (row.success, 1.0),
    "step_accuracy": _share("optimal", "steps"),
    "alive_step_accuracy": _share("alive_optimal", "alive"),
    **{name: _tokens(name) for name in (*TOKENS, "edits")},
    "calls": lambda row: (float(row.calls), 0.0),
}

PAIRS: Mapping[str, Sequence[tuple[str, str]]] = {
    "P": (("", "P"), ("S", "SP"), ("SH", "SPH")),
    "S": (("", "S"), ("P", "SP")),
    "H": (("S", "SH"), ("SP", "SPH")),
}
"""Pairs of arms that differ only in one intervention, without and with it."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A share or a difference of shares, with a 95 % interval unless another level is requested.

    Attributes:
        value: The share or difference.
        low: The lower end.
        high: The upper end.
        p_value: The two-sided p-value of a difference from 0, below 0.05 exactly if the interval
            excludes 0; None for a share.
    """

    value: float
    low: float
    high: float
    p_value: float | None = None  # with nan, equal intervals would differ from Python 3.13 on


NO_DATA = Interval(nan, nan, nan)


def summarize(results: Sequence[Result], by: Sequence[str], metric: str) -> dict[Key, Interval]:
    """Return a metric for each group of episodes.

    Args:
        results: The episodes.
        by: The fields of `Result` that form a group; none for a single group.
        metric: `success`, `step_accuracy` (an episode's share of optimal steps),
            `alive_step_accuracy` (among steps before which success was possible; episodes without
            such steps are omitted), `calls` of tools, `edits` of the context, or one of `TOKENS`
            (of the episodes with token counts).

    Returns:
        By field values: a share in [0, 1], or a number of tokens or calls, with its interval; nan
            if no episode has the metric.

    Raises:
        ValueError: There are no results, or the metric is unknown.
    """
    return {
        key: _estimate([(1.0, rows)], metric) for key, rows in _groups(results, by, metric).items()
    }


def differences(
    results: Sequence[Result],
    by: Sequence[str],
    metric: str,
    baseline: str = "",
    factor: str = "arm",
) -> dict[Key, Interval]:
    """Return each arm's gain over a baseline arm, over common instances.

    Args:
        results: The episodes.
        by: The fields that form a group, within which arms are compared.
        metric: As in `summarize`.
        baseline: The baseline arm.
        factor: What to compare: the oracles (`arm`), the context strategies (`context`) or the
            policies (`policy`).

    Returns:
        By field values and arm: a difference in [-1, 1]. Arms without common instances are omitted;
            policies without common instances are compared unpaired.

    Raises:
        ValueError: There are no results, the metric is unknown, or a group lacks the baseline.
    """
    intervals: dict[Key, Interval] = {}
    for key, rows in _groups(results, by, metric).items():
        arms = _groups(rows, (factor,), metric)
        if (baseline,) not in arms:
            raise ValueError(
                f"the group {key} has no episodes of the baseline arm {baseline!r}; run it or "
                "choose another"
            )
        for (arm,), side in arms.items():
            if arm != baseline and (terms := _paired(arms[baseline,], side, (factor,))):
                intervals[*key, arm] = _estimate(terms, metric)
    return intervals


def effects(
    results: Sequence[Result],
    by: Sequence[str],
    metric: str,
    pairs_of: Mapping[str, Sequence[tuple[str, str]]] = PAIRS,
) -> dict[Key, Interval]:
    """Return the effects of plan (P), state (S) and history (H): the mean difference over pairs of
    arms that differ only in it.

    Args:
        results: The episodes.
        by: The fields that form a group.
        metric: As in `summarize`.
        pairs_of: The pairs of arms, without and with it, by intervention.

    Returns:
        By field values and intervention: a difference in [-1, 1]. Interventions without a pair of
            arms are omitted.

    Raises:
        ValueError: There are no results, or the metric is unknown.
    """
    intervals: dict[Key, Interval] = {}
    for key, rows in _groups(results, by, metric).items():
        arms = _groups(rows, ("arm",), metric)
        for letter, pairs in pairs_of.items():
            present = [
                terms
                for without, having in pairs
                if (terms := _paired(arms.get((without,), ()), arms.get((having,), ()), ("arm",)))
            ]
            terms = [(weight / len(present), part) for pair in present for weight, part in pair]
            if terms:
                intervals[*key, letter] = _estimate(terms, metric)
    return intervals


def interactions(
    results: Sequence[Result], by: Sequence[str], metric: str, arm: str = "", context: str = "none"
) -> dict[Key, Interval]:
    """Return for each arm and context how much more the arm gains than in the baseline context.

    Args:
        results: The episodes.
        by: The fields that form a group.
        metric: As in `summarize`.
        arm: The baseline arm.
        context: The baseline context.

    Returns:
        By field values, arm and context: a difference of differences over the instances that all
            four cells have played. Cells without such instances are omitted.

    Raises:
        ValueError: There are no results, or the metric is unknown.
    """
    intervals: dict[Key, Interval] = {}
    for key, rows in _groups(results, by, metric).items():
        cells = _groups(rows, ("arm", "context"), metric)
        for (name, strategy), cell in cells.items():
            corners = [
                cells.get(corner, [])
                for corner in ((name, context), (arm, strategy), (arm, context))
            ]
            sides = _shared([cell, *corners], ("arm", "context"))
            if name != arm and strategy != context and sides[0]:
                terms = list(zip((1.0, -1.0, -1.0, 1.0), sides, strict=True))
                intervals[*key, name, strategy] = _estimate(terms, metric)
    return intervals


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values corrected for the size of their family (Holm 1979); None values do not count."""
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected, largest = list(p_values), 0.0
    for rank, (p, place) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        corrected[place] = largest
    return corrected


def _groups(results: Sequence[Result], by: Sequence[str], metric: str) -> dict[Key, list[Result]]:
    if metric not in _VALUES:
        remedy = list_names(metric, tuple(_VALUES), "metrics")
        raise ValueError(f"there is no metric {metric!r}; {remedy}")
    if not results:
        raise ValueError("there are no results to summarize; run an ablation first")
    groups: dict[Key, list[Result]] = {}
    for row in results:
        groups.setdefault(tuple(getattr(row, name) for name in by), []).append(row)
    return groups


def _paired(without: Sequence[Result], having: Sequence[Result], factors: Sequence[str]) -> Terms:
    """Return the difference of two arms over common instances as terms; empty if there are none.

    Policies without common instances are compared as independent samples.
    """
    before, after = _shared([without, having], factors)
    if not before and tuple(factors) == ("policy",):
        sizes = [{_size(row) for row in side} for side in (without, having)]
        before = [row for row in without if _size(row) in sizes[1]]
        # Equal seeds form one cluster only if they mean the same instance.
        elsewhere = [replace(row, world=f"{row.world} {_ELSEWHERE}") for row in having]
        after = [new for new, row in zip(elsewhere, having, strict=True) if _size(row) in sizes[0]]
    return [(1.0, after), (-1.0, before)] if before else []


def _size(row: Result) -> Key:
    return row.world, row.arm, row.context, row.axis, row.horizon


def _shared(sides: Sequence[Sequence[Result]], factors: Sequence[str]) -> list[list[Result]]:
    """Return each side restricted to the instances that all sides have played.

    Args:
        sides: The episodes of each side, which differ in the factors.
        factors: The fields in which equal instances may differ.
    """
    names = {"policy", "world", "horizon", "seed", "arm", "context", "instance"} - set(factors)
    instance = attrgetter(*sorted(names))
    common = set.intersection(*(set(map(instance, side)) for side in sides))
    return [[row for row in side if instance(row) in common] for side in sides]


def _estimate(terms: Terms, metric: str) -> Interval:
    """Return a weighted sum of rates with its interval. The variance is taken between a world's
    seeds; worlds with one seed use the variance between such worlds.
    """
    clusters = sorted({(row.world, row.seed) for _, rows in terms for row in rows})
    column = {cluster: k for k, cluster in enumerate(clusters)}
    seeds = Counter(world for world, _ in clusters)
    total, instances = 0.0, 0
    shifts = np.zeros(len(clusters))  # each cluster's part of the deviation from the total
    steps: list[float] = []
    for weight, rows in terms:
        cells = _cell_means(rows, metric, steps)
        if not cells:
            return NO_DATA
        instances = max(instances, sum(len(cell) for _, cell in cells))
        means = [fmean(cell.values()) for _, cell in cells]
        total += weight * fmean(means)
        for (world, cell), mean in zip(cells, means, strict=True):
            middle = mean if seeds[world] > 1 else fmean(means)
            for seed, value in cell.items():
                shifts[column[world, seed]] += weight * (value - middle) / (len(cell) * len(cells))
    # The clusters of each stratum; worlds with one seed form a common one.
    single = sum(count == 1 for count in seeds.values())
    sizes = {world: count if count > 1 else single for world, count in seeds.items()}
    parts = total + len(clusters) * shifts * [_unbias(sizes[w], len(clusters)) for w, _ in clusters]
    freedom = len(clusters) - len(seeds) + max(0, single - 1)
    if len(terms) > 1 or metric in COUNTS:
        weights = [abs(weight) for weight, _ in terms]
        # The smallest change of an episode, averaged over its cluster.
        change = max(weights) * fmean(steps) * len(clusters) / instances
        bound = sum(weights) / 2 if metric not in COUNTS else inf
        return _around_zero(total, parts, freedom, change, bound)
    return _rate(total, parts, freedom, instances, most=instances if len(seeds) > 1 else inf)


def _unbias(size: int, clusters: int) -> float:
    """Return the factor that makes the variance over all clusters unbiased although each stratum
    has its own mean.
    """
    return sqrt(size / (size - 1) * (clusters - 1) / clusters) if size > 1 else 1.0


def _cell_means(
    rows: Sequence[Result], metric: str, steps: list[float]
) -> list[tuple[str, dict[int, float]]]:
    """Return each world, once per horizon, with the mean of each seed, and append the smallest
    changes to `steps`.
    """
    values: dict[Key, dict[int, list[tuple[float, float]]]] = {}
    for row in rows:
        if (pair := _VALUES[metric](row)) is not None:
            cell = row.policy, row.world, row.horizon
            values.setdefault(cell, {}).setdefault(row.seed, []).append(pair)
    # One of several samples changes its instance's mean by that much less.
    for cell_values in values.values():
        steps += [fmean(step for _, step in some) / len(some) for some in cell_values.values()]
    return [
        (str(world), {seed: fmean(value for value, _ in some) for seed, some in cell.items()})
        for (_, world, _), cell in values.items()
    ]


def _rate(
    value: float, parts: np.ndarray, freedom: int, instances: int, most: float = inf
) -> Interval:
    """Return the Wilson interval of a share, given each cluster's part.

    Args:
        value: The share.
        parts: Each cluster's part; their mean is the share.
        freedom: The degrees of freedom of their variance.
        instances: The number of instances.
        most: The maximum effective number of episodes: if all seeds of a world agree, the variance
            looks smaller than few seeds can show.
    """
    count, variance = len(parts), float(np.var(parts)) / max(1, len(parts) - 1)
    size, quantile = float(instances), _LEVEL
    # With one episode per cluster this is the plain Wilson interval; at 0 or 1, or with one
    # cluster, no variance is observed, and instances count as independent.
    one_each = instances == count and np.allclose(parts, np.round(parts))
    if not one_each and 0 < value < 1 and variance > 0:
        size, quantile = min(most, value * (1 - value) / variance), _t_quantile(freedom)
    return _score_interval(value, size, quantile)


def _around_zero(
    total: float, parts: np.ndarray, freedom: int, change: float, bound: float
) -> Interval:
    """Return the interval and p-value of a difference, given each cluster's part.

    Args:
        total: The difference.
        parts: Each cluster's part; their mean is the difference.
        freedom: The degrees of freedom of their variance.
        change: The parts of the two artificial clusters are this value and its negative.
        bound: The largest possible difference.
    """
    padded = np.append(parts, [change, -change])
    # Bonett and Price's interval assumes one pair of episodes per seed, whose counts determine the
    # variance. Estimated variances use Student's t, and the artificial seeds count only if the real
    # ones hardly differ.
    if change == 1.0 and np.allclose(parts, np.round(parts)):
        freedom, middle = _MANY, float(padded.mean())
        error = float(padded.std()) / sqrt(len(padded))
    else:
        middle = total
        error = sqrt(
            max(float(some.var()) / (len(some) - 1) for some in (parts, padded) if len(some) > 1)
        )
    if not error:  # all token counts are equal
        return Interval(total, total, total, 1.0)
    half = _t_quantile(freedom) * error
    low, high = max(-bound, min(middle - half, total)), min(bound, max(middle + half, total))
    return Interval(total, low, high, 2 * _NORMAL.cdf(-_normal_score(abs(middle) / error, freedom)))


def _t_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t, as the inverse of `_normal_score`."""
    freedom = max(1, freedom)
    z = _LEVEL * (8 * freedom + 3) / (8 * freedom + 1)
    return sqrt(freedom * expm1(z * z / freedom))


def _normal_score(t: float, freedom: int) -> float:
    """Return the normal score with the same tail as a value of Student's t (Wallace 1959), accurate
    to two decimals from four degrees of freedom on.
    """
    freedom = max(1, freedom)
    return sqrt(freedom * log1p(t * t / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)


def wilson(successes: float, trials: int, confidence: float = 0.95) -> Interval:
    """Return a share with its Wilson interval (1927).

    Args:
        successes: The number of successes, or the sum of scores in [0, 1].
        trials: The number of trials.
        confidence: The confidence level.
    """
    check_int("trials", trials, 1, 10**9)
    check_float("successes", successes, 0, trials)
    check_float("confidence", confidence, 0.5, 0.9999)
    return _score_interval(successes / trials, trials, _NORMAL.inv_cdf((1 + confidence) / 2))


def _score_interval(share: float, trials: float, quantile: float) -> Interval:
    square = quantile**2
    middle = (share + square / (2 * trials)) / (1 + square / trials)
    spread = share * (1 - share) / trials + square / (4 * trials**2)
    half = quantile * sqrt(spread) / (1 + square / trials)
    # At 0 and 1, rounding could exclude the share itself.
    return Interval(share, max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)))
