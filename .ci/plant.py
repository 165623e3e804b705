"""Measure how many planted faults the sampled tests and the full test suite detect.

Install `cosmic-ray`. Run the tests with `AGENTGYM_SAMPLE_SEED=0` and `.ci/record_lines.py`, which
records the executed lines in the folder `lines`. Then run `python .ci/plant.py --lines lines
--count 200 agentgym`.

Each fault is a Cosmic Ray (https://cosmic-ray.readthedocs.io) mutation inside a function. In a
clone, the script runs the sampled tests that execute the faulty line, until one test fails. If all
tests pass, the script runs tests outside the sample for the same CPU time.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import pickle
import random
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from queue import SimpleQueue

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parents[1]
# CPU seconds per fault; the limit applies separately to the sampled tests and to all others.
SECONDS = 30
# Timeout of a test in seconds; without a fault, every test takes less than half this time.
HANGING = 60
# Proximity score of a test file that is named after the faulty file.
OWN = 99
# Number of test files to run first; the highest-ranked files detect most faults.
NEAREST = 3
# Assumed duration in seconds of a test without a record.
UNKNOWN = 5.0
# Memory limit of a test process in bytes; a fault may allocate memory endlessly.
MEMORY = 24 << 30
# Prefixes of the names of mutation operators. Each prefix is drawn with equal probability.
KINDS = (
    "ReplaceComparisonOperator", "ReplaceBinaryOperator", "ReplaceUnaryOperator", "NumberReplacer", "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd", "AddNot", "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak", "ExceptionReplacer", "ZeroIterationForLoop",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", help="folders or files of the package")
    parser.add_argument("--lines", type=Path, required=True, help="the records of record_lines.py")
    parser.add_argument("--count", type=int, default=200, help="how many faults")
    parser.add_argument("--seed", type=int, default=0, help="seeds the places and the sample")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--log", type=Path, help="a file for a line of JSON about each")
    options = parser.parse_args()
    faults = draw_faults(options.folders, options.count, random.Random(options.seed))
    records = Records.read(options.lines)
    outcomes = Counter[str]()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        clones: SimpleQueue[Path] = SimpleQueue()
        for k in range(options.jobs):
            clone = Path(folder) / f"clone {k}"
            subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
            clones.put(clone)
        judged = {pool.submit(judge, fault, clones, records): fault for fault in faults}
        for future in as_completed(judged):
            fault, outcome = judged[future], future.result()
            outcomes[outcome["found by"]] += 1
            line = json.dumps(
                {"file": fault.file, "line": fault.lines[0], "change": fault.operator, **outcome}
            )
            print(line, flush=True)
            if options.log:
                with options.log.open("a", encoding="utf-8") as log:
                    log.write(line + "\n")
    for found, count in outcomes.most_common():
        print(f"{found}: {count} of {len(faults)}")


@dataclass(frozen=True)
class Fault:
    """Planted fault; `text` is the source code of the mutated file."""

    file: str
    lines: range
    operator: str
    text: str

    @property
    def parts(self) -> Sequence[str]:
        return Path(self.file).with_suffix("").parts[1:]


@dataclass(frozen=True)
class Records:
    """Durations and executed lines of the tests in a sampled run."""

    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[str, int]]
    left_out: Sequence[str]

    @classmethod
    def read(cls, folder: Path) -> Records:
        records = {
            name: record
            for path in folder.glob("*.pickle")
            for name, record in pickle.loads(path.read_bytes()).items()
        }
        return cls(
            {name: seconds for name, (seconds, _) in records.items()},
            {name: lines for name, (_, lines) in records.items()},
            [name for name in all_tests() if name not in records],
        )

    def choose(self, fault: Fault, *, sampled: bool) -> list[str]:
        """Choose tests that execute the faulty line and fit the time limit.

        Unsampled cases of a test function are assumed to execute the same lines as the sampled
        cases. Test functions without records are chosen only if their folder matches the fault's.
        """
        mask = sum(1 << line for line in fault.lines)
        running = [name for name, lines in self.lines.items() if lines.get(fault.file, 0) & mask]
        # No records exist for lines that only child processes execute.
        near = max(1, len(fault.parts) - 1)
        running = running or [name for name in self.lines if nearness(fault, name) >= near]
        costs = {name: self.seconds[name] for name in running}
        if not sampled:
            of_functions = {function(name): seconds for name, seconds in costs.items()}
            known = {function(name) for name in self.seconds}
            costs = {
                name: of_functions.get(function(name), UNKNOWN)
                for name in self.left_out
                if function(name) in of_functions
                or (function(name) not in known and nearness(fault, name) >= near)
            }
        cases = Counter[str]()
        ranks = {}
        for name in sorted(costs, key=lambda name: costs[name]):
            ranks[name] = (cases[function(name)], -nearness(fault, name), costs[name])
            cases[function(name)] += 1
        left = float(SECONDS)
        chosen = []
        for name in sorted(ranks, key=lambda name: ranks[name]):
            if costs[name] < min(left, HANGING / 2):
                left -= costs[name]
                chosen.append(name)
        return chosen


def function(test: str) -> str:
    return test.partition("[")[0]


def nearness(fault: Fault, test: str) -> int:
    *folders, name = Path(test.partition("::")[0]).parts[1:]
    if name == f"test_{fault.parts[-1]}.py":
        return OWN
    pairs = zip(fault.parts, folders, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def all_tests() -> list[str]:
    quiet = ["--collect-only", "-q", "-p", "no:cacheprovider", "--sample", "1"]
    command = [sys.executable, "-m", "pytest", *quiet]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if "::" in line]


def draw_faults(folders: Sequence[str], count: int, rng: random.Random) -> list[Fault]:
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
    faults: dict[tuple[str, str, int], Fault] = {}
    while len(faults) < count:
        (path,) = rng.choices(files, weights)
        operator = rng.choice(operators[rng.choice(KINDS)])
        source = path.read_text(encoding="utf-8")
        places = places_of(source, operator)
        if places:
            number, line = rng.choice(places)
            text = mutate_code(source, get_operator(operator)(), number)
            if text and same(source, text) is False:
                name = str(path.relative_to(ROOT))
                faults[name, operator, number] = Fault(
                    name, statement(source, line), operator, text
                )
    return list(faults.values())


def places_of(source: str, operator: str) -> list[tuple[int, int]]:
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
    return [(k, start[0]) for k, (start, _) in enumerate(positions) if start[0] in lines]


def statement(source: str, line: int) -> range:
    """Return the lines of the innermost statement that contains a line, without the statement's
    body.
    """
    around = [
        (node.lineno, min([each.lineno for each in getattr(node, "body", ())] + [end + 1]))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt)
        and node.lineno <= line <= (end := node.end_lineno or node.lineno)
    ]
    first, after = max(around)
    return range(first, max(after, first + 1))


def same(source: str, text: str) -> bool | None:
    """Return whether two programs differ only in annotations, or None for a syntax error."""
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


def judge(fault: Fault, clones: SimpleQueue[Path], records: Records) -> dict[str, str]:
    clone = clones.get()
    try:
        for sampled, by in ((True, "the sample"), (False, "the whole families alone")):
            chosen = records.choose(fault, sampled=sampled)
            files = list(dict.fromkeys(name.partition("::")[0] for name in chosen))[:NEAREST]
            near = [name for name in chosen if name.partition("::")[0] in files]
            for some in (near, [name for name in chosen if name not in near]):
                option = [] if sampled else ["--sample", "1"]
                if test := first_failure(clone, fault, some, option):
                    return {"found by": by, "test": test}
        return {
            "found by": "none" if records.choose(fault, sampled=True) else "none: no test runs it"
        }
    finally:
        clones.put(clone)


def first_failure(clone: Path, fault: Fault, tests: Sequence[str], option: Sequence[str]) -> str:
    """Return the first test that fails with the fault and passes without it."""
    source = (clone / fault.file).read_text(encoding="utf-8")
    left = list(tests)
    while left:
        (clone / fault.file).write_text(fault.text, encoding="utf-8")
        try:
            failed = run_tests(clone, left, option)
        finally:
            (clone / fault.file).write_text(source, encoding="utf-8")
        if not failed or failed not in left or not run_tests(clone, [failed], option):
            return failed
        left.remove(failed)
    return ""


def run_tests(clone: Path, tests: Sequence[str], option: Sequence[str]) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(tests, file)
        file.flush()
        quiet = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "choose_tests"]
        command = [sys.executable, "-m", "pytest", *quiet, "--timeout", str(HANGING), *option]
        run = subprocess.Popen(
            [*command, *sorted({name.partition("::")[0] for name in tests})],
            cwd=clone,
            env={**os.environ, "PYTHONPATH": f"{clone}:{ROOT / '.ci'}", "TESTS": file.name},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        resource.prlimit(run.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
        code = run.wait()
        names = json.loads(Path(file.name).read_text(encoding="utf-8"))
    if code in {0, 5}:  # pytest exits with 5 if it collects no test
        return ""
    return names[0] if code == 1 and len(names) == 1 else f"pytest ended with {code}"


if __name__ == "__main__":
    main()
