"""No test compares a clock with an upper bound or gives up on a slow process."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import calls_of

FILES = sorted(Path(__file__).parents[1].rglob("*.py"))
CLOCKS = {
    "time",
    "monotonic",
    "perf_counter",
    "process_time",
    "thread_time",
    "time_ns",
    "monotonic_ns",
    "perf_counter_ns",
}
# Seconds that the start of a process may take on a busy machine.
SHORT = 60.0
WAITS = {"run", "communicate", "check_output", "check_call", "call", "urlopen"}


def reads_clock(node: ast.AST, names: frozenset[str]) -> bool:
    for part in ast.walk(node):
        if (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Attribute)
            and part.func.attr in CLOCKS
        ):
            if isinstance(part.func.value, ast.Name) and part.func.value.id == "time":
                return True
        elif isinstance(part, (ast.Name, ast.Attribute)):
            name = part.id if isinstance(part, ast.Name) else part.attr
            if name in names or name in ("elapsed", "duration"):
                return True
    return False


def clock_names(function: ast.AST) -> frozenset[str]:
    names: frozenset[str] = frozenset()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and reads_clock(node.value, names):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def upper_bounds(tree: ast.AST) -> Iterator[int]:
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        names = clock_names(function)
        for statement in ast.walk(function):
            if isinstance(statement, ast.Assert):
                for node in ast.walk(statement.test):
                    if isinstance(node, ast.Compare):
                        yield from _bounded_above(node, names)


def _bounded_above(node: ast.Compare, names: frozenset[str]) -> Iterator[int]:
    terms = [node.left, *node.comparators]
    for left, comparison, right in zip(terms, node.ops, terms[1:], strict=False):
        smaller = (
            left
            if isinstance(comparison, (ast.Lt, ast.LtE))
            else right
            if isinstance(comparison, (ast.Gt, ast.GtE))
            else None
        )
        if smaller is not None and reads_clock(smaller, names):
            yield node.lineno


def short_waits(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in WAITS
        ):
            limits = [word.value for word in node.keywords if word.arg == "timeout"]
            if any(
                isinstance(limit, ast.Constant) and float(limit.value or SHORT) < SHORT
                for limit in limits
            ):
                yield node.lineno


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("def f():\n    a = time.monotonic()\n    g()\n    assert time.monotonic() - a < 5", [4]),
        (
            "def f():\n    a = time.perf_counter()\n    b = time.perf_counter() - a\n    assert 0.1 <= b < 3",
            [4],
        ),
        ("def f():\n    assert 3 > time.process_time()", [2]),
        ("def f():\n    a = time.time()\n    assert g() and 2 >= (time.time() - a) / 7", [3]),
        ("def f():\n    a = time.monotonic()\n    assert time.monotonic() - a >= 0.3", []),
        ("def f():\n    assert len(x) < 5\n    assert clock.now() < later", []),
    ],
)
def test_the_audit_sees_upper_bounds(code: str, lines: list[int]) -> None:
    assert list(upper_bounds(ast.parse(code))) == lines


def test_no_test_asserts_that_something_is_quick() -> None:
    assert [
        f"{path.name}:{line}"
        for path in FILES
        for line in upper_bounds(ast.parse(path.read_text(encoding="utf-8")))
    ] == []


def test_no_test_gives_up_on_what_is_only_slow() -> None:
    assert list(
        short_waits(ast.parse("subprocess.run(a, timeout=5)\nb.communicate(timeout=PATIENCE)"))
    ) == [1]
    ours = [path for path in FILES if path != Path(__file__)]
    assert [
        f"{path.name}:{line}"
        for path in ours
        for line in short_waits(ast.parse(path.read_text(encoding="utf-8")))
    ] == []


def test_work_is_counted_and_not_timed() -> None:
    def work(count: int) -> None:
        for _ in range(count):
            abs(1)

    assert calls_of(work, 20) - calls_of(work, 10) == 10
    assert calls_of(work, 10) == calls_of(lambda: (time.sleep(0.01), work(10))) - 2
