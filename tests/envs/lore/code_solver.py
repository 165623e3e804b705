"""Independent CodeWorld solver, which sees only the observations of a policy."""

from __future__ import annotations

import asyncio
import builtins
import functools
import re
import selectors
import sys
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop that advances a virtual clock instead of waiting."""

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
        """Execute a module. Imported modules load later, so loading is not recursive."""
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


class UndecidedError(Exception):
    """Raised if the result of a comparison depends on an unknown value."""


class Unknown:
    """An unknown value. Arithmetic with unknown values gives unknown values."""

    def _unknown(self, other: object) -> Unknown:
        return self

    def _undecided(self, other: object) -> bool:
        raise UndecidedError

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = _unknown
    __lt__ = __le__ = __gt__ = __ge__ = _undecided


class Attempt(Program):
    """Partial execution of a module; `missing` contains the modules with unknown values."""

    def __init__(self, source: str, values: Mapping[str, int]) -> None:
        super().__init__({"main.py": source})
        self.values = values
        self.missing: list[str] = []

    def run(self) -> Any:
        try:
            return self.load("main")["main"]()
        except UndecidedError:
            return Unknown()

    def value(self, name: str) -> Any:
        if name not in self.values:
            self.missing.append(name)
        return self.values.get(name, Unknown())


class CodeSolver:
    """Solver state.

    Attributes:
        answer: The result of main.py, or None if unknown.
        frontier: The imported files that have not been read.
        values: The known results of modules that other modules have requested.
        missing: Maps each module to the unknown modules that its last run requested.
    """

    def __init__(self, task: str) -> None:
        self.frontier = set(re.findall(r"\w+\.py", task))
        self.sources: dict[str, str] = {}
        self.values: dict[str, int] = {}
        self.missing: dict[str, list[str]] = {}

    @property
    def answer(self) -> int | None:
        return self.values.get("main")

    @property
    def read(self) -> set[str]:
        return {f"{name}.py" for name in self.sources}

    def take(self, file: str, source: str) -> None:
        self.sources[file[:-3]] = source
        imported = {*re.findall(r"^import (\w+)$", source, re.MULTILINE)} - {"asyncio"}
        self.frontier |= {f"{name}.py" for name in imported - self.sources.keys()}
        self.frontier.discard(file)

    def useful(self) -> set[str]:
        """Return the files that main.py will certainly request."""
        while True:
            before, wanted = len(self.values), self.look()
            if len(self.values) == before:
                return wanted

    def look(self) -> set[str]:
        wanted, stack, seen = set(), ["main"], {"main"}
        while stack:
            name = stack[-1]
            if name not in self.sources:
                wanted.add(f"{stack.pop()}.py")
                continue
            fresh = [other for other in self.asked(name) if other not in seen]
            seen.update(fresh)
            stack += fresh
            if not fresh:
                stack.pop()
        return wanted

    def asked(self, name: str) -> list[str]:
        """Return the modules with unknown values that the module `name` requests when it runs."""
        missing = self.missing[name] = [
            other for other in self.missing.get(name, ()) if other not in self.values
        ]
        if not missing and name not in self.values:
            attempt = Attempt(self.sources[name], self.values)
            value = attempt.run()
            missing = self.missing[name] = attempt.missing
            if not isinstance(value, Unknown):
                self.values[name] = value
        return missing

    def solve(self, read: Callable[[Iterable[str]], list[str]]) -> int:
        """Read all useful files in each round, and return the number of rounds until the answer."""
        rounds = 0
        while files := sorted(self.useful()):
            for file, source in zip(files, read(files), strict=True):
                self.take(file, source)
            rounds += 1
        return rounds
