"""Ray: actors play episodes on this machine or on a cluster.

Needs: pip install 'agentgym-suite[ray]'

Prints: the mean reward and the number of recorded steps. --address joins a running cluster.
"""

import argparse
from collections.abc import Sequence

import ray

import agentgym
from agentgym.oracles import NoisyPolicy
from agentgym.training.rollout import Trajectory, collect


def main(arguments: Sequence[str] | None = None) -> list[Trajectory]:
    """Play episodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", default="TreeWorld")
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--address", help="of a cluster; without it, one is started here")
    given = parser.parse_args(arguments)
    local = {} if given.address else {"num_cpus": given.actors, "_node_ip_address": "127.0.0.1"}
    ray.init(given.address or "local", include_dashboard=False, log_to_driver=False, **local)
    trajectories = list(
        collect(
            NoisyPolicy(given.world, p=0.1),  # each actor has a copy of the policy
            agentgym.spec(given.world, oracles="S"),
            seeds=range(given.episodes),
            num_envs=given.actors,
            engine="ray",
        )
    )
    steps = sum(len(trajectory.steps) for trajectory in trajectories)
    reward = sum(trajectory.reward for trajectory in trajectories) / len(trajectories)
    print(f"{len(trajectories)} episodes, {steps} steps, mean reward {reward:.2f}")
    ray.shutdown()
    return trajectories


if __name__ == "__main__":
    main()
