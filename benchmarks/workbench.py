"""Time sandboxed programs that use an office's files: bash, Python, packages, large files and
concurrent runs. Compare CPU times inside and outside the sandbox.
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
from agentgym.sandboxes.workbench import File, check, run

RUNS = 15
CPU_RUNS = 40
# Maximum ratio of a small Python program's CPU time in the sandbox to its CPU time outside.
MOST_CPU = 8.0


def milliseconds(play: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        play()
        times.append(time.perf_counter() - begin)
    return 1_000 * median(times)


def processor_time(play: Callable[[], object]) -> float:
    """Return the mean CPU time of a run in milliseconds, including child processes."""
    before = sum(os.times()[:4])
    for _ in range(CPU_RUNS):
        play()
    return 1_000 * (sum(os.times()[:4]) - before) / CPU_RUNS


def compare_processor_times() -> None:
    program = [PYTHON, "-c", "print(1)"]
    bare = processor_time(
        lambda: subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, check=True)
    )
    inside = processor_time(lambda: run(program, {}))
    print("\n| Python: print(1) | ms of CPU | of a bare interpreter |\n|---|---|---|")
    for name, cost in {"bare": bare, "in a sandbox": inside}.items():
        print(f"| {name} | {cost:.1f} | {cost / bare:.1f} |")
    if inside > MOST_CPU * bare:
        sys.exit(f"a program takes {inside / bare:.1f} times a bare interpreter, not {MOST_CPU:g}")


def main() -> None:
    begin = time.perf_counter()
    check()
    print(f"check of the host: {1_000 * (time.perf_counter() - begin):.0f} ms")
    print("\n| program | ms a run |\n|---|---|")
    for name, code in {
        "print(1)": "print(1)",
        "import openpyxl": "import openpyxl",
        "import pandas": "import pandas",
    }.items():
        cost = milliseconds(lambda code=code: run([PYTHON, "-c", code], {}))  # type: ignore[misc]
        print(f"| Python: {name} | {cost:.0f} |")
    cost = milliseconds(lambda: run([BASH, "-c", "true"], {}))
    print(f"| bash: true | {cost:.0f} |")
    for size in (1, 32):
        files = {f"{k}": File(bytes(size * 2**20 // 32), 0.0) for k in range(32)}
        cost = milliseconds(lambda files=files: run([BASH, "-c", "true"], files))  # type: ignore[misc]
        print(f"| bash: true, {size} MiB in 32 files | {cost:.0f} |")
    with ThreadPoolExecutor(16) as threads:
        begin = time.perf_counter()
        done = list(threads.map(lambda k: run([BASH, "-c", f"echo {k}"], {}).stdout, range(160)))
        together = 1_000 * (time.perf_counter() - begin) / 160
    assert done == [f"{k}\n" for k in range(160)]
    print(f"| bash: echo, 16 threads at once | {together:.0f} |")
    compare_processor_times()


if __name__ == "__main__":
    main()
