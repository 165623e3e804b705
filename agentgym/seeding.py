"""Generators of NumPy, seeded in plain Python: number for number those of `np.random.default_rng`.

A reset seeds two of them, the env's and the instance's. NumPy mixes the few words of a seed in
arrays, through much native code that nothing else in a reset has just run, which made up a third of
the cost of a reset of ListWorld; this takes half of that off. The algorithm is NumPy's
(`numpy.random.SeedSequence`, after M. E. O'Neill's `seed_seq_fe128`), and it promises not to change
what seed sequences and bit generators give (NEP 19).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from numpy.random import PCG64, Generator, SeedSequence
from numpy.random.bit_generator import ISpawnableSeedSequence

_WORD = 0xFFFFFFFF
_POOL = 4
"""Words of 32 bits into which NumPy mixes a seed."""
_LIMIT = 2 ** (32 * _POOL)
"""Seeds from this on have more words than that, and are left to NumPy."""


def _hashes(start: int, factor: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield the pair of constants of each hash in turn."""
    for _ in range(count):
        following = start * factor & _WORD
        yield start, following
        start = following


# NumPy's constants: for hashing the words of a seed, for mixing two hashes, for hashing the output.
_SEED_HASHES = tuple(_hashes(0x43B0D7E5, 0x931E8875, _POOL + _POOL * (_POOL - 1)))
_MIX_TARGET, _MIX_SOURCE = 0xCA01F9DD, 0x4973F715
_OUTPUT_HASHES = tuple(_hashes(0x8B51F9DD, 0x58F38DED, 2 * _POOL))
_MIXES = tuple(
    (source, target, *constants)
    for (source, target), constants in zip(
        permutations(range(_POOL), 2), _SEED_HASHES[_POOL:], strict=True
    )
)


class IntegerSeed(ISpawnableSeedSequence):
    """Seed sequence of an integer below 2**128: that of `SeedSequence(entropy)`.

    Args:
        entropy: The integer.
    """

    def __init__(self, entropy: int) -> None:
        self.entropy = entropy
        self._parent: SeedSequence | None = None

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        """Return the words that a bit generator is seeded with."""
        if n_words != _POOL or dtype is not np.uint64:  # PCG64 asks for these
            return SeedSequence(self.entropy).generate_state(n_words, dtype)
        words = []
        for mixed, (start, factor) in zip(2 * _mix(self.entropy), _OUTPUT_HASHES, strict=True):
            word = (mixed ^ start) * factor & _WORD
            words.append(word ^ word >> 16)
        return np.array([words[k] | words[k + 1] << 32 for k in (0, 2, 4, 6)], np.uint64)

    def spawn(self, n_children: int) -> list[Any]:
        """Return the seed sequences of independent generators, others at each call."""
        self._parent = self._parent or SeedSequence(self.entropy)
        return self._parent.spawn(n_children)


def _mix(entropy: int) -> list[int]:
    """Return words that all depend on each word of a seed."""
    pool = []
    for start, factor in _SEED_HASHES[:_POOL]:
        word = ((entropy & _WORD) ^ start) * factor & _WORD
        pool.append(word ^ word >> 16)
        entropy >>= 32
    for source, target, start, factor in _MIXES:
        word = (pool[source] ^ start) * factor & _WORD
        word = _MIX_TARGET * pool[target] - _MIX_SOURCE * (word ^ word >> 16) & _WORD
        pool[target] = word ^ word >> 16
    return pool


def make_generator(seed: Any) -> Generator:
    """Return the generator that `np.random.default_rng` returns for a seed."""
    if isinstance(seed, int) and 0 <= seed < _LIMIT:
        return Generator(PCG64(IntegerSeed(seed)))  # type: ignore[arg-type]  # stubs of NumPy
    return np.random.default_rng(seed)


def seed_env(seed: Any) -> tuple[Generator, int]:
    """Return the generator and the seed that `gymnasium.utils.seeding.np_random` returns.

    Raises:
        gymnasium.error.Error: The seed is no integer, or negative.
    """
    if isinstance(seed, int) and seed >= 0:
        return make_generator(seed), seed
    return seeding.np_random(seed)


def draw_seed(rng: Generator) -> int:
    """Return `int(rng.integers(2**63))`: of PCG64, the upper 63 bits of the next 64."""
    bits = rng.bit_generator
    if isinstance(bits, PCG64):
        return bits.random_raw() >> 1
    return int(rng.integers(2**63))
