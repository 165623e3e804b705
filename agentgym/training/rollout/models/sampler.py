"""Sampler over a transformers model, with a key-value cache that persists between turns."""

from __future__ import annotations

import inspect
import os
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from agentgym.text.validation import check_int
from agentgym.training.rollout.models.sampling import Sample, SamplingOptions

# Keys and values of each layer, of shape (heads, tokens, width).
States = Sequence[tuple[torch.Tensor, torch.Tensor]]
# Minimum shared prefix in tokens that is worth a separate forward pass.
_SHORTEST = 16
# Prompts per forward pass: more hardly raise CPU throughput, and key-value states take memory.
BATCH = 32


class TransformersSampler:
    """Sampler over a causal language model of transformers in this process.

    Only the part of a prompt that differs from earlier prompts is computed; with sliding windows or
    recurrent states, the whole prompt is. Sampling uses evaluation mode and restores the model's
    mode. The global random generators are not touched.

    Args:
        model: The model, on the device where it runs.
        batch_size: Maximum number of prompts per forward pass.
        cache_bytes: Memory for states of earlier prompts; 0 disables the cache; None uses a quarter
            of the device's free memory, on a CPU at least 1 GiB.

    Attributes:
        prefilled: Prompt tokens processed so far.
        context: Maximum tokens of prompt plus reply.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        pad: int = 0,
        seed: int = 0,
        batch_size: int = BATCH,
        cache_bytes: int | None = None,
    ) -> None:
        check_int("batch_size", batch_size, 1, 1_000_000)
        self.model, self.pad, self.batch_size = model, pad, batch_size
        self.context: int = getattr(model.config, "max_position_embeddings", None) or sys.maxsize
        self.prefilled = 0
        self._generator = torch.Generator(device=model.device).manual_seed(seed)
        self._cache = PrefixCache(_cache_bytes(model) if cache_bytes is None else cache_bytes)
        if not keeps_all_positions(model):
            self._cache = PrefixCache(0)
        self._short_logits = takes_logits_to_keep(model)
        self._weights: tuple[object, ...] = ()
        self._version = 0
        self._past: Any = None
        self._mask = torch.empty(0)

    def seed(self, seed: int) -> None:
        """Seed the sampling."""
        self._generator.manual_seed(seed)

    def update(self, model: PreTrainedModel, tokenizer: Any = None) -> None:
        """Copy the weights of another model of the same kind."""
        if model is not self.model:
            self.model.load_state_dict(model.state_dict())

    @property
    def version(self) -> int:
        """Version of the weights, which increases when they change."""
        weights = _fingerprint(self.model)
        if weights != self._weights:
            self._weights = weights
            self._version += 1
            self._cache.clear()
        return self._version

    @torch.inference_mode()
    def sample(self, prompts: Sequence[tuple[int, ...]], options: SamplingOptions) -> list[Sample]:
        """Return a sample for each prompt, in order; prompts must be shorter than the context."""
        version = self.version
        samples: list[Sample] = []
        with sampling_mode(self.model):
            for start in range(0, len(prompts), self.batch_size):
                pairs = self._sample(prompts[start : start + self.batch_size], options)
                samples += [Sample(*pair, version) for pair in pairs]
        return samples

    def _sample(
        self, prompts: Sequence[tuple[int, ...]], options: SamplingOptions
    ) -> Iterator[tuple[tuple[int, ...], tuple[float, ...]]]:
        if self._cache.limit:
            for common in shared_runs(prompts, [self._cache.match(p)[1] for p in prompts]):
                self._prefill([common], [self._cache.match(common)])
                self._cache.add(common, self._states(0, len(common)), shared=True)
        matches = [self._cache.match(prompt) for prompt in prompts]
        logits = self._prefill(prompts, matches)
        rows = self._decode(logits, torch.tensor([len(p) for p in prompts]), options)
        if self._cache.limit:
            self._cache.discard([prefix for prefix, _ in matches])
            for k, (prompt, (ids, _)) in enumerate(zip(prompts, rows, strict=True)):
                sequence = prompt + ids[:-1]  # the model has not processed the last token
                self._cache.add(sequence, self._states(k, len(sequence)))
        self._past = None
        yield from rows

    def _prefill(
        self, prompts: Sequence[tuple[int, ...]], matches: Sequence[tuple[Prefix | None, int]]
    ) -> torch.Tensor:
        """Process the new part of each prompt and return the logits after its last token."""
        # Cached states and new tokens are left-padded, so all rows end together.
        device = self.model.device
        known = [length for _, length in matches]
        new = [prompt[length:] for prompt, length in zip(prompts, known, strict=True)]
        width, depth = max(map(len, new)), max(known)
        self.prefilled += sum(map(len, new))
        ids = torch.tensor([[self.pad] * (width - len(n)) + list(n) for n in new], device=device)
        self._mask = torch.tensor(
            [
                [0] * (depth - k) + [1] * k + [0] * (width - len(n)) + [1] * len(n)
                for k, n in zip(known, new, strict=True)
            ],
            device=device,
        )
        positions = (self._mask.cumsum(1) - 1).clamp(min=0)[:, depth:]
        self._past = _join_states(matches, depth) if depth else None
        return self._forward(ids, positions)

    def _forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        out: Any = self.model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._past,
            use_cache=True,
            **({"logits_to_keep": 1} if self._short_logits else {}),
        )
        self._past = out.past_key_values
        logits: torch.Tensor = out.logits[:, -1].float()
        return logits

    def _decode(
        self, logits: torch.Tensor, lengths: torch.Tensor, options: SamplingOptions
    ) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
        device, context = logits.device, self.context
        stops = torch.tensor(sorted(options.stops), device=device)
        last = lengths.to(device)  # the position of the next token
        going = torch.ones(len(logits), dtype=torch.bool, device=device)
        tokens: list[torch.Tensor] = []
        scores: list[torch.Tensor] = []
        alive: list[torch.Tensor] = []
        while True:
            token, score = self._draw(logits, options.temperature)
            tokens.append(token)
            scores.append(score)
            alive.append(going)
            going = going & ~torch.isin(token, stops) & (last < context - 1)
            if len(tokens) == options.max_new_tokens or not bool(going.any()):
                break
            self._mask = torch.cat([self._mask, self._mask.new_ones(len(logits), 1)], 1)
            # Ended rows continue until the batch ends; clamp their positions to the context.
            logits = self._forward(token[:, None], last.clamp(max=context - 1)[:, None])
            last = last + 1
        counts = torch.stack(alive).sum(0).tolist()
        rows = zip(
            torch.stack(tokens, 1).tolist(), torch.stack(scores, 1).tolist(), counts, strict=True
        )
        return [(tuple(row[:count]), tuple(score[:count])) for row, score, count in rows]

    def _draw(self, logits: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
        if temperature == 0:
            token = logits.argmax(-1)
            logprobs = logits.log_softmax(-1)
        else:
            logprobs = (logits / temperature).log_softmax(-1)
            token = torch.multinomial(logprobs.exp(), 1, generator=self._generator)[:, 0]
        return token, logprobs.gather(-1, token[:, None])[:, 0]

    def _states(self, row: int, length: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        places = self._mask[row].nonzero()[:length, 0]
        return [
            (layer.keys[row].index_select(-2, places), layer.values[row].index_select(-2, places))
            for layer in self._past.layers
        ]


@contextmanager
def sampling_mode(model: torch.nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and restore each module's mode afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _join_states(matches: Sequence[tuple[Prefix | None, int]], depth: int) -> DynamicCache:
    example = next(prefix for prefix, _ in matches if prefix is not None)
    cache = DynamicCache()
    for number, pair in enumerate(example.states):
        joined = [
            part.new_zeros(len(matches), part.shape[0], depth, part.shape[2]) for part in pair
        ]
        for row, (prefix, length) in enumerate(matches):
            if prefix is not None:
                for side, batch in enumerate(joined):
                    batch[row, :, depth - length :] = prefix.states[number][side][:, :length]
        cache.update(joined[0], joined[1], number)
    return cache


def _fingerprint(model: PreTrainedModel) -> tuple[object, ...]:
    # PyTorch counts the writes to each tensor.
    parameters = list(model.parameters())
    return (
        sum(p._version for p in parameters if not p.is_inference()),
        hash(tuple(p.data_ptr() for p in parameters)),
        torch.is_autocast_enabled(model.device.type),
    )


def keeps_all_positions(model: Any) -> bool:
    """Report whether all layers keep the states of all positions, without windows or recurrence."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)


def takes_logits_to_keep(model: torch.nn.Module) -> bool:
    """Report whether a model can compute logits for selected positions only."""
    base = getattr(model, "get_base_model", lambda: model)()
    return "logits_to_keep" in inspect.signature(base.forward).parameters


def _cache_bytes(model: PreTrainedModel) -> int:
    if model.device.type == "cuda":
        return int(torch.cuda.mem_get_info(model.device)[0] // 4)
    # A batch of long chats takes more than 1 GiB even with a small model.
    return max(2**30, _free_memory() // 4)


def _free_memory() -> int:
    """Return the free memory in bytes; 0 if unknown."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows, macOS
        return 0


@dataclass(eq=False, slots=True)
class Prefix:
    """Cached states of a token sequence; `size` is in bytes."""

    ids: np.ndarray
    states: States
    shared: bool
    size: int


class PrefixCache:
    """Least-recently-used cache of sequences with their states, up to a limit in bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._prefixes: OrderedDict[int, Prefix] = OrderedDict()
        self._bytes = 0

    def match(self, ids: Sequence[int]) -> tuple[Prefix | None, int]:
        """Return the sequence that shares most of a prompt's prefix, and the prefix length."""
        # The model needs at least one token to process, so the prompt's last one does not count.
        prompt = np.asarray(ids[:-1])
        best, length = None, 0
        for prefix in self._prefixes.values():
            if (common := common_length(prefix.ids, prompt)) > length:
                best, length = prefix, common
        if best is not None:
            self._prefixes.move_to_end(id(best))
        return best, length

    def add(self, ids: Sequence[int], states: States, *, shared: bool = False) -> None:
        """Add a sequence."""
        size = sum(part.numel() * part.element_size() for pair in states for part in pair)
        prefix = Prefix(np.asarray(ids), states, shared, size)
        self._prefixes[id(prefix)] = prefix
        self._bytes += size
        while self._bytes > self.limit:
            self._bytes -= self._prefixes.popitem(last=False)[1].size

    def discard(self, prefixes: Iterable[Prefix | None]) -> None:
        """Drop sequences that an episode has continued."""
        for prefix in prefixes:
            if prefix is not None and not prefix.shared and id(prefix) in self._prefixes:
                self._bytes -= self._prefixes.pop(id(prefix)).size

    def clear(self) -> None:
        """Drop all sequences."""
        self._prefixes.clear()
        self._bytes = 0


def common_length(first: np.ndarray, second: np.ndarray) -> int:
    """Return the length of the shared prefix of two sequences."""
    size = min(len(first), len(second))
    differing = first[:size] != second[:size]
    return int(differing.argmax()) if differing.any() else size


def shared_runs(
    prompts: Sequence[tuple[int, ...]], known: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Yield prefixes that are worth computing once for several prompts; `known` tokens are cached."""
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
        # End a run where it would lose more than half of its shared prefix.
        if count and shared - max(deepest, length) >= _SHORTEST and 2 * shared >= len(common):
            common, count, deepest = common[:shared], count + 1, max(deepest, length)
            continue
        if count > 1:
            yield tuple(common.tolist())
        common, count, deepest = ids, 1, length
    if count > 1:
        yield tuple(common.tolist())
