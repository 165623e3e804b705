"""Stable-Baselines3: MaskablePPO learns GridWorld from numeric observations instead of text.

Needs: pip install 'agentgym-suite[sb3]'

Prints: the share of held-out boards solved by a shortest path, for the agent and a random policy.
"""

import argparse
from collections.abc import Sequence

import gymnasium
import numpy as np
from sb3_contrib import MaskablePPO
from stable_baselines3.common.env_util import make_vec_env

import agentgym
from agentgym.wrappers import DiscreteActions, FeatureObservations

HELD_OUT = 1_000_000  # the first held-out seed; training uses smaller seeds


def make_env(size: int) -> gymnasium.Env:
    """Make a board with a menu of actions, action masks and a minimal turn budget."""
    board = agentgym.make("GridWorld", size=size, budget_factor=1.0, budget_slack=0)
    return FeatureObservations(DiscreteActions(board))


def solved(agent: MaskablePPO | None, env: gymnasium.Env, episodes: int) -> float:
    """Return the share of held-out boards solved; None plays random legal moves."""
    rng, total = np.random.default_rng(0), 0.0
    for seed in range(HELD_OUT, HELD_OUT + episodes):
        features, _ = env.reset(seed=seed)
        over = False
        while not over:
            mask = env.get_wrapper_attr("action_masks")()
            action = rng.choice(np.flatnonzero(mask))
            if agent is not None:
                action, _ = agent.predict(features, action_masks=mask, deterministic=True)
            features, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
        total += reward
    return total / episodes


def main(arguments: Sequence[str] | None = None) -> tuple[float, float]:
    """Train an agent; return the shares of the agent and of the random policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=3, help="length of a side of the board")
    parser.add_argument("--steps", type=int, default=8_000)
    parser.add_argument("--episodes", type=int, default=200, help="held-out boards")
    given = parser.parse_args(arguments)
    envs = make_vec_env(lambda: make_env(given.size), n_envs=16, seed=0)
    settings = {"n_steps": 64, "batch_size": 256, "learning_rate": 3e-3, "gamma": 0.95}
    agent = MaskablePPO("MlpPolicy", envs, seed=0, device="cpu", **settings).learn(given.steps)
    trained, chance = (solved(each, make_env(given.size), given.episodes) for each in (agent, None))
    print(f"solved with the shortest way: {trained:.0%}; by chance: {chance:.0%}")
    return trained, chance


if __name__ == "__main__":
    main()
