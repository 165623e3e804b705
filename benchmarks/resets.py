"""Compare the resets of large, unseen worlds, freshly drawn and from the reset cache, with a
training step: `python benchmarks/resets.py`.

A GRPO step is 64 fresh episodes with a simulated sampler, which takes 20 ms plus 0.2 ms per item
for each turn of all episodes. Episodes take the optimal number of turns. Resets are timed in CPU
time.
"""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

import gymnasium

from agentgym import make
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import rollout
from agentgym.world.reset_cache import VARIABLE

EPISODES = 64
# Resets timed per training step; a draw takes up to seconds.
SAMPLED = 4
WORLDS: dict[str, dict[str, Any]] = {
    "GridWorld-extreme": {},
    "PuzzleWorld-extreme": {},
    "PayableInvoiceChecker": {"length": "256k"},
    "MachineOperating": {"length": "256k"},
    "NhlB2bAnalysis": {"length": "256k"},
}


def main() -> None:
    print("| world | turns | drawn, ms | cached, ms | step of GRPO, s | drawn | cached |")
    print("|---|---|---|---|---|---|---|")
    for name, options in WORLDS.items():
        turns = optimal_turns(name, options)
        step = turns * (0.020 + 0.0002 * EPISODES)
        drawn, cached = resets(name, options)
        shares = " | ".join(f"{EPISODES * each / step:.1%}" for each in (drawn, cached))
        print(
            f"| {name} | {turns:,} | {drawn * 1e3:,.1f} | {cached * 1e3:,.1f} | {step:.1f} | {shares} |",
            flush=True,
        )


def optimal_turns(name: str, options: dict[str, Any]) -> int:
    return len(rollout(OraclePolicy(name), make(name, **options), 0).steps)


def resets(name: str, options: dict[str, Any]) -> tuple[float, float]:
    env = make(name, **options)
    env.reset(seed=0)  # exclude one-time imports
    drawn = seconds(env, range(1, 1 + SAMPLED))
    with tempfile.TemporaryDirectory() as folder:
        os.environ[VARIABLE] = f"{folder}/resets"
        fresh = range(100, 100 + SAMPLED)
        seconds(env, fresh)  # stores the instances, and hashes the package sources
        cached = seconds(env, fresh)
        del os.environ[VARIABLE]
    return drawn, cached


def seconds(env: gymnasium.Env[Any, Any], seeds: range) -> float:
    start = time.process_time()
    for seed in seeds:
        env.reset(seed=seed)
    return (time.process_time() - start) / len(seeds)


if __name__ == "__main__":
    main()
