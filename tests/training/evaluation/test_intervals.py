from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from agentgym import ARMS
from agentgym.training.evaluation import (
    differences,
    effects,
    holm,
    level_horizons,
    summarize,
    wilson,
)
from tests.training.evaluation.studies import result

row = partial(result, optimal=3, alive=2, alive_optimal=2)


def test_values_by_hand() -> None:
    rows = [
        row(0, success=1, steps=2, optimal=2),
        row(1, success=0, steps=6, optimal=3, alive=0, alive_optimal=0),
        row(2, "S", 1),
    ]
    assert summarize(rows, ("arm",), "success")["",].value == 0.5
    assert summarize(rows, ("arm",), "step_accuracy")["",].value == (2 / 2 + 3 / 6) / 2
    assert summarize(rows, ("arm",), "alive_step_accuracy")["",].value == 1.0
    assert summarize(rows, (), "success")[()].value == 2 / 3
    assert set(summarize(rows, ("arm", "horizon"), "success")) == {("", 4), ("S", 4)}


def test_no_steps_no_rate() -> None:
    interval = summarize([row(0, alive=0, alive_optimal=0)], (), "alive_step_accuracy")[()]
    assert all(math.isnan(part) for part in (interval.value, interval.low, interval.high))


def test_episodes_without_steps_do_not_count() -> None:
    counts = [(4, 0), (4, 1), (0, 0)]
    rows = [row(seed, alive=alive, alive_optimal=hits) for seed, (alive, hits) in enumerate(counts)]
    interval = summarize(rows, (), "alive_step_accuracy")[()]
    assert interval.value == 1 / 8
    assert 0.0 <= interval.low < 1 / 8 < interval.high


def test_an_episode_counts_once_however_long_it_is() -> None:
    # Pooled over steps, the hint seems harmful, because it lets the agent survive long enough to
    # err.
    short = [row(seed, "", horizon=4, steps=4, optimal=3) for seed in range(20)]
    long = [row(seed, "", horizon=64, steps=4, optimal=3) for seed in range(20)]
    hinted = [row(seed, "P", horizon=4, steps=4, optimal=4) for seed in range(20)]
    hinted += [row(seed, "P", horizon=64, steps=64, optimal=32) for seed in range(20)]
    gain = differences([*short, *long, *hinted], (), "step_accuracy")["P",]
    assert gain.value == pytest.approx((1.0 + 0.5) / 2 - 0.75) == 0.0


def test_horizons_count_alike_however_many_episodes_they_have() -> None:
    rows = [row(seed, success=1.0, horizon=4) for seed in range(30)]
    rows += [row(seed, success=0.0, horizon=8) for seed in range(10)]
    assert summarize(rows, (), "success")[()].value == 0.5


def test_samples_of_an_instance_are_averaged_first() -> None:
    rows = [row(0, success=float(k % 2)) for k in range(8)] + [row(1, success=0.0)]
    assert summarize(rows, (), "success")[()].value == 0.25
    twice = [row(seed, success=float(seed % 2)) for seed in range(20) for _ in range(2)]
    once = twice[::2]
    wide, narrow = (summarize(some, (), "success")[()] for some in (once, twice))
    assert wide.high - wide.low <= narrow.high - narrow.low, "a sample is no new instance"


@pytest.mark.parametrize("metric", ["success", "step_accuracy", "alive_step_accuracy"])
@pytest.mark.parametrize("solved", [0.0, 1.0])
def test_no_interval_has_width_zero(metric: str, solved: float) -> None:
    counts = {"optimal": 4 * int(solved), "alive_optimal": 2 * int(solved)}
    rows = [
        row(seed, arm, solved, context=context, horizon=horizon, **counts)
        for seed in range(20)
        for arm in ARMS
        for context in ("none", "memory")
        for horizon in (4, 8)
    ]
    intervals = [
        *summarize(rows, ("arm", "horizon"), metric).values(),
        *summarize(rows, ("arm",), metric).values(),
        *differences(rows, (), metric).values(),
        *effects(rows, ("context",), metric).values(),
    ]
    assert len(intervals) == 12 + 6 + 5 + 6
    for interval in intervals:
        assert interval.low <= interval.value <= interval.high
        assert interval.high - interval.low > 0.01
        assert -1 <= interval.low < interval.high <= 1


def test_a_cell_has_the_interval_of_wilson() -> None:
    for successes, trials in ((0, 20), (7, 20), (19, 20), (150, 150)):
        rows = [row(seed, success=float(seed < successes)) for seed in range(trials)]
        assert summarize(rows, (), "success")[()] == wilson(successes, trials)
    horizons = [row(seed, horizon=h) for seed in range(30) for h in range(5)]
    assert summarize(horizons, (), "success")[()] == wilson(150, 150)


def test_the_difference_of_one_cell_is_that_of_bonett_and_price() -> None:
    rows = [row(seed, "", float(seed < 8)) for seed in range(25)]
    rows += [row(seed, "S", float(4 <= seed < 20)) for seed in range(25)]
    gain = differences(rows, (), "success")["S",]
    more, less, count = 12 + 1, 4 + 1, 25 + 2
    middle = (more - less) / count
    half = 1.959964 * math.sqrt(((more + less) / count - middle**2) / count)
    assert gain.value == (12 - 4) / 25
    assert (gain.low, gain.high) == pytest.approx((middle - half, middle + half), abs=1e-6)


# The 97.5% quantiles of Student's t by degrees of freedom, from printed tables.
QUANTILES = {
    1: 12.7062,
    2: 4.3027,
    3: 3.1824,
    4: 2.7764,
    5: 2.5706,
    9: 2.2622,
    24: 2.0639,
    120: 1.9799,
}


@pytest.mark.parametrize("freedom", QUANTILES)
def test_an_estimated_variance_takes_student_t(freedom: int) -> None:
    shares = np.random.default_rng(4).integers(5_000, 5_010, size=freedom + 1) / 10_000
    rows = [row(seed, "", steps=10_000, optimal=5_000) for seed in range(freedom + 1)]
    rows += [
        row(k, "S", steps=10_000, optimal=round(10_000 * x)) for k, x in enumerate(shares.tolist())
    ]
    gain = differences(rows, (), "step_accuracy")["S",]
    parts = shares - 0.5
    padded = np.append(parts, [1e-4, -1e-4])
    errors = [np.std(some, ddof=1) / np.sqrt(len(some)) for some in (parts, padded)]
    assert (gain.high - gain.low) / 2 == pytest.approx(QUANTILES[freedom] * max(errors), rel=1e-3)


def test_p_values_agree_with_the_intervals() -> None:
    rng = np.random.default_rng(2)
    outside = set()
    for _ in range(60):
        rows = [
            row(seed, arm, float(rng.random() < rate))
            for seed in range(22)
            for arm, rate in (("", 0.4), ("S", 0.65))
        ]
        gain = differences(rows, (), "success")["S",]
        assert (gain.p_value < 0.05) == (not gain.low <= 0 <= gain.high)
        outside.add(gain.p_value < 0.05)
    assert outside == {True, False}


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([]) == []
    corrected = holm([0.02, None])
    assert corrected[0] == 0.02, "what has no p-value is no test"
    assert corrected[1] is None


def test_horizons_are_levelled_for_each_policy() -> None:
    solved = {"small": {4: 7, 8: 3, 16: 0}, "large": {4: 10, 8: 8, 16: 4}}
    rows = [
        row(seed, arm, float(seed < count), horizon, policy=policy)
        for policy, counts in solved.items()
        for horizon, count in counts.items()
        for seed in range(10)
        for arm in ("", "S")
    ]
    levelled = level_horizons(rows, 0.3)
    assert {(r.policy, r.horizon) for r in levelled} == {("small", 8), ("large", 16)}
    assert {r.arm for r in levelled} == {"", "S"}
    with pytest.raises(ValueError, match="no episodes without oracles"):
        level_horizons([row(0, "S")], 0.3)


def test_episodes_of_one_seed_count_as_one() -> None:
    alike = [row(seed, success=float(seed % 2), horizon=h) for seed in range(10) for h in range(8)]
    apart = [
        row(seed, success=float((seed + h) % 2), horizon=h) for seed in range(10) for h in range(8)
    ]
    wide, narrow = (summarize(rows, (), "success")[()] for rows in (alike, apart))
    assert wide.high - wide.low > 0.4
    assert narrow.high - narrow.low < (wide.high - wide.low) / 2


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


def test_bad_input_is_explained() -> None:
    with pytest.raises(
        ValueError,
        match=r"unknown metric 'sucess'; did you mean 'success'[?] metrics: success, step_accuracy",
    ):
        summarize([row(0)], (), "sucess")
    with pytest.raises(ValueError, match="there are no results"):
        effects([], (), "success")
    with pytest.raises(ValueError, match="no episodes of the baseline arm ''"):
        differences([row(0, "S")], (), "success")
