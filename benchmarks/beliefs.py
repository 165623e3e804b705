"""Measure the state hints of the office tasks at 256K tokens: `python benchmarks/beliefs.py [TASK
…]` (needs `agentgym-suite[office]`).

The script plays each task's reference plan. The columns show the number of steps, the maximum
length in characters of all known facts and of a state hint, and the number of steps with a partial
hint. The next call needs some of the known words; the last column shows which share of these words
a partial hint contains.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from statistics import fmean

import agentgym
from agentgym import tool_env, worlds
from agentgym.envs.loca.belief import words_of
from agentgym.envs.loca.plan import CLAIM
from agentgym.envs.loca.task import OfficeTask
from agentgym.oracles.recall import StatePages

TASKS = [entry.world.__name__ for entry in worlds() if issubclass(entry.world, OfficeTask)]
LENGTH, SEED = 256_000, 3


def main(arguments: Sequence[str]) -> None:
    print(
        "| task | steps | known, characters | hint, characters | in part | has of the next call |"
    )
    print("|---|---|---|---|---|---|")
    for name in [name for name in arguments if name in TASKS] or TASKS:
        print(f"| {name} | {' | '.join(measure(name))} |", flush=True)


def measure(name: str) -> Sequence[str]:
    env = agentgym.make(name, length=LENGTH)
    env.reset(seed=SEED)
    world = tool_env(env).world
    hints, chars, shares = list[int](), list[int](), list[float]()
    known = frozenset[str]()
    while (steps := world.progress.pending()) != [CLAIM]:
        step = steps[0]
        pages = StatePages()
        hint = pages.describe(world)
        hints.append(len(hint))
        chars.append(world.state_chars())
        needed = words_of(json.dumps(step.call.arguments, ensure_ascii=False)) & known
        if pages.count and needed:
            shares.append(len(needed & words_of(hint)) / len(needed))
        world.read_result(step.call, world.office.call(step.call.name, step.call.arguments))
        known |= words_of(json.dumps(world.progress.facts[step.label], ensure_ascii=False))
    partial = sum(hint < whole for hint, whole in zip(hints, chars, strict=True))
    share = f"{100 * fmean(shares):.0f}%" if shares else ""
    return [str(len(hints)), f"{max(chars):,}", f"{max(hints):,}", str(partial), share]


if __name__ == "__main__":
    main(sys.argv[1:])
