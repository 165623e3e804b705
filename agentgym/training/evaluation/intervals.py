"""Intervals for rates, paired differences, effects of oracles and interactions, clustered by
instance.

A rate is the mean over worlds and horizons of the mean over instances, as LUMINA has it: an episode
counts once, however long it is, and all episodes of one instance are averaged first. Those of one
seed of a world are played on like instances in every arm and at every horizon, so they are not
independent: a seed of a world is one cluster, and differences are taken within it. Worlds are not
drawn but given: what varies by chance are the seeds of each (a stratified sample).

No interval has width zero. Rates have Wilson's interval, with the number of independent episodes
that has the variance observed between clusters (Korn and Graubard 1998). Differences have a t interval
over the seeds and two more that are made up, one on each side of zero (Bonett and Price
2012).
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
"""A weighted sum of rates: weights, and the episodes that each rate is taken over."""

TOKENS = (
    *(item.name for item in fields(Usage) if item.name.endswith("_tokens")),
    "missed_prompt_tokens",
)
"""The metrics that count tokens."""
COUNTS = (*TOKENS, "edits", "calls")
"""The metrics that are no shares."""
MIN_EPISODES = 20
"""Episodes below which an interval is so wide that tables warn: at 20, half the width of an
interval for a rate is still 20 points.
"""
_NORMAL = NormalDist()
_LEVEL = _NORMAL.inv_cdf(0.975)
"""The quantile for intervals of 95 %."""
_ELSEWHERE = "elsewhere"
"""Marks a world whose instances are others than those that it is compared with."""
_MANY = 10**9
"""The degrees of freedom at which Student's t is the normal distribution."""


def _share(hits: str, chances: str) -> Callable[[Result], tuple[float, float] | None]:
    def value(row: Result) -> tuple[float, float] | None:
        count = getattr(row, chances)
        return (getattr(row, hits) / count, 1 / count) if count else None

    return value


def _tokens(name: str) -> Callable[[Result], tuple[float, float] | None]:
    return lambda row: (float(getattr(row.usage, name)), 0.0) if row.usage else None


_VALUES: Mapping[str, Callable[[Result], tuple[float, float] | None]] = {
    "success": lambda row: (row.success, 1.0),
    "step_accuracy": _share("optimal", "steps"),
    "alive_step_accuracy": _share("alive_optimal", "alive"),
    **{name: _tokens(name) for name in (*TOKENS, "edits")},
    "calls": lambda row: (float(row.calls), 0.0),
}
"""The value of an episode in each metric, and the smallest change of it; None if it has none."""

PAIRS: Mapping[str, Sequence[tuple[str, str]]] = {
    "P": (("", "P"), ("S", "SP"), ("SH", "SPH")),
    "S": (("", "S"), ("P", "SP")),
    "H": (("S", "SH"), ("SP", "SPH")),
}
"""The arms without and with an intervention, which differ in it alone."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A share, or a difference of shares, with its interval, of 95 % unless another is asked for.

    Attributes:
        value: The share or difference.
        low: The lower end.
        high: The upper end.
        p_value: The two-sided p-value of a difference from 0, below 0.05 just where the interval
            leaves 0 out; None for a share.
    """

    value: float
    low: float
    high: float
    p_value: float | None = None  # nan would make equal intervals differ from Python 3.13 on


NO_DATA = Interval(nan, nan, nan)


def summarize(results: Sequence[Result], by: Sequence[str], metric: str) -> dict[Key, Interval]:
    """Return a metric for each group of episodes.

    Args:
        results: The episodes.
        by: The fields of `Result` that make a group; none for one group of all.
        metric: `success`, `step_accuracy` (the share of optimal steps in an episode),
            `alive_step_accuracy` (that among the steps before which success was possible; episodes
            without such a step are left out), `calls` of tools, `edits` of the context, or one of
            `TOKENS` (of the episodes whose tokens were counted).

    Returns:
        By the values of the fields: a share in [0, 1], or a number of tokens or calls, with its interval;
        nan if no episode has the metric.

    Raises:
        ValueError: There are no results, or no such metric.
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
    """Return the gain of each arm over a baseline arm, over the instances that both have played.

    Args:
        results: The episodes.
        by: The fields that make a group, within which arms are compared.
        metric: As in `summarize`.
        baseline: The arm to compare with.
        factor: The arms to compare: the oracles (`arm`), the context strategies (`context`) or the
            policies (`policy`).

    Returns:
        By the values of the fields and the arm: a difference in [-1, 1]. Arms without an instance
        in common with the baseline are left out; policies without one are compared unpaired.

    Raises:
        ValueError: There are no results, no such metric, or a group without the baseline.
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
    """Return the effect of plan (P), state (S) and history (H): the mean difference of the pairs of
    arms that differ in it alone.

    Args:
        results: The episodes.
        by: The fields that make a group.
        metric: As in `summarize`.
        pairs_of: The pairs of arms, without and with it, by the name of an intervention.

    Returns:
        By the values of the fields and the name of the intervention: a difference in [-1, 1].
        Interventions for which no pair of arms was run are left out.

    Raises:
        ValueError: There are no results, or no such metric.
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
    """Return, for each cell of arms and contexts, how much more the arm gains in this context than
    in the baseline context.

    Args:
        results: The episodes.
        by: The fields that make a group.
        metric: As in `summarize`.
        arm: The baseline of the arms.
        context: The baseline of the contexts.

    Returns:
        By the values of the fields, the arm and the context: a difference of differences, over the
        instances that all four cells have played. Cells without such an instance are left out.

    Raises:
        ValueError: There are no results, or no such metric.
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
    """Return p-values corrected for the size of their family (Holm 1979); those that are None do not
    count.
    """
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
    """Return the difference of two arms over the instances that both have played, as terms; empty
    if there are none.

    Policies that were played on other instances are compared as independent ones.
    """
    before, after = _shared([without, having], factors)
    if not before and tuple(factors) == ("policy",):
        sizes = [{_size(row) for row in side} for side in (without, having)]
        before = [row for row in without if _size(row) in sizes[1]]
        # Seeds of one number are one cluster only where they are one instance.
        elsewhere = [replace(row, world=f"{row.world} {_ELSEWHERE}") for row in having]
        after = [new for new, row in zip(elsewhere, having, strict=True) if _size(row) in sizes[0]]
    return [(1.0, after), (-1.0, before)] if before else []


def _size(row: Result) -> Key:
    return row.world, row.arm, row.context, row.axis, row.horizon


def _shared(sides: Sequence[Sequence[Result]], factors: Sequence[str]) -> list[list[Result]]:
    """Return each side without the episodes of instances that another side has not played.

    Args:
        sides: The episodes of each side, which differ in the factors.
        factors: The fields in which equal instances may differ.
    """
    names = {"policy", "world", "horizon", "seed", "arm", "context", "instance"} - set(factors)
    instance = attrgetter(*sorted(names))
    common = set.intersection(*(set(map(instance, side)) for side in sides))
    return [[row for row in side if instance(row) in common] for side in sides]


def _estimate(terms: Terms, metric: str) -> Interval:
    """Return a weighted sum of rates with its interval; the variance is that between the seeds of a
    world. A world with one seed shows none: there, it is that between such worlds.
    """
    clusters = sorted({(row.world, row.seed) for _, rows in terms for row in rows})
    column = {cluster: k for k, cluster in enumerate(clusters)}
    seeds = Counter(world for world, _ in clusters)
    total, instances = 0.0, 0
    shifts = np.zeros(len(clusters))  # the part of each cluster in the deviation from the total
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
    # The clusters that each world is compared among; worlds with one seed are together.
    single = sum(count == 1 for count in seeds.values())
    sizes = {world: count if count > 1 else single for world, count in seeds.items()}
    parts = total + len(clusters) * shifts * [_unbias(sizes[w], len(clusters)) for w, _ in clusters]
    freedom = len(clusters) - len(seeds) + max(0, single - 1)
    if len(terms) > 1 or metric in COUNTS:
        weights = [abs(weight) for weight, _ in terms]
        # The smallest change that an episode can show, in the mean over those of its cluster.
        change = max(weights) * fmean(steps) * len(clusters) / instances
        bound = sum(weights) / 2 if metric not in COUNTS else inf
        return _around_zero(total, parts, freedom, change, bound)
    return _rate(total, parts, freedom, instances, most=instances if len(seeds) > 1 else inf)


def _unbias(size: int, clusters: int) -> float:
    """Return the factor on deviations within a stratum that makes the variance over all clusters
    unbiased, though each stratum has a mean of its own.
    """
    return sqrt(size / (size - 1) * (clusters - 1) / clusters) if size > 1 else 1.0


def _cell_means(
    rows: Sequence[Result], metric: str, steps: list[float]
) -> list[tuple[str, dict[int, float]]]:
    """Return each world, once for each horizon, with the mean of each seed, and append the smallest
    changes to `steps`.
    """
    values: dict[Key, dict[int, list[tuple[float, float]]]] = {}
    for row in rows:
        if (pair := _VALUES[metric](row)) is not None:
            cell = row.policy, row.world, row.horizon
            values.setdefault(cell, {}).setdefault(row.seed, []).append(pair)
    # One of several samples changes the mean of its instance by so much less.
    for cell_values in values.values():
        steps += [fmean(step for _, step in some) / len(some) for some in cell_values.values()]
    return [
        (str(world), {seed: fmean(value for value, _ in some) for seed, some in cell.items()})
        for (_, world, _), cell in values.items()
    ]


def _rate(
    value: float, parts: np.ndarray, freedom: int, instances: int, most: float = inf
) -> Interval:
    """Return Wilson's interval of a share, given the part of each cluster in it.

    Args:
        value: The share.
        parts: The part of each cluster; their mean is the share.
        freedom: The degrees of freedom of their variance.
        instances: The number of instances.
        most: The most independent episodes that they count for: worlds in which all seeds agree
            make the variance look smaller than few seeds can show.
    """
    count, variance = len(parts), float(np.var(parts)) / max(1, len(parts) - 1)
    size, quantile = float(instances), _LEVEL
    # One episode for each cluster is what Wilson's interval is made for; at 0 or 1, or with one
    # cluster, no variance is observed, and instances are taken for independent.
    one_each = instances == count and np.allclose(parts, np.round(parts))
    if not one_each and 0 < value < 1 and variance > 0:
        size, quantile = min(most, value * (1 - value) / variance), _t_quantile(freedom)
    return _score_interval(value, size, quantile)


def _around_zero(
    total: float, parts: np.ndarray, freedom: int, change: float, bound: float
) -> Interval:
    """Return the interval and p-value of a difference, given the part of each cluster in it.

    Args:
        total: The difference.
        parts: The part of each cluster; their mean is the difference.
        freedom: The degrees of freedom of their variance.
        change: The parts of the two clusters that are made up are this, and its negative.
        bound: The largest difference that there can be.
    """
    padded = np.append(parts, [change, -change])
    # One pair of episodes for each seed is what the interval of Bonett and Price is made for: its
    # counts determine the variance. Where that is estimated, Student's t allows for it, and the
    # seeds that are made up count only where those that are there hardly differ.
    if change == 1.0 and np.allclose(parts, np.round(parts)):
        freedom, middle = _MANY, float(padded.mean())
        error = float(padded.std()) / sqrt(len(padded))
    else:
        middle = total
        error = sqrt(
            max(float(some.var()) / (len(some) - 1) for some in (parts, padded) if len(some) > 1)
        )
    if not error:  # tokens that are equal to the last one
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
    """Return the normal score with the tail of a value of Student's t (Wallace 1959), to two
    decimals from four degrees of freedom on.
    """
    freedom = max(1, freedom)
    return sqrt(freedom * log1p(t * t / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)


def wilson(successes: float, trials: int, confidence: float = 0.95) -> Interval:
    """Return a share with its interval (Wilson 1927).

    Args:
        successes: The number of successes, or the sum of scores in [0, 1].
        trials: The number of trials.
        confidence: The confidence of the interval.
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
    # At 0 and 1 rounding would leave the share itself out.
    return Interval(share, max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)))
