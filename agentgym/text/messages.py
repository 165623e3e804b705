"""Frozen, JSON-able types exchanged between a world and a policy."""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from io import BytesIO
from itertools import chain, groupby, islice
from typing import Any, ClassVar, Literal, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentgym.text.requirements import install_command
from agentgym.text.tools import Tool

Role = Literal["system", "user", "assistant", "tool"]

SYSTEM_ID = "0:0"
TASK_ID = "0:1"

_new = object.__new__


class _DataclassFields:
    def __get__(
        self, record: object, owner: type[msgspec.Struct]
    ) -> dict[str, dataclasses.Field[Any]]:
        return _dataclass_fields(owner)


@functools.cache
def _dataclass_fields(owner: type[msgspec.Struct]) -> dict[str, dataclasses.Field[Any]]:
    columns = []
    for info in msgspec.structs.fields(owner):
        default = dataclasses.MISSING if info.required else info.default
        columns.append((info.name, info.type, dataclasses.field(default=default)))
    twin = dataclasses.make_dataclass(owner.__name__, columns)
    return {column.name: column for column in dataclasses.fields(twin)}


class Record(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Frozen record, supported by `dataclasses.replace`, `fields` and `asdict`.

    A msgspec struct is built ten times faster than a frozen dataclass.
    """

    __dataclass_fields__: ClassVar[Any] = _DataclassFields()


class ToolCall(Record, frozen=True):
    """A policy's tool call; `id` links the call to its result and does not affect equality."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolCall) or other.__class__ is not self.__class__:
            return NotImplemented
        return self.name == other.name and self.arguments == other.arguments

    __hash__ = None  # type: ignore[assignment]  # the arguments are a JSON object, which has no hash


class Image(Record, frozen=True):
    """A picture as PNG bytes, with a description for text-only policies."""

    png: bytes
    alt: str = ""

    def to_data_url(self) -> str:
        """Return the picture as a `data:` URL."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode("ascii")

    def to_array(self) -> NDArray[np.uint8]:
        """Return the pixels, uint8 of shape `(height, width, 3)`."""
        return np.asarray(pillow("PIL.Image").open(BytesIO(self.png)).convert("RGB"))


def pillow(module: str = "PIL") -> Any:
    """Import a Pillow module; raise ImportError without the extra `images`."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"pictures require Pillow: {install_command('images')}") from error


class Content(Record, frozen=True):
    """Text with pictures, for a task or a tool result."""

    text: str
    images: tuple[Image, ...] = ()


class Message(Record, frozen=True):
    """One message of a chat.

    Attributes:
        role: `system`, `user`, `assistant` or `tool`.
        text: The text, without thinking or tool-call markup.
        call_id: In a tool message, the id of the call that produced the result.
        id: A deterministic id, unique in the chat: `"{turn}:{k}"`, or `"{wrapper}:{k}"` for a
            wrapper's message.
        raw: In an assistant message, the policy's exact reply.
        moment: `"{digest}:{turn}"`, which seeds scripted policies' choices; models never see it.
    """

    role: Role
    text: str = ""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    images: tuple[Image, ...] = ()
    id: str = ""
    raw: str = ""
    moment: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict without empty fields."""
        data: dict[str, Any] = {}
        for name in _TEXT_FIELDS:
            if value := getattr(self, name):
                data[name] = value
        for call in self.calls:
            fields = {"name": call.name, "arguments": dict(call.arguments), "id": call.id}
            data.setdefault("calls", []).append(fields)
        for image in self.images:
            png = base64.b64encode(image.png).decode("ascii")
            data.setdefault("images", []).append({"png": png, "alt": image.alt})
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        fields = dict(data)
        fields["calls"] = tuple(
            ToolCall(**{**call, "arguments": dict(call["arguments"])})
            for call in fields.get("calls", ())
        )
        fields["images"] = tuple(
            Image(base64.b64decode(i["png"]), i["alt"]) for i in fields.get("images", ())
        )
        return cls(**fields)


_TEXT_FIELDS = ("role", "text", "thinking", "call_id", "id", "raw", "moment")


class _Buffer(list[Message]):
    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment]  # a list has none

    def __eq__(self, other: object) -> bool:
        return self is other


class Messages(Sequence[Message]):
    """An immutable sequence of messages that grows in O(new messages).

    Adding to the longest version extends a buffer that all versions share; adding to any other
    version copies the messages.
    """

    __slots__ = ("_buffer", "_length", "_tail")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._buffer = _Buffer(messages)
        self._length = len(self._buffer)
        self._tail: tuple[Message, ...] = ()

    @classmethod
    def _version(cls, buffer: _Buffer, length: int, tail: tuple[Message, ...]) -> Messages:
        version = cls.__new__(cls)
        version._buffer, version._length, version._tail = buffer, length, tail
        return version

    def add(self, new: Sequence[Message]) -> Messages:
        """Return this sequence followed by `new`."""
        if self._tail:
            new = (*self._tail, *new)
        buffer, length = self._buffer, self._length + len(new)
        is_longest = len(buffer) == self._length
        if is_longest:
            buffer += new
        # If two threads extend this version at the same time, the later thread copies the
        # messages; a lock would be slower.
        if not is_longest or len(buffer) != length:
            buffer = _Buffer((*islice(buffer, self._length), *new))
        longest = _new(Messages)  # `_version`, inlined for speed
        longest._buffer, longest._length, longest._tail = buffer, length, ()
        return longest

    def with_last(self, *messages: Message) -> Messages:
        """Return this sequence followed by messages that are not added to the shared buffer."""
        return self._version(self._buffer, self._length, (*self._tail, *messages))

    def without_last(self) -> Messages:
        """Return this sequence without its last message, in O(1)."""
        if not len(self):
            raise IndexError("an empty chat has no last message")
        return self.first(len(self) - 1)

    def first(self, count: int) -> Messages:
        """Return the first messages, in O(1)."""
        tail = self._tail[: max(count - self._length, 0)]
        return self._version(self._buffer, min(count, self._length), tail)

    def lineage(self) -> tuple[object, int]:
        """Return the shared buffer and how many of its messages this version contains."""
        return self._buffer, self._length

    def shared_prefix(self, other: Sequence[Message]) -> int:
        """Count the common leading messages; O(1) for two versions of one buffer."""
        start = 0
        at: Callable[[int], Message] = other.__getitem__
        if isinstance(other, Messages):
            at = other._at
            if other._buffer is self._buffer:
                start = min(self._length, other._length)
        rest = range(start, min(len(self), len(other)))
        for mine, theirs in zip(map(self._at, rest), map(at, rest), strict=True):
            if mine is not theirs and mine != theirs:
                break
            start += 1
        return start

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            return tuple(self._at(i) for i in range(*index.indices(len(self))))
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"the chat has {len(self)} messages, got index {index}")
        return self._at(position)

    def _at(self, position: int) -> Message:
        if position < self._length:
            return self._buffer[position]
        return self._tail[position - self._length]

    def __len__(self) -> int:
        return self._length + len(self._tail)

    def __iter__(self) -> Iterator[Message]:
        return chain(islice(self._buffer, self._length), self._tail)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Messages, tuple, list)):
            return NotImplemented
        return len(self) == len(other) == self.shared_prefix(other)

    __hash__ = None  # type: ignore[assignment]  # messages hold JSON objects, which have no hash

    def __repr__(self) -> str:
        return f"Messages({list(self)!r})"

    def __reduce__(self) -> tuple[type[Messages], tuple[list[Message]]]:
        return Messages, (list(self),)


class Chat(Record, frozen=True):
    """A policy's observation: the messages and the schemas of the available tools.

    Copying returns the same object, because Gymnasium's vector envs deep-copy every observation.

    Attributes:
        agent: The team agent that sees the chat, if any; models never see it.
    """

    messages: Sequence[Message] = ()
    tools: tuple[Tool, ...] = ()
    agent: str = ""
    # PettingZoo's API test compares the dtypes of an observation and its space.
    dtype: ClassVar[None] = None

    def add(self, *messages: Message) -> Chat:
        """Return this chat followed by `messages`, in O(new messages)."""
        return self.extend(messages)

    def extend(self, messages: Sequence[Message]) -> Chat:
        """Return this chat followed by a sequence of messages, in O(new messages)."""
        shared = self.messages
        if shared.__class__ is not Messages:  # `_shared`, inlined for speed
            shared = Messages(shared)
        return Chat(shared.add(messages), self.tools, self.agent)

    def with_last(self, *messages: Message) -> Chat:
        """Return this chat followed by messages that are not added to the shared buffer."""
        return Chat(self._shared().with_last(*messages), self.tools, self.agent)

    def without_last(self) -> Chat:
        """Return this chat without its last message, in O(1)."""
        return Chat(self._shared().without_last(), self.tools, self.agent)

    def first(self, count: int) -> Chat:
        """Return the first messages of this chat, in O(1)."""
        return Chat(self._shared().first(count), self.tools, self.agent)

    def shared_prefix(self, other: Chat) -> int:
        """Count the common leading messages of two chats."""
        return self._shared().shared_prefix(other.messages)

    def pinned(self) -> int:
        """Count the messages up to the task; raise ValueError if there is no task."""
        for count, message in enumerate(self.messages, 1):
            if message.id == TASK_ID:
                return count
        raise ValueError(f"this chat has no task message (id {TASK_ID})")

    def moment(self) -> str:
        """Return the newest `moment` in the chat; empty for a chat parsed from plain text."""
        for place in range(len(self.messages) - 1, -1, -1):
            if moment := self.messages[place].moment:
                return moment
        return ""

    def _shared(self) -> Messages:
        return self.messages if isinstance(self.messages, Messages) else Messages(self.messages)

    def __copy__(self) -> Chat:
        return self

    def __deepcopy__(self, memo: object) -> Chat:
        return self

    def to_openai(self, *, json_arguments: bool = True) -> list[dict[str, Any]]:
        """Return the messages as chat-completions dicts, with pictures as data URLs.

        A tool result's pictures follow in a user message, because the API rejects pictures in tool
        messages. `json_arguments=False` returns call arguments as objects, which transformers' chat
        templates expect.
        """
        dicts: list[dict[str, Any]] = []
        for is_tool, run in groupby(self.messages, key=lambda message: message.role == "tool"):
            pictures: list[Image] = []
            for message in run:
                dicts.append(_to_openai(message, json_arguments))
                pictures += message.images
            if is_tool and pictures:
                dicts.append({"role": "user", "content": _parts("", pictures)})
        return dicts

    @classmethod
    def from_openai(cls, messages: Iterable[Mapping[str, Any]], tools: Iterable[Tool] = ()) -> Chat:
        """Read chat-completions dicts; raise ValueError for an unknown role or malformed call."""
        return cls(tuple(_from_openai(m, f"0:{k}") for k, m in enumerate(messages)), tuple(tools))

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self) -> str:
        """Return the chat as readable text."""
        return "\n\n".join(f"[{m.role}]\n{_readable(m)}" for m in self.messages)


def _parts(text: str, images: Iterable[Image]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    if text:
        parts.append({"type": "text", "text": text})
    for image in images:
        parts.append({"type": "image_url", "image_url": {"url": image.to_data_url()}})
    return parts


def _to_openai(message: Message, json_arguments: bool) -> dict[str, Any]:
    data: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.role == "tool":
        data["tool_call_id"] = message.call_id
    elif message.images:
        data["content"] = _parts(message.text, message.images)
    if message.thinking:
        data["reasoning_content"] = message.thinking
    if message.calls:
        data["tool_calls"] = [_call_to_openai(call, json_arguments) for call in message.calls]
    return data


def _call_to_openai(call: ToolCall, json_arguments: bool) -> dict[str, Any]:
    arguments = dict(call.arguments)
    return {
        "id": call.id,
        "type": "function",
        "function": {
            "name": call.name,
            "arguments": json.dumps(arguments) if json_arguments else arguments,
        },
    }


def _from_openai(data: Mapping[str, Any], message_id: str) -> Message:
    role = data.get("role")
    if role not in ("system", "user", "assistant", "tool"):
        raise ValueError(
            f"message {message_id} has role {role!r}; use system, user, assistant or tool"
        )
    parts = data.get("content") or ""
    if isinstance(parts, str):
        parts = [{"type": "text", "text": parts}]
    return Message(
        role=role,
        text="".join(part["text"] for part in parts if part["type"] == "text"),
        thinking=data.get("reasoning_content") or "",
        calls=tuple(_call_from_openai(call) for call in data.get("tool_calls") or ()),
        call_id=data.get("tool_call_id", ""),
        images=tuple(
            _image_from_url(part["image_url"]["url"])
            for part in parts
            if part["type"] == "image_url"
        ),
        id=message_id,
    )


def _call_from_openai(data: Mapping[str, Any]) -> ToolCall:
    try:
        name, given = data["function"]["name"], data["function"]["arguments"]
    except (LookupError, TypeError):
        raise ValueError(
            f"a tool call must have a function with name and arguments, got {str(data)[:200]}"
        ) from None
    arguments = given
    with suppress(ValueError):
        arguments = json.loads(given or "{}") if isinstance(given, str) else given
    if not isinstance(arguments, dict):
        shown = str(given)[:200]  # keep the message short
        raise ValueError(f"the arguments of {name} must be a JSON object, got {shown}")
    return ToolCall(name, arguments, data.get("id", ""))


def _image_from_url(url: str) -> Image:
    head, _, body = url.partition(",")
    if head != "data:image/png;base64":
        raise ValueError(f"a picture must be a data:image/png;base64 URL, got {url[:60]!r}")
    return Image(base64.b64decode(body))


def _readable(message: Message) -> str:
    if message.raw:
        return message.raw
    lines = []
    if message.thinking:
        lines.append(f"<think>{message.thinking}</think>")
    if message.text:
        lines.append(message.text)
    for call in message.calls:
        lines.append(f"-> {call.name}({json.dumps(dict(call.arguments))})")
    for image in message.images:
        lines.append(f"[image: {image.alt or f'{len(image.png)} bytes'}]")
    return "\n".join(lines)
