from __future__ import annotations

from collections.abc import Iterator

import pytest

import agentgym
from agentgym.oracles import NoisyPolicy
from agentgym.training.rollout import collect
from tests.training.rollout.faulty_world import CAUSES, check_fault

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    options = {"include_dashboard": False, "log_to_driver": False, "_node_ip_address": "127.0.0.1"}
    # Without an address, Ray would join any running cluster.
    ray.init("local", num_cpus=2, **options)
    yield
    ray.shutdown()


@pytest.mark.rotation
def test_actors_record_what_lockstep_records() -> None:
    spec = agentgym.spec(
        "TreeWorld", nodes=12, oracles="S", context="compaction+awareness", window=3_000, shots=1
    )
    policy = NoisyPolicy("TreeWorld", 0.2)
    expected = {t.seed: t.to_json() for t in collect(policy, spec, range(5), 2)}
    played = {t.seed: t.to_json() for t in collect(policy, spec, range(5), 2, engine="ray")}
    assert played == expected


@pytest.mark.rotation(how=list(CAUSES))
def test_an_actor_that_breaks_costs_its_episode_alone(how: str) -> None:
    check_fault("ray", how)
