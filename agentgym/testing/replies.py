"""Random replies: legal calls, wrong values, mutated calls, and hostile texts."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agentgym.testing.hostile_texts import LITERALS, STRINGS, replies
from agentgym.text.messages import ToolCall
from agentgym.text.parsing import Dialect, render
from agentgym.text.tools import Tool

Schema = Mapping[str, Any]
Value = str | int | float

# JSON key and value in a result; the value may suit an argument of the same name.
_PAIR = re.compile(r'"(\w{1,40})"\s*:\s*(?:"((?:[^"\\\n]|\\.){1,120})"|(-?\d{1,18}(?:\.\d{1,6})?))')
_WORD = re.compile(r"[^\s\"'`,;:()\[\]{}<>|=*]{2,80}")
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,18}(?![\w.])")

# maximum number of characters to read per message
_READ_CHARS = 20_000
_VALUES = 400
_VALUES_BY_NAME = 40
_BOUNDARIES = (0, 1, -1, 2, 10, 100, 255, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63))
_FRACTIONS = (0.0, -0.0, 0.5, -1.5, 1e-9, 1e15, 1e300, 5e-324, 0.1 + 0.2)
# Share of hostile strings among the string arguments of legal calls.
_HOSTILE_TEXTS = 0.1
# approximate number of hostile strings used in an episode of forty replies
_VALUES_PER_EPISODE = 40
# Probability that a call may end the episode; a small value keeps most episodes long.
_FINAL_SHARE = 0.04
_MAX_REPLY = 200_000

# Probabilities of the kinds of replies. Half of the replies fit a schema, because only valid calls
# can change the world.
_KINDS: Mapping[str, float] = {
    "legal": 0.38,
    "suggested": 0.12,
    "wrong": 0.20,
    "literal": 0.06,
    "mutated": 0.10,
    "hostile": 0.10,
    "several": 0.04,
}
_WEIGHTS = np.cumsum(list(_KINDS.values()))
_MUTATIONS = ("flip", "cut", "truncate", "repeat", "insert", "swap")


class _Drawing:
    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def _chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def _pick(self, choices: Sequence[Any]) -> Any:
        return choices[int(self._rng.integers(len(choices)))]


class Vocabulary(_Drawing):
    """Strings and integers shown in an episode, indexed by name if possible."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self._texts: deque[str] = deque(maxlen=_VALUES)
        self._numbers: deque[int] = deque([0, 1, 2], maxlen=_VALUES)
        self._named: dict[str, deque[Value]] = {}

    def read(self, text: str) -> None:
        """Add the words and numbers of a message."""
        text = text[:_READ_CHARS]
        for name, string, number in _PAIR.findall(text):
            if number:
                self.note(name, float(number) if "." in number else int(number))
            else:
                self.note(name, string)
        self._texts.extend(word.rstrip(".?!") for word in _WORD.findall(text))
        self._numbers.extend(map(int, _NUMBER.findall(text)))

    def note(self, name: str, value: Value) -> None:
        """Add the value of an argument or of a JSON key in a result."""
        self._named.setdefault(name, deque(maxlen=_VALUES_BY_NAME)).append(value)

    def text(self, name: str) -> str:
        """Return a string from the episode, preferably one with the given name, or a random string."""
        value = self._value(name, str)
        if value is not None:
            return str(value)
        if self._texts and self._chance(0.8):
            return str(self._pick(self._texts))
        letters = self._rng.integers(26, size=int(self._rng.integers(1, 9)))
        return "".join(chr(97 + k) for k in letters)

    def number(self, name: str) -> int:
        """Return an integer from the episode, preferably one with the given name."""
        value = self._value(name, int)
        return int(self._pick(self._numbers) if value is None else value)

    def _value(self, name: str, kind: type) -> Value | None:
        values = self._named.get(name) or self._named.get(name.rpartition("_")[2])
        fitting = [value for value in values or () if type(value) is kind]
        if not fitting or self._chance(0.3):
            return None
        found: Value = self._pick(fitting)
        return found


class ReplyGenerator(_Drawing):
    """Generator of one episode's replies, mostly in the given dialect.

    Each episode resumes the list of hostile values roughly where the previous episode stopped, so a
    few hundred replies use the whole list.
    """

    def __init__(self, rng: np.random.Generator, dialect: Dialect, episode: int = 0) -> None:
        super().__init__(rng)
        self.dialect = dialect
        self._places = {STRINGS: episode * _VALUES_PER_EPISODE, _BOUNDARIES: episode * 5}
        self.vocabulary = Vocabulary(rng)
        self._last = ""

    def write(
        self, tools: Sequence[Tool], suggest: Callable[[], Sequence[ToolCall]] = lambda: ()
    ) -> str:
        """Return a random reply; `suggest` returns legal calls."""
        share = self._rng.random() * _WEIGHTS[-1]
        kind = list(_KINDS)[int(np.searchsorted(_WEIGHTS, share))]
        if kind == "suggested" and (calls := suggest()):
            text = self._render(self._pick(calls))
        elif kind == "several":
            count = int(self._rng.integers(2, 5))
            text = "\n".join(render(self._call(tools, 0.1), "json") for _ in range(count))
        elif kind == "mutated":
            text = self._mutate(tools)
        elif kind == "literal":
            text = self._with_literal(tools)
        elif kind == "hostile":
            call = self._call(tools, hostile=0.0)
            arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
            text = self._pick(replies(call.name, arguments))
        else:
            hostile = 0.6 if kind == "wrong" else 0.02
            text = self._render(self._call(tools, hostile))
        self._last = text
        return text

    def _call(self, tools: Sequence[Tool], hostile: float) -> ToolCall:
        if not self._chance(_FINAL_SHARE):
            tools = [tool for tool in tools if not tool.final] or tools
        tool = self._pick(tools)
        arguments = self._value(tool.parameters, tool.parameters, "", hostile)
        if self._chance(hostile / 4):
            arguments = self._misshapen(arguments)
        return ToolCall(tool.name, arguments)

    def _misshapen(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments and self._chance(0.6):
            name = self._pick(list(arguments))
            value = arguments.pop(name)
            return arguments if self._chance(0.5) else {**arguments, name.upper(): value}
        return {**arguments, self._hostile_text(): self._hostile_value()}

    def _render(self, call: ToolCall) -> str:
        dialect: Dialect = self.dialect
        if dialect == "auto" and self._chance(0.3):
            dialect = "python"
        elif self._chance(0.02):
            dialect = "python" if dialect == "json" else "json"
        text = render(call, dialect)
        if self._chance(0.05):
            text = self._pick(STRINGS) + text
        if self._chance(0.05):
            text = f"<think>{self._pick(STRINGS)}</think>{text}"
        return text

    def _with_literal(self, tools: Sequence[Tool]) -> str:
        call = self._call(tools, hostile=0.0)
        mark = "\u2603"  # a marker that no legal call contains
        arguments = {**call.arguments, self._pick(list(call.arguments) or ["id"]): mark}
        text = render(ToolCall(call.name, arguments), self.dialect)
        return text.replace(f'"{mark}"', self._pick(LITERALS))

    def _mutate(self, tools: Sequence[Tool]) -> str:
        text = self._last if self._chance(0.3) else self._render(self._call(tools, 0.0))
        for _ in range(int(self._rng.integers(1, 4))):
            text = self._mutated(text, self._pick(_MUTATIONS))[:_MAX_REPLY]
        if self._chance(0.2):
            text += self._render(self._call(tools, 0.0))
        return text

    def _mutated(self, text: str, mutation: str) -> str:
        start = int(self._rng.integers(len(text) + 1))
        end = min(len(text), start + int(self._rng.integers(1, 12)))
        head, part, tail = text[:start], text[start:end], text[end:]
        match mutation:
            case "flip":
                return head + chr(int(self._rng.integers(1, 0x250))) + text[start + 1 :]
            case "cut":
                return head + tail
            case "truncate":
                return head
            case "repeat":
                return head + part * int(self._rng.integers(2, 40)) + tail
            case "insert":
                return f"{head}{self._pick(STRINGS)}{part}{tail}"
        return part + tail + head

    def _next(self, catalog: tuple[Any, ...]) -> Any:
        place = self._places[catalog]
        self._places[catalog] = place + 1
        return catalog[place % len(catalog)]

    def _hostile_text(self) -> str:
        count = 8 if self._chance(0.4) else 1
        return "".join(self._next(STRINGS) for _ in range(count))

    def _hostile_value(self) -> Any:
        share = self._rng.random()
        if share < 0.5:
            return self._hostile_text()
        if share < 0.7:
            return self._next(_BOUNDARIES)
        if share < 0.8:
            return self._pick(_FRACTIONS)
        return self._pick((None, True, False, [], {}, [None], [""], {"": None}, [[]], [{}, {}]))

    def _value(self, schema: Schema, root: Schema, name: str, hostile: float) -> Any:
        if name and self._chance(hostile):
            kind = schema.get("type") if self._chance(0.6) else None
            if kind in ("integer", "number"):
                return self._next(_BOUNDARIES)
            return self._hostile_text() if kind == "string" else self._hostile_value()
        if "$ref" in schema:
            referenced = root["$defs"][schema["$ref"].rpartition("/")[2]]
            return self._value(referenced, root, name, hostile)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._pick(schema["enum"])
        if "anyOf" in schema:
            return self._value(self._pick(schema["anyOf"]), root, name, hostile)
        return self._plain_value(schema, root, name, hostile)

    def _plain_value(self, schema: Schema, root: Schema, name: str, hostile: float) -> Any:
        match schema.get("type"):
            case "object":
                return self._object(schema, root, hostile)
            case "array":
                items = schema.get("items", {})
                count = int(self._rng.integers(4))
                return [self._value(items, root, name.rstrip("s"), hostile) for _ in range(count)]
            case "integer":
                value = self._integer(schema, name)
                self.vocabulary.note(name, value)
                return value
            case "number":
                value = self._integer(schema, name)
                return float(value) if self._chance(0.5) else value / 4
            case "boolean":
                return bool(self._rng.integers(2))
            case "null":
                return None
        if self._chance(_HOSTILE_TEXTS):
            return self._hostile_text()
        text = self.vocabulary.text(name)
        self.vocabulary.note(name, text)
        return text

    def _integer(self, schema: Schema, name: str) -> int:
        low, high = int(schema.get("minimum", 0)), int(schema.get("maximum", 12))
        share = self._rng.random()
        if share < 0.55:
            return self.vocabulary.number(name)
        if share < 0.75:
            if "minimum" in schema or "maximum" in schema:
                return int(self._pick((low, high)))
            return int(self._next(_BOUNDARIES))
        return int(self._rng.integers(low, max(low, high) + 1))

    def _object(self, schema: Schema, root: Schema, hostile: float) -> dict[str, Any]:
        properties, required = schema.get("properties", {}), schema.get("required", ())
        value = {}
        for name, part in properties.items():
            if name in required or self._chance(0.4):
                value[name] = self._value(part, root, name, hostile)
        extra = schema.get("additionalProperties")
        if extra and not properties:  # an object with arbitrary keys
            count = int(self._rng.integers(3))
            names = [self.vocabulary.text("key") for _ in range(count)]
            part = extra if isinstance(extra, Mapping) else {"type": "string"}
            for name in names:
                value[name] = self._value(part, root, name, hostile)
        return value
