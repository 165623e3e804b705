"""Incremental reading of chats by scripted policies.

A context edit creates a new message buffer (`Messages.lineage`), so the whole chat is read again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from agentgym.oracles.hints import split_hints
from agentgym.text.messages import Chat, Message, Messages, ToolCall
from agentgym.text.parsing import Dialect, render
from agentgym.text.prompts import read_dialect
from agentgym.text.tools import Tool
from agentgym.world.world import World
from agentgym.wrappers.compaction import SUMMARY_FOLLOWS, SUMMARY_REQUEST
from agentgym.wrappers.context import WARNING

# Maximum cached chats; each takes a lot of memory, and few runs have more concurrent episodes.
_MOST_CHATS = 1_024
_MOST_VERSIONS = 4  # maximum cached versions of a chat; threads may read different versions


PastEvent: TypeAlias = tuple[ToolCall, str] | None
"""A call with its result; None marks the start of a turn."""


class PastCalls:
    """The successful calls with their results, in order, and the resulting world."""

    def __init__(self) -> None:
        self.events: list[PastEvent] = []
        self.turns = 0
        self._calls: dict[str, ToolCall] = {}
        self._newest: Message | None = None
        self._newest_event = 0
        self._world: World[object] | None = None
        self._origin: tuple[object, ...] = ()
        self._applied = 0

    @property
    def empty(self) -> bool:
        return self._newest is None

    def take(self, message: Message) -> None:
        """Read a message; a picture becomes a line after the text."""
        self._newest, self._newest_event = message, len(self.events)
        if message.role == "assistant":
            self._calls = {call.id: call for call in message.calls}
            self.events.append(None)
            self.turns += 1
        elif message.call_id in self._calls and not message.text.startswith("error:"):
            lines = [split_hints(message.text)[0], *(image.alt for image in message.images)]
            self.events.append((self._calls[message.call_id], "\n".join(lines)))

    def replace_newest(self, text: str) -> None:
        """Replace the newest message's text and read the message again."""
        newest = self._newest
        if newest is None or newest.role == "assistant":
            return
        del self.events[self._newest_event :]
        if self._applied > self._newest_event:
            self._world = None
        self.take(replace(newest, text=text))

    def world(self, kind: type[World[Any]], task: str, state: str) -> World[object]:
        """Return the world after these calls, starting from the task and, if given, a state.

        If the arguments have not changed, the previously returned world is updated and returned.
        """
        origin = (kind, task, state)
        world = self._world
        if world is None or origin != self._origin:
            world, self._applied = read_task(kind, task), 0
            read_state(world, state)
        self._world = None  # if a hook raises, the world is inconsistent
        for event in self.events[self._applied :]:
            apply_event(world, event)
        self._world, self._origin, self._applied = world, origin, len(self.events)
        return world


def read_task(kind: type[World[Any]], task: str) -> World[Any]:
    """Return the world that a task describes; raise `ValueError` for another world's task."""
    try:
        return kind.read_task(task)
    except (LookupError, ValueError) as error:
        raise ValueError(
            f"{kind.__name__}.read_task cannot read the task {task[:60]!r} ({type(error).__name__}: {error}); a "
            "scripted policy plays only the world that it was created for"
        ) from error


@dataclass(frozen=True, slots=True)
class ParsedChat:
    """The parts of a chat.

    Attributes:
        task: The text of the task message, without hints.
        hints: The newest message's hints, by tag.
        past: The calls after the task, or after the summary if there is one.
        summary: The state in the policy's last summary; empty if there is none.
        summarize: Whether the chat requests a summary instead of a call.
        warned: Whether the newest message warns that older messages will be removed.
    """

    task: str
    hints: dict[str, str]
    past: PastCalls = field(default_factory=PastCalls)
    summary: str = ""
    summarize: bool = False
    warned: bool = False
    tools: tuple[Tool, ...] = ()
    moment: str = ""
    dialect: Dialect = "auto"

    @classmethod
    def of(cls, chat: Chat) -> ParsedChat:
        reading = ChatReading(chat)
        reading.read(chat)
        return reading.parsed(chat)

    def render(self, call: ToolCall, dialect: Dialect) -> str:
        """Render a call; `auto` selects the env's dialect."""
        return render(call, self.dialect if dialect == "auto" else dialect)


class ChatReading:
    """Parsed beginning of a chat, to which `read` adds the chat's new messages."""

    def __init__(self, chat: Chat) -> None:
        self.past, self.summary = PastCalls(), ""
        self.position = self._pinned = chat.pinned()
        self._task = split_hints(chat.messages[self._pinned - 1].text)[0]
        self._dialect = read_dialect(chat.messages[0].text)
        self._shared = 0
        self._own: tuple[Message, ...] = ()

    def fits(self, chat: Chat, shared: int) -> bool:
        """Report whether a chat starts with the messages already read."""
        if shared < self._shared or len(chat.messages) < self.position:
            return False
        theirs = chat.messages[self._shared : self._shared + len(self._own)]
        return all(map(_read_alike, self._own, theirs))

    def read(self, chat: Chat, shared: int = 0) -> None:
        """Read a chat's new messages; its first `shared` messages are in a shared buffer."""
        messages = chat.messages
        for number in range(self.position, len(messages)):
            before = messages[number - 1].text if number > self._pinned else ""
            self.take(messages[number], before)
        self.position, self._shared = len(messages), shared
        self._own = tuple(messages[shared:])

    def take(self, message: Message, before: str) -> None:
        """Read a message; `before` is the previous message's text."""
        if message.text.startswith(SUMMARY_FOLLOWS):
            self.summary = split_hints(f"\n\n{before}")[1].get("state", "")
            self.past = PastCalls()
        else:
            self.past.take(message)

    def parsed(self, chat: Chat) -> ParsedChat:
        """Return the contents of the chat that was read last; the next `read` changes them."""
        return ParsedChat(
            task=self._task,
            hints=split_hints(self._newest_observation(chat).text)[1],
            past=self.past,
            summary=self.summary,
            summarize=chat.messages[-1].text.endswith(SUMMARY_REQUEST),
            warned=WARNING in chat.messages[-1].text,
            tools=chat.tools,
            moment=chat.moment(),
            dialect=self._dialect,
        )

    def _newest_observation(self, chat: Chat) -> Message:
        for place in range(len(chat.messages) - 1, self._pinned - 1, -1):
            message = chat.messages[place]
            is_ours = message.text.startswith((SUMMARY_REQUEST, SUMMARY_FOLLOWS))
            if message.role != "assistant" and not is_ours:
                return message
        return chat.messages[self._pinned - 1]


ReadingT = TypeVar("ReadingT", bound=ChatReading)


class Readings(Generic[ReadingT]):
    """Cache of a policy's parsed chats, shared by threads; a copy or pickle is empty."""

    def __init__(self, begin: Callable[[Chat], ReadingT]) -> None:
        self._begin = begin
        self._lock = threading.Lock()
        self._kept: WeakKeyDictionary[object, list[ReadingT]] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        return Readings, (self._begin,)

    @contextmanager
    def read(self, chat: Chat) -> Iterator[ReadingT]:
        """Read a chat and yield the result; raise ValueError if the chat has no task."""
        messages = chat.messages
        if not isinstance(messages, Messages):
            messages = Messages(messages)
        lineage, shared = messages.lineage()
        reading = self._pop(lineage, chat, shared) or self._begin(chat)
        reading.read(chat, shared)
        yield reading
        self._keep(lineage, reading)  # an error discards it

    def _pop(self, lineage: object, chat: Chat, shared: int) -> ReadingT | None:
        with self._lock:
            readings = self._kept.get(lineage, [])
            fitting = [reading for reading in readings if reading.fits(chat, shared)]
            if not fitting:
                return None
            best = max(fitting, key=lambda reading: reading.position)
            readings.remove(best)
            return best

    def _keep(self, lineage: object, reading: ReadingT) -> None:
        with self._lock:
            readings = self._kept.pop(lineage, [])
            self._kept[lineage] = [*readings, reading][-_MOST_VERSIONS:]  # now the newest
            if len(self._kept) > _MOST_CHATS:
                self._kept.pop(next(self._kept.keys()), None)


def _read_alike(one: Message, other: Message) -> bool:
    if one is other or one == other:
        return True
    if one.role == "assistant":
        return False
    said = replace(one, text=split_hints(one.text)[0])
    return said == replace(other, text=split_hints(other.text)[0])


def read_state(world: World[object], state: str) -> bool:
    """Load a state into a world; return False if the state is empty or truncated."""
    if state:
        with suppress(ValueError):
            world.read_state(state)
            return True
    return False


def apply_event(world: World[object], event: PastEvent) -> None:
    """Start a turn, or apply a result to a world unless it was cleared or truncated."""
    if event is None:
        world.turn += 1
        return
    with suppress(ValueError, KeyError):
        world.read_result(*event)
