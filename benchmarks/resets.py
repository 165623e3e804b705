"""Resets of large worlds that a run has not seen before, drawn, and out of the reset cache, against
a step of training: `python benchmarks/resets.py`.

A step of GRPO is 64 fresh episodes with a simulated sampler, which takes 20 ms and 0.2 ms an item
for each turn of all episodes; an episode has as many turns as an optimal policy takes. The instances
are drawn ahead of time by `Prefetcher`, in a process of its own. Resets are counted in CPU time of
the process that makes them, one after the other.
"""

from __future__ import annotations

import os
import tempfile
import time
from functools import partial
from typing import Any

import gymnasium

from agentgym import make
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import rollout
from agentgym.training.rollout.engines.prefetch import Prefetcher
from agentgym.world.reset_cache import VARIABLE

EPISODES = 64
SAMPLED = 4
"""Resets that are measured of those of a step: a draw takes up to seconds."""
WORLDS: dict[str, dict[str, Any]] = {
    "GridWorld-extreme": {},
    "PuzzleWorld-extreme": {},
    "PayableInvoiceChecker": {"length": "256k"},
    "MachineOperating": {"length": "256k"},
    "NhlB2bAnalysis": {"length": "256k"},
}


def main() -> None:
    """Print the table."""
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
    """Return the turns of an optimal episode."""
    return len(rollout(make(name, **options), OraclePolicy(name), 0).steps)


def resets(name: str, options: dict[str, Any]) -> tuple[float, float]:
    """Return the seconds of a reset with a fresh seed, without the cache and with it."""
    env = make(name, **options)
    env.reset(seed=0)  # what a process loads once
    drawn = seconds(env, range(1, 1 + SAMPLED))
    with tempfile.TemporaryDirectory() as folder:
        os.environ[VARIABLE] = f"{folder}/resets"
        prefetcher = Prefetcher(partial(make, name, **options), workers=1)
        fresh = range(100, 101 + SAMPLED)
        prefetcher.prefetch(fresh)
        prefetcher.wait()
        env.reset(seed=fresh[0])  # which reads the sources of the package, once in a process
        cached = seconds(env, fresh[1:])
        prefetcher.close()
        del os.environ[VARIABLE]
    return drawn, cached


def seconds(env: gymnasium.Env[Any, Any], seeds: range) -> float:
    """Return the CPU time of a reset."""
    start = time.process_time()
    for seed in seeds:
        env.reset(seed=seed)
    return (time.process_time() - start) / len(seeds)


if __name__ == "__main__":
    main()
