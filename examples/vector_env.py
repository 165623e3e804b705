"""Vector env: a policy plays many Gymnasium envs in parallel with batches of chats.

Each env runs in a separate process; `--mode sync` runs all envs in this process.

Needs: pip install agentgym-suite

Prints: the mean score of the episodes.
"""

import argparse
from collections.abc import Sequence

import gymnasium

from agentgym.oracles import NoisyPolicy


def main(arguments: Sequence[str] | None = None) -> float:
    """Play episodes and return their mean score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60, help="replies of the policy in each env")
    parser.add_argument("--envs", type=int, default=4)
    parser.add_argument("--mode", choices=["async", "sync"], default="async")
    options = parser.parse_args(arguments)

    # any other policy that accepts chats also works
    policy = NoisyPolicy("ListWorld", p=0.1)
    envs = gymnasium.make_vec(
        "agentgym/ListWorld-v0", options.envs, options.mode, oracles="S", items=6
    )
    scores: list[float] = []
    chats, _ = envs.reset(seed=0)
    for _ in range(options.steps):
        actions = [reply.text for reply in policy(chats)]
        chats, rewards, terminated, truncated, _ = envs.step(actions)
        scores += rewards[terminated | truncated].tolist()
    envs.close()

    mean = sum(scores) / max(len(scores), 1)
    print(f"{len(scores)} episodes, mean score {mean:.2f}")
    return mean


if __name__ == "__main__":
    main()
