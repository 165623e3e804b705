"""Spaces of text worlds; `gymnasium.spaces.Text` rejects newlines and most of Unicode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space

from agentgym.text.messages import Chat, Message, ToolCall
from agentgym.text.parsing import Dialect, render
from agentgym.text.tools import Tool


class ChatSpace(Space[Chat]):
    """Space of all chats; a membership check inspects only the type, in O(1)."""

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(seed=seed)

    def sample(self, mask: None = None, probability: None = None) -> Chat:
        return Chat((Message("user", f"message {self.np_random.integers(1_000_000)}"),))

    def contains(self, x: Any) -> bool:
        return isinstance(x, Chat)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChatSpace)

    def __repr__(self) -> str:
        return "ChatSpace()"


class ActionSpace(Space[str]):
    """All texts. A sample is a call that matches a tool's schema, in the env's dialect."""

    def __init__(
        self,
        tools: Sequence[Tool],
        dialect: Dialect = "auto",
        seed: int | np.random.Generator | None = None,
    ) -> None:
        if not tools:
            raise ValueError("an action space requires at least one tool to sample calls")
        self.tools = tuple(tools)
        self.dialect = dialect
        super().__init__(seed=seed)

    def sample(self, mask: None = None, probability: None = None) -> str:
        return render(sample_call(self.tools, self.np_random), self.dialect)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActionSpace) and (self.tools, self.dialect) == (
            other.tools,
            other.dialect,
        )

    def __repr__(self) -> str:
        return f"ActionSpace({', '.join(tool.name for tool in self.tools)})"


def sample_call(tools: Sequence[Tool], rng: np.random.Generator) -> ToolCall:
    """Return a random call that matches its tool's schema."""
    tool = tools[int(rng.integers(len(tools)))]
    return ToolCall(tool.name, _sample(tool.parameters, tool.parameters, rng))


def _sample(schema: Mapping[str, Any], root: Mapping[str, Any], rng: np.random.Generator) -> Any:
    if "$ref" in schema:
        return _sample(root["$defs"][schema["$ref"].rpartition("/")[2]], root, rng)
    if "const" in schema:
        return schema["const"]
    for key in ("enum", "anyOf"):
        if key in schema:
            choice = schema[key][rng.integers(len(schema[key]))]
            return choice if key == "enum" else _sample(choice, root, rng)
    return _sample_type(schema, root, rng)


def _sample_type(
    schema: Mapping[str, Any], root: Mapping[str, Any], rng: np.random.Generator
) -> Any:
    match schema.get("type"):
        case "object":
            return _sample_object(schema, root, rng)
        case "array":
            return [_sample(schema.get("items", {}), root, rng) for _ in range(rng.integers(3))]
        case "string":
            letters = list("abcdefghijklmnopqrstuvwxyz")
            return "".join(rng.choice(letters, size=rng.integers(1, 9)))
        case "integer":
            return int(rng.integers(schema.get("minimum", 0), schema.get("maximum", 9) + 1))
        case "number":
            return float(rng.uniform(schema.get("minimum", 0), schema.get("maximum", 10)))
        case "boolean":
            return bool(rng.integers(2))
    return None


def _sample_object(
    schema: Mapping[str, Any], root: Mapping[str, Any], rng: np.random.Generator
) -> dict[str, Any]:
    required = schema.get("required", ())
    sampled = {}
    for name, member in schema.get("properties", {}).items():
        if name in required or rng.random() < 0.5:
            sampled[name] = _sample(member, root, rng)
    return sampled
