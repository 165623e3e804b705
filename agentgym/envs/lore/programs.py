"""Programs of the code domain, which compute values from other modules (TaskWeaver, section 3).

In states, a program is written as an expression; in documents, as a Python module with a function
`main()` (appendix B.3). Only the root module can be run.
"""

from __future__ import annotations

import functools
import operator as python
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import Any

import numpy as np

from agentgym.envs.lore.graph import Operator, among, below, shuffled
from agentgym.envs.lore.operators import BY_NAME

Worker = tuple[tuple[int, str], ...]
"""Statements of a coroutine, each with its preceding sleep in ticks of 0.1 s; sums of floats might
change the order.
"""

# Each coroutine has one operand; the last operand initialises the shared variable.
WORKERS = ("first", "second", "third")

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
ROOT = "main.py"

_MAIN_CALL = "{}.main()"
_MAIN = "def main():\n"
_GUARD = '\nif __name__ == "__main__":\n    print(main(), end="")\n'
_BRANCHES = re.compile(r"    (if .*):\n        return (.*)\n    return (.*)\n")
_RETURN = re.compile(r"    return (.*)\n")
_WORKER = re.compile(r"async def \w+\(amount\):\n    global shared\n((?:    .*\n)+)")
_RUN = re.compile(r"    return asyncio\.run\(run\((.*)\)\)\n")
_OPERAND = r"\w+\(\)"
_CALL = re.compile(r"\b(\w+)\(\)")
_SIGN = re.compile(r" ([+-]) ")


@dataclass(frozen=True, slots=True)
class Program:
    """The return value of a module: a constant, or an operator on the values of other modules."""

    operator: str
    drawn: Any
    operands: tuple[str, ...] = ()

    def required_operands(self, values: Mapping[str, int]) -> tuple[str, ...]:
        """Return the operands that running the program evaluates, given the known values."""
        if self.operator != "conditional":
            return self.operands
        left, right, then, other = self.operands
        if left not in values or right not in values:
            return left, right
        if _COMPARISONS[self.drawn](values[left], values[right]):
            return left, right, then
        return left, right, other

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Compute the return value from the values of the required operands."""
        if self.operator == "constant":
            return int(self.drawn)
        operands = [values.get(file, 0) for file in self.operands]
        return int(PROGRAMS[self.operator].execute(self.drawn, operands))


def wakeups(workers: Sequence[Worker]) -> list[tuple[int, int, str]]:
    """Return the statements in execution order as (tick, worker, statement).

    The order is unambiguous, because no two coroutines wake in the same tick.
    """
    order = []
    for place, worker in enumerate(workers):
        tick = 0
        for sleep, statement in worker:
            tick += sleep
            order.append((tick, place, statement))
    return sorted(order)


def seconds(ticks: int) -> str:
    """Format a duration for source code."""
    return f"{ticks // 10}.{ticks % 10}"


def _draw_workers(rng: Random, operands: int) -> tuple[Worker, ...]:
    # The result is linear in the operands, so a unit vector yields the effect of one operand.
    units = np.eye(operands, dtype=int).tolist()
    while True:
        workers = _try_workers(rng, operands)
        if all(_run_workers(workers, unit) for unit in units):
            return workers


def _try_workers(rng: Random, operands: int) -> tuple[Worker, ...]:
    patterns = [_PATTERNS[below(rng, len(_PATTERNS))] for _ in range(operands - 1)]
    # Choose from twice as many ticks as there are statements, so that the delays vary.
    ticks = iter(shuffled(rng, range(1, 2 * sum(map(len, patterns)) + 1)))
    workers = []
    for pattern in patterns:
        worker, earlier = [], 0
        for later, choices in zip(sorted(islice(ticks, len(pattern))), pattern, strict=True):
            worker.append((later - earlier, choices[below(rng, len(choices))]))
            earlier = later
        workers.append(tuple(worker))
    return tuple(workers)


def _run_workers(workers: Sequence[Worker], values: Sequence[int]) -> int:
    *amounts, shared = values
    seen = [0] * len(workers)
    for _, worker, statement in wakeups(workers):
        if statement == _LOAD:
            seen[worker] = shared
        else:
            sign = 1 if "+" in statement else -1
            before = seen[worker] if statement in _STORE else shared
            shared = before + sign * amounts[worker]
    return shared


def _write_workers(workers: Sequence[Worker], names: Sequence[str]) -> str:
    *amounts, shared = names
    text = ""
    for name, amount, worker in zip(WORKERS, amounts, workers, strict=False):
        body = ", ".join(f"sleep {seconds(ticks)}, {statement}" for ticks, statement in worker)
        text += f"{name}({amount}) does {body}; "
    return f"{text}all at once on shared = {shared}"


def read_workers(bodies: Sequence[str]) -> tuple[Worker, ...]:
    """Parse alternating durations and statements."""
    workers = []
    for body in bodies:
        found = _STATEMENT.findall(body)
        workers.append(tuple((int(whole + tenth), statement) for whole, tenth, statement in found))
    return tuple(workers)


_STATEMENT = re.compile(
    rf"(?<![0-9])([0-9]+)\.([0-9])\W+({_LOAD}|shared = seen [+-] amount|shared [+-]= amount)"
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
    lambda drawn, values: drawn[0] * _ARITHMETIC.execute(drawn[1], values),
    lambda drawn, names: f"{drawn[0]} * ({_ARITHMETIC.write(drawn[1], names)})",
    lambda rng, operands: (among(rng, 2, 4), _signs(rng, operands)),
    most=2,
)
_CONDITIONAL = Operator(
    "conditional",
    _conditional,
    lambda comparison, names: (
        f"if {names[0]} {comparison} {names[1]} then {names[2]} else {names[3]}"
    ),
    lambda rng, _: tuple(_COMPARISONS)[below(rng, len(_COMPARISONS))],
    least=4,
    most=4,
    needs=_taken,
)
# Two or three coroutines take an operand each; the last operand initialises the shared variable.
_ASYNC = Operator("async", _run_workers, _write_workers, _draw_workers, least=3, most=4, weight=0.5)

STANDARD = (_ARITHMETIC, _SCALE, _CONDITIONAL)
"""Integer arithmetic and conditional statements, as in the paper; their form is not the paper's."""

HARD = (*STANDARD, _ASYNC)
"""The standard operators, and coroutines that share a global variable."""

WRAP = Operator(
    "wrap",
    lambda drawn, values: (values[0] * drawn[0] + drawn[1]) % 100,
    lambda drawn, names: f"({names[0]} * {drawn[0]} + {drawn[1]}) % 100",
    lambda rng, _: ((1, 3, 7, 9)[below(rng, 4)], below(rng, 100)),
    least=1,
    most=1,
)
"""Redirect of a gathered module; the factor is coprime to 100, which keeps remainders distinct."""

PLAIN = Operator("plain", lambda _, values: values[0], lambda _, names: names[0], least=1, most=1)
"""The paper's redirect: the value behind it. Equal values cancel, so half of all answers would be
0.
"""

REDIRECTS = {"wrap": WRAP, "plain": PLAIN}
PROGRAMS: Mapping[str, Operator] = {operator.name: operator for operator in (*HARD, WRAP, PLAIN)}


def module(file: str) -> str:
    """Return the import name of a file."""
    return file.removesuffix(".py")


def write_expression(program: Program, call: str = "{}()") -> str:
    """Write a program as an expression; `call` is the format of a call to another module."""
    if program.operator == "constant":
        return str(program.drawn)
    calls = [call.format(module(file)) for file in program.operands]
    return PROGRAMS[program.operator].write(program.drawn, calls)


@functools.lru_cache(maxsize=4096)  # consecutive states share most lines
def read_expression(text: str) -> Program:
    """Parse the output of `write_expression`; raise ValueError for any other text."""
    operands = tuple(f"{name}.py" for name in _CALL.findall(text))
    for operator, parameters in _guesses(text):
        program = Program(operator, parameters, operands)
        if write_expression(program) == text:
            return program
    raise ValueError(f"this is not an expression over modules: {text[:100]!r}")


def _guesses(text: str) -> Iterator[tuple[str, Any]]:
    signs = (1, *(1 if sign == "+" else -1 for sign in _SIGN.findall(text)))
    if re.fullmatch("-?[0-9]{1,4000}", text):
        yield "constant", int(text)
    elif match := re.fullmatch(
        f"if {_OPERAND} ([<>]=?) {_OPERAND} then {_OPERAND} else {_OPERAND}", text
    ):
        yield "conditional", match[1]
    elif re.fullmatch(
        rf"(?:\w+\({_OPERAND}\) does [^;]*; ){{2,3}}all at once on shared = {_OPERAND}", text
    ):
        yield "async", read_workers(text.split("; ")[:-1])
    elif match := re.fullmatch(rf"\({_OPERAND} \* ([0-9]) \+ ([0-9]{{1,2}})\) % 100", text):
        yield "wrap", (int(match[1]), int(match[2]))
    elif match := re.fullmatch(rf"([0-9]) \* \({_OPERAND} [+-] {_OPERAND}\)", text):
        yield "scale", (int(match[1]), signs)
    elif re.fullmatch(_OPERAND, text):
        yield "plain", None
    elif re.fullmatch(f"{_OPERAND}(?: [+-] {_OPERAND})+", text):
        yield "arithmetic", signs


def write_source(program: Program, root: bool = False) -> str:
    """Write a program as a module; the root module prints its value when run."""
    imports = "".join(f"import {module(file)}\n" for file in program.operands)
    coroutines = ""
    if program.operator == "async":
        imports = f"import asyncio\n{imports}"
        coroutines = _write_coroutines(program.drawn)
    if imports:
        imports += "\n"
    source = f"{imports}{coroutines}{_MAIN}{_body(program)}"
    return source + _GUARD if root else source


def _body(program: Program) -> str:
    calls = [_MAIN_CALL.format(module(file)) for file in program.operands]
    if program.operator == "conditional":
        left, right, then, other = calls
        return (
            f"    if {left} {program.drawn} {right}:\n        return {then}\n    return {other}\n"
        )
    if program.operator == "async":
        # Compute arguments before `run`, because operands may start event loops, which cannot be
        # nested.
        return f"    return asyncio.run(run({', '.join(calls)}))\n"
    return f"    return {write_expression(program, _MAIN_CALL)}\n"


def _write_coroutines(workers: tuple[Worker, ...]) -> str:
    # `run` resets the shared variable, so that every call returns the same value.
    text = "shared = 0\n\n"
    for name, worker in zip(WORKERS, workers, strict=False):
        text += f"async def {name}(amount):\n    global shared\n"
        for ticks, statement in worker:
            text += f"    await asyncio.sleep({seconds(ticks)})\n    {statement}\n"
        text += "\n"
    amounts = "abc"[: len(workers)]
    calls = ", ".join(f"{name}({amount})" for name, amount in zip(WORKERS, amounts, strict=False))
    return (
        f"{text}async def run({', '.join(amounts)}, start):\n    global shared\n    shared = start\n"
        f"    await asyncio.gather({calls})\n    return shared\n\n"
    )


@functools.lru_cache(4096)  # scripted policies parse the same files at every step
def read_source(text: str) -> Program:
    """Parse the program of a module; raise ValueError if the module is not complete."""
    program = _guess(text)
    if program is None or text not in (write_source(program), write_source(program, root=True)):
        raise ValueError(f"this is not a document: {text[:100]!r}")
    return program


def _guess(text: str) -> Program | None:
    head, _, body = text.removesuffix(_GUARD).replace(".main()", "()").partition(_MAIN)
    if run := _RUN.fullmatch(body):
        operands = tuple(f"{call.removesuffix('()')}.py" for call in run[1].split(", "))
        workers = read_workers(_WORKER.findall(head))
        fits = 1 < len(operands) == len(workers) + 1 <= len(WORKERS) + 1
        return Program("async", workers, operands) if fits else None
    expression = ""
    if branches := _BRANCHES.fullmatch(body):
        expression = f"{branches[1]} then {branches[2]} else {branches[3]}"
    elif line := _RETURN.fullmatch(body):
        expression = line[1]
    try:
        return read_expression(expression)
    except ValueError:
        return None
