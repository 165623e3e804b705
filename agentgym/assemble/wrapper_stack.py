"""Wrapper stacks of oracles, labels, examples and context strategies."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.envs.registration import WrapperSpec

from agentgym.assemble.context_options import (
    Context,
    check_arguments,
    check_values,
    join_context,
    read_context_arguments,
    split_context,
)
from agentgym.assemble.wrapper_order import Stage
from agentgym.text.imports import UntrustedModule, import_named
from agentgym.text.validation import (
    check_bool,
    check_choice,
    check_int,
    list_names,
    read_tokens,
    suggest,
)
from agentgym.world.world import World, check_hooks

HINT_SCOPES = ("persistent", "ephemeral")
# LOCA-bench compares context strategies at this window size, in tokens.
WINDOW = 128_000

AnyWrapper = type[gymnasium.Wrapper[Any, Any, Any, Any]]

# Returns a wrapper's arguments, given the active oracles, such as `PS`, and the hint scope.
ArmArguments = Callable[[str, str], Mapping[str, Any]]

# The suffix that replaces an oracle's hints with a placebo.
PLACEBO = "_"
_HINT = re.compile(rf"([A-Z])({PLACEBO}|0\.[0-9]{{1,6}}|1\.0{{1,6}}|[01])?")

_strategies: dict[str, Layer] = {}
_oracles: dict[str, Oracle] = {}
_options: dict[str, Layer] = {}


@dataclass(frozen=True, slots=True)
class Layer:
    """A registered wrapper."""

    name: str
    wrapper: AnyWrapper
    stage: Stage

    def spec(self, arguments: Mapping[str, Any]) -> WrapperSpec:
        """Return a spec with the wrapper's shortest import path, which rarely changes."""
        name, path = self.wrapper.__name__, ""
        for part in self.wrapper.__module__.split("."):
            path = f"{path}.{part}" if path else part
            if getattr(sys.modules.get(path), name, None) is self.wrapper:
                break
        return WrapperSpec(name, f"{path}:{name}", dict(arguments))


@dataclass(frozen=True, slots=True)
class Oracle:
    """A registered oracle; see `register_oracle` for the fields."""

    layer: Layer
    arguments: ArmArguments
    needs: str
    reason: str


def register_strategy(name: str, wrapper: AnyWrapper, stage: Stage | None = None) -> None:
    """Register a wrapper as a context strategy for `make(..., context=name)`.

    Args:
        name: The strategy name in `context` and `context_options`.
        wrapper: The class, importable from its module. The class must accept the env, the
            strategy's `context_options` and, for stages after `EXAMPLES`, the argument `budget`.
        stage: The wrapper's position in the stack; by default the wrapper's attribute `stage`.
    """
    if not name.isidentifier() or name in ("none", "budget", *_options):
        raise ValueError(
            f"{name!r} cannot name a context strategy; use an unused word of letters, digits and _"
        )
    stage = stage or getattr(wrapper, "stage", None)
    if stage is None:
        raise ValueError(
            f"{wrapper.__name__} has no stage; set its attribute `stage` to a member of "
            "agentgym.assemble.wrapper_order.Stage"
        )
    if stage > Stage.EXAMPLES and "budget" not in inspect.signature(wrapper).parameters:
        raise ValueError(
            f"{wrapper.__name__} edits the context (stage {stage.name.lower()}), so it must take "
            "`budget`"
        )
    _strategies[name] = Layer(name, wrapper, stage)


def register_oracle(
    letter: str,
    name: str,
    wrapper: AnyWrapper,
    arguments: ArmArguments = lambda arm, hint_scope: {},
    needs: str = "",
    reason: str = "",
) -> None:
    """Register a wrapper as an oracle for `make(..., oracles=letter)`.

    Args:
        letter: The oracle's capital letter.
        name: The oracle's name in error messages.
        wrapper: The class, with an attribute `stage`.
        arguments: A function that returns the wrapper's arguments.
        needs: The letter of another oracle that this oracle requires.
        reason: Why this oracle requires the other oracle.
    """
    _oracles[letter] = Oracle(Layer(name, wrapper, wrapper.stage), arguments, needs, reason)  # type: ignore[attr-defined]


def register_option(name: str, wrapper: AnyWrapper, stage: Stage) -> None:
    """Register the wrapper that implements an option of `make`."""
    _options[name] = Layer(name, wrapper, stage)


def strategies() -> tuple[str, ...]:
    """Return the names of the context strategies."""
    return tuple(_strategies)


def strategy_of(wrapper: object) -> str:
    """Return the name of the context strategy that a wrapper implements, or an empty string."""
    names = (name for name, layer in _strategies.items() if layer.wrapper is wrapper)
    return next(names, "")


def import_owner(name: str) -> str:
    """Import the module in a `module:name` string, and return the part after the colon."""
    module, _, short = name.rpartition(":")
    if module:
        try:
            import_named(module)
        except UntrustedModule as error:
            raise ValueError(str(error)) from None
        except Exception as error:
            raise ValueError(
                f"the module of {name!r} cannot be imported ({type(error).__name__}: {error}); "
                "write package.module:name"
            ) from error
    return short


def check_arm(oracles: str | None) -> str:
    """Return the shortest form of an oracle string (`P0.5S` for `P0.50S1`), or raise ValueError."""
    return "".join(letter + suffix for letter, suffix in _read_arm(oracles).items())


def _read_arm(oracles: str | None) -> dict[str, str]:
    text = "" if oracles in (None, "none") else oracles
    if not isinstance(text, str):
        raise ValueError(f"oracles must be a string such as 'SP', or None, got {oracles!r}")
    parts = _HINT.findall(text)
    arm = {letter: _shorten(suffix) for letter, suffix in parts}
    is_complete = "".join(letter + suffix for letter, suffix in parts) == text
    if not is_complete or arm.keys() - _oracles.keys() or len(arm) != len(parts):
        *first, last = (f"{letter} ({oracle.layer.name})" for letter, oracle in _oracles.items())
        known = f"{', '.join(first)} and {last}"
        near = "".join(letter for letter in dict.fromkeys(text.upper()) if letter in _oracles)
        remedy = f"{suggest(text, [near])} P0.5 gives correct hints with probability 0.5".lstrip()
        raise ValueError(
            f"oracles may contain each of {known} at most once, got {oracles!r}; {remedy}, "
            f"P{PLACEBO} a placebo"
        )
    for letter, suffix in arm.items():
        oracle = _oracles[letter]
        if oracle.needs and arm.get(oracle.needs, PLACEBO) == PLACEBO:
            raise ValueError(
                f"oracles {oracles!r}: {oracle.reason}, so {letter} needs {oracle.needs}; use "
                f"{letter}{oracle.needs}"
            )
        if option := _variant(suffix):
            _check_variant(text, letter, next(iter(option)))
    return arm


def _shorten(suffix: str) -> str:
    if suffix in ("", PLACEBO):
        return suffix
    return "" if float(suffix) == 1 else f"{float(suffix):g}"


def _variant(suffix: str) -> dict[str, Any]:
    if suffix == PLACEBO:
        return {"placebo": True}
    if suffix:
        return {"accuracy": float(suffix)}
    return {}


def _check_variant(oracles: str, letter: str, option: str) -> None:
    layer = _oracles[letter].layer
    what = "wrong hints" if option == "accuracy" else "placebo"
    if option not in inspect.signature(layer.wrapper).parameters or (
        option == "accuracy" and not getattr(layer.wrapper, "wrong_hooks", ())
    ):
        raise ValueError(f"oracles {oracles!r}: {letter} ({layer.name}) has no {what}")


def check_context(context: Context) -> tuple[str, ...]:
    """Return the strategies in a context; raise ValueError for an unknown or repeated strategy."""
    parts = split_context(join_context(context))
    if len(parts) == 1 and parts[0][0] in ("", "none"):
        return ()
    for name, _ in parts:
        check_values(name, _strategies)
    names = tuple(import_owner(name) for name, _ in parts)
    for name in names:
        if name not in _strategies:
            remedy = list_names(name, tuple(_strategies), "strategies")
            raise ValueError(f"there is no context strategy {name!r}; {remedy}, joined by +")
    if len(set(names)) != len(names):
        raise ValueError(f"context {context!r} names a strategy twice")
    return names


def build_stack(
    world: type[World[Any]],
    *,
    oracles: str | None,
    hint_scope: str,
    labels: bool,
    wrappers: Sequence[WrapperSpec],
    context: Context,
    window: int | str | None,
    context_options: Mapping[str, Mapping[str, Any]] | None,
    oracle_options: Mapping[str, Mapping[str, Any]] | None,
    shots: int = 0,
    is_team: bool = False,
) -> list[WrapperSpec]:
    """Compose the wrappers of an env, inner to outer."""
    check_int("shots", shots, 0, 100)
    context_options = _read_options(
        "context_options", context_options, "{'compaction': {'trigger': '8k'}}"
    )
    oracle_options = _read_options(
        "oracle_options", oracle_options, "{'H': {'keep_last_error': True}}"
    )
    layers = _context_layers(join_context(context), window, context_options)
    arm = _read_arm(oracles)
    check_choice("hint_scope", hint_scope, HINT_SCOPES)
    check_bool("labels", labels)
    if labels:
        layers.append((_options["labels"], {}))
    layers += _oracle_layers(arm, hint_scope, oracle_options)
    if shots:
        layers.append((_options["examples"], {"shots": shots}))
    for layer, arguments in layers:
        check_hooks(world, needed_hooks(layer.wrapper, arguments))
        if getattr(layer.wrapper, "for_teams", False) and not is_team:
            raise ValueError(
                f"oracles {oracles!r}: {layer.name} is for teams, and {world.__name__} has "
                "one agent; make a team such as ListWorld-team"
            )
    layers.sort(key=lambda pair: pair[0].stage)
    inner = [layer.spec(arguments) for layer, arguments in layers if layer.stage < Stage.EXAMPLES]
    outer = [layer.spec(arguments) for layer, arguments in layers if layer.stage >= Stage.EXAMPLES]
    return [*inner, *wrappers, *outer]


def needed_hooks(wrapper: object, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the world hooks that a wrapper needs."""
    hooks: tuple[str, ...] = getattr(wrapper, "hooks", ())
    if arguments.get("accuracy", 1.0) < 1.0:
        hooks += getattr(wrapper, "wrong_hooks", ())
    return hooks


def _oracle_layers(
    arm: Mapping[str, str], hint_scope: str, options: Mapping[str, Mapping[str, Any]]
) -> list[tuple[Layer, Mapping[str, Any]]]:
    for letter, own in options.items():
        if letter not in _oracles:
            raise ValueError(
                f"oracle_options contains {letter!r}, which is not an oracle; "
                f"{list_names(letter, tuple(_oracles), 'oracles')}"
            )
        layer = _oracles[letter].layer
        check_arguments(f"{letter} ({layer.name}) in oracle_options", layer.wrapper, own)
    right = "".join(letter for letter, suffix in arm.items() if not suffix)
    layers: list[tuple[Layer, Mapping[str, Any]]] = []
    for letter, oracle in _oracles.items():
        if letter in arm:
            arguments = {**oracle.arguments(right, hint_scope), **_variant(arm[letter])}
            layers.append((oracle.layer, {**arguments, **options.get(letter, {})}))
    return layers


def _read_options(name: str, options: object, example: str) -> Mapping[str, Mapping[str, Any]]:
    if options is None:
        return {}
    if isinstance(options, Mapping) and all(isinstance(own, Mapping) for own in options.values()):
        return options
    raise ValueError(f"{name} must be a mapping of mappings, such as {example}, got {options!r}")


def _context_layers(
    context: str, window: int | str | None, options: Mapping[str, Mapping[str, Any]]
) -> list[tuple[Layer, Mapping[str, Any]]]:
    names = check_context(context)
    owners = (*names, "trim", "budget")
    for name in options:
        if name not in owners:
            raise ValueError(
                f"context_options are given for {name!r}, which is not in the context "
                f"{context!r}; {list_names(name, owners, 'it has')}"
            )
    merged, window = _with_arguments(context, options, window)
    if not names and window is None and not merged:
        return []
    size = read_tokens("window", WINDOW if window is None else window, 1, 10**9)
    for name, own in merged.items():
        if name != "budget":
            layer = _strategies.get(name) or _options[name]
            check_arguments(f"{name} in context_options", layer.wrapper, own)
    layers = [_options["trim"], *(layer for name, layer in _strategies.items() if name in names)]
    edits = (layer for layer in layers if layer.stage > Stage.EXAMPLES)
    innermost = min(edits, key=lambda layer: layer.stage).name
    budget = {**merged.get("budget", {}), "window": size}
    merged.setdefault(innermost, {})["budget"] = budget
    return [(layer, merged.get(layer.name, {})) for layer in layers]


def _with_arguments(
    context: str, options: Mapping[str, Mapping[str, Any]], window: int | str | None
) -> tuple[dict[str, dict[str, Any]], int | str | None]:
    merged = {name: dict(own) for name, own in options.items()}
    for written, texts in split_context(context):
        name, layer = "trim", _options["trim"]
        short = written.rpartition(":")[2]
        if short not in ("", "none"):
            name, layer = short, _strategies[short]
        own, shared = read_context_arguments(name, layer.wrapper, texts)
        for owner, values in ((name, own), ("budget", shared)):
            if not values:
                continue
            given = merged.setdefault(owner, {})
            if doubled := sorted(values.keys() & given.keys()):
                raise ValueError(f"{doubled[0]} of {owner} is set twice, once in {context!r}")
            given.update(values)
    return merged, merged.get("budget", {}).pop("window", window)
