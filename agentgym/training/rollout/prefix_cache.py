"""Key-value states of token sequences that a model has computed, for prompts that begin like them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

States = Sequence[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer, of shape (heads, tokens, width)."""
_SHORTEST = 16
"""Tokens that prompts must have in common to be worth a pass of their own."""


@dataclass(eq=False, slots=True)
class Prefix:
    """States of a token sequence.

    Attributes:
        ids: The sequence.
        states: Its keys and values.
        shared: It is the common beginning of several prompts, and others may begin so too.
        size: Bytes of the states.
    """

    ids: np.ndarray
    states: States
    shared: bool
    size: int


class PrefixCache:
    """Sequences with their states; those that were not used for the longest time are dropped.

    Args:
        limit: The most bytes of states; 0 keeps none.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._prefixes: OrderedDict[int, Prefix] = OrderedDict()
        self._bytes = 0

    def match(self, ids: Sequence[int]) -> tuple[Prefix | None, int]:
        """Return the sequence that a prompt has most in common with, and how many tokens; the last
        token of the prompt is not counted, since the model has to be run on something.
        """
        prompt = np.asarray(ids[:-1])
        best, length = None, 0
        for prefix in self._prefixes.values():
            if (common := common_length(prefix.ids, prompt)) > length:
                best, length = prefix, common
        if best is not None:
            self._prefixes.move_to_end(id(best))
        return best, length

    def add(self, ids: Sequence[int], states: States, *, shared: bool = False) -> None:
        """Keep a sequence."""
        size = sum(part.numel() * part.element_size() for pair in states for part in pair)
        prefix = Prefix(np.asarray(ids), states, shared, size)
        self._prefixes[id(prefix)] = prefix
        self._bytes += size
        while self._bytes > self.limit:
            self._bytes -= self._prefixes.popitem(last=False)[1].size

    def discard(self, prefixes: Iterable[Prefix | None]) -> None:
        """Drop sequences of episodes, which have been continued."""
        for prefix in prefixes:
            if prefix is not None and not prefix.shared and id(prefix) in self._prefixes:
                self._bytes -= self._prefixes.pop(id(prefix)).size

    def clear(self) -> None:
        """Drop all sequences."""
        self._prefixes.clear()
        self._bytes = 0


def common_length(first: np.ndarray, second: np.ndarray) -> int:
    """Return the number of tokens with which two sequences begin alike."""
    size = min(len(first), len(second))
    differing = first[:size] != second[:size]
    return int(differing.argmax()) if differing.any() else size


def shared_runs(
    prompts: Sequence[tuple[int, ...]], known: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Yield common beginnings of several prompts that are worth computing once.

    Args:
        prompts: The prompts.
        known: The tokens of each whose states are at hand.
    """
    new = sorted(
        (prompt, length)
        for prompt, length in zip(prompts, known, strict=True)
        if len(prompt) - length > _SHORTEST
    )
    common, count = np.empty(0, dtype=int), 0
    deepest = 0
    for prompt, length in new:
        ids = np.asarray(prompt[:-1])
        shared = common_length(common, ids)
        # A run ends where it would lose more than half of what its prompts have in common.
        if count and shared - max(deepest, length) >= _SHORTEST and 2 * shared >= len(common):
            common, count, deepest = common[:shared], count + 1, max(deepest, length)
            continue
        if count > 1:
            yield tuple(common.tolist())
        common, count, deepest = ids, 1, length
    if count > 1:
        yield tuple(common.tolist())
