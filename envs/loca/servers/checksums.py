"""The checksum CRC32C (Castagnoli), which Cloud Storage shows of each object."""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78
_CHUNK = 2**20
_SHORT = 64


def crc32c(data: bytes) -> int:
    """The CRC32C of bytes.

    Long data is folded: the remainders of all bytes are found at once, then those of neighbours are joined, level by level. To
    join two pieces is to push the remainder of the left one through as many zero bytes as the right one is long, and to add.
    """
    state = 0xFFFFFFFF
    for start in range(0, len(data), _CHUNK):
        state = _advance(state, data[start : start + _CHUNK])
    return state ^ 0xFFFFFFFF


def _advance(state: int, chunk: bytes) -> int:
    table = _pushes(0)[0]
    if len(chunk) < _SHORT:
        for byte in chunk:
            state = int(table[(state ^ byte) & 255]) ^ (state >> 8)
        return state
    levels = (len(chunk) - 1).bit_length()
    # Zero bytes in front leave the remainder zero, so they may fill up the length to a power of two.
    padded = np.zeros(2**levels, dtype=np.uint8)
    padded[-len(chunk) :] = np.frombuffer(chunk, dtype=np.uint8)
    first = len(padded) - len(chunk)
    padded[first : first + 4] ^= np.frombuffer(state.to_bytes(4, "little"), dtype=np.uint8)
    words: Words = table[padded]
    for level in range(levels):
        words = _push(words[0::2], _pushes(level)) ^ words[1::2]
    return int(words[0])


def _push(words: Words, tables: Words) -> Words:
    """Push remainders through zero bytes."""
    parts: list[Any] = [tables[k][(words >> np.uint32(8 * k)) & np.uint32(255)] for k in range(4)]
    pushed: Words = parts[0] ^ parts[1] ^ parts[2] ^ parts[3]
    return pushed


@functools.cache
def _pushes(level: int) -> Words:
    """What 2**level zero bytes make of each byte at each of the four places of a remainder; shape (4, 256)."""
    if level:
        return _push(_pushes(level - 1), _pushes(level - 1))
    words = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        words = np.where(words & 1, (words >> 1) ^ np.uint32(_POLYNOMIAL), words >> 1).astype(np.uint32)
    higher = [np.arange(256, dtype=np.uint32) << np.uint32(8 * k - 8) for k in (1, 2, 3)]
    return np.stack([words, *higher])
