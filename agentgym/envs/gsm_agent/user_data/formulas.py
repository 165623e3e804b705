"""Evaluate the expressions in GSM-Symbolic templates with exact fractions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import floor
from random import Random
from types import CodeType
from typing import Any

# Without attributes, subscripts, lambdas and comprehensions, a formula can access only its
# arguments.
_ALLOWED = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.List, ast.Tuple, ast.Call),
    *(ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.BoolOp, ast.boolop),
    *(ast.Compare, ast.cmpop, ast.IfExp),
)
_SEVERAL = 20  # the number of samples to draw; there may be millions in total


@dataclass(frozen=True, slots=True)
class Several:
    """All ordered samples of `count` items, which are too many to enumerate."""

    items: Sequence[Any]
    count: int

    def draw(self, rng: Random) -> list[list[Any]]:
        """Draw a few random samples."""
        return [rng.sample(list(self.items), self.count) for _ in range(_SEVERAL)]


def to_number(value: Any) -> Any:
    """Convert strings such as `1/2` and `0.25` to numbers; return other values unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return _whole(Fraction(value))
    except (ValueError, ZeroDivisionError):
        return value


def write_number(value: Any) -> str:
    """Format a value as a whole number or a decimal without trailing zeros.

    Raise ValueError if a fraction has no finite decimal form.
    """
    if not isinstance(value, Fraction):
        return str(value)
    written = Decimal(value.numerator) / value.denominator
    if Fraction(written) != value:
        raise ValueError(f"{value} must have a finite decimal form")
    return f"{written:f}"


def _whole(value: Fraction) -> Fraction | int:
    return value.numerator if value.denominator == 1 else value


def _divide(first: Any, last: Any) -> Any:
    return _whole(Fraction(first) / Fraction(last))


def _is_int(value: Any) -> bool:
    return Fraction(value).denominator == 1


def _ensure_int(value: Any) -> int:
    if not _is_int(value):
        raise ValueError(f"{value} must be a whole number")
    return int(value)


def _sample(items: Sequence[Any], count: int = 1) -> Sequence[Any] | Several:
    return items if count == 1 else Several(items, count)


def _windows(items: Sequence[Any], count: int) -> list[list[Any]]:
    windows = []
    for start in range(len(items)):
        windows.append([items[(start + k) % len(items)] for k in range(count)])
    return windows


def _steps(start: Any, end: Any, step: Any = 1) -> list[str]:
    count = floor(_divide(end - start, step)) + 1
    return [write_number(Fraction(start + k * step)) for k in range(count)]


def _named(start: int, end: int, step: int, names: Sequence[str]) -> list[tuple[str, int]]:
    return [(names[number - 1], number) for number in range(start, end, step)]


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "is_int": _is_int,
    "divides": lambda first, last: last != 0 and first % last == 0,
    "ensure_int": _ensure_int,
    "int": int,
    "float": to_number,
    "Fraction": to_number,
    "round": round,
    "range": lambda *ends: list(range(*ends)),
    "range_list": lambda *ends: list(range(*ends)),
    "range_str": _named,
    "arange": _steps,
    "sample": _sample,
    "sample_sequential": _windows,
    "_divide": _divide,
    "_number": to_number,
}
_GLOBALS = {"__builtins__": {}, **_FUNCTIONS}


class _Exact(ast.NodeTransformer):
    """Replaces divisions and floats with exact fractions."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div):
            return node
        return ast.Call(ast.Name("_divide", ast.Load()), [node.left, node.right], [])

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not isinstance(node.value, float):
            return node
        return ast.Call(ast.Name("_number", ast.Load()), [ast.Constant(repr(node.value))], [])


class Formula:
    """An expression with variables, arithmetic, comparisons and the functions of the templates.

    Other syntax raises ValueError.
    """

    def __init__(self, text: str) -> None:
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except SyntaxError as error:
            raise ValueError(f"expected an expression, got {text.strip()!r}") from error
        called = set[str]()
        for node in ast.walk(tree):
            if not isinstance(node, _ALLOWED):
                raise ValueError(f"{type(node).__name__} is not allowed in {text.strip()!r}")
            if isinstance(node, ast.Call):
                called.add(node.func.id if isinstance(node.func, ast.Name) else "")
        if unknown := called - _FUNCTIONS.keys():
            raise ValueError(f"unknown function {min(unknown)!r} in {text.strip()!r}")
        named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        self.names = frozenset(named - called)
        self.has_equality = any(isinstance(node, ast.Eq) for node in ast.walk(tree))
        exact = ast.fix_missing_locations(_Exact().visit(tree))
        self._code: CodeType = compile(exact, "template", "eval")

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """Return the value, or raise ArithmeticError or ValueError."""
        try:
            # Safe, because `__init__` rejects all syntax and functions that are not allowed.
            return eval(self._code, _GLOBALS, dict(values))
        except (TypeError, IndexError, NameError, InvalidOperation) as error:
            raise ValueError(f"cannot evaluate the expression ({error})") from error
