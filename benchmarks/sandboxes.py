"""Time model-written code in each warm sandbox: single runs, runs with tool calls, and concurrent
runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from agentgym.sandboxes import SANDBOXES, Sandbox, make_sandbox

RUNS = 30
CALLS = 100


def milliseconds(play: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        play()
        times.append(time.perf_counter() - begin)
    return 1_000 * median(times)


def row(name: str, sandbox: Sandbox) -> str:
    functions = {"double": lambda number: str(2 * number)}
    calls = (
        f"total = 0\nfor number in range({CALLS}):\n    total += int(double(number))\nprint(total)"
    )
    assert sandbox.run(calls, functions).stdout == "9900\n"
    alone = milliseconds(lambda: sandbox.run("print(1 + 1)", {}))
    calling = milliseconds(lambda: sandbox.run(calls, functions))
    with ThreadPoolExecutor(16) as threads:
        begin = time.perf_counter()
        done = list(threads.map(lambda k: sandbox.run(f"print({k})", {}).stdout, range(160)))
        together = 1_000 * (time.perf_counter() - begin) / 160
    assert done == [f"{k}\n" for k in range(160)]
    return f"| {name} | {alone:.1f} | {calling:.1f} | {together:.1f} |"


def main() -> None:
    print(f"| sandbox | ms a run | ms a run with {CALLS} calls | ms a run, 16 threads at once |")
    print("|---|---|---|---|")
    for name in SANDBOXES:
        try:
            print(row(name, make_sandbox(name)))
        except (ImportError, RuntimeError) as error:
            print(f"| {name} | {error} | | |")


if __name__ == "__main__":
    main()
