"""Documents of the code domain: Python modules, written and read (TaskWeaver, appendix B.3).

Each has a function `main` without arguments. They import one another; only the first can be run.
"""

from __future__ import annotations

import functools
import re

from agentgym.envs.lore.programs import (
    WORKERS,
    Program,
    Worker,
    module,
    read_expression,
    read_workers,
    seconds,
    write_expression,
)

ROOT = "main.py"

_CALL = "{}.main()"
_MAIN = "def main():\n"
_GUARD = '\nif __name__ == "__main__":\n    print(main(), end="")\n'
_BRANCHES = re.compile(r"    (if .*):\n        return (.*)\n    return (.*)\n")
_RETURN = re.compile(r"    return (.*)\n")
_WORKER = re.compile(r"async def \w+\(amount\):\n    global shared\n((?:    .*\n)+)")
_RUN = re.compile(r"    return asyncio\.run\(run\((.*)\)\)\n")


def write_source(program: Program, root: bool = False) -> str:
    """Write a module that computes a program; the root prints its value when it is run."""
    is_async = program.operator == "async"
    imports = ["asyncio"] if is_async else []
    text = "".join(f"import {name}\n" for name in [*imports, *map(module, program.operands)])
    if text:
        text += "\n"
    if is_async:
        text += _write_coroutines(program.drawn)
    return f"{text}{_MAIN}{_body(program)}{_GUARD if root else ''}"


def _body(program: Program) -> str:
    calls = [_CALL.format(module(file)) for file in program.operands]
    if program.operator == "conditional":
        left, right, then, other = calls
        return (
            f"    if {left} {program.drawn} {right}:\n        return {then}\n    return {other}\n"
        )
    if program.operator == "async":
        # The arguments are computed before the loop runs: an operand may run a loop of its own, and
        # loops do not nest.
        return f"    return asyncio.run(run({', '.join(calls)}))\n"
    return f"    return {write_expression(program, _CALL)}\n"


def _write_coroutines(workers: tuple[Worker, ...]) -> str:
    """Write the shared variable, a coroutine for each worker, and one that runs them all.

    The last one sets the variable, so that a second call returns the same.
    """
    text = "shared = 0\n\n"
    for name, worker in zip(WORKERS, workers, strict=False):
        lines = "".join(
            f"    await asyncio.sleep({seconds(ticks)})\n    {statement}\n"
            for ticks, statement in worker
        )
        text += f"async def {name}(amount):\n    global shared\n{lines}\n"
    amounts = "abc"[: len(workers)]
    calls = ", ".join(f"{name}({amount})" for name, amount in zip(WORKERS, amounts, strict=False))
    return (
        f"{text}async def run({', '.join(amounts)}, start):\n    global shared\n    shared = start\n"
        f"    await asyncio.gather({calls})\n    return shared\n\n"
    )


@functools.lru_cache(4096)  # scripted policies read the same files again at every step
def read_source(text: str) -> Program:
    """Read the program of a module.

    Raises:
        ValueError: The text is not a module that is written here (it may have been cut).
    """
    program = _guess(text)
    if program is None or text not in (write_source(program), write_source(program, root=True)):
        raise ValueError(f"this is not a document: {text[:100]!r}")
    return program


def _guess(text: str) -> Program | None:
    """Guess the program of a text; the reader compares it with the text that it writes."""
    head, main, body = text.removesuffix(_GUARD).replace(".main()", "()").partition(_MAIN)
    if not main:
        return None
    if run := _RUN.fullmatch(body):
        operands = tuple(f"{call.removesuffix('()')}.py" for call in run[1].split(", "))
        workers = read_workers(_WORKER.findall(head))
        if 1 < len(operands) == len(workers) + 1 <= len(WORKERS) + 1:
            return Program("async", workers, operands)
        return None
    if branches := _BRANCHES.fullmatch(body):
        expression = f"{branches[1]} then {branches[2]} else {branches[3]}"
    elif line := _RETURN.fullmatch(body):
        expression = line[1]
    else:
        return None
    try:
        return read_expression(expression)
    except ValueError:
        return None
