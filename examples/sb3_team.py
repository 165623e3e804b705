"""SuperSuit and MaskablePPO: two agents learn from numeric observations to solve a list together.

Needs: pip install 'agentgym-suite[multi,sb3]' supersuit

Prints: the share of held-out lists that the trained team and a random team solve. One policy plays
both agents; the action mask in the observation shows whose turn it is.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import supersuit
from sb3_contrib import MaskablePPO
from stable_baselines3.common.vec_env import VecEnvWrapper

import agentgym
from agentgym.wrappers import DiscreteTeam

HELD_OUT = 1_000_000  # the first held-out seed; training uses smaller seeds


class Masks(VecEnvWrapper):
    """Wrapper that extracts MaskablePPO's action masks from the ends of the observations."""

    def seed(self, seed: int | None = None) -> Any:
        self.first = seed  # SuperSuit seeds only resets

    def reset(self) -> Any:
        self.newest, _ = self.venv.venv.reset(seed=self.first)
        return self.newest

    def step_wait(self) -> Any:
        self.newest, *rest = self.venv.step_wait()
        return self.newest, *rest

    def has_attr(self, attr_name: str) -> bool:
        return attr_name == "action_masks"

    def env_method(self, method_name: str, *args: Any, **options: Any) -> list[Any]:
        return list(self.newest[:, -self.action_space.n :] > 0)


def solved(learner: MaskablePPO | None, team: DiscreteTeam, episodes: int) -> float:
    """Return the share of held-out lists solved; None plays random legal actions."""
    rng, total = np.random.default_rng(0), 0.0
    for seed in range(HELD_OUT, HELD_OUT + episodes):
        observations, infos = team.reset(seed=seed)
        while team.agents:
            actions = {}
            for agent in team.agents:
                mask = infos[agent]["action_mask"]
                actions[agent] = rng.choice(np.flatnonzero(mask))
                if learner is not None:
                    actions[agent], _ = learner.predict(observations[agent], action_masks=mask)
            observations, rewards, _, _, infos = team.step(actions)
        total += sum(rewards.values()) / len(rewards)
    return total / episodes


def main(arguments: Sequence[str] | None = None) -> tuple[float, float]:
    """Train a team; return the shares of the trained team and of a random team."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5_000, help="actions of both agents")
    parser.add_argument("--episodes", type=int, default=100, help="held-out lists")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    options = {"items": 4, "removals": 2, "budget_factor": 1.0, "budget_slack": 0}
    team = DiscreteTeam(agentgym.parallel_env("ListWorld-team", **options))
    agents = supersuit.pettingzoo_env_to_vec_env_v1(
        team
    )  # the agents become entries of a vector env
    envs = Masks(supersuit.concat_vec_envs_v1(agents, 8, 0, "stable_baselines3"))
    settings = {"n_steps": 64, "batch_size": 256, "learning_rate": 3e-3, "gamma": 0.95}
    learner = MaskablePPO("MlpPolicy", envs, seed=given.seed, device="cpu", **settings)
    learner.learn(given.steps)
    trained, chance = (solved(each, team, given.episodes) for each in (learner, None))
    print(f"solved: {trained:.0%}; by chance: {chance:.0%}")
    return trained, chance


if __name__ == "__main__":
    main()
