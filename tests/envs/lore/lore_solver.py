"""Independent DocumentWorld solver, which sees only the observations of a policy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

FUNCTIONS: dict[str, Any] = {
    "max": max,
    "min": min,
    "abs": abs,
    "upper": str.upper,
    "lower": str.lower,
    "swapcase": str.swapcase,
    "reverse": lambda text: "".join(reversed(text)),
    "first": lambda text: text[0],
    "last": lambda text: text[-1],
    "twice": lambda text: text + text,
    "__builtins__": {},
}


def calculate(expression: str, values: dict[str, int | str]) -> int | str:
    names = re.findall(r"v\d+", expression)
    result: int | str = eval(
        expression.replace(" mod ", " % "), dict(FUNCTIONS), {name: values[name] for name in names}
    )
    return result


class Solver:
    """Solver state.

    Attributes:
        target: The variable whose value the task asks for.
        answer: The value of the target, or None if unknown.
        frontier: The known ids of documents that have not been read.
        read: The ids of documents that have been read.
    """

    def __init__(self, task: str) -> None:
        self.target = re.findall(r"value of (v\d+)", task)[0]
        self.frontier = set(re.findall(r"v\d+%-?\w+", task))
        self.read: set[str] = set()
        self.answer: int | str | None = None
        self.values: dict[str, int | str] = {}
        self.rules: list[tuple[str, str, frozenset[str]]] = []

    def take(self, file: str, text: str) -> None:
        self.read.add(file)
        self.frontier.discard(file)
        if "%X'" in text:
            prefix = text.split("'")[1].split("%", maxsplit=1)[0]
            expression = text.split(" where X is the ")[1].split(". ", maxsplit=1)[0]
            expression = re.sub("^(value of|text given by) ", "", expression)
            self.rules.append((prefix, expression, frozenset(re.findall(r"v\d+", expression))))
        elif "'" in text:
            self.frontier |= set(text.split("'")[1::2]) - self.read
        else:
            for sentence in text[:-1].split(". "):
                words = re.findall(r"-?\w+", sentence)
                variable = next(word for word in words if re.fullmatch(r"v\d+", word))
                self.values[variable] = words[-1] if words[-1].isalpha() else int(words[-1])
        self.answer = self.values.get(self.target)
        for prefix, expression, names in [
            rule for rule in self.rules if rule[2] <= self.values.keys()
        ]:
            self.frontier |= {f"{prefix}%{calculate(expression, self.values)}"} - self.read
            self.rules.remove((prefix, expression, names))

    def useful(self) -> set[str]:
        """Return the known ids; without irrelevant documents, all of them are needed."""
        return set(self.frontier)

    def solve(self, read: Callable[[Iterable[str]], list[str]]) -> int:
        """Read all known documents in each round, and return the number of rounds."""
        rounds = 0
        while self.answer is None:
            files = sorted(self.frontier)
            for file, text in zip(files, read(files), strict=True):
                self.take(file, text)
            rounds += 1
        return rounds
