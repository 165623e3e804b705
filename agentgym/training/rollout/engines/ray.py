"""Collection on a cluster of Ray: actors that play the episodes of many slots each and, unless told
otherwise, have a copy of the policy each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import ray

from agentgym.play.policy import Policy
from agentgym.training.rollout.engines.base import describe
from agentgym.training.rollout.engines.wire import FarAnswer
from agentgym.training.rollout.engines.worker_slots import (
    WORKERS,
    FarEnd,
    Request,
    WorkerDied,
    WorkerEngine,
)
from agentgym.training.rollout.engines.workers import WorkerServer


class RayServer(WorkerServer):
    """The far end of a worker as an actor."""

    def play(self, policy: Policy | None, requests: Sequence[Request]) -> Iterator[FarAnswer]:
        """Yield the answers to requests in their order, with this policy if there is one."""
        if policy is not None:
            self.use(policy)
        for request in requests:
            yield self.answer(request)


class Ray(WorkerEngine):
    """Actors of Ray, on one machine or many. Joins the cluster that `RAY_ADDRESS` names, or starts
    one here.

    The policy goes into the object store once, so that actors of one machine share the weights of a
    model; a policy for an endpoint carries its address. An actor that dies, with its machine or
    alone, costs the episode whose step it was playing.

    Args:
        workers: The most actors, each of which plays one step at a time. As many slots have one
            each, further slots share them.
        **resources: The resources of an actor, as `ray.remote` has it, such as `num_cpus=1,
            num_gpus=0.25`. Without, an actor takes no share of the CPUs that Ray counts, and actors
            are spread over the machines.

    Example:
        >>> collect(policy, "ListWorld", range(10_000), num_envs=256, engine=Ray(num_cpus=1), timeout=600)
    """

    replicates = True

    def __init__(self, workers: int = WORKERS, **resources: Any) -> None:
        super().__init__(workers)
        if not ray.is_initialized():
            ray.init(configure_logging=False)
        self._actors = ray.remote(RayServer).options(
            **(resources or {"num_cpus": 0, "scheduling_strategy": "SPREAD"})
        )

    def share(self, policy: Policy) -> Any:
        """Return a reference to the policy in the object store."""
        return ray.put(policy)

    def start(self, make_env: bytes, number: int) -> FarEnd:
        """Start an actor."""
        return _Actor(self._actors.remote(make_env, number))


class _Actor(FarEnd):
    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def play(self, policy: Any, requests: Sequence[Request]) -> Iterator[FarAnswer]:
        try:
            for answer in self._actor.play.options(num_returns="streaming").remote(
                policy, requests
            ):
                yield ray.get(answer)
        except ray.exceptions.RayTaskError as error:
            raise WorkerDied(describe(error.cause)) from error
        except ray.exceptions.RayError as error:
            raise WorkerDied(str(error).splitlines()[0]) from error

    def kill(self) -> None:
        ray.kill(self._actor)

    def close(self) -> None:
        with suppress(ray.exceptions.RayError):
            self._actor.close_all.remote()
            ray.kill(self._actor)
