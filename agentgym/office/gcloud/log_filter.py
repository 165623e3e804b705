"""Filters in the Logging query language.

Supported syntax: comparisons (`=`, `!=`, `<`, `<=`, `>`, `>=`, `:` contains, `field:*`), text in
any field, NOT, OR, AND (the default, with the lowest precedence), parentheses and `LOG_ID`.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from agentgym.office.gcloud.cloud import PROJECT
from agentgym.text.tools import ToolError, echo

Entry: TypeAlias = Mapping[str, Any]
Test: TypeAlias = Callable[[Entry], bool]
"""Whether an entry passes."""
Order: TypeAlias = Callable[[Any, Any], bool]
"""A comparison operator."""

SEVERITIES = {
    "DEFAULT": 0,
    "DEBUG": 100,
    "INFO": 200,
    "NOTICE": 300,
    "WARNING": 400,
    "ERROR": 500,
    "CRITICAL": 600,
    "ALERT": 700,
    "EMERGENCY": 800,
}

FIELDS = (
    "logName", "severity", "timestamp", "receiveTimestamp", "insertId", "textPayload", "jsonPayload", "resource",
)  # fmt: skip

MAX_CHARS = 20_000  # as in Cloud Logging
MAX_TERMS = 100  # each comparison scans all entries
MAX_DEPTH = 20  # the parser is recursive

_FUNCTION = r"(?!(?:AND|OR|NOT)\()[A-Za-z_]\w*\([^()]*\)"
_TOKEN = re.compile(
    rf'\s+|({_FUNCTION}|"(?:[^"\\]|\\.)*"|!=|<=|>=|[=<>:()]|[^\s()=<>:!~,"\']+)', re.DOTALL
)
_ORDERS: dict[str, Order] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def read_filter(text: str) -> Test:
    """Parse a filter; an empty filter matches every entry.

    Raises `ToolError` for invalid or unsupported filters.
    """
    if len(text) > MAX_CHARS:
        raise ToolError(
            f"limit exceeded: a filter may have at most {MAX_CHARS} characters, got {len(text)}"
        )
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        place = 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise _bad(
                    f"cannot read {echo(text[place : place + 20])}; put text with special characters in double quotes"
                )
            place = match.end()
            if match[1]:
                self._tokens.append(match[1])
        self._next = 0
        self._depth = 0
        self._terms = 0

    def read(self) -> Test:
        if not self._tokens:
            return lambda entry: True
        test = self._all_of()
        if self._peek():
            raise _bad(f"expected an operator or the end, got {echo(self._peek())}")
        return test

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token

    def _all_of(self) -> Test:
        tests = [self._any_of()]
        while self._peek() not in ("", ")"):
            if self._peek() == "AND":
                self._take()
            tests.append(self._any_of())
        return lambda entry: all(test(entry) for test in tests)

    def _any_of(self) -> Test:
        tests = [self._not()]
        while self._peek() == "OR":
            self._take()
            tests.append(self._not())
        return lambda entry: any(test(entry) for test in tests)

    def _not(self) -> Test:
        negated = False
        while self._peek() == "NOT":
            self._take()
            negated = not negated
        test = self._group() if self._peek() == "(" else self._term()
        if negated:
            return lambda entry: not test(entry)
        return test

    def _group(self) -> Test:
        self._take()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ToolError(f"limit exceeded: parentheses may be nested at most {MAX_DEPTH} deep")
        test = self._all_of()
        self._depth -= 1
        if self._take() != ")":
            raise _bad("a parenthesis is not closed")
        return test

    def _term(self) -> Test:
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise ToolError(f"limit exceeded: a filter may have at most {MAX_TERMS} comparisons")
        token = self._take()
        if token.endswith(")") and token != ")":
            return _log_id(token)
        if self._peek() in (*_ORDERS, ":"):
            return self._comparison(_path(token), self._take())
        part = _value(token).lower()
        return lambda entry: any(_contains(value, part) for value in entry.values())

    def _comparison(self, path: tuple[str, ...], sign: str) -> Test:
        token = self._take()
        if (sign, token) == (":", "*"):
            return lambda entry: _at(entry, path) is not None
        return _compare(path, sign, _value(token))


def _bad(problem: str) -> ToolError:
    return ToolError(f"invalid argument: invalid filter in the Logging query language: {problem}")


def _log_id(call: str) -> Test:
    name, _, argument = call[:-1].partition("(")
    if name.lower() != "log_id":
        raise _bad(f"the function {echo(name)} is not supported; use LOG_ID")
    return _compare(("logName",), "=", _value(argument.strip()))


def _value(token: str) -> str:
    if token in ("", "AND", "OR", "NOT") or token[0] in "=<>!():":
        where = f"before {echo(token)}" if token else "at the end"
        raise _bad(f"a value is missing {where}; put text with special characters in double quotes")
    if token[0] == "-" and _number(token) is None:
        raise _bad(f"use NOT instead of the minus sign before {echo(token[1:])}")
    if token[0] == '"':
        return re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.DOTALL)
    return token


def _path(word: str) -> tuple[str, ...]:
    path = tuple(word.split("."))
    if path[0] not in FIELDS:
        raise _bad(f"entries have no field {echo(word)}; the fields are {', '.join(FIELDS)}")
    return path


def _at(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _contains(value: Any, part: str) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return any(_contains(item, part) for item in value)
    return part in _scalar_text(value).lower()


def _scalar_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _compare(path: tuple[str, ...], sign: str, text: str) -> Test:
    part = text.lower()
    if sign == ":":
        return lambda entry: (found := _at(entry, path)) is not None and _contains(found, part)
    order, holds = _ORDERS[sign], _comparable(path, text)
    return lambda entry: (found := _at(entry, path)) is not None and holds(order, found)


def _comparable(path: tuple[str, ...], text: str) -> Callable[[Order, Any], bool]:
    if path == ("severity",):
        level = _level(text)
        return lambda order, value: order(SEVERITIES[value], level)
    if path in (("timestamp",), ("receiveTimestamp",)):
        moment = _moment(text)
        return lambda order, value: order(_moment(value), moment)
    if path == ("logName",):
        text = log_path(text)
    number, lower = _number(text), text.lower()

    def holds(order: Order, value: Any) -> bool:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return number is not None and order(value, number)
        if isinstance(value, (dict, list)):
            return False
        return order(_scalar_text(value).lower(), lower)

    return holds


def _level(text: str) -> int:
    if text.upper() in SEVERITIES:
        return SEVERITIES[text.upper()]
    if re.fullmatch(r"[0-9]{1,4}", text):
        return int(text)
    raise _bad(f"{echo(text)} is not a severity; use one of {', '.join(SEVERITIES)}")


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _bad(f'{echo(text)} is not a time; write it as "2025-01-15T09:00:00Z"') from None
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    return moment


def _number(text: str) -> float | None:
    if re.fullmatch(r"[+-]?[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,2})?", text):
        return float(text)
    return None


def log_path(name: str) -> str:
    """Return a log's full name, `projects/…/logs/name`, with `%2F` for slashes."""
    short = name.removeprefix(f"projects/{PROJECT}/logs/")
    if short.startswith("projects/"):
        return short
    return f"projects/{PROJECT}/logs/{short.replace('/', '%2F')}"
