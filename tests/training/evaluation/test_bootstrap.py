"""Intervals: by hand, against a slow bootstrap, and by how often they hold the truth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from agentgym import ARMS
from agentgym.training.evaluation import Result, differences, effects, summarize


def row(seed: int, arm: str = "", success: float = 1.0, horizon: int = 4, **counts: Any) -> Result:
    given = {"steps": 4, "optimal": 3, "alive": 2, "alive_optimal": 2, **counts}
    return Result("ListWorld", arm, horizon, seed, success, **given)


def test_values_by_hand() -> None:
    rows = [
        row(0, success=1, steps=2, optimal=2),
        row(1, success=0, steps=6, optimal=3, alive=0, alive_optimal=0),
        row(2, "S", 1),
    ]
    assert summarize(rows, ("arm",), "success")["",].value == 0.5
    assert summarize(rows, ("arm",), "step_accuracy")["",].value == 5 / 8, (
        "steps are pooled, so long episodes weigh more"
    )
    assert summarize(rows, ("arm",), "alive_step_accuracy")["",].value == 1.0
    assert summarize(rows, (), "success")[()].value == 2 / 3
    assert set(summarize(rows, ("arm", "horizon"), "success")) == {("", 4), ("S", 4)}


def test_no_steps_no_rate() -> None:
    interval = summarize([row(0, alive=0, alive_optimal=0)], (), "alive_step_accuracy")[()]
    assert all(math.isnan(part) for part in (interval.value, interval.low, interval.high))


def test_samples_without_steps_do_not_void_the_interval() -> None:
    rows = [
        row(seed, alive=alive, alive_optimal=optimal)
        for seed, (alive, optimal) in enumerate([(4, 0), (4, 1), (0, 0)])
    ]
    interval = summarize(rows, (), "alive_step_accuracy")[()]
    assert (interval.value, interval.low, interval.high) == (1 / 8, 0.0, 0.25)


def test_the_interval_is_that_of_a_slow_bootstrap_over_seeds() -> None:
    rng = np.random.default_rng(1)
    rows = [
        row(seed, success=float(rng.random() < 0.6), horizon=h, optimal=int(rng.integers(5)))
        for seed in range(12)
        for h in (4, 8)
    ]
    for metric in ("success", "step_accuracy"):
        fast = summarize(rows, (), metric, samples=4_000)[()]
        slow = []
        for _ in range(4_000):
            drawn = [r for seed in rng.integers(12, size=12) for r in rows if r.seed == seed]
            hits = sum(r.success if metric == "success" else r.optimal for r in drawn)
            slow.append(hits / sum(1 if metric == "success" else r.steps for r in drawn))
        assert (fast.low, fast.high) == pytest.approx(np.percentile(slow, [2.5, 97.5]), abs=0.03)


def test_differences_and_effects_are_those_of_a_slow_bootstrap_that_draws_both_arms_alike() -> None:
    rng = np.random.default_rng(3)
    rows = [
        row(seed, arm, float(rng.random() < 0.5), h, steps=h, optimal=int(rng.integers(h + 1)))
        for arm in ("", "P", "S", "SP")
        for h in (4, 8)
        for seed in range(9)
        if rng.random() < 0.85
    ]

    def slow(pairs: Sequence[tuple[str, str]], metric: str) -> list[float]:
        played = {(r.arm, r.horizon, r.seed): r for r in rows}
        shared = [
            [(h, s) for a, h, s in played if a == one and (two, h, s) in played]
            for one, two in pairs
        ]
        seeds = sorted({s for instances in shared for _, s in instances})

        def rate(arm: str, instances: Sequence[tuple[int, int]], times: Mapping[int, int]) -> float:
            drawn = [played[arm, h, s] for h, s in instances for _ in range(times[s])]
            hits = sum(r.success if metric == "success" else r.optimal for r in drawn)
            return hits / sum(1 if metric == "success" else r.steps for r in drawn)

        def statistic(times: Mapping[int, int]) -> float:
            gains = [
                rate(two, i, times) - rate(one, i, times)
                for (one, two), i in zip(pairs, shared, strict=True)
            ]
            return sum(gains) / len(gains)

        draws = np.random.default_rng(5).multinomial(
            len(seeds), [1 / len(seeds)] * len(seeds), size=200
        )
        found = [statistic(dict(zip(seeds, draw, strict=True))) for draw in draws]
        return [statistic(dict.fromkeys(seeds, 1)), *np.percentile(found, [2.5, 97.5])]

    for metric in ("success", "step_accuracy"):
        gain = differences(rows, ("world",), metric, baseline="P", samples=200, seed=5)[
            "ListWorld", "SP"
        ]
        assert [gain.value, gain.low, gain.high] == pytest.approx(slow([("P", "SP")], metric))
        effect = effects(rows, ("world",), metric, samples=200, seed=5)["ListWorld", "P"]
        assert [effect.value, effect.low, effect.high] == pytest.approx(
            slow([("", "P"), ("S", "SP")], metric)
        )


def test_episodes_of_one_seed_count_as_one() -> None:
    alike = [row(seed, success=float(seed % 2), horizon=h) for seed in range(10) for h in range(8)]
    apart = [
        row(seed, success=float((seed + h) % 2), horizon=h) for seed in range(10) for h in range(8)
    ]
    wide, narrow = (summarize(rows, (), "success")[()] for rows in (alike, apart))
    assert wide.high - wide.low > 0.4
    assert narrow.high - narrow.low == 0.0


def test_differences_are_paired() -> None:
    rows = [
        row(seed, arm, success=float(seed % 2 or (arm == "S" and seed < 4)))
        for seed in range(40)
        for arm in ("", "S")
    ]
    gain = differences(rows, ("world",), "success")["ListWorld", "S"]
    rates = summarize(rows, ("arm",), "success")
    assert gain.value == pytest.approx(2 / 40)
    assert gain.high - gain.low < (rates["",].high - rates["",].low) / 1.5
    assert gain.low >= 0, "no seed does worse"


def test_only_instances_that_both_arms_have_played_are_compared() -> None:
    rows = [row(0, "", 0), row(1, "", 1), row(1, "S", 1), row(2, "S", 0)]
    assert differences(rows, (), "success")["S",].value == 0.0
    assert differences([row(0, ""), row(1, "S")], (), "success") == {}
    other_horizon = [row(0, "", 0, horizon=4), row(0, "", 1, horizon=8), row(0, "S", 1, horizon=8)]
    assert differences(other_horizon, (), "success")["S",].value == 0.0, (
        "the seed at another horizon is another instance"
    )


def test_effects_are_means_over_the_pairs_that_differ_in_one_oracle() -> None:
    rate = {"": 0.0, "S": 0.25, "P": 0.5, "SP": 0.5, "SH": 0.75, "SPH": 1.0}
    rows = [row(seed, arm, float(seed < 4 * rate[arm])) for seed in range(4) for arm in ARMS]
    found = {key: interval.value for key, interval in effects(rows, (), "success").items()}
    assert found == pytest.approx(
        {("P",): (0.5 + 0.25 + 0.25) / 3, ("S",): (0.25 + 0.0) / 2, ("H",): (0.5 + 0.5) / 2}
    )
    partial = effects([r for r in rows if r.arm in ("", "P")], (), "success")
    assert {key: interval.value for key, interval in partial.items()} == {("P",): 0.5}


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    held = 0
    for trial in range(300):
        skill = rng.normal(0.0, 0.5, size=40)  # a seed is easy or hard for all its episodes
        chance = 1 / (1 + np.exp(-skill))
        rows = [
            row(seed, success=float(rng.random() < chance[seed]), horizon=h)
            for seed in range(40)
            for h in range(3)
        ]
        interval = summarize(rows, (), "success", samples=400, seed=trial)[()]
        held += interval.low <= 0.5 <= interval.high
    assert 0.90 <= held / 300 <= 0.985


def test_same_seed_same_interval() -> None:
    rows = [row(seed, success=float(seed % 3 == 0)) for seed in range(20)]
    state = str(np.random.get_state())  # noqa: NPY002 - the global generator, which must stay as it is
    assert summarize(rows, (), "success", seed=5) == summarize(rows, (), "success", seed=5)
    assert summarize(rows, (), "success", 99, seed=5) != summarize(rows, (), "success", 99, seed=6)
    assert str(np.random.get_state()) == state  # noqa: NPY002


def test_bad_input_is_explained() -> None:
    with pytest.raises(
        ValueError,
        match="there is no metric 'sucess'; metrics: success, step_accuracy, alive_step_accuracy",
    ):
        summarize([row(0)], (), "sucess")
    with pytest.raises(ValueError, match="there are no results"):
        effects([], (), "success")
    with pytest.raises(ValueError, match="no episodes of the baseline arm ''"):
        differences([row(0, "S")], (), "success")
