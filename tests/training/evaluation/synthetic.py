"""Synthetic studies with known true values, which measure the coverage of intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

import numpy as np

from agentgym.oracles import ARMS
from agentgym.training.evaluation.intervals import differences, effects, summarize
from agentgym.training.evaluation.scoring import Result
from agentgym.training.evaluation.statistics import Interval

CONTEXTS = ("none", "clear_results")
_PAIRS = {"P": (("", "P"), ("S", "SP"), ("SH", "SPH")), "S": (("", "S"), ("P", "SP"))}
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class SyntheticStudy:
    """Study of six arms in two contexts, with episodes drawn from known probabilities."""

    results: Sequence[Result]
    success: dict[tuple[str, str, int], float]
    accuracy: dict[tuple[str, str, int], float]

    def errors(self) -> Iterator[tuple[str, Interval, float]]:
        """Yield the kind, the interval and the true value of each estimate."""
        for metric, truth in (("success", self.success), ("step_accuracy", self.accuracy)):

            def mean(
                arm: str, context: str, truth: dict[tuple[str, str, int], float] = truth
            ) -> float:
                return fmean(p for (a, c, _), p in truth.items() if (a, c) == (arm, context))

            bare = [row for row in self.results if row.context == "none"]
            rate = summarize([row for row in bare if row.arm == "S"], (), metric)[()]
            yield f"{metric}: rate", rate, mean("S", "none")
            pair = [row for row in self.results if row.arm in ("", "S")]
            gain = differences([row for row in pair if row.context == "none"], (), metric)["S",]
            yield f"{metric}: difference", gain, mean("S", "none") - mean("", "none")
            changes = effects(bare, (), metric)
            for letter, pairs in _PAIRS.items():
                change = fmean(mean(b, "none") - mean(a, "none") for a, b in pairs)
                yield f"{metric}: effect", changes[letter,], change


def synthetic_study(rng: np.random.Generator) -> SyntheticStudy:
    """Draw a study's size, cell probabilities, correlations between arms, and episodes."""
    seeds, horizons = int(rng.integers(20, 41)), (8, 16, 32)[: int(rng.integers(1, 4))]
    shared_by_seed, shared_by_instance = rng.uniform(0, 0.4, size=2)
    noise = 1 - shared_by_seed - shared_by_instance
    by_seed = rng.normal(scale=np.sqrt(shared_by_seed), size=seeds)
    results: list[Result] = []
    success, accuracy = {}, {}
    for horizon in horizons:
        instance = by_seed + rng.normal(scale=np.sqrt(shared_by_instance), size=seeds)
        for arm in ARMS:
            for context in CONTEXTS:
                cell = arm, context, horizon
                success[cell], accuracy[cell] = rng.uniform(0.1, 0.9), rng.uniform(0.5, 0.98)
                luck_of_run = instance + rng.normal(scale=np.sqrt(noise), size=seeds)
                solved = luck_of_run < _NORMAL.inv_cdf(success[cell])
                # The probability of an optimal step, given the instance's difficulty.
                odds = [
                    _NORMAL.cdf((_NORMAL.inv_cdf(accuracy[cell]) - luck) / np.sqrt(noise))
                    for luck in instance
                ]
                optimal = rng.binomial(horizon, odds)
                for seed in range(seeds):
                    won, hits = float(solved[seed]), int(optimal[seed])
                    counts = (horizon, hits, horizon, hits)
                    results.append(Result("World", arm, horizon, seed, won, *counts, context))
    return SyntheticStudy(results, success, accuracy)


def coverage(studies: int, seed: int = 0) -> dict[str, float]:
    hits: dict[str, list[bool]] = {}
    for number in range(studies):
        for kind, interval, truth in synthetic_study(
            np.random.default_rng((seed, number))
        ).errors():
            hits.setdefault(kind, []).append(interval.low <= truth <= interval.high)
    return {kind: fmean(held) for kind, held in hits.items()}
