"""Planted faults: whether the tests find them, and whether the sample of a plain run finds fewer than
the whole families do.

`pip install cosmic-ray`, then `python .ci/plant.py --count 200 agentgym/oracles agentgym/wrappers …`.
Each fault is a mutation by Cosmic Ray (https://cosmic-ray.readthedocs.io) at a place that is drawn
from the functions of these folders. It is planted in a clone, where the tests of the folder that
mirrors it run until one fails, the file of the same name first; after them the smoke set and the
laws. A fault that the sample lets pass is looked for again by the whole families. Tests of other
folders are not run, so that the suite as a whole finds at least as many.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parents[1]
SECONDS = 180
"""The processor time after which the tests of a fault are ended: it may have made a loop endless, and
counts as neither found nor missed.
"""
KINDS = (
    "ReplaceComparisonOperator", "ReplaceBinaryOperator", "ReplaceUnaryOperator", "NumberReplacer", "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd", "AddNot", "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak", "ExceptionReplacer", "ZeroIterationForLoop",
)  # fmt: skip
"""The operators that are drawn from, by the beginning of their names, each as often as the others."""


def main() -> None:
    """Plant faults and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", help="folders or files of the package")
    parser.add_argument("--count", type=int, default=200, help="how many faults")
    parser.add_argument("--seed", type=int, default=0, help="seeds the places")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--log", type=Path, help="a file for a line of JSON about each")
    options = parser.parse_args()
    faults = draw_faults(options.folders, options.count, random.Random(options.seed))
    outcomes = Counter[str]()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        clones: SimpleQueue[Path] = SimpleQueue()
        for k in range(options.jobs):
            clone = Path(folder) / f"clone {k}"
            subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
            clones.put(clone)
        for fault, outcome in pool.map(lambda fault: (fault, judge(fault, clones)), faults):
            outcomes[outcome] += 1
            line = json.dumps(
                {"file": fault[0], "operator": fault[1], "place": fault[2], "outcome": outcome}
            )
            print(line, flush=True)
            if options.log:
                with options.log.open("a", encoding="utf-8") as log:
                    log.write(line + "\n")
    for outcome, count in outcomes.most_common():
        print(f"{outcome}: {count} of {len(faults)}")


Fault = tuple[str, str, int, str]
"""A file, an operator, the number of its place, and the text of the file with the fault."""


def draw_faults(folders: Sequence[str], count: int, rng: random.Random) -> list[Fault]:
    """Return faults in different places, each of which changes what a function does."""
    files = [
        path
        for name in folders
        for path in ([ROOT / name] if name.endswith(".py") else sorted((ROOT / name).rglob("*.py")))
    ]
    weights = [len(path.read_text(encoding="utf-8")) for path in files]
    operators = {
        kind: [name for name in operator_names() if name.startswith(f"core/{kind}")]
        for kind in KINDS
    }
    faults: dict[tuple[str, str, int], str] = {}
    while len(faults) < count:
        (path,) = rng.choices(files, weights)
        operator = rng.choice(operators[rng.choice(KINDS)])
        source = path.read_text(encoding="utf-8")
        places = places_of(source, operator)
        if places:
            place = rng.choice(places)
            text = mutate_code(source, get_operator(operator)(), place)
            if text and same(source, text) is False:
                faults[str(path.relative_to(ROOT)), operator, place] = text
    return [(*key, text) for key, text in faults.items()]


def places_of(source: str, operator: str) -> list[int]:
    """Return the numbers of the places of an operator that are in the body of a function."""
    lines = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for statement in node.body
        for line in range(statement.lineno, (statement.end_lineno or 0) + 1)
    }
    positions = (
        position
        for node in ast_nodes(get_ast(source))
        for position in get_operator(operator)().mutation_positions(node)
    )
    return [k for k, (start, _) in enumerate(positions) if start[0] in lines]


def same(source: str, text: str) -> bool | None:
    """Return whether two texts are the same program, annotations aside; None if one is none."""
    try:
        return ast.dump(_bare(source)) == ast.dump(_bare(text))
    except SyntaxError:
        return None


def _bare(source: str) -> ast.AST:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if getattr(node, name, None) is not None:
                setattr(node, name, ast.Constant(None))
    return tree


def judge(fault: Fault, clones: SimpleQueue[Path]) -> str:
    """Plant a fault in a clone and return what its tests say."""
    name, _, _, text = fault
    clone = clones.get()
    source = (clone / name).read_text(encoding="utf-8")
    try:
        (clone / name).write_text(text, encoding="utf-8")
        folders = [mirror(clone, Path(name)), clone / "tests/smoke", clone / "tests/laws"]
        for selection in (("-m", "not exhaustive"), ("-m", "family or rotation", "--sample", "1")):
            for folder in folders:
                outcome = run_tests(clone, name, folder, *selection)
                if outcome != "missed":
                    sampled = "--sample" not in selection
                    return f"{outcome} by the {'sample' if sampled else 'whole families alone'}"
        return "missed"
    finally:
        (clone / name).write_text(source, encoding="utf-8")
        clones.put(clone)


def run_tests(clone: Path, name: str, folder: Path, *selection: str) -> str:
    """Run the tests of a folder until one fails, those of a file of the package first."""
    own = sorted(folder.rglob(f"test_{Path(name).stem}*.py"))
    quiet = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", *quiet, *selection]
    environment = {**os.environ, "PYTHONPATH": str(clone), "AGENTGYM_RESET_CACHE": ""}
    tests = subprocess.Popen(
        [*command, *map(str, own), str(folder)],
        cwd=clone,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    resource.prlimit(tests.pid, resource.RLIMIT_CPU, (SECONDS, SECONDS))
    code = tests.wait()
    # 5: no test was collected, as where a folder has no family.
    return {0: "missed", 5: "missed", -signal.SIGKILL: "not found in time"}.get(code, "found")


def mirror(clone: Path, path: Path) -> Path:
    """Return the folder of the tests of a file: that of the same name, or of the nearest above."""
    parts = path.parent.parts[1:]
    while parts and not (clone / "tests" / Path(*parts)).is_dir():
        parts = parts[:-1]
    return clone / "tests" / (Path(*parts) if parts else Path("core"))


if __name__ == "__main__":
    main()
