"""Find the pairs of extras that no resolver can install together.

    python .ci/conflicts.py [EXTRA...]

Prints the pairs as the table of docs/stacks.md, and fails if the page shows another one. Names
limit the pairs to those with one of them. It needs uv and the package index: `make conflicts`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "stacks.md"
# Sets of other extras, which install what these contain.
SETS = {"test", "docs", "bench", "dev"}
# Concurrent resolutions; each waits mostly for the index.
JOBS = 4
_ROW = re.compile(r"^\| `([a-z0-9]+)` and `([a-z0-9]+)` \|", re.MULTILINE)


def main(chosen: Sequence[str]) -> None:
    pairs = [pair for pair in combinations(extras(), 2) if not chosen or set(pair) & set(chosen)]
    with ThreadPoolExecutor(JOBS) as pool:
        resolved = list(pool.map(resolves, pairs))
    found = {pair for pair, fits in zip(pairs, resolved, strict=True) if not fits}
    for first, second in sorted(found):
        print(f"| `{first}` and `{second}` |")
    if wrong := found ^ (documented() & set(pairs)):
        raise SystemExit(f"docs/stacks.md differs in {sorted(wrong)}; correct its table")


def extras() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return sorted(set(project["optional-dependencies"]) - SETS)


def documented() -> set[tuple[str, str]]:
    rows = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    return {(min(row), max(row)) for row in rows}


def resolves(names: Sequence[str]) -> bool:
    """Return whether uv finds versions for some extras; an error other than a conflict raises."""
    chosen = [word for name in names for word in ("--extra", name)]
    command = ["uv", "pip", "compile", "--quiet", "--python-version", "3.11", *chosen]
    command += ["--output-file", "/dev/null", "pyproject.toml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode and "No solution found" not in done.stderr:
        raise RuntimeError(f"uv failed for {'+'.join(names)}: {done.stderr}")
    return done.returncode == 0


if __name__ == "__main__":
    main(sys.argv[1:])
