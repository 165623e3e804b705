"""Intervals for rates, paired differences and oracle effects, clustered by instance.

A rate is the mean over worlds and horizons of the mean over instances, as in LUMINA. Each pair of
world and seed is one cluster, because instances of one seed are similar in all arms and horizons.
Two seeds also share a cluster if a policy had the same first prompt and reply for both: sampling
depends only on the prompt, so the episodes are not independent. Worlds are fixed strata.

Estimates use only the episodes that were played. Worst and best rates count all missing episodes
as failed and as solved, respectively.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from math import inf, sqrt
from operator import attrgetter
from statistics import fmean

import numpy as np

from agentgym.text.validation import list_names
from agentgym.training.evaluation.missing import Results, filled
from agentgym.training.evaluation.scoring import Result, distinct, played
from agentgym.training.evaluation.statistics import NO_DATA, Interval, around_zero, rate
from agentgym.training.rollout import Usage

Key = tuple[str | int, ...]
# A weighted sum of rates, as (weight, episodes) pairs.
Terms = Sequence[tuple[float, Sequence[Result]]]
# The episodes with an intervention, and those without it.
_Sides = tuple[Sequence[Result], Sequence[Result]]
_Cells = dict[tuple[str, str, int], dict[int, float]]  # (policy, world, size) -> seed -> mean

TOKENS = (
    *(item.name for item in fields(Usage) if item.name.endswith("_tokens")),
    "missed_prompt_tokens",
)
# Metrics that are counts, not shares.
COUNTS = (*TOKENS, "edits", "calls")
# If two policies share no instances, one policy's world names get this suffix.
_ELSEWHERE = "elsewhere"
_SIZE = ("world", "arm", "context", "axis", "horizon")


def _share(hits: str, chances: str) -> Callable[[Result], tuple[float, float] | None]:
    def value(row: Result) -> tuple[float, float] | None:
        if count := getattr(row, chances):
            return getattr(row, hits) / count, 1 / count
        return None

    return value


def _tokens(name: str) -> Callable[[Result], tuple[float, float] | None]:
    return lambda row: (float(getattr(row.usage, name)), 0.0) if row.usage else None


# Functions that return an episode's value and that value's smallest change; None if undefined.
_VALUES: Mapping[str, Callable[[Result], tuple[float, float] | None]] = {
    "success": lambda row: (row.success, 1.0),
    "step_accuracy": _share("optimal", "steps"),
    "alive_step_accuracy": _share("alive_optimal", "alive"),
    **{name: _tokens(name) for name in (*TOKENS, "edits")},
    "calls": lambda row: (float(row.calls), 0.0),
}

# For each intervention: pairs of arms without and with the intervention.
PAIRS: Mapping[str, Sequence[tuple[str, str]]] = {
    "P": (("", "P"), ("S", "SP"), ("SH", "SPH")),
    "S": (("", "S"), ("P", "SP")),
    "H": (("S", "SH"), ("SP", "SPH")),
}


def summarize(results: Sequence[Result], by: Sequence[str], metric: str) -> dict[Key, Interval]:
    """Return a metric for each group of episodes, as a share in [0, 1] or a mean count.

    `by` lists the fields of `Result` by which episodes are grouped. The metrics are `success`,
    `step_accuracy` (an episode's share of optimal steps), `alive_step_accuracy` (only among steps
    taken while success was possible), `calls`, `edits` of the context, and `TOKENS`. Episodes
    without the metric are omitted; if all are omitted, the value is nan.
    """
    intervals = {}
    for key, rows in _groups(results, by, metric).items():
        there = played(rows)
        estimate = _estimate([(1.0, there)], metric) if there else NO_DATA
        intervals[key] = _with_bounds(replace(estimate, count=len(there)), rows, metric)
    return intervals


def _with_bounds(estimate: Interval, rows: Sequence[Result], metric: str) -> Interval:
    missing = len(rows) - len(played(rows))
    if not missing or metric in COUNTS:
        return estimate
    worst, best = _mean(filled(rows, 0), metric), _mean(filled(rows, 1), metric)
    return replace(estimate, missing=missing, worst=worst, best=best)


def _mean(rows: Sequence[Result], metric: str) -> float:
    return fmean(fmean(cell.values()) for cell in _cell_means(rows, metric, []).values())


def differences(
    results: Sequence[Result],
    by: Sequence[str],
    metric: str,
    baseline: str = "",
    factor: str = "arm",
) -> dict[Key, Interval]:
    """Return each arm's gain over a baseline arm on the instances played by both.

    Set `factor` to compare contexts or policies instead of arms. Arms without common instances are
    omitted; policies without common instances are compared unpaired. A group without the baseline
    raises `ValueError`.
    """
    intervals: dict[Key, Interval] = {}
    for key, rows in _groups(results, by, metric).items():
        arms = _groups(rows, (factor,), metric)
        if (baseline,) not in arms:
            raise ValueError(
                f"the group {key} has no episodes of the baseline arm {baseline!r}; play that arm or "
                "choose another baseline"
            )
        for (arm,), side in arms.items():
            if arm != baseline:
                pair = side, arms[baseline,]
                if interval := _mean_difference([pair], factor, metric):
                    intervals[*key, arm] = interval
    return intervals


def effects(
    results: Sequence[Result],
    by: Sequence[str],
    metric: str,
    pairs_of: Mapping[str, Sequence[tuple[str, str]]] = PAIRS,
) -> dict[Key, Interval]:
    """Return the mean effects of plan (P), state (S) and history (H) over pairs of arms that differ
    only in the intervention. Interventions without a pair are omitted.
    """
    intervals: dict[Key, Interval] = {}
    for key, rows in _groups(results, by, metric).items():
        arms = _groups(rows, ("arm",), metric)
        for letter, pairs in pairs_of.items():
            sides = []
            for without, having in pairs:
                sides.append((arms.get((having,), []), arms.get((without,), [])))
            if interval := _mean_difference(sides, "arm", metric):
                intervals[*key, letter] = interval
    return intervals


def _groups(results: Sequence[Result], by: Sequence[str], metric: str) -> dict[Key, list[Result]]:
    if metric not in _VALUES:
        remedy = list_names(metric, tuple(_VALUES), "metrics")
        raise ValueError(f"unknown metric {metric!r}; {remedy}")
    rows = results.everything if isinstance(results, Results) else results
    if not rows:
        raise ValueError("there are no results to summarize; run an ablation first")
    groups: dict[Key, list[Result]] = {}
    for row in rows:
        groups.setdefault(_key(row, by), []).append(row)
    return groups


def _key(row: Result, fields: Iterable[str]) -> Key:
    return tuple(getattr(row, name) for name in fields)


def _mean_difference(sides: Sequence[_Sides], factor: str, metric: str) -> Interval | None:
    terms: list[tuple[float, Sequence[Result]]] = []
    count = 0
    for after, before in sides:
        one, two = _shared(played(after), played(before), factor)
        if one:
            terms += [(1.0, one), (-1.0, two)]
            count += len(distinct(one, *_SIZE, "seed", "instance", "policy"))
    if not terms:
        return None
    used = len(terms) / 2
    estimate = _estimate([(weight / used, rows) for weight, rows in terms], metric)
    return replace(estimate, count=count)


def _shared(after: Sequence[Result], before: Sequence[Result], factor: str) -> _Sides:
    """Keep the instances that both sides played; if there are none, compare policies unpaired."""
    names = {"policy", "world", "horizon", "seed", "arm", "context", "instance"} - {factor}
    one, two = _alike(after, before, attrgetter(*sorted(names)))
    if one or factor != "policy":
        return one, two
    one, two = _alike(after, before, attrgetter(*_SIZE))
    # Equal seeds form one cluster only if they denote the same instance.
    return [replace(row, world=f"{row.world} {_ELSEWHERE}") for row in one], two


def _alike(
    one: Sequence[Result], two: Sequence[Result], key: Callable[[Result], object]
) -> tuple[list[Result], list[Result]]:
    """Keep the episodes whose key occurs on both sides."""
    common = set(map(key, one)) & set(map(key, two))
    return [row for row in one if key(row) in common], [row for row in two if key(row) in common]


def _clusters(rows: Iterable[Result], *fields: str) -> dict[Key, Key]:
    parents: dict[Key, Key] = {}

    def root(node: Key) -> Key:
        while parents[node] != node:
            node = parents[node]
        return node

    first_with: dict[Key, Key] = {}
    for row in rows:
        node = _key(row, fields)
        parents.setdefault(node, node)
        if row.opening:
            other = first_with.setdefault((row.policy, row.world, row.opening), node)
            one, two = sorted((root(node), root(other)))
            parents[two] = one
    return {node: root(node) for node in parents}


def _estimate(terms: Terms, metric: str) -> Interval:
    """Return a weighted sum of rates with its interval; worlds with one cluster share a stratum."""
    everything: list[Result] = []
    for _, rows in terms:
        everything += rows
    cluster_of = _clusters(everything, "world", "seed")
    draw_of = _clusters(everything, "world", "horizon", "seed")
    clusters = sorted(set(cluster_of.values()))
    column = {cluster: k for k, cluster in enumerate(clusters)}
    sizes = Counter(str(world) for world, _ in clusters)
    total, draws = 0.0, inf
    shifts = np.zeros(len(clusters))
    steps: list[float] = []
    for weight, rows in terms:
        cells = _cell_means(rows, metric, steps)
        if not cells:
            return NO_DATA
        draws = min(draws, _effective_draws(cells, draw_of))
        means = [fmean(cell.values()) for cell in cells.values()]
        total += weight * fmean(means)
        for ((_, world, _), cell), mean in zip(cells.items(), means, strict=True):
            middle = mean if sizes[world] > 1 else fmean(means)
            for seed, value in cell.items():
                shift = weight * (value - middle) / (len(cell) * len(cells))
                shifts[column[cluster_of[world, seed]]] += shift
    # Worlds that have only one cluster are merged into one stratum.
    single = list(sizes.values()).count(1)
    factors = []
    for name, _ in clusters:
        size = sizes[str(name)]
        factors.append(_unbias(single if size == 1 else size, len(clusters)))
    parts = total + len(clusters) * shifts * factors
    freedom = len(clusters) - len(sizes) + max(0, single - 1)
    # If a few episodes dominate a mean, they limit the degrees of freedom.
    freedom = min(freedom, max(1, int(draws) - 1))
    if len(terms) > 1 or metric in COUNTS:
        weights = [abs(weight) for weight, _ in terms]
        # The smallest change that one episode can make to its cluster's contribution.
        change = max(weights) * fmean(steps) * len(clusters) / draws
        bound = sum(weights) / 2 if metric not in COUNTS else inf
        return around_zero(total, parts, freedom, change, bound)
    # If clusters agree or cells are small, the variance is underestimated.
    capped = len(sizes) > 1 or draws < sum(map(len, cells.values()))
    return rate(total, parts, freedom, draws, most=draws if capped else inf)


def _effective_draws(cells: _Cells, draw_of: Mapping[Key, Key]) -> float:
    all_draws: set[Key] = set()
    inverse = 0.0
    for (_, world, horizon), cell in cells.items():
        own = {draw_of[world, horizon, seed] for seed in cell}
        all_draws |= own
        inverse += 1 / len(own)
    return min(len(all_draws), round(len(cells) ** 2 / inverse, 9))


def _unbias(size: int, clusters: int) -> float:
    return sqrt(size / (size - 1) * (clusters - 1) / clusters) if size > 1 else 1.0


def _cell_means(rows: Sequence[Result], metric: str, steps: list[float]) -> _Cells:
    """Return means by cell and seed; add the smallest possible change of each mean to `steps`."""
    values: dict[tuple[str, str, int], dict[int, list[tuple[float, float]]]] = {}
    for row in rows:
        if (pair := _VALUES[metric](row)) is not None:
            cell = row.policy, row.world, row.horizon
            values.setdefault(cell, {}).setdefault(row.seed, []).append(pair)
    means: _Cells = {}
    for cell, by_seed in values.items():
        means[cell] = {}
        for seed, some in by_seed.items():
            shares, changes = zip(*some, strict=True)
            means[cell][seed] = fmean(shares)
            # If one of n samples changes by d, the instance's mean changes by d/n.
            steps.append(fmean(changes) / len(some))
    return means
