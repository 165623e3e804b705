"""The checksum CRC32C (Castagnoli), which Cloud Storage shows of each object."""

from __future__ import annotations

import functools
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78
"""The polynomial of Castagnoli with its bits reversed (RFC 3720, section 12.1)."""
_CHUNK = 2**20
"""Bytes at a time: it bounds the memory of the tables of words."""
_SHORT = 64
"""Below this many bytes a loop is faster than the arrays."""
_PLACES = np.arange(4)


def crc32c(data: bytes) -> int:
    """Return the CRC32C of bytes.

    Long data is folded: the remainders of all words of four bytes are found at once, then those of
    neighbours are joined, level by level. To join two pieces is to push the remainder of the left
    one through as many zero bytes as the right one is long, and to add.
    """
    state = 0xFFFFFFFF
    for start in range(0, len(data), _CHUNK):
        state = _advance(state, data[start : start + _CHUNK])
    return state ^ 0xFFFFFFFF


def _advance(state: int, chunk: bytes) -> int:
    if len(chunk) < _SHORT:
        table = _bytes()
        for byte in chunk:
            state = table[(state ^ byte) & 255] ^ (state >> 8)
        return state
    levels = (len(chunk) - 1).bit_length()
    # Zero bytes in front leave the remainder zero, so they may fill up the length to a power of
    # two.
    padded = np.zeros(2**levels, dtype=np.uint8)
    first = len(padded) - len(chunk)
    padded[first:] = np.frombuffer(chunk, dtype=np.uint8)
    padded[first : first + 4] ^= np.frombuffer(state.to_bytes(4, "little"), dtype=np.uint8)
    words = _push(padded.view("<u4"), _pushes(2))
    for level in range(2, levels):
        words = _push(words[0::2], _pushes(level)) ^ words[1::2]
    return int(words[0])


def _push(words: Words, tables: Words) -> Words:
    """Push remainders through zero bytes."""
    places = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 4)
    pushed: Words = np.bitwise_xor.reduce(tables[_PLACES, places], axis=1)
    return pushed


@functools.cache
def _bytes() -> list[int]:
    """The remainder of each byte."""
    table = list(range(256))
    for _ in range(8):
        table = [(rest >> 1) ^ (_POLYNOMIAL if rest & 1 else 0) for rest in table]
    return table


@functools.cache
def _pushes(level: int) -> Words:
    """Return the remainders of each byte at each of the four places, after 2**level zero bytes;
    shape (4, 256).
    """
    if level:
        below = _pushes(level - 1)
        return _push(below.reshape(-1), below).reshape(4, 256)
    higher = [np.arange(256, dtype="<u4") << np.uint32(8 * place) for place in range(3)]
    return np.stack([np.array(_bytes(), dtype="<u4"), *higher]).astype("<u4")
