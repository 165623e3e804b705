from __future__ import annotations

from math import comb

import numpy as np
import pytest

from agentgym import worlds
from agentgym.training.evaluation import Interval
from tests.sampling import is_office
from tests.training.evaluation.controls import DEFICITS, SETTINGS, Control, run_controls
from tests.training.evaluation.synthetic import coverage, synthetic_study

# One world and one office, which take seconds; all worlds together take minutes.
SAMPLED = ("ListWorld", "NhlB2bAnalysis")
# A five-step plan leaves too little history for distraction (docs/controls.md).
NOT_FOUND = {("AcademicWarning", "H")}


def quantile(share: float, tests: int, chance: float) -> int:
    total, count = 0.0, -1
    while total < share:
        count += 1
        total += comb(tests, count) * chance**count * (1 - chance) ** (tests - count)
    return count


@pytest.mark.rotation
@pytest.mark.parametrize(
    "world",
    [
        pytest.param(name, marks=() if name in SAMPLED else pytest.mark.exhaustive)
        for name in (entry.id.removeprefix("agentgym/").removesuffix("-v0") for entry in worlds())
    ],
)
def test_a_planted_deficit_is_found_and_nothing_in_the_null_agent(world: str) -> None:
    control = run_controls(world)
    for letter in DEFICITS:
        assert control.found(letter) or (world, letter) in NOT_FOUND
    wrong, count = control.false_findings()
    assert wrong <= quantile(0.999, count, 0.05)
    assert count == 6


def test_every_world_has_a_setting() -> None:
    ids = {entry.id.removeprefix("agentgym/").removesuffix("-v0") for entry in worlds()}
    assert ids >= set(SETTINGS)
    assert all(is_office(name) for name in ids - set(SETTINGS))


def test_controls_count_what_leaves_zero_out() -> None:
    above, across = Interval(0.2, 0.1, 0.3, 0.01), Interval(0.0, -0.1, 0.1, 1.0)
    planted = {"P": {"success": across, "step_accuracy": above}, "S": {"success": across}}
    below = Interval(-0.2, -0.3, -0.1, 0.01)
    null = {"P": {"success": across, "step_accuracy": above}, "S": {"success": below}}
    control = Control("World", {}, 20, 5.0, planted, null)
    assert (control.found("P"), control.found("S")) == (True, False)
    assert control.false_findings() == (2, 3)


def test_synthetic_studies_have_the_probabilities_that_they_name() -> None:
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(40):
        study = synthetic_study(rng)
        for cell, probability in list(study.success.items())[:4]:
            rows = [r for r in study.results if (r.arm, r.context, r.horizon) == cell]
            shares.append(np.mean([row.success for row in rows]) - probability)
    assert abs(np.mean(shares)) < 4 * np.std(shares) / np.sqrt(len(shares))


@pytest.mark.rotation
@pytest.mark.parametrize("studies", [100, pytest.param(5_000, marks=pytest.mark.exhaustive)])
def test_intervals_hold_the_truth_as_often_as_they_say(studies: int) -> None:
    covered = coverage(studies, seed=1)
    assert len(covered) == 6
    # In a small sample, coverage varies by chance.
    low, high = (
        (0.935, 0.965)
        if studies >= 5_000
        else (quantile(q, studies, 0.95) / studies for q in (0.0005, 0.9995))
    )
    for kind, share in covered.items():
        assert low <= share <= high, kind
