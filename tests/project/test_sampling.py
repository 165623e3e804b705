from __future__ import annotations

import pytest

from agentgym import ARMS, worlds
from tests.sampling import KINDS, OFFICE, Sample

IDS = [entry.id for entry in worlds()]
AXES = {"env_id": IDS, "arm": ARMS, "scope": ["persistent", "ephemeral"]}
CASES = len(IDS) * len(ARMS) * 2


@pytest.mark.parametrize("one_in", [2, 4, 8, 1_000])
@pytest.mark.parametrize("seed", ["a", "b"])
def test_a_sample_has_each_kind(one_in: int, seed: str) -> None:
    cases = [case.values for case in Sample(one_in, seed, whole=False).cases("family", AXES)]
    assert len(set(cases)) == len(cases) <= CASES / one_in + len(IDS)
    assert {KINDS[env_id] for env_id, _, _ in cases} == {KINDS[env_id] for env_id in IDS}
    assert {arm for _, arm, _ in cases} == set(ARMS)
    assert {scope for _, _, scope in cases} == {"persistent", "ephemeral"}
    others = sum(env_id not in OFFICE for env_id, _, _ in cases)
    assert others >= len(ARMS) * 2 * sum(env_id not in OFFICE for env_id in IDS) / one_in * 0.7


def test_a_draw_depends_on_seed_and_family_alone() -> None:
    one, again, other = (
        Sample(4, seed, whole=False).cases(family, AXES)
        for seed, family in (("a", "f"), ("a", "f"), ("b", "f"))
    )
    assert one == again
    assert one != other
    assert one != Sample(4, "a", whole=False).cases("g", AXES)


def test_with_its_rest_a_sample_is_everything() -> None:
    drawn = {case.values for case in Sample(4, "a", whole=False).cases("family", AXES)}
    cases = Sample(4, "a", whole=True).cases("family", AXES)
    assert len({case.values for case in cases}) == len(cases) == CASES
    assert {case.values for case in cases if not case.marks} == drawn
    assert {case.values for case in Sample(1, "a", whole=False).cases("family", AXES)} == {
        case.values for case in cases
    }


def test_a_test_in_rotation_has_its_turn_in_one_run_of_so_many() -> None:
    turns = [Sample(8, str(seed), whole=False).takes("test") for seed in range(400)]
    assert 25 <= sum(turns) <= 75
    assert Sample(1, "a", whole=False).takes("test")
