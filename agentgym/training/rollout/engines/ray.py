"""Collection on a Ray cluster, in actors that each run many slots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import ray

from agentgym.training.rollout.engines.servers import FarAnswer, Request, WorkerServer
from agentgym.training.rollout.engines.workers import WORKERS, FarEnd, WorkerDied, WorkerEngine
from agentgym.training.rollout.faults import describe


class RayServer(WorkerServer):
    """Ray actor that runs a worker's remote side."""

    def play(self, requests: Sequence[Request]) -> Iterator[FarAnswer]:
        """Yield the answers to requests in order."""
        for request in requests:
            yield self.answer(request)


class Ray(WorkerEngine):
    """Engine that steps envs in Ray actors, on the cluster at `RAY_ADDRESS` or a new cluster.

    The policy stays in the calling process. If an actor dies, only the episode that it was stepping
    is restarted.

    Args:
        workers: The maximum number of actors; each runs one step at a time.
        **resources: Resources per actor, as in `ray.remote`. By default, actors reserve no CPU and
            are spread over the cluster's machines.

    Example:
        >>> collect(policy, "ListWorld", range(10_000), num_envs=256, engine=Ray(num_cpus=1), timeout=600)
    """

    def __init__(self, workers: int = WORKERS, **resources: Any) -> None:
        super().__init__(workers)
        if not ray.is_initialized():
            ray.init(configure_logging=False)
        self._actors = ray.remote(RayServer).options(
            **(resources or {"num_cpus": 0, "scheduling_strategy": "SPREAD"})
        )

    def start(self, make_env: bytes) -> FarEnd:
        return _Actor(self._actors.remote(make_env))


class _Actor(FarEnd):
    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def play(self, requests: Sequence[Request]) -> Iterator[FarAnswer]:
        try:
            for answer in self._actor.play.options(num_returns="streaming").remote(requests):
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
