"""Measure the cost of generating AgentLongBench logs of different lengths: `python
benchmarks/agentlongbench.py [MAX_TOKENS]`.

Logs draw from the full item table, and each length runs in a separate process. Times are CPU times.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time

from agentgym.envs.agentlongbench import FULL
from agentgym.envs.agentlongbench.rows import LENGTHS, make_log
from agentgym.text.tokens import counter


def main(most: int) -> None:
    print(
        "| setting | tokens | filled | rounds | seconds | processor seconds | µs a token | peak MB "
        "|"
    )
    print("|---|---|---|---|---|---|---|---|")
    for setting in FULL:
        for tokens in LENGTHS.values():
            if tokens <= most:
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    print(pool.apply(measure, (setting, tokens)), flush=True)


def measure(setting: str, tokens: int) -> str:
    counts = counter("cl100k_base")
    make_log(setting, 16_384, 0, 1, counts)  # warm-up: load the vocabulary and the items
    begun, used = time.perf_counter(), time.process_time()
    log = make_log(setting, tokens, 0, 0, counts)
    clock, processor = time.perf_counter() - begun, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    each = f"{clock:.1f} | {processor:.1f} | {processor / log.tokens * 1e6:.2f} | {peak:,.0f}"
    return (
        f"| {setting} | {tokens:,} | {100 * log.tokens / tokens:.1f}% | {len(log.rounds):,} | "
        f"{each} |"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2**22)
