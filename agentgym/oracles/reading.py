"""Reading of chats by scripted policies: message by message, so that a step reads what is new.

The chats of an episode are versions of one buffer (`Messages.lineage`). What was read of a version
is kept with the buffer, and the next version is read from there. A context strategy that edits the
history makes a new buffer, which is read whole.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from agentgym.oracles.hints import split_hints
from agentgym.text.messages import Chat, Message, Messages, ToolCall
from agentgym.text.parsing import Dialect, render
from agentgym.text.prompts import read_dialect
from agentgym.text.tools import Tool
from agentgym.world.world import World
from agentgym.wrappers.compaction import SUMMARY_FOLLOWS, SUMMARY_REQUEST

_MOST_CHATS = 1_024
"""Chats whose reading a policy keeps: more than one process plays at a time. A reading takes about
the memory of the episode's world, so those of finished episodes must not pile up.
"""
_MOST_VERSIONS = 4
"""Readings of one chat that a policy keeps: threads and repeated passes over an episode are at
different versions of it.
"""


class PastCalls:
    """The calls that succeeded, with their results, and the world that they show.

    Attributes:
        events: Each call with its result, in order; None where a turn begins.
        turns: The number of turns.
    """

    def __init__(self) -> None:
        self.events: list[tuple[ToolCall, str] | None] = []
        self.turns = 0
        self._calls: dict[str, ToolCall] = {}
        self._newest: Message | None = None
        self._newest_event = 0  # where the event of the newest message is, or would be
        self._world: World[object] | None = None
        self._origin: tuple[object, ...] = ()
        self._applied = 0

    @property
    def empty(self) -> bool:
        """Report whether no message was read."""
        return self._newest is None

    def take(self, message: Message) -> None:
        """Read one more message; a picture is described by a line after the text."""
        self._newest, self._newest_event = message, len(self.events)
        if message.role == "assistant":
            self._calls = {call.id: call for call in message.calls}
            self.events.append(None)
            self.turns += 1
        elif message.call_id in self._calls and not message.text.startswith("error:"):
            lines = [split_hints(message.text)[0], *(image.alt for image in message.images)]
            self.events.append((self._calls[message.call_id], "\n".join(lines)))

    def replace_newest(self, text: str) -> None:
        """Read the newest message again, with another text; nothing if there is none."""
        newest = self._newest
        if newest is None or newest.role == "assistant":  # the calls of a reply stay what they are
            return
        del self.events[self._newest_event :]
        if self._applied > self._newest_event:
            self._world = None
        self.take(replace(newest, text=text))

    def world(self, kind: type[World[Any]], task: str, state: str) -> World[object]:
        """Return the world after these calls.

        The next call with the same arguments gives the same object, in which the events since then
        were applied too.

        Args:
            kind: The class of the world.
            task: The text of the task.
            state: The state from which the calls go on; empty for that of the task.
        """
        origin = (kind, task, state)
        world = self._world
        if world is None or origin != self._origin:
            world, self._applied = kind.read_task(task), 0
            read_state(world, state)
        self._world = None  # a hook that raises leaves it half-way
        for event in self.events[self._applied :]:
            if event is None:
                world.turn += 1
            else:
                apply_result(world, *event)
        self._world, self._origin, self._applied = world, origin, len(self.events)
        return world


@dataclass(frozen=True, slots=True)
class ParsedChat:
    """The contents of a chat, split up.

    Attributes:
        task: The text of the task message, without hints.
        hints: The hints of the newest message, by tag.
        past: The calls after the task, and after the summary if there is one.
        summary: The state that the policy has written into its last summary; empty if there is
            none.
        summarize: Whether a summary is asked for in place of a call.
        tools: The tools on offer.
        moment: The moment of the newest message that has one (`Message.moment`).
        dialect: The form in which the env asks for calls.
    """

    task: str
    hints: dict[str, str]
    past: PastCalls = field(default_factory=PastCalls)
    summary: str = ""
    summarize: bool = False
    tools: tuple[Tool, ...] = ()
    moment: str = ""
    dialect: Dialect = "auto"

    @classmethod
    def of(cls, chat: Chat) -> ParsedChat:
        """Read a whole chat."""
        reading = ChatReading(chat)
        reading.read(chat)
        return reading.parsed(chat)

    def render(self, call: ToolCall, dialect: Dialect) -> str:
        """Return the text of a call in a dialect; `auto` is the one that the env asks for."""
        return render(call, self.dialect if dialect == "auto" else dialect)

    def turns(self) -> list[list[tuple[ToolCall, str]]]:
        """Return the calls that succeeded, with their results, turn by turn."""
        turns: list[list[tuple[ToolCall, str]]] = []
        for event in self.past.events:
            if event is None:
                turns.append([])
            else:
                turns[-1].append(event)
        return turns


class ChatReading:
    """What was read of a chat, up to one of its messages.

    Args:
        chat: A version of the chat; nothing after its task is read yet.

    Attributes:
        past: The calls since the summary, if there is one.
        summary: The state in the last summary.
        position: The number of messages that were read.

    Raises:
        ValueError: The chat has no task message.
    """

    def __init__(self, chat: Chat) -> None:
        self.past, self.summary = PastCalls(), ""
        self.position = self._pinned = chat.pinned()
        self._task = split_hints(chat.messages[self._pinned - 1].text)[0]
        self._dialect = read_dialect(chat.messages[0].text)
        self._shared = 0
        self._own: tuple[Message, ...] = ()

    def fits(self, chat: Chat, shared: int) -> bool:
        """Report whether what was read is the beginning of another version of the chat.

        Args:
            chat: The version.
            shared: The number of its messages that are in the buffer of the chat.
        """
        return (
            self._shared <= shared
            and self.position <= len(chat.messages)
            and all(
                _read_alike(message, chat.messages[number])
                for number, message in enumerate(self._own, self._shared)
            )
        )

    def read(self, chat: Chat, shared: int = 0) -> None:
        """Read the new messages of a version of the chat.

        Args:
            chat: The version.
            shared: The number of its messages that are in the buffer of the chat.
        """
        messages = chat.messages
        for number in range(self.position, len(messages)):
            self.take(messages[number], messages[number - 1].text if number > self._pinned else "")
        self.position, self._shared = len(messages), shared
        self._own = tuple(messages[shared:])

    def take(self, message: Message, before: str) -> None:
        """Read one message.

        Args:
            message: The message.
            before: The text of the message before, if that too comes after the task.
        """
        if message.text.startswith(SUMMARY_FOLLOWS):
            self.summary = split_hints(f"\n\n{before}")[1].get("state", "")
            self.past = PastCalls()
        else:
            self.past.take(message)

    def parsed(self, chat: Chat) -> ParsedChat:
        """Return the contents of the version that was read last; they change when the next one is
        read.
        """
        return ParsedChat(
            task=self._task,
            hints=split_hints(self._newest_observation(chat).text)[1],
            past=self.past,
            summary=self.summary,
            summarize=chat.messages[-1].text.endswith(SUMMARY_REQUEST),
            tools=chat.tools,
            moment=chat.moment(),
            dialect=self._dialect,
        )

    def _newest_observation(self, chat: Chat) -> Message:
        """Return the newest message that shows what the world says, at first the task."""
        places = range(len(chat.messages) - 1, self._pinned - 1, -1)
        observations = (
            message
            for message in map(chat.messages.__getitem__, places)
            if message.role != "assistant"
            and not message.text.startswith((SUMMARY_REQUEST, SUMMARY_FOLLOWS))
        )
        return next(observations, chat.messages[self._pinned - 1])


ReadingT = TypeVar("ReadingT", bound=ChatReading)


class Readings(Generic[ReadingT]):
    """Readings of the chats of a policy, each of which goes on where it ended.

    They go with their chats, and are no part of the policy's state: a copy or a pickle has none.
    While one is in use nobody else has it, so threads may share the policy.

    Args:
        begin: Begins the reading of a chat.
    """

    def __init__(self, begin: Callable[[Chat], ReadingT]) -> None:
        self._begin = begin
        self._lock = threading.Lock()
        self._kept: WeakKeyDictionary[object, list[ReadingT]] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        return Readings, (self._begin,)

    @contextmanager
    def read(self, chat: Chat) -> Iterator[ReadingT]:
        """Lend the reading of a chat, up to its newest message.

        Raises:
            ValueError: The chat has no task message.
        """
        messages = chat.messages
        if not isinstance(messages, Messages):
            messages = Messages(messages)  # whose buffer takes the reading with it
        lineage, shared = messages.lineage()
        reading = self._pop(lineage, chat, shared) or self._begin(chat)
        reading.read(chat, shared)
        yield reading
        self._keep(lineage, reading)  # not after an error, which may leave it half-way

    def _pop(self, lineage: object, chat: Chat, shared: int) -> ReadingT | None:
        """Take out the reading of a chat that has come furthest."""
        with self._lock:
            readings = self._kept.get(lineage, [])
            fitting = [reading for reading in readings if reading.fits(chat, shared)]
            best = max(fitting, key=lambda reading: reading.position, default=None)
            if best is not None:
                readings.remove(best)
            return best

    def _keep(self, lineage: object, reading: ReadingT) -> None:
        with self._lock:
            readings = self._kept.pop(lineage, [])
            self._kept[lineage] = [*readings, reading][-_MOST_VERSIONS:]  # now the newest
            if len(self._kept) > _MOST_CHATS:
                self._kept.pop(next(self._kept.keys()), None)


def _read_alike(one: Message, other: Message) -> bool:
    """Report whether two messages mean the same to a reader: they may differ in hints to a moment
    that has passed.
    """
    if one is other or one == other:
        return True
    said, other_said = (
        replace(message, text=split_hints(message.text)[0]) for message in (one, other)
    )
    return one.role != "assistant" and said == other_said


def read_state(world: World[object], state: str) -> bool:
    """Read the state in a hint or a summary into a world; False if there is none, or it was cut and
    cannot be read any more.
    """
    if state:
        with suppress(ValueError):
            world.read_state(state)
            return True
    return False


def apply_result(world: World[object], call: ToolCall, result: str) -> None:
    """Read a result into a world; one that was cleared or cut has no content, nor has a call
    without its arguments.
    """
    with suppress(ValueError, KeyError):
        world.read_result(call, result)
