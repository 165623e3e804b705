"""Parse context strategies with arguments, such as `clear_results:trigger=60k:keep=3+compaction`.

Any strategy, including `none`, also accepts the context window's arguments.
"""

from __future__ import annotations

import functools
import inspect
import json
import types
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from agentgym.text.validation import list_names, parse_count

# The context window's arguments, which all strategies of a stack share.
BUDGET: Mapping[str, Any] = {"window": int, "reserve_output": int, "counter": str}
_NOT_KNOBS = ("self", "env", "env_id", "budget")

# Context strategies, joined by `+` or as a sequence.
Context = str | Sequence[str] | None


def join_context(context: Context) -> str:
    """Join context strategies into one string; return an empty string for None."""
    if context is None or isinstance(context, str):
        return context or ""
    if not isinstance(context, (list, tuple)) or not all(isinstance(part, str) for part in context):
        raise ValueError(
            "context must name strategies, such as 'clear_results+compaction' or "
            f"['clear_results', 'compaction'], got {context!r}"
        )
    return "+".join(context)


def split_context(context: str) -> list[tuple[str, dict[str, str]]]:
    """Split a string into strategies with their arguments."""
    return [split_arguments(text) for text in context.split("+")]


def split_arguments(text: str) -> tuple[str, dict[str, str]]:
    """Split `noisy:p=0.1` into the name `noisy` and the argument `p`.

    A `:` separates arguments only before `NAME=`, so names and values may contain a `:`.
    """
    name, *parts = text.split(":")
    knobs: dict[str, str] = {}
    last = ""
    for part in parts:
        key, equals, value = part.partition("=")
        if equals:
            if key in knobs:
                raise ValueError(f"{text!r} sets {key} twice")
            knobs[key], last = value, key
        elif last:
            knobs[last] += f":{part}"
        else:
            name += f":{part}"
    return name, knobs


def check_values(name: str, owners: Container[str]) -> None:
    """Raise `ValueError` if an argument has no value."""
    owner, colon, knob = name.partition(":")
    if colon and owner in owners:
        raise ValueError(
            f"{name!r} sets {knob!r} without a value; write {owner}:{knob.strip(':') or 'name'}=VALUE"
        )


def read_context_arguments(
    strategy: str, wrapper: type[Any], texts: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse the arguments of a strategy's wrapper and of the context window."""
    own, shared = {}, {}
    for name, text in texts.items():
        if name in BUDGET:
            shared[name] = _read(name, BUDGET[name], text)
        else:
            own[name] = text
    return read_arguments(strategy, wrapper, own, tuple(BUDGET)), shared


def read_arguments(
    owner: str, factory: Callable[..., Any], texts: Mapping[str, str], more: Sequence[str] = ()
) -> dict[str, Any]:
    """Parse the arguments of a class or function; error messages also list the names in `more`."""
    check_arguments(owner, factory, texts, more)
    function = cast(Any, factory)
    if isinstance(factory, type) and not is_dataclass(factory):
        function = function.__init__
    hints = get_type_hints(function) if texts else {}
    return {name: _read(name, hints.get(name, str), text) for name, text in texts.items()}


def check_arguments(
    owner: str, factory: Callable[..., Any], names: Iterable[str], more: Sequence[str] = ()
) -> None:
    """Raise `ValueError` for an argument that the class or function does not accept."""
    known = _parameters_of(factory)
    if known is None:
        return
    for name in names:
        if name not in known:
            listed = [*(_write(knob, default) for knob, default in known.items()), *more]
            raise ValueError(
                f"{owner} has no option {name!r}; "
                f"{list_names(name, listed, 'options', near=(*known, *more))}"
            )


@functools.lru_cache(maxsize=256)  # without a cache, creating a spec would take twice as long
def _parameters_of(factory: Callable[..., Any]) -> Mapping[str, Any] | None:
    parameters = inspect.signature(factory).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {p.name: p.default for p in parameters if p.name not in _NOT_KNOBS}


def _write(name: str, default: Any) -> str:
    if default is inspect.Parameter.empty:
        return name
    if default is None or isinstance(default, bool):
        return f"{name}={str(default).lower()}"
    if isinstance(default, (list, tuple)):
        return f"{name}={'|'.join(map(str, default))}"
    return f"{name}={default}"


def _read(name: str, hint: Any, text: str) -> Any:
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if text == "none" and type(None) in kinds:
        return None
    if bool in kinds:
        if text not in ("true", "false"):
            raise ValueError(f"{name} must be true or false, got {text!r}")
        return text == "true"
    origins: set[Any] = set(map(get_origin, kinds))
    if origins == {Mapping}:
        try:
            return json.loads(text)
        except ValueError:
            raise ValueError(f"{name} must be a JSON object, got {text!r}") from None
    if origins & {Sequence, list, tuple}:
        return [part for part in text.split("|") if part]
    if {int, float}.isdisjoint(kinds):
        return text
    return _read_number(name, kinds, text)


def _read_number(name: str, kinds: Sequence[Any], text: str) -> Any:
    try:
        return float(text) if float in kinds else parse_count(name, text)
    except ValueError:
        if str in kinds:
            return text
        if float in kinds:
            raise ValueError(f"{name} must be a number, got {text!r}") from None
        raise
