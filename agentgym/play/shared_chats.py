"""Shared memory for chats, so Gymnasium's `AsyncVectorEnv` works with `shared_memory=True`.

Each env has a section of one unnamed file. Each step writes only the new messages.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import tempfile
import weakref
from collections.abc import Sequence
from multiprocessing import reduction
from types import ModuleType
from typing import Any, overload

from gymnasium.error import CustomSpaceError
from gymnasium.spaces import Space, Tuple
from gymnasium.vector.utils import (
    batch_space,
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

from agentgym.play.spaces import ChatSpace
from agentgym.text.messages import Chat

_HEAD = struct.Struct("<QQ")  # the newest record's number and length in bytes
_SEEN = struct.Struct("<Q")  # the number of the last record read
_PAGE = 4096  # a memory page; each env's first page contains the structs above
_SLOT = 1 << 32  # maximum bytes of a record; untouched pages use no memory
_SLOTS = 2  # the reader may still be using the previous record
_PART = _SLOTS * _SLOT  # bytes per env


class SharedChats(Sequence[Chat]):
    """The newest chat of each env of a vector env, written by other processes.

    A deep copy is a tuple of the current chats. A record contains the changes since the
    previous record, or the whole chat if the reader missed a record. Raises CustomSpaceError if
    open files cannot be passed to other processes.
    """

    def __init__(self, count: int, file: int | None = None) -> None:
        if sys.platform == "win32":
            raise CustomSpaceError("shared_memory requires Unix; use shared_memory=False")
        file = _nameless_file() if file is None else file
        self._count, self._file = count, file
        self._chats = [Chat()] * count
        self._numbers = [0] * count
        weakref.finalize(self, os.close, file)

    def __reduce__(self) -> tuple[Any, ...]:
        # Spawned processes need a duplicate; forked processes inherit the open file.
        return _attach, (self._count, reduction.DupFd(self._file))

    def write(self, index: int, chat: Chat) -> None:
        """Write an env's chat; raise ValueError if it exceeds 4 GiB."""
        start, last, number = index * _PART, self._chats[index], self._numbers[index]
        (seen,) = _SEEN.unpack(os.pread(self._file, _SEEN.size, start + _HEAD.size) or bytes(8))
        base = number if seen == number else 0
        kept = chat.shared_prefix(last) if base else 0
        tools = None if base and chat.tools == last.tools else chat.tools
        record = base, kept, chat.messages[kept:], tools, chat.agent
        data = pickle.dumps(record, pickle.HIGHEST_PROTOCOL)
        if len(data) > _SLOT - _PAGE:
            raise ValueError(
                f"a chat of {len(data):,} bytes does not fit into shared memory; use "
                "shared_memory=False"
            )
        _write(self._file, data, _slot(start, number + 1))
        # The header is written last, so that readers never find an incomplete record.
        _write(self._file, _HEAD.pack(number + 1, len(data)), start)
        self._chats[index], self._numbers[index] = chat, number + 1

    @overload
    def __getitem__(self, index: int) -> Chat: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Chat, ...]: ...
    def __getitem__(self, index: int | slice) -> Chat | tuple[Chat, ...]:
        places = range(self._count)[index]
        return self._read(places) if isinstance(places, int) else tuple(map(self._read, places))

    def _read(self, index: int) -> Chat:
        start = index * _PART
        head = os.pread(self._file, _HEAD.size, start)
        number, length = _HEAD.unpack(head) if head else (0, 0)
        if number != self._numbers[index]:
            data = os.pread(self._file, length, _slot(start, number))
            base, kept, new, tools, agent = pickle.loads(data)
            last = self._chats[index]
            messages = last.messages if base else ()
            # A slice copies the messages, so avoid it if all messages are shared.
            shared = messages if kept == len(messages) else messages[:kept]
            tools = last.tools if tools is None else tools
            self._chats[index] = Chat(shared, tools, agent).extend(new)
            self._numbers[index] = number
            _write(self._file, _SEEN.pack(number), start + _HEAD.size)
        return self._chats[index]

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (SharedChats, tuple, list)):
            return NotImplemented
        return tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __copy__(self) -> tuple[Chat, ...]:
        return tuple(self)

    def __deepcopy__(self, memo: object) -> tuple[Chat, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"SharedChats({list(self)!r})"


class BatchedChatSpace(Tuple):  # type: ignore[type-arg]  # it is generic in new releases only
    """Chat space of a vector env."""

    def contains(self, x: Any) -> bool:
        return super().contains(tuple(x) if isinstance(x, SharedChats) else x)


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("agentgym-chats")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _attach(count: int, duplicate: Any) -> SharedChats:
    return SharedChats(count, duplicate.detach())


def _slot(start: int, number: int) -> int:
    return start + _PAGE + number % _SLOTS * _SLOT


def _write(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:  # one write is limited to 2 GiB
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written


@batch_space.register(ChatSpace)
def _batch_chat_space(space: ChatSpace, n: int = 1) -> BatchedChatSpace:
    batched: Any = batch_space.dispatch(Space)(space, n)
    return BatchedChatSpace(batched.spaces)


@create_shared_memory.register(ChatSpace)
def _create_shared_chats(
    space: ChatSpace, n: int = 1, ctx: ModuleType | None = None
) -> SharedChats:
    return SharedChats(n)


@read_from_shared_memory.register(ChatSpace)
def _read_shared_chats(space: ChatSpace, shared_memory: SharedChats, n: int = 1) -> SharedChats:
    return shared_memory


@write_to_shared_memory.register(ChatSpace)
def _write_shared_chats(
    space: ChatSpace, index: int, value: Chat, shared_memory: SharedChats
) -> None:
    shared_memory.write(index, value)
