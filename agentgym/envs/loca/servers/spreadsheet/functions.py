"""The functions that formulas may call."""

from __future__ import annotations

import fnmatch
import math
import operator
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from decimal import (
    ROUND_CEILING,
    ROUND_DOWN,
    ROUND_FLOOR,
    ROUND_HALF_UP,
    ROUND_UP,
    Decimal,
    InvalidOperation,
)
from typing import Any, TypeAlias

from agentgym.envs.loca.servers.spreadsheet.cell_values import (
    DAY_ZERO,
    DIVISION,
    MAX_TEXT,
    NAME,
    NO_REFERENCE,
    NOT_AVAILABLE,
    NUMBER,
    VALUE,
    CellError,
    Grid,
    SerialDate,
    number,
    ordering,
    scalar,
    serial,
    text_of,
)

Part: TypeAlias = Callable[[], Any]
"""An argument that is not computed yet."""


class _Stop(Exception):
    def __init__(self, fault: CellError) -> None:
        self.fault = fault


def call(name: str, parts: Sequence[Part], now: datetime) -> Any:
    """Compute a function.

    Args:
        name: Its name in capitals.
        parts: Its arguments, computed when they are needed.
        now: The time of TODAY and NOW.
    """
    clock = {
        "TODAY": lambda: SerialDate(math.floor(serial(now))),
        "NOW": lambda: SerialDate(serial(now)),
    }
    try:
        if name in clock:
            return VALUE if parts else clock[name]()
        if name in _LAZY:
            return _LAZY[name](parts)
        if name not in FUNCTIONS:
            return NAME
        arguments = [part() for part in parts]
        for argument in arguments:
            if isinstance(argument, CellError):
                return argument
        return FUNCTIONS[name](*arguments)
    except _Stop as stop:
        return stop.fault
    except ZeroDivisionError:
        return DIVISION
    except (OverflowError, InvalidOperation, statistics.StatisticsError):
        return NUMBER
    except (TypeError, ValueError, IndexError):  # a wrong number of arguments, a wrong value
        return VALUE


def flat(arguments: Sequence[Any]) -> Iterator[Any]:
    """Return all filled values of arguments, ranges row by row."""
    for argument in arguments:
        if isinstance(argument, Grid):
            yield from argument.cells.values()
        else:
            yield argument


def _numbers(arguments: Sequence[Any]) -> list[float]:
    """Return the numbers of arguments; texts and truth values in ranges do not count, an argument
    itself must be a number.
    """
    numbers: list[float] = []
    for argument in arguments:
        if isinstance(argument, Grid):
            for value in argument.cells.values():
                _check(value)
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    numbers.append(float(value))
        else:
            numbers.append(_number(argument))
    return numbers


def _check(value: Any) -> Any:
    if isinstance(value, CellError):
        raise _Stop(value)
    return value


def _number(value: Any) -> float:
    return float(_check(number(value)))


def _text(value: Any) -> str:
    return text_of(_check(scalar(value)))


def _limited(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise _Stop(VALUE)
    return text


def _truth(value: Any) -> bool:
    value = _check(scalar(value))
    if isinstance(value, str):
        if value.upper() not in ("TRUE", "FALSE", ""):
            raise _Stop(VALUE)
        return value.upper() == "TRUE"
    return bool(value)


def _round(mode: str) -> Callable[..., float]:
    def rounded(value: Any, digits: Any = 0) -> float:
        places = int(_number(digits))
        if abs(places) > 20:
            raise _Stop(NUMBER)
        exact = Decimal(repr(_number(value)))
        return float((exact.scaleb(places)).to_integral_value(mode).scaleb(-places))

    return rounded


def _multiple(mode: str) -> Callable[..., float]:
    def rounded(value: Any, step: Any = 1.0) -> float:
        unit = Decimal(repr(_number(step)))
        return (
            float((Decimal(repr(_number(value))) / unit).to_integral_value(mode) * unit)
            if unit
            else 0.0
        )

    return rounded


_CONDITION = re.compile(r"(<=|>=|<>|=|<|>)?(.*)", re.DOTALL)
_RELATIONS: dict[str, Any] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


def _condition(criterion: Any) -> Callable[[Any], bool]:
    """Return the test that a criterion such as `">5"`, `"a*"` or `7` makes."""
    criterion = _check(scalar(criterion))
    if not isinstance(criterion, str):
        return lambda value: value is not None and not isinstance(value, str) and value == criterion
    sign, rest = _CONDITION.fullmatch(criterion).groups()  # type: ignore[union-attr]  # it matches anything
    as_number = number(rest) if rest.strip() else VALUE
    if not isinstance(as_number, CellError):
        relation = _RELATIONS.get(sign, operator.ne if sign == "<>" else operator.eq)
        return lambda value: (
            relation(float(value), as_number)
            if isinstance(value, (int, float)) and not isinstance(value, bool)
            else sign == "<>"
        )
    if sign in _RELATIONS:
        return lambda value: (
            isinstance(value, str) and _RELATIONS[sign](value.lower(), rest.lower())
        )
    pattern = re.sub(r"~([*?])", r"[\1]", rest.lower().replace("[", "[[]"))
    same = sign != "<>"
    return lambda value: (
        fnmatch.fnmatchcase(text_of(value).lower(), pattern) == same
        and not (same and rest and value is None)
    )


def _matching_places(pairs: Sequence[Any]) -> list[tuple[int, int]]:
    """Return the places, row by row, at which all criteria hold; `pairs` are ranges and criteria in
    turn.
    """
    if not pairs or len(pairs) % 2 or not all(isinstance(grid, Grid) for grid in pairs[::2]):
        raise _Stop(VALUE)
    first: Grid = pairs[0]
    if any((grid.height, grid.width) != (first.height, first.width) for grid in pairs[::2]):
        raise _Stop(VALUE)
    tests = [
        (grid, _condition(criterion))
        for grid, criterion in zip(pairs[::2], pairs[1::2], strict=True)
    ]
    places: Any = ((row, column) for row in range(first.height) for column in range(first.width))
    if any(
        not test(None) for _, test in tests
    ):  # only what is filled can be chosen, and far less is filled than open
        places = sorted({spot for grid, _ in tests for spot in grid.cells})
    elif first.height * first.width > MAX_TEXT:
        raise _Stop(VALUE)
    return [spot for spot in places if all(test(grid.cells.get(spot)) for grid, test in tests)]


def _matching_numbers(pairs: Sequence[Any], summed: Any) -> list[float]:
    chosen = _matching_places(pairs)
    values = (summed.cells.get(spot) for spot in chosen) if isinstance(summed, Grid) else ()
    return [
        float(_check(value))
        for value in values
        if isinstance(value, (int, float, CellError)) and not isinstance(value, bool)
    ]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _if(parts: Sequence[Part]) -> Any:
    test, yes, *no = parts
    if len(no) > 1:
        return VALUE
    return yes() if _truth(test()) else no[0]() if no else False


def _ifs(parts: Sequence[Part]) -> Any:
    for test, result in zip(parts[::2], parts[1::2], strict=True):
        if _truth(test()):
            return result()
    return NOT_AVAILABLE


def _if_error(*kinds: str) -> Callable[[Sequence[Part]], Any]:
    def chosen(parts: Sequence[Part]) -> Any:
        value = scalar(parts[0]())
        if isinstance(value, CellError) and (not kinds or value in kinds):
            return parts[1]() if len(parts) > 1 else ""
        return value

    return chosen


def _is(test: Callable[[Any], bool]) -> Callable[[Sequence[Part]], Any]:
    return lambda parts: test(scalar(parts[0]())) if len(parts) == 1 else VALUE


def _position(target: Any, line: Sequence[Any], *, exact: bool, falling: bool = False) -> int:
    """Return the place of a value in a line, from 0; if not `exact`, of the last one not beyond it
    in a sorted line.
    """
    target = _check(scalar(target))
    if exact:
        test = _condition(f"={target}" if isinstance(target, str) else target)
        for k, value in enumerate(line):
            if (
                value is not None
                and isinstance(value, str) == isinstance(target, str)
                and test(value)
            ):
                return k
        raise _Stop(NOT_AVAILABLE)
    key, last = ordering(target, target), -1
    for k, value in enumerate(line):
        own = ordering(value, target)
        if value is not None and own[0] == key[0] and (own >= key if falling else own <= key):
            last = k
        elif value is not None and own[0] == key[0]:
            break
    if last < 0:
        raise _Stop(NOT_AVAILABLE)
    return last


def _lookup(*, down: bool) -> Callable[..., Any]:
    def look(target: Any, grid: Grid, index: Any, near: Any = True) -> Any:
        at = int(_number(index)) - 1
        if at < 0 or at >= (grid.width if down else grid.height):
            raise _Stop(NO_REFERENCE)
        place = _position(target, grid.line(down=down), exact=not _truth(near))
        return grid.cells.get((place, at) if down else (at, place))

    return look


def _match(target: Any, grid: Grid, kind: Any = 1.0) -> float:
    way = _number(kind)
    line = grid.line(down=grid.width == 1)
    return float(_position(target, line, exact=way == 0, falling=way < 0) + 1)


def _index(grid: Grid, row: Any = 0.0, column: Any = 0.0) -> Any:
    down, across = int(_number(row)), int(_number(column))
    if grid.height == 1 and grid.width > 1 and not across:
        down, across = 1, down
    if not (0 <= down <= grid.height and 0 <= across <= grid.width):
        raise _Stop(NO_REFERENCE)
    if (not down and grid.height > 1) or (not across and grid.width > 1):
        raise _Stop(VALUE)
    return grid.cells.get((max(down, 1) - 1, max(across, 1) - 1))


def _sum_product(*grids: Grid) -> float:
    shapes = {(grid.height, grid.width) for grid in grids}
    if len(shapes) != 1:
        raise _Stop(VALUE)
    total = []
    for spot in grids[0].cells:
        values = [_check(grid.cells.get(spot)) for grid in grids]
        total.append(
            math.prod(
                float(v) if isinstance(v, (int, float)) and not isinstance(v, bool) else 0.0
                for v in values
            )
        )
    return math.fsum(total)


def _date(year: Any, month: Any, day: Any) -> SerialDate:
    months = int(_number(year)) * 12 + int(_number(month)) - 1
    return SerialDate(
        serial(datetime(months // 12, months % 12 + 1, 1) + timedelta(days=int(_number(day)) - 1))
    )


def _moment(value: Any) -> datetime:
    value = scalar(value)
    if isinstance(value, str) and not isinstance(value, CellError):
        return datetime.fromisoformat(value).replace(tzinfo=None)
    return DAY_ZERO + timedelta(days=_number(value))


def _nth(values: Sequence[float], place: Any, *, largest: bool) -> float:
    at = int(_number(place))
    if not 1 <= at <= len(values):
        raise _Stop(NUMBER)
    return sorted(values, reverse=largest)[at - 1]


def _rank(value: Any, grid: Grid, rising: Any = False) -> float:
    values, own = _numbers([grid]), _number(value)
    if own not in values:
        raise _Stop(NOT_AVAILABLE)
    return 1.0 + sum(other < own if _truth(rising) else other > own for other in values)


def _join(between: Any, skip: Any, *values: Any) -> str:
    texts = [_text(value) for value in flat(values)]
    return _limited(_text(between).join(text for text in texts if text or not _truth(skip)))


def _concatenate(*values: Any) -> str:
    return _limited("".join(_text(value) for value in flat(values)))


def _find(part: Any, text: Any, start: Any = 1.0) -> float:
    return _text(text).index(_text(part), int(_number(start)) - 1) + 1.0


def _cut(text: Any, start: int | None, length: Any) -> str:
    """Return `length` characters from a place on, at the end without one."""
    whole, size = _text(text), int(_number(length))
    first = max(0, len(whole) - size) if start is None else start
    return whole[first : first + size] if size >= 0 and first >= 0 else VALUE


_LAZY: dict[str, Callable[[Sequence[Part]], Any]] = {
    "IF": _if,
    "IFS": _ifs,
    "IFERROR": _if_error(),
    "IFNA": _if_error(NOT_AVAILABLE),
    "ISBLANK": _is(lambda value: value is None),
    "ISNUMBER": _is(lambda value: isinstance(value, (int, float)) and not isinstance(value, bool)),
    "ISTEXT": _is(lambda value: isinstance(value, str) and not isinstance(value, CellError)),
    "ISERROR": _is(lambda value: isinstance(value, CellError)),
}
"""Functions that compute an argument only where it is needed, or that take an error for a value."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "SUM": lambda *a: math.fsum(_numbers(a)),
    "AVERAGE": lambda *a: _mean(_numbers(a)),
    "COUNT": lambda *a: float(
        sum(isinstance(v, (int, float)) and not isinstance(v, bool) for v in flat(a))
    ),
    "COUNTA": lambda *a: float(sum(v is not None for v in flat(a))),
    "COUNTBLANK": lambda a: float(a.height * a.width - sum(v != "" for v in a.cells.values())),
    "MIN": lambda *a: min(_numbers(a), default=0.0),
    "MAX": lambda *a: max(_numbers(a), default=0.0),
    "MEDIAN": lambda *a: statistics.median(_numbers(a)),
    "STDEV": lambda *a: statistics.stdev(_numbers(a)),
    "PRODUCT": lambda *a: math.prod(_numbers(a)),
    "LARGE": lambda a, k: _nth(_numbers([a]), k, largest=True),
    "SMALL": lambda a, k: _nth(_numbers([a]), k, largest=False),
    "RANK": _rank,
    "SUMPRODUCT": _sum_product,
    "COUNTIF": lambda grid, wanted: float(len(_matching_places([grid, wanted]))),
    "COUNTIFS": lambda *pairs: float(len(_matching_places(pairs))),
    "SUMIF": lambda grid, wanted, summed=None: math.fsum(
        _matching_numbers([grid, wanted], summed or grid)
    ),
    "SUMIFS": lambda summed, *pairs: math.fsum(_matching_numbers(pairs, summed)),
    "AVERAGEIF": lambda grid, wanted, summed=None: _mean(
        _matching_numbers([grid, wanted], summed or grid)
    ),
    "AVERAGEIFS": lambda summed, *pairs: _mean(_matching_numbers(pairs, summed)),
    "MINIFS": lambda summed, *pairs: min(_matching_numbers(pairs, summed), default=0.0),
    "MAXIFS": lambda summed, *pairs: max(_matching_numbers(pairs, summed), default=0.0),
    "ABS": lambda a: abs(_number(a)),
    "INT": lambda a: float(math.floor(_number(a))),
    "MOD": lambda a, b: _number(a) % _number(b),
    "POWER": lambda a, b: float(_number(a) ** _number(b)),
    "SQRT": lambda a: math.sqrt(_number(a)) if _number(a) >= 0 else NUMBER,
    "ROUND": _round(ROUND_HALF_UP),
    "ROUNDUP": _round(ROUND_UP),
    "ROUNDDOWN": _round(ROUND_DOWN),
    "TRUNC": _round(ROUND_DOWN),
    "CEILING": _multiple(ROUND_CEILING),
    "FLOOR": _multiple(ROUND_FLOOR),
    "AND": lambda *a: all(_truth(v) for v in flat(a)),
    "OR": lambda *a: any(_truth(v) for v in flat(a)),
    "NOT": lambda a: not _truth(a),
    "VLOOKUP": _lookup(down=True),
    "HLOOKUP": _lookup(down=False),
    "MATCH": _match,
    "INDEX": _index,
    "CONCATENATE": _concatenate,
    "CONCAT": _concatenate,
    "TEXTJOIN": _join,
    "LEN": lambda a: float(len(_text(a))),
    "LEFT": lambda a, n=1.0: _cut(a, 0, n),
    "RIGHT": lambda a, n=1.0: _cut(a, None, n),
    "MID": lambda a, start, n: _cut(a, int(_number(start)) - 1, n),
    "TRIM": lambda a: " ".join(_text(a).split()),
    "UPPER": lambda a: _text(a).upper(),
    "LOWER": lambda a: _text(a).lower(),
    "SUBSTITUTE": lambda a, old, new: _limited(
        _text(a).replace(_text(old), _text(new)) if _text(old) else _text(a)
    ),
    "FIND": _find,
    "VALUE": _number,
    "DATE": _date,
    "YEAR": lambda a: float(_moment(a).year),
    "MONTH": lambda a: float(_moment(a).month),
    "DAY": lambda a: float(_moment(a).day),
}
"""Functions that compute all their arguments first; a name here is one that spreadsheets have."""
