"""Measure the cost of step labels in the office tasks: `python benchmarks/labels.py [TASK …]
[--length 128k]` (needs `agentgym-suite[office]`).

The oracle policy plays the same episode alternately with and without labels. Times are CPU times
per step and include the policy.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import agentgym
from agentgym.envs.loca.task import OfficeTask
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import rollout

# The table shows the fastest round, which is least affected by other programs.
ROUNDS = 3


def main(tasks: list[str], length: str) -> None:
    print("| task | steps | step, ms | with labels, ms | ratio |\n|---|---|---|---|---|")
    for task in tasks:
        seconds = {labels: float("inf") for labels in (False, True)}
        for _ in range(ROUNDS):
            for labels, least in seconds.items():
                spent, steps = play(task, {"length": length, "labels": labels})
                seconds[labels] = min(least, spent)
        bare, labelled = (1e3 * seconds[labels] / steps for labels in (False, True))
        print(
            f"| {task} | {steps} | {bare:.2f} | {labelled:.2f} | {labelled / bare:.1f} |",
            flush=True,
        )


def play(task: str, options: dict[str, Any]) -> tuple[float, int]:
    env, policy = agentgym.make(task, **options), OraclePolicy(task)
    env.reset(seed=0)  # exclude one-time imports
    start = time.process_time()
    env.reset(seed=0)
    reset = time.process_time() - start
    start = time.process_time()
    steps = len(rollout(policy, env, 0).steps)
    return time.process_time() - start - reset, steps


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    names = [
        entry.world.__name__ for entry in agentgym.worlds() if issubclass(entry.world, OfficeTask)
    ]
    parser.add_argument("tasks", nargs="*", default=names)
    parser.add_argument("--length", default="128k")
    given = parser.parse_args()
    main(given.tasks, given.length)
