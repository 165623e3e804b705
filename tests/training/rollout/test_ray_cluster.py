"""Collection on a cluster of raylets: weights reach each machine once, and a dead one costs no
episode.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from agentgym import Chat, Reply, ToolCall, render
from agentgym.training.rollout import Collector, Trajectory
from tests.helpers import PATIENCE
from tests.training.rollout.faulty_world import make_env

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")

HERE = "127.0.0.1"
MEMORY = 100_000_000  # bytes of an object store; Ray requires at least 75 MB
SAID = re.compile(r"on (\w+), weights (mapped|copied)")


@dataclass(frozen=True)
class Heavy:
    """Slow policy that reports its machine, and whether its weights are in the object store."""

    weights: Any

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        time.sleep(0.06)  # on a busy host too, the machine must die before the episodes end
        kind = "copied" if self.weights.flags.writeable else "mapped"
        said = f"on {ray.get_runtime_context().get_node_id()}, weights {kind}"
        return [Reply(f"{said} {render(ToolCall('work', {'how': 'well'}))}") for _ in chats]


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    # Otherwise Ray would use this machine's network address.
    monkeypatch.setattr("ray._private.services.get_node_ip_address", lambda address=None: HERE)
    head = {"num_cpus": 1, "include_dashboard": False, "node_ip_address": HERE}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        cluster.add_node(num_cpus=1, node_ip_address=HERE, object_store_memory=MEMORY)
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.rotation
def test_a_machine_that_is_killed_costs_no_episode_and_weights_reach_each_once(
    machines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentgym.training.rollout import Ray  # noqa: PLC0415 - needs Ray

    stored: list[Any] = []
    put = ray.put

    def count(value: Any) -> Any:
        stored.append(value)
        return put(value)

    monkeypatch.setattr("ray.put", count)
    env = functools.partial(make_env, turns=6)
    with Collector(env, 12, engine=Ray(workers=6), timeout=PATIENCE) as collector:
        policy = Heavy(np.zeros(1_000_000))
        before = list(collector.collect(policy, range(24)))
        away = places(before) - {ray.get_runtime_context().get_node_id()}
        victim = next(node for node in machines.worker_nodes if node.node_id in away)
        played = collector.collect(policy, range(24, 64))
        after = [next(played)]
        machines.remove_node(victim, allow_graceful=False)
        after += played
        while any(node["Alive"] and node["NodeID"] == victim.node_id for node in ray.nodes()):
            time.sleep(0.1)
        last = list(collector.collect(policy, range(64, 76)))
    assert sorted(t.seed for t in (*before, *after)) == list(range(64))
    assert [t.failure for t in (*before, *after)] == [""] * 64
    assert all(t.reward == 1.0 and len(t.steps) == 6 for t in (*before, *after))
    assert collector.recovered + collector.retried > 0
    assert victim.node_id not in places(last)
    assert [t.failure for t in last] == [""] * 12
    assert len(stored) == 3, "once for each collection, whatever the number of machines and actors"
    assert {kind for t in (*before, *after) for _, kind in said(t)} == {"mapped"}


def said(trajectory: Trajectory) -> list[tuple[str, str]]:
    return [SAID.search(step.reply.text).groups() for step in trajectory.steps]  # type: ignore[union-attr,misc]


def places(trajectories: Sequence[Trajectory]) -> set[str]:
    return {machine for trajectory in trajectories for machine, _ in said(trajectory)}
