"""Digests of plain data, equal in every process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from json.encoder import encode_basestring_ascii
from pathlib import PurePath
from typing import Any

import numpy as np

_HEX_DIGITS = 32  # 128 bits, so that collisions are very unlikely

# Types whose `repr` determines the value.
_PRINTED = (bytes, complex, date, time, timedelta, Decimal, Fraction, PurePath, Enum)


def digest(value: object) -> str:
    """Return a digest of a value made of numbers, strings, collections, records and plain objects.

    Mappings and sets are unordered, tuples equal lists, objects are represented by class name and
    attributes, and functions by name. Raises TypeError for unsupported values and for cycles.
    """
    return hashlib.sha256(_canonical(value, ()).encode()).hexdigest()[:_HEX_DIGITS]


def plain_attributes(value: object) -> dict[str, Any]:
    """Return an object's attributes as JSON-able data, except attributes that `digest` rejects."""
    plain = {}
    for name, attribute in _attributes(value).items():
        try:
            plain[name] = json.loads(_canonical(attribute, (id(value),)))
        except TypeError:  # such as random generators
            continue
    return plain


def _canonical(value: Any, above: tuple[int, ...]) -> str:
    """Return canonical JSON, built from the leaves up so that each value is encoded once."""
    if value is None or isinstance(value, (int, float, str)):
        return _leaf(value)
    if isinstance(value, _PRINTED):
        return f'{{"value": {json.dumps(repr(value))}}}'
    if isinstance(value, (np.ndarray, np.generic)):
        return _canonical(value.tolist(), above)
    if id(value) in above:
        raise TypeError(f"a {type(value).__name__} that contains itself has no digest; {_REMEDY}")
    above = (*above, id(value))
    if isinstance(value, (list, tuple)):
        return _list(_canonical(item, above) for item in value)
    if isinstance(value, Mapping):
        pairs = (_list((_canonical(k, above), _canonical(v, above))) for k, v in value.items())
        return f'{{"map": {_list(sorted(pairs))}}}'
    if isinstance(value, Set):
        return f'{{"set": {_list(sorted(_canonical(item, above) for item in value))}}}'
    if callable(value):
        name = getattr(value, "__qualname__", type(value).__qualname__)
        return f'{{"name": {json.dumps(name)}}}'
    attributes = _canonical(_attributes(value), above)
    return f'{{"object": {json.dumps(type(value).__qualname__)}, "with": {attributes}}}'


def _leaf(value: object) -> str:
    if type(value) is str:
        return encode_basestring_ascii(value)
    if type(value) is int:
        return repr(value)
    return "null" if value is None else json.dumps(value)


def _list(items: Iterable[str]) -> str:
    return f"[{', '.join(items)}]"


def _attributes(value: object) -> Mapping[str, Any]:
    if is_dataclass(value):  # the object may have slots instead of a dict
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if hasattr(value, "__dict__"):
        return vars(value)
    raise TypeError(f"a {type(value).__name__} without attributes has no digest; {_REMEDY}")


_REMEDY = "fill World.instance_key with a digest of what makes the task"
