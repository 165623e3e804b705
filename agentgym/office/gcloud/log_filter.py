"""Filters in the Logging query language.

Supported are comparisons (`=`, `!=`, `<`, `<=`, `>`, `>=`, `:` contains, `field:*`), text in any
field, NOT (or `-`), OR, AND (the default, with the lowest precedence), parentheses, comments
(`-- …`) and `LOG_ID`. Only AND, OR and NOT are case-sensitive. Regular expressions, alternatives of
one field and other functions are refused.
"""

from __future__ import annotations

import functools
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

SEVERITIES = {
    "DEFAULT": 0, "DEBUG": 100, "INFO": 200, "NOTICE": 300, "WARNING": 400, "ERROR": 500, "CRITICAL": 600, "ALERT": 700,
    "EMERGENCY": 800,
}  # fmt: skip

# LogEntry fields that entries here can have.
FIELDS = (
    "logName", "severity", "timestamp", "receiveTimestamp", "insertId", "textPayload", "jsonPayload", "resource",
)  # fmt: skip

MAX_CHARS = 20_000  # as in Cloud Logging
MAX_TERMS = 100  # each scans all entries
MAX_DEPTH = 20  # the parser recurses

_QUOTED = r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'"
_BARE = r"[^\s()=<>:!~,\"']"
_FUNCTION = r"-?(?!(?:AND|OR|NOT)\()[A-Za-z_][A-Za-z_0-9]*\("
_TOKEN = re.compile(
    rf"\s+|--[^\n]*|({_FUNCTION}|{_BARE}+(?:(?:{_QUOTED}){_BARE}*)*|{_QUOTED}|!=|<=|>=|[=<>:(),])",
    re.DOTALL,
)
_SEGMENT = re.compile(rf"({_QUOTED})|([^.\"']+)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}  # in a filter's text
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@functools.lru_cache(maxsize=256)
def read_filter(text: str) -> Test:
    """Parse a filter; an empty one passes every entry.

    Raises:
        ToolError: The filter is invalid or uses an unsupported function.
    """
    if len(text) > MAX_CHARS:
        raise ToolError(
            f"limit exceeded: a filter has at most {MAX_CHARS} characters, got {len(text)}"
        )
    return _Reader(text).read()


class _Reader:
    """Recursive-descent parser."""

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
            raise _bad(f"unexpected {echo(self._peek())}; an operator or the end should follow")
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
        while self._peek() in ("NOT", "-"):
            self._take()
            negated = not negated
        test = self._group() if self._peek() == "(" else self._term()
        return _negation(test) if negated else test

    def _group(self) -> Test:
        self._take()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ToolError(f"limit exceeded: parentheses are nested at most {MAX_DEPTH} deep")
        test = self._all_of()
        self._depth -= 1
        if self._take() != ")":
            raise _bad("a parenthesis is not closed")
        return test

    def _term(self) -> Test:
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise ToolError(f"limit exceeded: a filter has at most {MAX_TERMS} comparisons")
        token = self._take()
        # `-5` is a number, `-error` a negated text.
        negated = token.startswith("-") and not re.fullmatch(r"-[0-9.]+", token)
        word = token[1:] if negated else token
        if word.endswith("("):
            test = self._function(word[:-1])
        elif self._peek() in (*_ORDERS, ":"):
            test = self._comparison(_path(word), self._take())
        else:
            test = _anywhere(_value(word))
        return _negation(test) if negated else test

    def _comparison(self, path: tuple[str, ...], sign: str) -> Test:
        token = self._take()
        if (sign, token) == (":", "*"):
            return lambda entry: bool(_at(entry, path))
        return _compare(path, sign, _value(token))

    def _function(self, name: str) -> Test:
        if name.lower() != "log_id":
            raise _bad(f"the function {echo(name)} is not supported; only LOG_ID is")
        log = _value(self._take())
        if self._take() != ")":
            raise _bad('LOG_ID has one argument, as in LOG_ID("name")')
        return _compare(("logName",), "=", log)


def _bad(problem: str) -> ToolError:
    return ToolError(f"invalid argument: invalid filter in the Logging query language: {problem}")


def _negation(test: Test) -> Test:
    return lambda entry: not test(entry)


def _unquote(token: str) -> str:
    return re.sub(
        r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), token[1:-1], flags=re.DOTALL
    )


def _value(token: str) -> str:
    if token in ("", "AND", "OR", "NOT", ",", ":") or token[0] in "=<>!()":
        where = "at the end"
        if token:
            where = f"before {echo(token)} (put text with special characters in double quotes)"
        raise _bad(f"a value is missing {where}")
    return _unquote(token) if token[0] in "\"'" else token


def _path(word: str) -> tuple[str, ...]:
    path = []
    for quoted, plain in _SEGMENT.findall(word):
        path.append(_unquote(quoted) if quoted else plain)
    if not path or path[0] not in FIELDS:
        raise _bad(f"an entry has no field {echo(word)}; its fields are {', '.join(FIELDS)}")
    return tuple(path)


def _at(value: Any, path: Sequence[str]) -> list[Any]:
    for place, name in enumerate(path):
        if isinstance(value, list):
            return _at_all(value, path[place:])
        if not isinstance(value, dict) or name not in value:
            return []
        value = value[name]
    return _at_all(value, ()) if isinstance(value, list) else [value]


def _at_all(items: Sequence[Any], path: Sequence[str]) -> list[Any]:
    leaves: list[Any] = []
    for item in items:
        leaves += _at(item, path)
    return leaves


def _texts(value: Any) -> list[str]:
    """Return all nested scalars as text."""
    if isinstance(value, (dict, list)):
        texts = []
        for item in value.values() if isinstance(value, dict) else value:
            texts += _texts(item)
        return texts
    return [value if isinstance(value, str) else json.dumps(value)]


def _anywhere(text: str) -> Test:
    part = text.lower()
    return lambda entry: any(_contains(value, part) for value in entry.values())


def _contains(value: Any, part: str) -> bool:
    return any(part in text.lower() for text in _texts(value))


def _compare(path: tuple[str, ...], sign: str, text: str) -> Test:
    if sign == ":":
        part = text.lower()
        return lambda entry: any(_contains(leaf, part) for leaf in _at(entry, path))
    order, holds = _ORDERS[sign], _comparable(path, text)
    return lambda entry: any(holds(order, leaf) for leaf in _at(entry, path))


def _comparable(
    path: tuple[str, ...], text: str
) -> Callable[[Callable[[Any, Any], bool], Any], bool]:
    if path == ("severity",):
        level = _level(text)
        return lambda order, value: order(SEVERITIES[value], level)
    if path in (("timestamp",), ("receiveTimestamp",)):
        moment = _moment(text)
        return lambda order, value: order(_moment(value), moment)
    if path == ("logName",):
        text = log_path(text)
    number, lower = _number(text), text.lower()

    def holds(order: Callable[[Any, Any], bool], value: Any) -> bool:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return number is not None and order(value, number)
        candidate = value if isinstance(value, str) else json.dumps(value)
        return not isinstance(value, dict) and order(candidate.lower(), lower)

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
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    except ValueError:
        raise _bad(f'{echo(text)} is not a time; write it as "2025-01-15T09:00:00Z"') from None


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
