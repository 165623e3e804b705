"""CodeWorld solver that sees only a policy's observations, without package code."""

from __future__ import annotations

import ast
import asyncio
import builtins
import functools
import heapq
import operator
import re
import selectors
import sys
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

BINARY: dict[Any, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
}
COMPARE: dict[Any, Any] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class Attempt:
    """Runs a module's main as far as values are known; `missing` collects the others."""

    def __init__(self, tree: ast.Module, values: Mapping[str, int]) -> None:
        self.functions = {
            f.name: f for f in tree.body if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef))
        }
        self.values = values
        self.missing: list[str] = []

    def run(self) -> int | None:
        return self.block(self.functions["main"].body)

    def block(self, body: list[Any]) -> int | None:
        for line in body:
            if isinstance(line, ast.Return):
                return self.value(line.value)
            assert isinstance(line, ast.If)
            (compared,) = line.test.comparators  # type: ignore[attr-defined]
            left, right = self.value(line.test.left), self.value(compared)  # type: ignore[attr-defined]
            if left is None or right is None:
                return None
            if COMPARE[type(line.test.ops[0])](left, right):  # type: ignore[attr-defined]
                return self.block(line.body)
        raise AssertionError("no return")

    def value(self, node: Any) -> int | None:
        if isinstance(node, ast.Constant):
            return int(node.value)  # type: ignore[arg-type]
        if isinstance(node, ast.BinOp):
            left, right = self.value(node.left), self.value(node.right)
            return None if left is None or right is None else BINARY[type(node.op)](left, right)
        assert isinstance(node, ast.Call)
        if node.func.attr == "main":  # type: ignore[attr-defined]
            name = node.func.value.id  # type: ignore[attr-defined]
            if name not in self.values:
                self.missing.append(name)
            return self.values.get(name)
        call: Any = node.args[0]
        given = [self.value(argument) for argument in call.args]
        return (
            None
            if None in given
            else self.race(
                dict(zip([a.arg for a in self.functions["run"].args.args], given, strict=True))
            )
        )

    def race(self, given: dict[str, Any]) -> int:
        """Run coroutines in clock order, with a heap of wake-up times."""
        run = self.functions["run"].body
        shared, heap = given[run[1].value.id], []  # type: ignore[attr-defined]
        for number, call in enumerate(run[2].value.value.args):  # type: ignore[attr-defined]
            heapq.heappush(
                heap,
                (
                    0,
                    number,
                    1,
                    self.functions[call.func.id].body,
                    {"amount": given[call.args[0].id]},
                ),
            )
        while heap:
            now, number, place, body, local = heapq.heappop(heap)
            while place < len(body):
                line = body[place]
                place += 1
                if isinstance(line, ast.Expr):
                    ticks = round(10 * line.value.value.args[0].value)  # type: ignore[attr-defined]
                    heapq.heappush(heap, (now + ticks, number, place, body, local))
                    break
                local["shared"] = shared
                exec(compile(ast.Module([line], []), "line", "exec"), {}, local)
                shared = local["shared"]
        return int(shared)


class CodeSolver:
    """A solver's memory.

    Attributes:
        answer: The result of main.py, once known.
        frontier: The imported files not read yet.
        values: Modules' results, as far as known and requested.
        missing: The unknown values requested by a module's last run.
    """

    def __init__(self, task: str) -> None:
        self.frontier = set(re.findall(r"\w+\.py", task))
        self.trees: dict[str, ast.Module] = {}
        self.values: dict[str, int] = {}
        self.missing: dict[str, list[str]] = {}

    @property
    def answer(self) -> int | None:
        return self.values.get("main")

    @property
    def read(self) -> set[str]:
        return {f"{name}.py" for name in self.trees}

    def take(self, file: str, source: str) -> None:
        self.trees[file[:-3]] = tree = ast.parse(source)
        imported = {
            alias.name for line in tree.body if isinstance(line, ast.Import) for alias in line.names
        } - {"asyncio"}
        self.frontier = {
            *self.frontier,
            *(f"{name}.py" for name in imported - self.trees.keys()),
        } - {file}

    def useful(self) -> set[str]:
        """Return the files that main.py certainly requests; a run continues past unknown values."""
        while True:
            before, wanted = len(self.values), self.look()
            if len(self.values) == before:
                return wanted

    def look(self) -> set[str]:
        wanted, stack, seen = set(), ["main"], {"main"}
        while stack:
            name = stack[-1]
            if name not in self.trees:
                wanted.add(f"{stack.pop()}.py")
                continue
            fresh = [other for other in self.asked(name) if other not in seen]
            seen.update(fresh)
            stack += fresh
            if not fresh:
                stack.pop()
        return wanted

    def asked(self, name: str) -> list[str]:
        """Return the unknown modules that a run requests, cached while one of them is missing."""
        missing = self.missing[name] = [
            other for other in self.missing.get(name, ()) if other not in self.values
        ]
        if not missing and name not in self.values:
            attempt = Attempt(self.trees[name], self.values)
            value = attempt.run()
            missing = self.missing[name] = attempt.missing
            if value is not None:
                self.values[name] = value
        return missing

    def solve(self, read: Callable[[Iterable[str]], list[str]]) -> int:
        """Read what is certainly needed until the answer is known; return the number of rounds."""
        rounds = 0
        while files := sorted(self.useful()):
            for file, source in zip(files, read(files), strict=True):
                self.take(file, source)
            rounds += 1
        return rounds


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop that waits by advancing its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = selectors.SelectSelector()
        look = selector.select

        def select(timeout: float | None = None) -> Any:
            self.now += max(timeout or 0.0, 0.0)
            return look(0)

        selector.select = select  # type: ignore[method-assign]
        super().__init__(selector)

    def time(self) -> float:
        return self.now


def run_virtually(coroutine: Any) -> Any:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


VIRTUAL = SimpleNamespace(run=run_virtually, gather=asyncio.gather, sleep=asyncio.sleep)


class Program:
    def __init__(self, sources: Mapping[str, str], clock: Any = VIRTUAL) -> None:
        self.sources = sources
        self.clock = clock
        self.called: set[str] = set()
        self.modules: dict[str, Any] = {}

    def run(self) -> int:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + 8 * len(self.sources))
        try:
            return self.value("main")
        finally:
            sys.setrecursionlimit(limit)

    def load(self, name: str) -> dict[str, Any]:
        """Imports load when their main is called, so loading does not recurse."""
        space: dict[str, Any] = {
            "__name__": name,
            "__builtins__": {**vars(builtins), "__import__": self.find},
        }
        exec(compile(self.sources[f"{name}.py"], f"{name}.py", "exec"), space)
        return space

    def find(self, name: str, *_: Any) -> Any:
        return (
            self.clock
            if name == "asyncio"
            else SimpleNamespace(main=functools.partial(self.value, name))
        )

    def value(self, name: str) -> int:
        if name not in self.modules:
            self.called.add(name)
            self.modules[name] = self.load(name)["main"]()
        return int(self.modules[name])
