"""Operators on numbers and strings in bottom-up domains.

To add an operator, extend `STANDARD` or `HARD`. To add a string function, extend `EDITS`.
"""

from __future__ import annotations

import ast
import operator as python
import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from random import Random
from typing import Any

from agentgym.envs.lore.graph import Operator, Value, among, below
from agentgym.envs.lore.growth import letters

EDITS: Mapping[str, Callable[[str], str]] = {
    "reverse": lambda text: text[::-1],
    "upper": str.upper,
    "lower": str.lower,
    "swapcase": str.swapcase,
    "first": lambda text: text[:1],
    "last": lambda text: text[-1:],
    "twice": lambda text: text * 2,
}
"""Functions of a text. None returns an empty text, because an id needs a suffix."""

FUNCTIONS: Mapping[str, Callable[..., Any]] = {"max": max, "min": min, "abs": abs, **EDITS}

_MOST_CHARS = 2_000  # ten times the longest rule; much longer expressions could crash `ast`
_VARIABLE = re.compile(r"\bv[0-9]+\b")
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: python.add,
    ast.Sub: python.sub,
    ast.Mult: python.mul,
    ast.Mod: python.mod,
}


def factor(rng: Random) -> int:
    """Draw a factor that is small enough for mental arithmetic."""
    return among(rng, 2, 12)


def text(rng: Random) -> str:
    """Draw a string of one to three letters."""
    return letters(rng, among(rng, 1, 3))


def _signs(rng: Random, operands: int) -> tuple[int, ...]:
    # Include a minus sign, because a sum without one would be an `add`.
    signs = [1 - 2 * below(rng, 2) for _ in range(operands - 1)]
    signs[below(rng, operands - 1)] = -1
    return (1, *signs)


def _signed(signs: Sequence[int], names: Sequence[str]) -> str:
    terms = ""
    for sign, name in zip(signs, names, strict=True):
        terms += f" - {name}" if sign < 0 else f" + {name}"
    return terms[3:]


def _edits(rng: Random, operands: int) -> tuple[str, ...]:
    # Edit at least one operand, because the rule would otherwise be a `join`.
    names = ("", *EDITS)
    edits = [names[below(rng, len(names))] for _ in range(operands)]
    edits[below(rng, operands)] = names[among(rng, 1, len(EDITS))]
    return tuple(edits)


def _edited(edits: Sequence[str], values: Sequence[str]) -> str:
    return "".join(
        EDITS[edit](value) if edit else value for edit, value in zip(edits, values, strict=True)
    )


def _calls(edits: Sequence[str], names: Sequence[str]) -> str:
    terms = []
    for edit, name in zip(edits, names, strict=True):
        terms.append(f"{edit}({name})" if edit else name)
    return " + ".join(terms)


def _function(name: str, function: Callable[..., int]) -> Operator:
    return Operator(
        name,
        lambda _, values: function(*values),
        lambda _, names: f"{name}({', '.join(names)})",
    )


STANDARD = (
    Operator("add", lambda _, values: sum(values), lambda _, names: " + ".join(names)),
    Operator(
        "subtract",
        lambda signs, values: sum(sign * value for sign, value in zip(signs, values, strict=True)),
        _signed,
        _signs,
    ),
    Operator(
        "join",
        lambda _, values: "".join(values),
        lambda _, names: " + ".join(names),
        child=text,
        operand="text",
    ),
)
"""The operators of the paper's document domain (section 3): addition, subtraction, concatenation.
"""

HARD = (
    *STANDARD,
    Operator(
        "multiply",
        lambda _, values: prod(values),
        lambda _, names: " * ".join(names),
        child=factor,
        most=3,
    ),
    Operator(
        "remainder",
        lambda modulus, values: sum(values) % modulus,
        lambda modulus, names: f"({' + '.join(names)}) mod {modulus}",
        lambda rng, _: among(rng, 7, 97),
    ),
    _function("max", max),
    _function("min", min),
    Operator(
        "difference",
        lambda _, values: abs(values[0] - values[1]),
        lambda _, names: f"abs({names[0]} - {names[1]})",
        most=2,
    ),
    Operator("edit", _edited, _calls, _edits, text, "text"),
)
"""These and harder ones; the paper calls the domain extendable."""

BY_NAME = {operator.name: operator for operator in HARD}


def variables(expression: str) -> list[str]:
    """Return the distinct variables in an expression, in order of occurrence."""
    return list(dict.fromkeys(_VARIABLE.findall(expression)))


def evaluate(expression: str, values: Mapping[str, Value]) -> Value:
    """Evaluate an expression; raise ValueError for bad syntax, unknown names or wrong types."""
    try:
        if len(expression) > _MOST_CHARS:
            raise ValueError
        tree = ast.parse(expression.replace(" mod ", " % "), mode="eval")
        result: Value = _value(tree.body, values)
    except (ValueError, SyntaxError, TypeError, KeyError, AttributeError, ZeroDivisionError):
        raise ValueError(
            f"cannot evaluate this expression with the known values: {expression[:100]!r}"
        ) from None
    return result


def _value(node: ast.expr, values: Mapping[str, Value]) -> Any:
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)](_value(node.left, values), _value(node.right, values))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return FUNCTIONS[node.func.id](*(_value(argument, values) for argument in node.args))
    raise ValueError
