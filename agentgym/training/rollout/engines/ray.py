"""Ray engine: actors that each play the episodes of many slots."""

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
    """Worker that runs as a Ray actor."""

    def play(self, policy: Policy | None, requests: Sequence[Request]) -> Iterator[FarAnswer]:
        """Yield the answers to requests in order, switching to the policy if one is given."""
        if policy is not None:
            self.use(policy)
        for request in requests:
            yield self.answer(request)


class Ray(WorkerEngine):
    """Engine of Ray actors, on one machine or many.

    It joins the cluster named by `RAY_ADDRESS`, or starts a local one. The policy goes into the
    object store once, so actors on one machine share model weights. An actor's death costs only the
    episode whose step it was playing.

    Args:
        workers: Maximum number of actors. Each plays one step at a time; with more slots than
            actors, slots share them.
        **resources: Resources per actor, as in `ray.remote`, such as `num_cpus=1, num_gpus=0.25`.
            By default an actor reserves no CPU and actors are spread over the nodes.

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
