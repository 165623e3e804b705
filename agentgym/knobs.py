"""Context strategies as text, with their arguments: `clear_results:trigger=60k:keep=3+compaction`.

Strategies are joined by `+`; each may be followed by arguments, `:name=value`. Those of the window
that a stack shares (`BUDGET`) may stand at any strategy, and at `none`, which takes those of the
trimming too.
"""

from __future__ import annotations

import collections.abc
import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any, Union, get_args, get_origin, get_type_hints

from agentgym.arguments import parse_count

BUDGET: Mapping[str, Any] = {"window": int, "reserve_output": int, "counter": str}
"""The arguments of the window that all strategies of a stack share, with their types."""
_NOT_KNOBS = ("self", "env", "budget")
_LISTS = (collections.abc.Sequence, list, tuple)


def split_context(context: str) -> list[tuple[str, dict[str, str]]]:
    """Return the strategies in a text, each with its arguments as text.

    A part without `=` belongs to what stands before it, so names and values may hold a `:`, as
    `package.module:name` does.

    Raises:
        ValueError: An argument is given twice at one strategy.
    """
    strategies = []
    for text in context.split("+"):
        name, *parts = text.split(":")
        knobs: dict[str, str] = {}
        last = ""
        for part in parts:
            key, equals, value = part.partition("=")
            if equals:
                if key in knobs:
                    raise ValueError(f"context {context!r} gives {key} twice")
                knobs[key], last = value, key
            elif last:
                knobs[last] += f":{part}"
            else:
                name += f":{part}"
        strategies.append((name, knobs))
    return strategies


def read_knobs(
    strategy: str, wrapper: type[Any], texts: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a wrapper, and those of the window, from their texts.

    Args:
        strategy: The name of the strategy, for errors.
        wrapper: Its class, whose annotations say how a text is read.
        texts: The texts by name.

    Raises:
        ValueError: There is no argument of a name, or its text cannot be read.
    """
    names = [name for name in inspect.signature(wrapper).parameters if name not in _NOT_KNOBS]
    hints = get_type_hints(wrapper.__init__) if texts else {}
    own: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for name, text in texts.items():
        if name in BUDGET:
            shared[name] = _read(name, BUDGET[name], text)
        elif name in names:
            own[name] = _read(name, hints.get(name, str), text)
        else:
            raise ValueError(
                f"{strategy} has no knob {name!r}; knobs: {', '.join((*names, *BUDGET))}"
            )
    return own, shared


def _read(name: str, hint: Any, text: str) -> Any:
    """Return the value of a text for an argument of a type; what no type explains stays text, for
    the wrapper to read.

    Raises:
        ValueError: The text is no value of the type.
    """
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if text == "none" and type(None) in kinds:
        return None
    if bool in kinds:
        if text not in ("true", "false"):
            raise ValueError(f"{name} must be true or false, got {text!r}")
        return text == "true"
    if any(get_origin(kind) in _LISTS for kind in kinds):
        return [part for part in text.split("|") if part]
    return _read_number(name, kinds, text) if {int, float} & set(kinds) else text


def _read_number(name: str, kinds: Sequence[Any], text: str) -> Any:
    try:
        return float(text) if float in kinds else parse_count(name, text)
    except ValueError:
        if str in kinds:
            return text
        if float in kinds:
            raise ValueError(f"{name} must be a number, got {text!r}") from None
        raise
