"""Intervals for rates, paired differences and effects of oracles: a bootstrap clustered by seed,
and Wilson's.

Episodes of one seed share their instance in every arm, so they are not independent: the bootstrap
draws seeds, and a seed brings all its episodes along. Both sides of a difference are drawn with the
same seeds, so differences are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import sqrt
from statistics import NormalDist

import numpy as np

from agentgym.arguments import check_float, check_int
from agentgym.training.evaluation.scoring import Result
from agentgym.training.rollout import Usage

Key = tuple[str | int, ...]
Terms = Sequence[tuple[float, Sequence[Result]]]
"""A weighted sum of rates: weights, and the episodes that each rate is taken over."""

TOKENS = tuple(item.name for item in fields(Usage) if item.name.endswith("_tokens"))
"""The metrics that count tokens."""


def _tokens(name: str) -> Callable[[Result], tuple[float, float]]:
    return lambda row: (float(getattr(row.usage, name)), 1.0) if row.usage else (0.0, 0.0)


_COUNTS: Mapping[str, Callable[[Result], tuple[float, float]]] = {
    "success": lambda row: (row.success, 1.0),
    "step_accuracy": lambda row: (row.optimal, row.steps),
    "alive_step_accuracy": lambda row: (row.alive_optimal, row.alive),
    **{name: _tokens(name) for name in TOKENS},
}
_PAIRS: Mapping[str, Sequence[tuple[str, str]]] = {
    "P": (("", "P"), ("S", "SP"), ("SH", "SPH")),
    "S": (("", "S"), ("P", "SP")),
    "H": (("S", "SH"), ("SP", "SPH")),
}


@dataclass(frozen=True, slots=True)
class Interval:
    """A share, or a difference of shares, with its interval, of 95 % unless another is asked for."""

    value: float
    low: float
    high: float


def summarize(
    results: Sequence[Result], by: Sequence[str], metric: str, samples: int = 2_000, seed: int = 0
) -> dict[Key, Interval]:
    """Return a metric for each group of episodes.

    Args:
        results: The episodes.
        by: The fields of `Result` that make a group; none for one group of all.
        metric: `success` (mean over episodes), `step_accuracy` (optimal among all steps of the
            group), `alive_step_accuracy` (optimal among the steps before which success was
            possible; nan if there are none), or one of `TOKENS` (mean over the episodes whose
            tokens were counted; nan if there are none).
        samples: Number of bootstrap samples.
        seed: Seeds the bootstrap.

    Returns:
        By the values of the fields: a share in [0, 1], or a number of tokens, with its percentile
        interval.

    Raises:
        ValueError: There are no results, or no such metric.
    """
    return {
        key: _bootstrap([(1.0, rows)], metric, samples, seed)
        for key, rows in _groups(results, by, metric).items()
    }


def differences(
    results: Sequence[Result],
    by: Sequence[str],
    metric: str,
    baseline: str = "",
    factor: str = "arm",
    samples: int = 2_000,
    seed: int = 0,
) -> dict[Key, Interval]:
    """Return the gain of each arm over a baseline arm, over the instances that both have played.

    Args:
        results: The episodes.
        by: The fields that make a group, within which arms are compared.
        metric: As in `summarize`.
        baseline: The arm to compare with.
        factor: The arms to compare: the oracles (`arm`) or the context strategies (`context`).
        samples: Number of bootstrap samples.
        seed: Seeds the bootstrap.

    Returns:
        By the values of the fields and the arm: a difference in [-1, 1]. Arms without an instance
        in common with the baseline are left out.

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
        for (arm,) in arms:
            if arm != baseline and (terms := _paired(arms, baseline, str(arm), factor)):
                intervals[*key, arm] = _bootstrap(terms, metric, samples, seed)
    return intervals


def effects(
    results: Sequence[Result], by: Sequence[str], metric: str, samples: int = 2_000, seed: int = 0
) -> dict[Key, Interval]:
    """Return the effect of plan (P), state (S) and history (H): the mean difference of the pairs of
    arms that differ in it alone.

    Args:
        results: The episodes.
        by: The fields that make a group.
        metric: As in `summarize`.
        samples: Number of bootstrap samples.
        seed: Seeds the bootstrap.

    Returns:
        By the values of the fields and the letter of the intervention: a difference in [-1, 1].
        Interventions for which no pair of arms was run are left out.

    Raises:
        ValueError: There are no results, or no such metric.
    """
    intervals: dict[Key, Interval] = {}
    for key, rows in _groups(results, by, metric).items():
        arms = _groups(rows, ("arm",), metric)
        for letter, pairs in _PAIRS.items():
            present = [
                terms for without, having in pairs if (terms := _paired(arms, without, having))
            ]
            terms = [(weight / len(present), part) for pair in present for weight, part in pair]
            if terms:
                intervals[*key, letter] = _bootstrap(terms, metric, samples, seed)
    return intervals


def _groups(results: Sequence[Result], by: Sequence[str], metric: str) -> dict[Key, list[Result]]:
    if metric not in _COUNTS:
        raise ValueError(f"there is no metric {metric!r}; metrics: {', '.join(_COUNTS)}")
    if not results:
        raise ValueError("there are no results to summarize; run an ablation first")
    groups: dict[Key, list[Result]] = {}
    for row in results:
        groups.setdefault(tuple(getattr(row, name) for name in by), []).append(row)
    return groups


def _paired(
    arms: Mapping[Key, Sequence[Result]], without: str, having: str, factor: str = "arm"
) -> Terms:
    """The difference of two arms over the instances that both have played, as terms; empty if there
    are none.
    """
    before, after = arms.get((without,), ()), arms.get((having,), ())
    shared = {_instance(row, factor) for row in before} & {_instance(row, factor) for row in after}
    if not shared:
        return ()
    sides = ((1.0, after), (-1.0, before))
    return [
        (sign, [row for row in side if _instance(row, factor) in shared]) for sign, side in sides
    ]


def _instance(row: Result, factor: str) -> Key:
    """Return the key that two episodes share if they differ in the factor alone."""
    return row.world, row.horizon, row.seed, row.context if factor == "arm" else row.arm


def _bootstrap(terms: Terms, metric: str, samples: int, seed: int) -> Interval:
    """A weighted sum of rates with its percentile interval over samples of seeds."""
    seeds = sorted({row.seed for _, rows in terms for row in rows})
    place = {number: k for k, number in enumerate(seeds)}
    drawn = np.random.default_rng(seed).multinomial(
        len(seeds), np.full(len(seeds), 1 / len(seeds)), size=samples
    )
    times = np.vstack([np.ones(len(seeds)), drawn])  # the first row is the data as it is
    total = np.zeros(samples + 1)
    for weight, rows in terms:
        counts = np.zeros((len(seeds), 2))
        for row in rows:
            counts[place[row.seed]] += _COUNTS[metric](row)
        hits, chances = (times @ counts).T
        with np.errstate(invalid="ignore"):  # no chances, no rate: nan
            total += weight * hits / chances
    if np.isnan(total[0]):
        return Interval(float("nan"), float("nan"), float("nan"))
    low, high = np.nanpercentile(total[1:], [2.5, 97.5])
    return Interval(float(total[0]), float(low), float(high))


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
    normal = NormalDist().inv_cdf((1 + confidence) / 2)
    share, z2 = successes / trials, normal**2
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = normal * sqrt(share * (1 - share) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))
