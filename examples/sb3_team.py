"""SuperSuit and MaskablePPO: two agents learn to solve a list together, from numbers.

Needs: pip install 'agentgym-suite[sb3_team]'
Prints: the share of held-out lists that the trained team and a random team solve, by seed.
One policy plays both agents; the action mask, a part of the observation, tells it which.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import supersuit
from sb3_contrib import MaskablePPO
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

import agentgym
from agentgym.wrappers import DiscreteTeam

HELD_OUT = 1_000_000  # the first seed that training does not reach


class Masks(VecEnvWrapper):
    """Wrapper that reads the masks from the ends of the observations, for MaskablePPO."""

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


def make_team(items: int, removals: int) -> DiscreteTeam:
    """Make a team whose turn budget has no slack."""
    options = {"items": items, "removals": removals, "budget_factor": 1.0, "budget_slack": 0}
    return DiscreteTeam(agentgym.parallel_env("ListWorld-team", **options))


def make_vec(team: DiscreteTeam, copies: int) -> VecEnv:
    """Return copies of the team as one vector env with an entry for each agent."""
    one = supersuit.pettingzoo_env_to_vec_env_v1(team)
    return Masks(supersuit.concat_vec_envs_v1(one, copies, 0, "stable_baselines3"))


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


def main(arguments: Sequence[str] | None = None) -> list[tuple[float, float]]:
    """Train a team from each seed; return its share and the random team's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=4)
    parser.add_argument("--removals", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20_000, help="actions of both agents")
    parser.add_argument("--episodes", type=int, default=100, help="held-out lists")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args(arguments)
    team, shares = make_team(given.items, given.removals), []
    settings = {"n_steps": 64, "batch_size": 256, "learning_rate": 3e-3, "gamma": 0.95}
    for seed in range(given.seeds):
        envs = make_vec(team, 8)
        learner = MaskablePPO("MlpPolicy", envs, seed=1_000 * seed, device="cpu", **settings)
        learner.learn(given.steps)
        shares.append((solved(learner, team, given.episodes), solved(None, team, given.episodes)))
        print(f"seed {seed}: trained {shares[-1][0]:.0%}, random {shares[-1][1]:.0%}")
    return shares


if __name__ == "__main__":
    main()
