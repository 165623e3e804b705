"""No test compares a clock with an upper bound or gives up on a slow process."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers import calls_of

FILES = sorted(Path(__file__).parents[1].rglob("*.py"))
CLOCK = (
    r"time\.(time|monotonic|perf_counter|process_time|thread_time)(_ns)?\(|\b(elapsed|duration)\b"
)
# Seconds that the start of a process may take on a busy machine.
SHORT = 60.0
WAITS = {"run", "communicate", "check_output", "check_call", "call", "urlopen"}


def upper_bounds(tree: ast.AST) -> Iterator[int]:
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        clock = CLOCK
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and re.search(clock, ast.unparse(node.value)):
                names = [each.id for each in node.targets if isinstance(each, ast.Name)]
                clock = "|".join([clock, *(rf"\b{name}\b" for name in names)])
        for statement in ast.walk(function):
            if isinstance(statement, ast.Assert):
                for node in ast.walk(statement.test):
                    if isinstance(node, ast.Compare):
                        yield from _bounded_above(node, clock)


def _bounded_above(node: ast.Compare, clock: str) -> Iterator[int]:
    terms = [node.left, *node.comparators]
    for left, comparison, right in zip(terms, node.ops, terms[1:], strict=False):
        rising, falling = (ast.Lt, ast.LtE), (ast.Gt, ast.GtE)
        smaller = left if isinstance(comparison, rising) else right
        if isinstance(comparison, rising + falling) and re.search(clock, ast.unparse(smaller)):
            yield node.lineno


def short_waits(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in WAITS:
            limits = [word.value for word in node.keywords if word.arg == "timeout"]
            if any(isinstance(each, ast.Constant) and each.value < SHORT for each in limits):
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


@pytest.mark.parametrize("audit", [upper_bounds, short_waits])
def test_no_test_asserts_that_something_is_quick_or_gives_up_on_what_is_slow(
    audit: Callable[[ast.AST], Iterator[int]],
) -> None:
    waits = "subprocess.run(a, timeout=5)\nb.communicate(timeout=PATIENCE)"
    assert list(short_waits(ast.parse(waits))) == [1]
    found = []
    for path in FILES:
        if path != Path(__file__):
            lines = audit(ast.parse(path.read_text(encoding="utf-8")))
            found += [f"{path.name}:{line}" for line in lines]
    assert found == []


def test_work_is_counted_and_not_timed() -> None:
    def work(count: int) -> None:
        for _ in range(count):
            abs(1)

    assert calls_of(work, 20) - calls_of(work, 10) == 10
    assert calls_of(work, 10) == calls_of(lambda: (time.sleep(0.01), work(10))) - 2
