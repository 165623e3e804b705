"""Find pairs of conflicting extras and write them to `.ci/conflicts.json` (`make conflicts`).

A dry run of uv resolves each pair, for Python 3.11 on this platform. A test compares the JSON file with
the table in docs/stacks.md, and fails if an extra has changed since the last run.
"""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / ".ci" / "conflicts.json"
# Development extras, which combine other extras.
COMBINED = {"test", "docs", "bench", "dev"}
# Number of parallel uv processes, which mostly wait for the package index.
JOBS = 4


def main() -> None:
    known = extras()
    pairs = list(combinations(known, 2))
    with ThreadPoolExecutor(JOBS) as pool:
        resolved = list(pool.map(resolves, pairs))
    apart = [pair for pair, fits in zip(pairs, resolved, strict=True) if not fits]
    text = json.dumps({"extras": known, "pairs": apart}, indent=1)
    RESULT.write_text(f"{text}\n", encoding="utf-8")
    print(f"{RESULT.relative_to(ROOT)}: {len(apart)} of {len(pairs)} pairs cannot be installed")


def extras() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared: dict[str, Any] = project["optional-dependencies"]
    return {name: declared[name] for name in sorted(declared.keys() - COMBINED)}


def resolves(names: Sequence[str]) -> bool:
    """Return whether uv can install these extras together; raise RuntimeError if uv itself fails."""
    chosen = [word for name in names for word in ("--extra", name)]
    command = ["uv", "pip", "compile", "--quiet", "--python-version", "3.11", *chosen]
    command += ["--output-file", "/dev/null", "pyproject.toml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode and "No solution found" not in done.stderr:
        raise RuntimeError(f"uv failed for {'+'.join(names)}: {done.stderr}")
    return done.returncode == 0


if __name__ == "__main__":
    main()
