"""Token ids of successive prompts, which share memory."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

# A lock for growing buffers, because several threads may extend versions of one prompt.
_GROWING = threading.Lock()


class TokenIds(Sequence[int]):
    """An immutable sequence of token ids whose versions share one buffer."""

    __slots__ = ("_buffer", "_length")

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._buffer = _to_array(ids)
        self._length = len(self._buffer)

    @classmethod
    def _version(cls, buffer: array[int], length: int) -> TokenIds:
        version = cls.__new__(cls)
        version._buffer, version._length = buffer, length
        return version

    def add(self, ids: Iterable[int]) -> TokenIds:
        """Return these ids followed by `ids`; copy the buffer only if it has other ids next."""
        new = _to_array(ids)
        with _GROWING:
            buffer = self._buffer
            follows = buffer[self._length : self._length + len(new)]
            if follows != new[: len(follows)]:
                buffer = buffer[: self._length]
                follows = new[:0]
            buffer.extend(new[len(follows) :])
        return self._version(buffer, self._length + len(new))

    def first(self, count: int) -> TokenIds:
        """Return the first ids, in O(1)."""
        return self._version(self._buffer, min(max(count, 0), self._length))

    def shared_prefix(self, other: Sequence[int], start: int = 0) -> int:
        """Count the common leading ids from `start`; O(1) for two versions of one buffer."""
        size = min(self._length - start, len(other))
        if isinstance(other, TokenIds) and other._buffer is self._buffer and not start:
            return size
        mine = np.asarray(self._buffer[start : start + size])
        theirs = np.asarray(_to_array(other[:size]))
        differing = mine != theirs
        return int(differing.argmax()) if differing.any() else size

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step == 1:
                return tuple(self._buffer[start:stop])
            return tuple(map(self._buffer.__getitem__, range(start, stop, step)))
        place = index + self._length if index < 0 else index
        if not 0 <= place < self._length:
            raise IndexError(f"the sequence has {self._length} ids, got index {index}")
        return self._buffer[place]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return iter(self._buffer[: self._length])

    __add__ = add

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (TokenIds, tuple, list)):
            return NotImplemented
        return self._length == len(other) == self.shared_prefix(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"TokenIds({list(self)!r})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._buffer[: self._length], dtype=dtype)

    def __reduce__(self) -> tuple[type[TokenIds], tuple[array[int]]]:
        return TokenIds, (self._buffer[: self._length],)


def _to_array(ids: Iterable[int]) -> array[int]:
    return array("q", ids)
