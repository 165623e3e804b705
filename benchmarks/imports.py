"""Compare the CPU time of importing the package and making the first env with the CPU time of
importing the dependencies. The script runs the programs alternately and uses compiled bytecode.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from statistics import median

LIBRARIES = "import gymnasium, numpy, pydantic"
PROGRAMS = {
    "nothing": "pass",
    "gymnasium, numpy and pydantic": LIBRARIES,
    "agentgym": "import agentgym",
    "… and a ListWorld": "import agentgym; agentgym.make('ListWorld').reset(seed=0)",
    "… and an office task": "import agentgym; agentgym.make('CanvasListTest')",
    "… and every world": "import agentgym; [entry.world for entry in agentgym.worlds()]",
}


def seconds(code: str, environment: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15, help="processes of each kind")
    runs = parser.parse_args().runs
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for code in PROGRAMS.values():
            seconds(code, environment)
        for _ in range(runs):
            for name, code in PROGRAMS.items():
                times[name].append(seconds(code, environment))
    base = times["gymnasium, numpy and pydantic"]
    print("| import | CPU, best | CPU, median | best : libraries | median : libraries |")
    print("|---|---|---|---|---|")
    for name, values in times.items():
        best, middle = min(values), median(values)
        print(
            f"| {name} | {best:.3f} s | {middle:.3f} s | {best / min(base):.2f} | {middle / median(base):.2f} |"
        )


if __name__ == "__main__":
    main()
