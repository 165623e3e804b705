from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from agentgym import Chat, Reply
from agentgym.training.rollout import Collector
from tests.helpers import PATIENCE
from tests.training.rollout.faulty_world import Worker, make_env

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")

HERE = "127.0.0.1"
MEMORY = 100_000_000  # object store size in bytes; Ray requires at least 75 MB


class Slow(Worker):
    """Policy that replies slowly, so that the machine dies before the episodes end."""

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        time.sleep(0.06)
        return super().__call__(chats)


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
def test_a_machine_that_is_killed_costs_no_episode(machines: Any) -> None:
    from agentgym.training.rollout import Ray  # noqa: PLC0415 - needs Ray

    env = functools.partial(make_env, turns=24)
    with Collector(env, 12, engine=Ray(workers=6), timeout=PATIENCE) as collector:
        played = collector.collect(Slow(number=-1), range(40))
        episodes = [next(played) for _ in range(12)]
        # The actors are spread over the cluster's machines.
        machines.remove_node(next(iter(machines.worker_nodes)), allow_graceful=False)
        episodes += played
    assert sorted(t.seed for t in episodes) == list(range(40))
    assert [t.failure for t in episodes] == [""] * 40
    assert all(t.reward == 1.0 and len(t.steps) == 24 for t in episodes)
    assert collector.recovered + collector.retried > 0
