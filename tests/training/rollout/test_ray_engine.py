"""Collection by Ray actors on one machine: the same results, and shared weights or endpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import agentgym
from agentgym.oracles import NoisyPolicy, OraclePolicy
from agentgym.training.rl import rows
from agentgym.training.rollout import LocalPolicy, collect, make_model, make_tokenizer
from tests.training.rollout.endpoint_kinds import KINDS, environment, playing_chat  # noqa: F401
from tests.training.rollout.endpoint_server import Answer
from tests.training.rollout.faulty_world import CAUSES, check_fault

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    options = {"include_dashboard": False, "log_to_driver": False, "_node_ip_address": "127.0.0.1"}
    # Without an address, Ray would join any running cluster.
    ray.init("local", num_cpus=2, **options)
    yield
    ray.shutdown()


@pytest.mark.rotation(replicate=[False, True])
def test_actors_record_what_lockstep_records(replicate: bool) -> None:
    spec = agentgym.spec(
        "TreeWorld", nodes=12, oracles="S", context="compaction+awareness", window=3_000, shots=1
    )
    policy = NoisyPolicy("TreeWorld", 0.2)
    expected = {t.seed: t.to_json() for t in collect(policy, spec, range(5), 2)}
    played = {
        t.seed: t.to_json()
        for t in collect(policy, spec, range(5), 2, engine="ray", replicate=replicate)
    }
    assert played == expected


@pytest.mark.rotation(how=list(CAUSES))
def test_an_actor_that_breaks_costs_its_episode_alone(how: str) -> None:
    check_fault("ray", how, replicate=None)


@pytest.mark.rotation
def test_weights_are_shared_and_every_copy_samples_for_itself() -> None:
    texts = ["Say something about lists: [1, 2, 3]", *(f"number {number}" for number in range(50))]
    tokenizer = make_tokenizer(texts, 300)
    policy = LocalPolicy(
        make_model(tokenizer, width=32, heads=2, context=4_096), tokenizer, max_new_tokens=5
    )
    played = list(
        collect(policy, agentgym.spec("ListWorld", items=4, removals=1), [3, 3], 2, engine="ray")
    )
    assert len(played) == 2
    one, other = ([step.reply.ids for step in t.steps] for t in played)
    assert one != other, "two episodes of one instance, as in a group of GRPO"
    for trajectory in played:
        sampled = sum(sum(row.sampled) for row in rows(trajectory))
        assert sampled == sum(len(step.reply.ids) for step in trajectory.steps) > 0


@pytest.mark.rotation
def test_actors_share_an_endpoint() -> None:
    spec = agentgym.spec("ListWorld", items=5, removals=2)
    (solved,) = collect(OraclePolicy("ListWorld"), spec, [4])
    plan = [call for message in solved.last.messages for call in message.calls]
    kind = KINDS["chat"]

    def script(request: dict[str, Any], number: int) -> Answer:
        call = plan[kind.turns(request)]
        return kind.said("next", (call.name, dict(call.arguments)))

    with playing_chat(script) as (policy, server):
        played = list(collect(policy, spec, [4, 4, 4], 2, engine="ray"))
        assert len(server.requests) == 3 * len(plan)
    assert [(t.reward, t.failure) for t in played] == [(1.0, "")] * 3
