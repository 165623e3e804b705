"""A PettingZoo team: the agents share a world, and each agent has a separate chat and tools.

Needs: pip install 'agentgym-suite[multi]'

Prints: the reply of each agent in its turn, and the reward. Any function from a list of chats to a
list of replies can replace `TeamPolicy`.
"""

import argparse
from collections import Counter
from collections.abc import Sequence

import agentgym
from agentgym.oracles import TeamPolicy


def main(arguments: Sequence[str] | None = None) -> tuple[float, Counter[str]]:
    """Play an episode; return the reward and the number of replies of each agent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--team", default="ListWorld-team")
    parser.add_argument("--oracles", default="P", help="hints that every agent gets")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args(arguments)
    env = agentgym.aec_env(given.team, oracles=given.oracles)
    policy, replies, total = TeamPolicy(given.team), Counter[str](), 0.0
    env.reset(seed=given.seed)
    for agent in env.agent_iter():
        chat, reward, terminated, truncated, info = env.last()
        if terminated or truncated:
            total = reward  # shared by all agents
            env.step(None)
        elif info["waiting"]:
            env.step("")  # this agent is waiting for a message
        else:
            (reply,) = policy([chat])
            print(f"--- {agent}\n{reply.text}")
            replies[agent] += 1
            env.step(reply.text)
    print(f"reward {total:g} after {dict(replies)} replies")
    return total, replies


if __name__ == "__main__":
    main()
