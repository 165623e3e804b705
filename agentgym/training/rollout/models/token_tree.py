"""Key-value states of token sequences, stored as a tree."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from agentgym.training.rollout.models.prefixes import (
    attention_mask,
    common_length,
    differ,
    logits_at,
    sampling_mode,
    shared_groups,
)

# Minimum number of new tokens in a shared prefix that justifies a separate forward pass.
_SHORTEST = 16


class TokenTree:
    """Tree that stores the key-value states of each distinct prefix once, up to a limit in bytes.

    A node represents a token after a specific prefix. Each layer has a key tensor and a value
    tensor of shape (nodes, heads, width).
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.clear()

    def clear(self) -> None:
        """Drop all nodes."""
        self._nodes: dict[tuple[int, int], int] = {}
        self._last_use: dict[int, tuple[int, int]] = {}
        self._time = 0
        self.computed: set[int] = set()
        self.states: dict[tuple[int, int], torch.Tensor] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def path(self, ids: Sequence[int]) -> list[int]:
        """Return a sequence's nodes, adding missing nodes."""
        self._time += 1
        node, nodes = -1, []
        for depth, token in enumerate(ids):
            node = self.child(node, token)
            nodes.append(node)
            self._last_use[node] = -self._time, depth
        return nodes

    def count_missing(self, ids: Sequence[int]) -> int:
        """Count a sequence's nodes that have no states."""
        return len(set(self.path(ids)) - self.computed)

    def child(self, node: int, token: int) -> int:
        """Return the child of a node for a token."""
        child = self._nodes.setdefault((node, token), len(self._nodes))
        if child not in self._last_use:
            time, depth = self._last_use.get(node, (-self._time, -1))
            self._last_use[child] = time, depth + 1
        return child

    def exchange(
        self, place: tuple[int, int], new: torch.Tensor, numbers: torch.Tensor, read: torch.Tensor
    ) -> torch.Tensor:
        """Store the states of new nodes; return the states of `read`, of shape (batch, nodes)."""
        states = self.states.get(place)
        if states is None or len(states) < len(self):
            size = max(len(self), 0 if states is None else len(states) * 3 // 2)
            grown = new.new_zeros(size, *new.shape[1:])
            if states is not None:
                grown[: len(states)] = states
            states = self.states[place] = grown
        states[numbers] = new
        return states[read].transpose(1, 2)

    def shrink(self) -> None:
        """Drop the least recently used nodes until the limit is met."""
        parts = self.states.values()
        if sum(part.nbytes for part in parts) <= self.limit:
            return
        size = sum(part[0].nbytes for part in parts)
        # Parents sort before their children: they are used at least as recently and are shallower.
        kept = sorted(self.computed, key=self._last_use.__getitem__)[: self.limit // size]
        new = {node: number for number, node in enumerate(kept)}
        self._nodes = {
            (new.get(parent, -1), token): new[node]
            for (parent, token), node in self._nodes.items()
            if node in new
        }
        self._last_use = {number: self._last_use[node] for node, number in new.items()}
        self.computed = set(new.values())
        self.states = {place: states[kept] for place, states in self.states.items()}


class _PassCache(DynamicCache):
    """Key-value cache for one forward pass, backed by a `TokenTree`.

    Args:
        real: Mask of the tokens that are not padding, of shape (batch, tokens).
        numbers: The node number of each token that is not padding.
        read: The nodes to which the batch attends, as indices of shape (batch, nodes).
    """

    def __init__(
        self, tree: TokenTree, real: torch.Tensor, numbers: torch.Tensor, read: torch.Tensor
    ) -> None:
        super().__init__()
        self._tree, self._real, self._numbers, self._read = tree, real, numbers, read

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = (
            self._tree.exchange(
                (layer_idx, side), states.transpose(1, 2)[self._real], self._numbers, self._read
            )
            for side, states in enumerate((key_states, value_states))
        )
        return keys, values


@dataclass
class _Query:
    """Nodes that a forward pass computes for one group of rows.

    Attributes:
        depths: The new nodes' positions.
        mask: Boolean mask of shape (new, nodes) for the nodes to which each new node attends.
        ends: The index in `new` of each row's last node.
    """

    new: np.ndarray
    ids: np.ndarray
    depths: np.ndarray
    nodes: np.ndarray
    mask: np.ndarray
    rows: Sequence[int]
    ends: np.ndarray


class _Group:
    """Rows that share prefixes; `member`, of shape (rows, nodes), marks each row's nodes."""

    def __init__(
        self, tree: TokenTree, rows: Sequence[int], prompts: Sequence[tuple[int, ...]]
    ) -> None:
        self.tree, self.rows = tree, list(rows)
        self._prompts = [prompts[row] for row in rows]
        self._paths = [tree.path(prompt) for prompt in self._prompts]
        self.ends = np.array([path[-1] for path in self._paths])
        self.lengths = np.array([len(path) for path in self._paths])
        self.nodes = np.array(list(dict.fromkeys(chain.from_iterable(self._paths))))
        place = np.zeros(len(tree), dtype=int)
        place[self.nodes] = np.arange(len(self.nodes))
        self._places = [place[path] for path in self._paths]
        self.member = np.zeros((len(rows), len(self.nodes)), dtype=bool)
        for row, places in enumerate(self._places):
            self.member[row, places] = True

    def begin(self) -> _Query:
        """Return a query that computes each prompt's last node and all nodes without states."""
        ends = set(self.ends.tolist())
        missing = [
            number in ends or number not in self.tree.computed for number in self.nodes.tolist()
        ]
        new = np.flatnonzero(missing)
        mask = np.zeros((len(new), len(self.nodes)), dtype=bool)
        ids, depths = np.zeros(len(new), dtype=int), np.zeros(len(new), dtype=int)
        index = np.full(len(self.nodes), -1)
        index[new] = np.arange(len(new))
        for prompt, places in zip(self._prompts, self._places, strict=True):
            at = np.flatnonzero(index[places] >= 0)
            which = index[places[at]]
            ids[which], depths[which] = np.asarray(prompt)[at], at
            mask[np.ix_(which, places)] = at[:, None] >= np.arange(len(places))
        last = np.array([index[places[-1]] for places in self._places])
        return _Query(self.nodes[new], ids, depths, self.nodes, mask, self.rows, last)

    def step(self, tokens: dict[int, int]) -> _Query:
        going = [k for k, row in enumerate(self.rows) if row in tokens]
        self.rows = [self.rows[k] for k in going]
        self.ends, self.lengths, self.member = (
            self.ends[going],
            self.lengths[going],
            self.member[going],
        )
        ids = np.array([tokens[row] for row in self.rows])
        pairs = zip(self.ends.tolist(), ids.tolist(), strict=True)
        self.ends = np.array([self.tree.child(end, token) for end, token in pairs])
        # Rows whose tokens are equal so far also share the next node.
        new, first, number = np.unique(self.ends, return_index=True, return_inverse=True)
        before = len(self.nodes)
        self.nodes = np.concatenate([self.nodes, new])
        self.member = np.pad(self.member, ((0, 0), (0, len(new))))
        self.member[np.arange(len(going)), before + number] = True
        depths = self.lengths[first]
        self.lengths = self.lengths + 1
        return _Query(new, ids[first], depths, self.nodes, self.member[first], self.rows, number)


class SharedRows:
    """Rows of a sampling batch, with each distinct token computed once."""

    def __init__(self, model: Any, tree: TokenTree, prompts: Sequence[tuple[int, ...]]) -> None:
        self.model, self.tree, self.prefilled = model, tree, 0
        groups = list(shared_groups(prompts, len(prompts)))
        # Groups are processed separately, but may share prefixes.
        pairs = [(prompts[one[-1]], prompts[other[0]]) for one, other in pairwise(groups)]
        heads = {one[: common_length(np.asarray(one), np.asarray(two))] for one, two in pairs}
        if worth := sorted(head for head in heads if tree.count_missing(head) >= _SHORTEST):
            first = SharedRows(model, tree, worth)
            first.begin()
            self.prefilled = first.prefilled
        self._groups = [_Group(tree, group, prompts) for group in groups]

    def begin(self) -> torch.Tensor:
        """Return the logits after each prompt, of shape (rows, vocabulary)."""
        queries = [group.begin() for group in self._groups]
        self.prefilled += sum(len(query.new) for query in queries)
        return self._run(queries)

    def step(self, tokens: dict[int, int]) -> torch.Tensor:
        """Process the next token of some rows; return the logits after each token."""
        self._groups = [group for group in self._groups if not tokens.keys().isdisjoint(group.rows)]
        return self._run([group.step(tokens) for group in self._groups])

    def _run(self, queries: Sequence[_Query]) -> torch.Tensor:
        logits = torch.cat([self._forward(batch) for batch in _batches(queries)])
        order = np.argsort([row for batch in _batches(queries) for q in batch for row in q.rows])
        return logits[torch.from_numpy(order).to(logits.device)].float()

    def _forward(self, queries: Sequence[_Query]) -> torch.Tensor:
        width = max(len(query.new) for query in queries)
        depth = max(len(query.nodes) for query in queries)
        ids, depths = np.zeros((2, len(queries), width), dtype=int)
        real = np.zeros((len(queries), width), dtype=bool)
        read = np.zeros((len(queries), depth), dtype=int)
        mask = np.zeros((len(queries), 1, width, depth), dtype=bool)
        mask[..., 0] = True  # a padding row must attend to at least one node
        for k, query in enumerate(queries):
            count, nodes = query.mask.shape
            real[k, :count], ids[k, :count], depths[k, :count] = True, query.ids, query.depths
            read[k, :nodes], read[k, nodes:] = query.nodes, query.nodes[0]
            mask[k, 0, :count, :nodes] = query.mask
        new = np.concatenate([query.new for query in queries])
        ends = np.concatenate([k * width + query.ends for k, query in enumerate(queries)])

        def tensor(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(array).to(self.model.device)

        logits, _ = logits_at(
            self.model,
            tensor(ends),
            input_ids=tensor(ids),
            position_ids=tensor(depths),
            attention_mask=attention_mask(tensor(mask), self.model),
            past_key_values=_PassCache(self.tree, tensor(real), tensor(new), tensor(read)),
            use_cache=True,
        )
        self.tree.computed.update(new.tolist())
        return logits


def _batches(queries: Sequence[_Query]) -> Iterator[list[_Query]]:
    """Yield batches with at most one third padding."""
    batch: list[_Query] = []
    tokens = 0
    for query in sorted(queries, key=lambda query: len(query.new)):
        width = len(query.new)
        if 2 * (len(batch) + 1) * width > 3 * (tokens + width):
            yield batch
            batch, tokens = [], 0
        batch.append(query)
        tokens += width
    yield batch


class WholeRows:
    """Rows of a sampling batch with left padding, for models that cannot share prefixes."""

    def __init__(self, model: Any, pad: int, prompts: Sequence[tuple[int, ...]]) -> None:
        self.model, self.prefilled = model, sum(map(len, prompts))
        rows = [torch.tensor(prompt[::-1], device=model.device) for prompt in prompts]
        masks = [torch.ones_like(row) for row in rows]
        self._ids = pad_sequence(rows, batch_first=True, padding_value=pad).flip(1)
        self._mask = pad_sequence(masks, batch_first=True).flip(1)
        self._rows = list(range(len(prompts)))
        self._past: Any = None

    def begin(self) -> torch.Tensor:
        """Return the logits after each prompt, of shape (rows, vocabulary)."""
        return self._run(self._ids, (self._mask.cumsum(1) - 1).clamp(min=0))

    def step(self, tokens: dict[int, int]) -> torch.Tensor:
        """Process the next token of some rows; return the logits after each token."""
        going = [k for k, row in enumerate(self._rows) if row in tokens]
        if len(going) < len(self._rows):
            self._past.batch_select_indices(torch.tensor(going, device=self._mask.device))
            self._rows = [self._rows[k] for k in going]
        self._mask = torch.nn.functional.pad(self._mask[going], (0, 1), value=1)
        ids = torch.tensor([[tokens[row]] for row in self._rows], device=self._mask.device)
        return self._run(ids, self._mask.sum(1, keepdim=True) - 1)

    def _run(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        rows, width = ids.shape
        logits, out = logits_at(
            self.model,
            torch.arange(1, rows + 1, device=ids.device) * width - 1,
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._past,
            use_cache=True,
        )
        self._past = out.past_key_values
        return logits.float()


class RecomputedRows:
    """Rows of a sampling batch without cached states; each step computes the rows from the start."""

    def __init__(self, model: Any, pad: int, prompts: Sequence[tuple[int, ...]]) -> None:
        self.model, self.pad, self.prefilled = model, pad, sum(map(len, prompts))
        self._rows = {row: list(prompt) for row, prompt in enumerate(prompts)}

    def begin(self) -> torch.Tensor:
        """Return the logits after each row, of shape (rows, vocabulary)."""
        rows = [torch.tensor(ids, device=self.model.device) for ids in self._rows.values()]
        ids = pad_sequence(rows, batch_first=True, padding_value=self.pad)
        lengths = torch.tensor([len(row) for row in rows], device=ids.device)
        columns = torch.arange(ids.shape[1], device=ids.device)
        starts = torch.arange(len(rows), device=ids.device) * len(columns)
        mask = (columns < lengths[:, None]).long()
        logits, _ = logits_at(
            self.model, starts + lengths - 1, input_ids=ids, attention_mask=mask, use_cache=False
        )
        return logits.float()

    def step(self, tokens: dict[int, int]) -> torch.Tensor:
        """Add the next token of some rows; return the logits after each token."""
        going = [row for row in self._rows if row in tokens]
        self._rows = {row: [*self._rows[row], tokens[row]] for row in going}
        return self.begin()


Rows = SharedRows | WholeRows | RecomputedRows
# Models whose batches `WholeRows` computes correctly, or not.
_CONTINUABLE: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def unshared_rows(model: Any, pad: int, prompts: Sequence[tuple[int, ...]]) -> Rows:
    """Return a batch for a model that cannot share prefixes."""
    if model not in _CONTINUABLE:
        _CONTINUABLE[model] = _is_continuable(model)
        if not _CONTINUABLE[model]:
            warnings.warn(
                "sampling recomputes the whole row for each token, because the model cannot "
                "continue padded rows from its cache",
                stacklevel=2,
            )
    return (WholeRows if _CONTINUABLE[model] else RecomputedRows)(model, pad, prompts)


@torch.no_grad()
def _is_continuable(model: Any) -> bool:
    results = []
    faults = AttributeError, LookupError, RuntimeError, TypeError, ValueError
    with suppress(*faults), sampling_mode(model):
        for kind in (RecomputedRows, WholeRows):
            rows = kind(model, 0, [(1, 2, 3, 4, 5), (2, 1), (3,)])
            steps = [rows.begin(), rows.step({0: 3, 1: 4, 2: 5}), rows.step({1: 5, 2: 1})]
            results.append(torch.cat(steps))
    return len(results) == 2 and not differ(*results)
