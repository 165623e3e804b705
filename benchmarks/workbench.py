"""Measure programs on the files of an office: bash, Python, packages, large files and many runs at
once, plus their CPU time relative to a bare interpreter.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from agentgym.sandboxes.namespaces import BASH, PYTHON
from agentgym.sandboxes.workbench import File, Workbench, check, run

RUNS = 15
CPU_RUNS = 40
# Limit on a small Python program's CPU time, as a multiple of a bare interpreter's.
MOST_CPU = 3.0


def milliseconds(play: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        play()
        times.append(time.perf_counter() - begin)
    return 1_000 * median(times)


def processor_time(play: Callable[[], object], end: Callable[[], object]) -> float:
    """Return one run's mean CPU time in milliseconds, including child processes."""
    before = sum(os.times()[:4])
    for _ in range(CPU_RUNS):
        play()
    end()  # a process's time counts once it has ended
    return 1_000 * (sum(os.times()[:4]) - before) / CPU_RUNS


def compare_processor_times() -> None:
    program = [PYTHON, "-c", "print(1)"]
    bare = processor_time(
        lambda: subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, check=True),
        lambda: None,
    )
    bench = Workbench()
    shared = processor_time(lambda: bench.run(program, {}), bench.close)
    apart = processor_time(lambda: run(program, {}), lambda: None)
    print("\n| Python: print(1) | ms of CPU | of a bare interpreter |\n|---|---|---|")
    for name, cost in {
        "bare": bare,
        "in the sandbox of its episode": shared,
        "in a sandbox of its own": apart,
    }.items():
        print(f"| {name} | {cost:.1f} | {cost / bare:.1f} |")
    if shared > MOST_CPU * bare:
        sys.exit(f"a program takes {shared / bare:.1f} times a bare interpreter, not {MOST_CPU:g}")


def main() -> None:
    begin = time.perf_counter()
    check()
    print(f"check of the host: {1_000 * (time.perf_counter() - begin):.0f} ms")
    begin = time.perf_counter()
    with Workbench() as bench:
        bench.run([BASH, "-c", "true"], {})
        print(f"first run of an episode: {1_000 * (time.perf_counter() - begin):.0f} ms")
        print("\n| program | ms a run |\n|---|---|")
        for name, code in {
            "print(1)": "print(1)",
            "import openpyxl": "import openpyxl",
            "import pandas": "import pandas",
        }.items():
            cost = milliseconds(lambda code=code: bench.run([PYTHON, "-c", code], {}))  # type: ignore[misc]
            print(f"| Python: {name} | {cost:.0f} |")
        cost = milliseconds(lambda: bench.run([BASH, "-c", "true"], {}))
        print(f"| bash: true | {cost:.0f} |")
        for size in (1, 32):
            files = {f"{k}": File(bytes(size * 2**20 // 32), 0.0) for k in range(32)}
            cost = milliseconds(lambda files=files: bench.run([BASH, "-c", "true"], files))  # type: ignore[misc]
            print(f"| bash: true, {size} MiB in 32 files | {cost:.0f} |")
    with ThreadPoolExecutor(16) as threads:
        begin = time.perf_counter()
        done = list(threads.map(lambda k: run([BASH, "-c", f"echo {k}"], {}).stdout, range(160)))
        together = 1_000 * (time.perf_counter() - begin) / 160
    assert done == [f"{k}\n" for k in range(160)]
    print(f"| bash: echo, a sandbox each, 16 threads at once | {together:.0f} |")
    compare_processor_times()


if __name__ == "__main__":
    main()
