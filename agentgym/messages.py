"""What passes between a world and a policy: tool calls, images, messages and the chat that holds them.

All types are frozen, JSON-able and free of live objects, so an observation can be logged, sent to another process or shown to a
model without carrying hidden state along.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from importlib import import_module
from io import BytesIO
from itertools import chain, islice
from typing import Any, ClassVar, Literal, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from agentgym.tools import Tool

Role = Literal["system", "user", "assistant", "tool"]

SYSTEM_ID = "0:0"
TASK_ID = "0:1"

_GROWING = threading.Lock()
_new = object.__new__

T = TypeVar("T")


def _quick(cls: type[T]) -> type[T]:
    """Let a frozen, slotted dataclass be built as an open twin whose class is then switched.

    The generated `__init__` fills frozen slots through `object.__setattr__`, which made messages a third of the cost of a step.
    """
    names = [item.name for item in fields(cls)]  # type: ignore[arg-type]
    twin = make_dataclass(cls.__name__, [(f.name, Any, f) for f in fields(cls)], slots=True)  # type: ignore[arg-type]

    def new(_: type[T], *values: Any, **named: Any) -> T:
        made: Any = twin(*values, **named)
        made.__class__ = cls
        return made  # type: ignore[no-any-return]

    def reduce(self: T) -> tuple[type[T], tuple[Any, ...]]:
        return cls, tuple(getattr(self, name) for name in names)

    namespace: Any = cls
    namespace.__new__, namespace.__reduce__ = new, reduce
    del namespace.__init__
    return cls


@_quick
@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that a policy wrote. Two calls are equal if name and arguments are; `id` only pairs a call with its result."""

    name: str
    arguments: Mapping[str, Any]
    id: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Image:
    """A picture as PNG bytes, with a description for policies that read text only."""

    png: bytes
    alt: str = ""

    def to_data_url(self) -> str:
        """The picture as the `data:` URL that chat-completions APIs take."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode("ascii")

    def to_array(self) -> NDArray[np.uint8]:
        """The pixels, uint8 of shape `(height, width, 3)`; raises `ImportError` without the extra `images`."""
        return np.asarray(pillow("PIL.Image").open(BytesIO(self.png)).convert("RGB"))


def pillow(module: str = "PIL") -> Any:
    """A module of Pillow, which is an extra.

    Raises:
        ImportError: It is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError("pictures need Pillow: pip install 'agentgym[images]'") from error


@dataclass(frozen=True, slots=True)
class Content:
    """Text with pictures: what a task or a tool gives when text alone does not do."""

    text: str
    images: tuple[Image, ...] = ()


@_quick
@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat.

    Attributes:
        role: `system`, `user`, `assistant` or `tool`.
        text: What is said, without thinking and without the markup of calls.
        thinking: An assistant's reasoning.
        calls: An assistant's tool calls, in the order written.
        call_id: The id of the call that a tool message answers.
        images: Pictures that come with the text.
        id: Deterministic and unique in its chat: `"{turn}:{k}"`, or `"{wrapper}:{k}"` for a message that a wrapper made.
        raw: The exact text a policy wrote (assistant messages only).
    """

    role: Role
    text: str = ""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    images: tuple[Image, ...] = ()
    id: str = ""
    raw: str = ""

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dict without the fields that are empty; `from_dict` is the inverse."""
        data: dict[str, Any] = {name: value for name in _TEXT_FIELDS if (value := getattr(self, name))}
        if self.calls:
            data["calls"] = [{"name": c.name, "arguments": dict(c.arguments), "id": c.id} for c in self.calls]
        if self.images:
            data["images"] = [{"png": base64.b64encode(i.png).decode("ascii"), "alt": i.alt} for i in self.images]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        """Rebuild a message from `to_dict`."""
        fields = dict(data)
        fields["calls"] = tuple(ToolCall(**call) for call in fields.get("calls", ()))
        fields["images"] = tuple(Image(base64.b64decode(i["png"]), i["alt"]) for i in fields.get("images", ()))
        return cls(**fields)


_TEXT_FIELDS = ("role", "text", "thinking", "call_id", "id", "raw")


class Messages(Sequence[Message]):
    """An immutable sequence of messages whose versions share one buffer, so that a chat grows in O(new messages).

    A version is a length of the shared buffer plus a short private tail. Adding to the longest version extends the buffer in
    place, which older versions do not see; adding to any other version copies.
    """

    __slots__ = ("_buffer", "_length", "_tail")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._buffer = list(messages)
        self._length = len(self._buffer)
        self._tail: tuple[Message, ...] = ()

    @classmethod
    def _version(cls, buffer: list[Message], length: int, tail: tuple[Message, ...]) -> Messages:
        version: Messages = _new(cls)
        version._buffer, version._length, version._tail = buffer, length, tail
        return version

    def add(self, new: Sequence[Message]) -> Messages:
        """This sequence followed by `new`."""
        with _GROWING:
            buffer = self._buffer
            if self._tail or len(buffer) != self._length:
                buffer = list(self)
            buffer += new
            version: Messages = _new(Messages)
            version._buffer, version._length, version._tail = buffer, len(buffer), ()
            return version

    def with_last(self, *messages: Message) -> Messages:
        """This sequence followed by messages of its own, which are not put into the buffer: for those that will be replaced."""
        return self._version(self._buffer, self._length, (*self._tail, *messages))

    def without_last(self) -> Messages:
        """This sequence without its last message; the buffer stays shared, so this is O(1)."""
        if self._tail:
            return self._version(self._buffer, self._length, self._tail[:-1])
        if not self._length:
            raise IndexError("an empty chat has no last message")
        return self._version(self._buffer, self._length - 1, ())

    def shared_prefix(self, other: Sequence[Message]) -> int:
        """How many leading messages both have in common; O(1) where both are versions of one buffer."""
        start = 0
        if isinstance(other, Messages) and other._buffer is self._buffer:
            start = min(self._length, other._length)
        for mine, theirs in zip(self[start:], other[start:], strict=False):
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
            raise IndexError(f"message {index} of a chat of {len(self)}")
        return self._at(position)

    def _at(self, position: int) -> Message:
        return self._buffer[position] if position < self._length else self._tail[position - self._length]

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


@dataclass(frozen=True, slots=True)
class Chat:
    """All that a policy is shown: the messages so far and the schemas of the tools it may call.

    Copying a chat gives the same object: it cannot change, and Gymnasium's vector envs deep-copy every observation.
    """

    messages: Sequence[Message] = ()
    tools: tuple[Tool, ...] = ()
    dtype: ClassVar[None] = None
    """The type of the elements, as arrays have one and spaces tell it: a chat is no array. PettingZoo compares the two."""

    def add(self, *messages: Message) -> Chat:
        """This chat followed by `messages`, in O(new messages)."""
        known = self.messages
        return Chat((known if isinstance(known, Messages) else Messages(known)).add(messages), self.tools)

    def with_last(self, *messages: Message) -> Chat:
        """This chat followed by messages that later chats do not share, in O(new messages)."""
        return Chat(self._shared().with_last(*messages), self.tools)

    def without_last(self) -> Chat:
        """This chat without its last message, in O(1)."""
        return Chat(self._shared().without_last(), self.tools)

    def shared_prefix(self, other: Chat) -> int:
        """How many leading messages both chats have in common."""
        return self._shared().shared_prefix(other.messages)

    def pinned(self) -> int:
        """How many leading messages every view keeps: all up to the task.

        Raises:
            ValueError: The chat has no task message.
        """
        end = next((k for k, message in enumerate(self.messages, 1) if message.id == TASK_ID), 0)
        if not end:
            raise ValueError(f"this chat has no task message (id {TASK_ID})")
        return end

    def _shared(self) -> Messages:
        return self.messages if isinstance(self.messages, Messages) else Messages(self.messages)

    def __copy__(self) -> Chat:
        return self

    def __deepcopy__(self, memo: object) -> Chat:
        return self

    def to_openai(self, *, json_arguments: bool = True) -> list[dict[str, Any]]:
        """The messages as chat-completions dicts, with pictures as data URLs.

        The API takes no picture in a tool message, so the pictures of tool results follow them in a user message.

        Args:
            json_arguments: Whether the arguments of `tool_calls` are JSON text, as the API has them, or objects, as the chat
                templates of transformers want them.
        """
        out: list[dict[str, Any]] = []
        waiting: list[Image] = []
        for message in self.messages:
            if message.role != "tool" and waiting:
                out.append({"role": "user", "content": _parts("", waiting)})
                waiting = []
            out.append(_to_openai(message, json_arguments))
            if message.role == "tool":
                waiting += message.images
        if waiting:
            out.append({"role": "user", "content": _parts("", waiting)})
        return out

    @classmethod
    def from_openai(cls, messages: Iterable[Mapping[str, Any]], tools: Iterable[Tool] = ()) -> Chat:
        """Read chat-completions dicts.

        Raises:
            ValueError: A message has no known role, or the arguments of a call are not a JSON object.
        """
        return cls(tuple(_from_openai(m, f"0:{k}") for k, m in enumerate(messages)), tuple(tools))

    def to_text(self) -> str:
        """The chat for people to read."""
        return "\n\n".join(f"[{m.role}]\n{_readable(m)}" for m in self.messages)


def _parts(text: str, images: Iterable[Image]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    return parts + [{"type": "image_url", "image_url": {"url": image.to_data_url()}} for image in images]


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
    function = {"name": call.name, "arguments": json.dumps(arguments) if json_arguments else arguments}
    return {"id": call.id, "type": "function", "function": function}


def _from_openai(data: Mapping[str, Any], message_id: str) -> Message:
    role = data.get("role")
    if role not in ("system", "user", "assistant", "tool"):
        raise ValueError(f"message {message_id} has role {role!r}; use system, user, assistant or tool")
    content = data.get("content") or ""
    parts: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return Message(
        role=role,
        text="".join(part["text"] for part in parts if part["type"] == "text"),
        thinking=data.get("reasoning_content") or "",
        calls=tuple(_call_from_openai(call) for call in data.get("tool_calls") or ()),
        call_id=data.get("tool_call_id", ""),
        images=tuple(_image_from_url(part["image_url"]["url"]) for part in parts if part["type"] == "image_url"),
        id=message_id,
    )


def _call_from_openai(data: Mapping[str, Any]) -> ToolCall:
    function = data["function"]
    given = function["arguments"]
    arguments = json.loads(given or "{}") if isinstance(given, str) else given
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of {function['name']} must be a JSON object, got {str(given)[:200]}")
    return ToolCall(function["name"], arguments, data.get("id", ""))


def _image_from_url(url: str) -> Image:
    head, _, body = url.partition(",")
    if head != "data:image/png;base64":
        raise ValueError(f"a picture must be a data:image/png;base64 URL, got {url[:60]!r}")
    return Image(base64.b64decode(body))


def _readable(message: Message) -> str:
    if message.raw:
        return message.raw
    lines = [f"<think>{message.thinking}</think>"] if message.thinking else []
    lines += [message.text] if message.text else []
    lines += [f"-> {call.name}({json.dumps(dict(call.arguments))})" for call in message.calls]
    lines += [f"[image: {image.alt or f'{len(image.png)} bytes'}]" for image in message.images]
    return "\n".join(lines)
