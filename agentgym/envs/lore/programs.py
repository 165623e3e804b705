"""The programs of the code domain: what a module computes from others (TaskWeaver, section 3), and
the expression that says so.

An expression is the form in which the state tells a program; `sources` writes it as Python. Each is
written and read here.
"""

from __future__ import annotations

import operator as python
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from random import Random
from typing import Any

from agentgym.envs.lore.graph import Operator, among, below, shuffled
from agentgym.envs.lore.operators import BY_NAME, number

Worker = tuple[tuple[int, str], ...]
"""A coroutine: before each statement it sleeps for so many ticks of 0.1 s.

Integers, since sums of floats might change an order.
"""

WORKERS = ("first", "second", "third")
"""The names of coroutines; each takes one operand, and the last operand of the module is what the
shared variable starts with.
"""

_LOAD = "seen = shared"
_STORE = ("shared = seen + amount", "shared = seen - amount")
_UPDATE = ("shared += amount", "shared -= amount")
_PATTERNS: Sequence[Sequence[Sequence[str]]] = (
    ((_LOAD,), _STORE),
    (_UPDATE, _UPDATE),
    ((_LOAD,), _STORE, _UPDATE),
    (_UPDATE, (_LOAD,), _STORE),
    ((_LOAD,), _UPDATE, _STORE),
)
_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "<": python.lt,
    "<=": python.le,
    ">": python.gt,
    ">=": python.ge,
}
_OPERAND = r"\w+\(\)"
_CALL = re.compile(r"(\w+)\(\)")
_SIGN = re.compile(r" ([+-]) ")


@dataclass(frozen=True, slots=True)
class Program:
    """What a module returns.

    Attributes:
        operator: The name of an operator, or `constant`.
        drawn: What was drawn for it; the value of a constant.
        operands: The files of the modules that it is computed from, in order.
    """

    operator: str
    drawn: Any
    operands: tuple[str, ...] = ()

    def asked(self, values: Mapping[str, int]) -> tuple[str, ...]:
        """The operands that running it asks for, as far as the values that are known tell: of a
        conditional what it compares, and the branch it takes once that is known.
        """
        if self.operator != "conditional":
            return self.operands
        left, right = compared = self.operands[:2]
        if left not in values or right not in values:
            return compared
        return (
            *compared,
            self.operands[2 if _COMPARISONS[self.drawn](values[left], values[right]) else 3],
        )

    def evaluate(self, values: Mapping[str, int]) -> int:
        """What it returns, if the values that it asks for are known."""
        if self.operator == "constant":
            return int(self.drawn)
        return int(
            PROGRAMS[self.operator].execute(
                self.drawn, [values.get(file, 0) for file in self.operands]
            )
        )


def wakeups(workers: Sequence[Worker]) -> list[tuple[int, int, str]]:
    """The statements of coroutines that run at once, in the order in which they run: the tick, the
    worker, and the statement.

    Nothing but sleep takes time, and no two wake up in the same tick, so the order is certain.
    """
    ticks = [list(accumulate(duration for duration, _ in worker)) for worker in workers]
    return sorted(
        (ticks[w][k], w, worker[k][1])
        for w, worker in enumerate(workers)
        for k in range(len(worker))
    )


def seconds(ticks: int) -> str:
    """A duration as a source writes it."""
    return f"{ticks // 10}.{ticks % 10}"


def _draw_workers(rng: Random, operands: int) -> tuple[Worker, ...]:
    """Workers that wake up in different ticks, drawn until each operand makes a difference: what is
    overwritten may make none.
    """
    while True:
        workers = _try_workers(rng, operands)
        # The result is linear in the operands, so what one of them makes of it is seen with 1 in
        # its place and 0 elsewhere.
        if all(
            _run_workers(workers, [int(place == k) for k in range(operands)])
            for place in range(operands)
        ):
            return workers


def _try_workers(rng: Random, operands: int) -> tuple[Worker, ...]:
    """A set of ticks is drawn and dealt out."""
    patterns = [_PATTERNS[below(rng, len(_PATTERNS))] for _ in range(operands - 1)]
    count = sum(map(len, patterns))
    ticks = iter(shuffled(rng, range(1, 2 * count + 1)))
    workers = []
    for pattern in patterns:
        durations = [
            later - earlier
            for earlier, later in pairwise([0, *sorted(next(ticks) for _ in pattern)])
        ]
        workers.append(
            tuple(
                (t, choices[below(rng, len(choices))])
                for t, choices in zip(durations, pattern, strict=True)
            )
        )
    return tuple(workers)


def _run_workers(workers: Sequence[Worker], values: Sequence[int]) -> int:
    *amounts, shared = values
    seen = [0] * len(workers)
    for _, worker, statement in wakeups(workers):
        if statement == _LOAD:
            seen[worker] = shared
        else:
            before = seen[worker] if statement in _STORE else shared
            shared = before + (amounts[worker] if "+" in statement else -amounts[worker])
    return shared


def _write_workers(workers: Sequence[Worker], names: Sequence[str]) -> str:
    told = [
        f"{name}({amount}) does "
        + ", ".join(f"sleep {seconds(ticks)}, {statement}" for ticks, statement in worker)
        for name, amount, worker in zip(WORKERS, names[:-1], workers, strict=False)
    ]
    return f"{'; '.join(told)}; all at once on shared = {names[-1]}"


def read_workers(bodies: Sequence[str]) -> tuple[Worker, ...]:
    """The workers from texts that hold their durations and statements in turn."""
    return tuple(
        tuple(
            (int(whole) * 10 + int(tenth), statement)
            for whole, tenth, statement in _STATEMENT.findall(body)
        )
        for body in bodies
    )


_STATEMENT = re.compile(
    rf"([0-9]+)\.([0-9])\W+({_LOAD}|shared = seen [+-] amount|shared [+-]= amount)"
)


def _conditional(comparison: str, values: Sequence[int]) -> int:
    return values[_taken(comparison, values)[2]]


def _taken(comparison: str, values: Sequence[int]) -> Sequence[int]:
    return 0, 1, 2 if _COMPARISONS[comparison](values[0], values[1]) else 3


def _signs(rng: Random, operands: int) -> tuple[int, ...]:
    return (1, *(1 - 2 * below(rng, 2) for _ in range(operands - 1)))


_ARITHMETIC = replace(BY_NAME["subtract"], name="arithmetic", draw=_signs)
_SCALE = Operator(
    "scale",
    "number",
    2,
    2,
    number,
    lambda rng, operands: (among(rng, 2, 4), _signs(rng, operands)),
    lambda drawn, values: drawn[0] * _ARITHMETIC.execute(drawn[1], values),
    lambda drawn, names: f"{drawn[0]} * ({_ARITHMETIC.write(drawn[1], names)})",
)
_CONDITIONAL = Operator(
    "conditional",
    "number",
    4,
    4,
    number,
    lambda rng, _: tuple(_COMPARISONS)[below(rng, len(_COMPARISONS))],
    _conditional,
    lambda comparison, names: (
        f"if {names[0]} {comparison} {names[1]} then {names[2]} else {names[3]}"
    ),
    _taken,
)
_ASYNC = Operator("async", "number", 3, 4, number, _draw_workers, _run_workers, _write_workers)

STANDARD = (_ARITHMETIC, _SCALE, _CONDITIONAL)
"""Integer arithmetic and conditional statements, as the paper names them; the forms are ours."""

HARD = (*STANDARD, _ASYNC)
"""And coroutines that share a global variable."""

WEIGHTS = {"arithmetic": 1.0, "scale": 1.0, "conditional": 1.0, "async": 0.5}
"""How often each operator is used by default."""

WRAP = Operator(
    "wrap",
    "number",
    1,
    1,
    number,
    lambda rng, _: ((1, 3, 7, 9)[below(rng, 4)], below(rng, 100)),
    lambda drawn, values: (values[0] * drawn[0] + drawn[1]) % 100,
    lambda drawn, names: f"({names[0]} * {drawn[0]} + {drawn[1]}) % 100",
)
"""What a gathered module returns of the one behind it; the factor has no divisor in common with
100, so remainders stay apart.
"""

PLAIN = Operator(
    "plain",
    "number",
    1,
    1,
    number,
    lambda rng, _: None,
    lambda _, values: values[0],
    lambda _, names: names[0],
)
"""As in the paper: the value of the one behind it.

Equal values then cancel, so that about half of all answers would be 0.
"""

REDIRECTS = {"wrap": WRAP, "plain": PLAIN}
PROGRAMS: Mapping[str, Operator] = {operator.name: operator for operator in (*HARD, WRAP, PLAIN)}


def module(file: str) -> str:
    """The name by which a file is imported."""
    return file.removesuffix(".py")


def write_expression(program: Program, call: str = "{}()") -> str:
    """A program in one line; `call` is how the value of a module is written."""
    if program.operator == "constant":
        return str(program.drawn)
    return PROGRAMS[program.operator].write(
        program.drawn, [call.format(module(file)) for file in program.operands]
    )


def read_expression(text: str) -> Program:
    """The program that `write_expression` wrote.

    Raises:
        ValueError: It wrote no such text.
    """
    operands = tuple(f"{name}.py" for name in _CALL.findall(text))
    for operator, drawn in _guesses(text):
        program = Program(operator, drawn, operands)
        if write_expression(program) == text:
            return program
    raise ValueError(f"this is no expression over modules: {text[:100]!r}")


def _guesses(text: str) -> Iterator[tuple[str, Any]]:
    """What the text may be, to be compared with what would be written."""
    signs = (1, *(1 if sign == "+" else -1 for sign in _SIGN.findall(text)))
    if re.fullmatch("-?[0-9]{1,4000}", text):
        yield "constant", int(text)
    elif found := re.fullmatch(
        f"if {_OPERAND} ([<>]=?) {_OPERAND} then {_OPERAND} else {_OPERAND}", text
    ):
        yield "conditional", found[1]
    elif re.fullmatch(
        rf"(?:\w+\({_OPERAND}\) does [^;]*; ){{2,3}}all at once on shared = {_OPERAND}", text
    ):
        yield "async", read_workers(text.split("; ")[:-1])
    elif found := re.fullmatch(rf"\({_OPERAND} \* ([0-9]) \+ ([0-9]{{1,2}})\) % 100", text):
        yield "wrap", (int(found[1]), int(found[2]))
    elif found := re.fullmatch(rf"([0-9]) \* \({_OPERAND} [+-] {_OPERAND}\)", text):
        yield "scale", (int(found[1]), signs)
    elif re.fullmatch(_OPERAND, text):
        yield "plain", None
    elif re.fullmatch(f"{_OPERAND}(?: [+-] {_OPERAND})+", text):
        yield "arithmetic", signs
