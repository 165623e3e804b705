"""Collection on a cluster of Ray: an actor for each slot, with its env and, unless told otherwise,
its own copy of the policy.
"""

from __future__ import annotations

from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import ray

from agentgym.policy import Policy, PolicyError
from agentgym.training.rollout.engines import Answers, Engine, MakeEnv, Slot, ThreadSlot, describe
from agentgym.training.rollout.workers import PlayerClient, PlayerServer, WorkerDied, worker_error


class Ray(Engine):
    """Actors of Ray, on one machine or many. Joins the cluster that `RAY_ADDRESS` names, or starts
    one here.

    The policy goes into the object store once, so that actors of one machine share the weights of a
    model; a policy for an endpoint carries its address. An actor that dies, with its machine or
    alone, costs the episode that it was playing.

    Args:
        **resources: The resources of an actor, as `ray.remote` has it, such as `num_cpus=1,
            num_gpus=0.25`. Without, an actor takes no share of the CPUs that Ray counts, and actors
            are spread over the machines.

    Example:
        >>> collect(policy, "ListWorld", range(10_000), num_envs=256, engine=Ray(num_cpus=1), timeout=600)
    """

    replicates = True

    def __init__(self, **resources: Any) -> None:
        if not ray.is_initialized():
            ray.init(configure_logging=False)
        options = resources or {"num_cpus": 0, "scheduling_strategy": "SPREAD"}
        self._actors = ray.remote(PlayerServer).options(**options)

    def share(self, policy: Policy) -> Any:
        """Return a reference to the policy in the object store."""
        return ray.put(policy)

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        """Open a slot."""
        actor: Any = self._actors.remote(cloudpickle.dumps(make_env), number)
        return ThreadSlot(lambda: _RayPlayer(actor), number, answers, lambda: ray.kill(actor))


class _RayPlayer(PlayerClient):
    def __init__(self, actor: Any) -> None:
        super().__init__()
        self._actor = actor

    def call(self, method: str, argument: Any) -> Any:
        try:
            return ray.get(getattr(self._actor, method).remote(argument))
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise worker_error(describe(cause), isinstance(cause, PolicyError)) from error
        except ray.exceptions.RayError as error:
            raise WorkerDied(str(error).splitlines()[0]) from error

    def close(self) -> None:
        self._actor.close.remote()
        ray.kill(self._actor)
