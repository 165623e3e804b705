"""Context size and typed triggers, which specs store as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from annotated_types import Interval

from agentgym.text.tokens import counter
from agentgym.text.validation import check_int, list_names, parse_count
from agentgym.world.config import Config, TokenCount
from agentgym.world.turn_budget import multiply_up

_MAX = 10**9  # far larger than any context window
# A number of tokens, tool results or turns.
Count = Annotated[int, Interval(ge=1, le=_MAX), TokenCount()]


@dataclass(frozen=True)
class ContextBudget(Config):
    """Context window, which must also hold the tool documentation in the system message.

    Attributes:
        window: The maximum number of tokens of a prompt and its reply together.
        reserve_output: The number of tokens reserved for the reply.
        counter: The name of the token counter (see `agentgym.text.tokens.counter`).
    """

    window: Count = 128_000
    reserve_output: Annotated[int, Interval(ge=0, le=_MAX), TokenCount()] = 0
    counter: str = "cl100k_base"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("reserve_output", self.reserve_output, 0, self.window - 1)
        counter(self.counter)

    @property
    def usable(self) -> int:
        return self.window - self.reserve_output


@dataclass(frozen=True, slots=True)
class Load:
    """Counts of a context: visible tokens, usable tokens, uncleared tool results and replies."""

    tokens: int
    usable: int
    tool_uses: int
    turns: int


class Trigger(Protocol):
    """Condition that starts an edit, or the target level of an edit."""

    def level(self, load: Load) -> float:
        """Return the load relative to the threshold; the trigger fires at 1.0."""
        ...


@dataclass(frozen=True)
class Tokens(Config):
    """Trigger on a number of tokens."""

    tokens: Count

    def __str__(self) -> str:
        return str(self.tokens)

    def level(self, load: Load) -> float:
        """Return the relative load."""
        return load.tokens / self.tokens


@dataclass(frozen=True)
class WindowFraction(Config):
    """Trigger on a share of the usable window, in [0.001, 1]."""

    fraction: Annotated[float, Interval(ge=0.001, le=1.0)]  # smaller windows are useless

    def __str__(self) -> str:
        return str(float(self.fraction))

    def level(self, load: Load) -> float:
        """Return the relative load."""
        return load.tokens / multiply_up(float(self.fraction), load.usable)


@dataclass(frozen=True)
class ToolUses(Config):
    """Trigger on a number of uncleared tool results."""

    tool_uses: Count

    def __str__(self) -> str:
        return f"{self.tool_uses}uses"

    def level(self, load: Load) -> float:
        """Return the relative load."""
        return load.tool_uses / self.tool_uses


@dataclass(frozen=True)
class Turns(Config):
    """Trigger on a number of replies."""

    turns: Count

    def __str__(self) -> str:
        return f"{self.turns}turns"

    def level(self, load: Load) -> float:
        """Return the relative load."""
        return load.turns / self.turns


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Trigger that fires when any of several triggers fires."""

    any_of: tuple[Trigger, ...]

    def __post_init__(self) -> None:
        if not self.any_of:
            raise ValueError("AnyOf requires at least one trigger")

    def __str__(self) -> str:
        return "|".join(map(str, self.any_of))

    def level(self, load: Load) -> float:
        """Return the highest level."""
        return max(trigger.level(load) for trigger in self.any_of)


_TRIGGERS: Mapping[str, Callable[[Any], Trigger]] = {
    "tokens": Tokens,
    "fraction": WindowFraction,
    "tool_uses": ToolUses,
    "turns": Turns,
}


def read_trigger(name: str, value: Any) -> Trigger:
    """Parse a trigger from an instance, a dict, or a string.

    A string is a number of tokens (`60k`), tool results (`20uses`) or turns (`10turns`), a
    share of the window (`0.75`, `75%`), or several joined by `|`. Other values raise ValueError.
    """
    if isinstance(value, str):
        parts = tuple(_parse_trigger(name, part.strip()) for part in value.split("|"))
        return parts[0] if len(parts) == 1 else AnyOf(parts)
    if isinstance(value, (Tokens, WindowFraction, ToolUses, Turns, AnyOf)):
        return value
    if isinstance(value, Mapping) and len(value) == 1:
        ((key, content),) = value.items()
        if key == "any_of" and isinstance(content, (list, tuple)):
            return AnyOf(tuple(read_trigger(name, item) for item in content))
        if key in _TRIGGERS:
            return _TRIGGERS[key](content)
    raise ValueError(
        f"{name} must be a string such as '60k', '0.75', '20uses' or '10turns', a dict such as "
        f"{{'fraction': 0.75}} ({', '.join(_TRIGGERS)}), or a trigger object from "
        f"agentgym.wrappers, got {value!r}"
    )


def _parse_trigger(name: str, text: str) -> Trigger:
    if match := re.fullmatch(r"([0-9]{1,10}) ?(uses|turns)", text):
        count = int(match[1])
        return ToolUses(count) if match[2] == "uses" else Turns(count)
    if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,6})?%", text):
        return WindowFraction(float(text[:-1]) / 100)
    if re.fullmatch(r"[01]\.[0-9]{1,9}", text):
        return WindowFraction(float(text))
    try:
        return Tokens(parse_count(name, text))
    except ValueError:
        raise ValueError(
            f"{name} must be a number of tokens (60k), tool results (20uses) or turns (10turns), "
            f"a share of the window (0.75 or 75%), or several of these joined by |, got {text!r}"
        ) from None


def read_budget(value: ContextBudget | Mapping[str, Any] | None) -> ContextBudget | None:
    """Parse a budget from an instance, a dict, or None."""
    if value is None or isinstance(value, ContextBudget):
        return value
    if isinstance(value, Mapping):
        names = tuple(ContextBudget.__dataclass_fields__)
        for name in value:
            if name not in names:
                raise ValueError(
                    f"budget has no option {name!r}; {list_names(name, names, 'options')}"
                )
        return ContextBudget(**value)
    raise ValueError(
        "budget must be a ContextBudget(window=..., reserve_output=..., counter=...), got "
        f"{value!r}"
    )
