"""What a program on the files of an office costs, once warm: bash, Python, packages, many bytes of
files, many at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from agentgym.sandboxes.namespaces import BASH, PYTHON
from agentgym.sandboxes.workbench import File, run

RUNS = 15


def milliseconds(play: Callable[[], object]) -> float:
    """The median time of one play."""
    times: list[float] = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        play()
        times.append(time.perf_counter() - begin)
    return 1_000 * median(times)


def main() -> None:
    """Print the table."""
    begin = time.perf_counter()
    run([BASH, "-c", "true"], {})
    print(
        f"first run of the process: {1_000 * (time.perf_counter() - begin):.0f} ms\n\n| program | "
        "ms a run |\n|---|---|"
    )
    for name, code in {
        "print(1)": "print(1)",
        "import openpyxl": "import openpyxl",
        "import pandas": "import pandas",
    }.items():
        print(
            f"| Python: {name} | "
            f"{milliseconds(lambda code=code: run([PYTHON, '-c', code], {})):.0f} |"
        )  # type: ignore[misc]
    print(f"| bash: true | {milliseconds(lambda: run([BASH, '-c', 'true'], {})):.0f} |")
    for size in (1, 32):
        files = {f"{k}": File(bytes(size * 2**20 // 32), 0.0) for k in range(32)}
        print(
            f"| bash: true, {size} MiB in 32 files | "
            f"{milliseconds(lambda files=files: run([BASH, '-c', 'true'], files)):.0f} |"
        )  # type: ignore[misc]
    with ThreadPoolExecutor(16) as threads:
        begin = time.perf_counter()
        done = list(threads.map(lambda k: run([BASH, "-c", f"echo {k}"], {}).stdout, range(160)))
        together = 1_000 * (time.perf_counter() - begin) / 160
    assert done == [f"{k}\n" for k in range(160)]
    print(f"| bash: echo, 16 threads at once | {together:.0f} |")


if __name__ == "__main__":
    main()
