"""Sampler that runs a transformers model, with a key-value cache that persists between turns."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from agentgym.text.validation import check_int
from agentgym.training.rollout.models.prefixes import sampling_mode, sharing_fault
from agentgym.training.rollout.models.sampling import Sample, SamplingOptions
from agentgym.training.rollout.models.token_tree import Rows, SharedRows, TokenTree, unshared_rows

# Prompts per forward pass; on a CPU, larger batches barely raise throughput but take more memory.
BATCH = 32


class TransformersSampler:
    """Sampler that runs a transformers causal language model in this process.

    Prefixes that prompts share with each other or with earlier prompts are computed once, unless
    the model cannot share them (`sharing_fault`). Sampling restores the model's training or
    evaluation mode and does not touch global random generators.

    Args:
        batch_size: Maximum number of prompts per forward pass.
        cache_bytes: Memory for key-value states of earlier prompts; 0 disables the cache. None uses
            a quarter of the device's free memory, and at least 1 GiB on a CPU.

    Attributes:
        prefilled: Prompt tokens processed so far.
        context: Maximum length of prompt plus reply, in tokens.
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
        self._tree = TokenTree(_cache_bytes(model) if cache_bytes is None else cache_bytes)
        self._shares = not sharing_fault(model)
        self._weights: tuple[object, ...] = ()
        self._version = 0

    def seed(self, seed: int) -> None:
        """Set the seed of the sampler."""
        self._generator.manual_seed(seed)

    def update(self, model: PreTrainedModel, tokenizer: Any = None) -> None:
        """Copy the weights of another model of the same architecture."""
        if model is not self.model:
            self.model.load_state_dict(model.state_dict())

    @property
    def version(self) -> int:
        """Version number of the weights, which increases with each change."""
        weights = _fingerprint(self.model)
        if weights != self._weights:
            self._weights = weights
            self._version += 1
            self._tree.clear()
        return self._version

    @torch.inference_mode()
    def sample(self, prompts: Sequence[tuple[int, ...]], options: SamplingOptions) -> list[Sample]:
        """Return a sample for each prompt, in order; prompts must be shorter than `context`."""
        for prompt in prompts:
            check_int("prompt length", len(prompt), 1, self.context - 1)
        version = self.version
        samples: list[Sample] = []
        with sampling_mode(self.model):
            for start in range(0, len(prompts), self.batch_size):
                pairs = self._sample(prompts[start : start + self.batch_size], options)
                samples += [Sample(*pair, version) for pair in pairs]
        return samples

    def _sample(
        self, prompts: Sequence[tuple[int, ...]], options: SamplingOptions
    ) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
        batch: Rows
        if self._shares:
            batch = SharedRows(self.model, self._tree, prompts)
        else:
            batch = unshared_rows(self.model, self.pad, prompts)
        logits = batch.begin()
        self.prefilled += batch.prefilled
        ids: list[list[int]] = [[] for _ in prompts]
        logprobs: list[list[float]] = [[] for _ in prompts]
        going = list(range(len(prompts)))
        while True:
            tokens, scores = self._draw(logits, going, len(prompts), options.temperature)
            for row, token, score in zip(going, tokens.tolist(), scores.tolist(), strict=True):
                ids[row].append(token)
                logprobs[row].append(score)
            going = [
                row
                for row in going
                if len(ids[row]) < min(options.max_new_tokens, self.context - len(prompts[row]))
                and ids[row][-1] not in options.stops
            ]
            if not going:
                break
            logits = batch.step({row: ids[row][-1] for row in going})
        self._tree.shrink()
        return [(tuple(row), tuple(scored)) for row, scored in zip(ids, logprobs, strict=True)]

    def _draw(
        self, logits: torch.Tensor, rows: Sequence[int], total: int, temperature: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if temperature == 0:
            logprobs = logits.log_softmax(-1)
            token = logits.argmax(-1)
        else:
            logprobs = (logits / temperature).log_softmax(-1)
            # Draw tokens for finished rows too, so samples do not depend on other rows' lengths.
            shares = logits.new_ones(total, logits.shape[1])
            shares[rows] = logprobs.exp()
            token = torch.multinomial(shares, 1, generator=self._generator)[rows, 0]
        return token, logprobs.gather(-1, token[:, None])[:, 0]


def _fingerprint(model: PreTrainedModel) -> tuple[object, ...]:
    # PyTorch increments `_version` at each write to a tensor.
    parameters = list(model.parameters())
    # PEFT switches adapters on and off without writing to a tensor.
    adapters = []
    for module in model.modules():
        state = vars(module)
        if "_disable_adapters" in state:
            adapters.append((state["_disable_adapters"], str(state.get("_active_adapter"))))
    return (
        tuple(adapters),
        sum(p._version for p in parameters if not p.is_inference()),
        hash(tuple(p.data_ptr() for p in parameters)),
        torch.is_autocast_enabled(model.device.type),
    )


def _cache_bytes(model: PreTrainedModel) -> int:
    if model.device.type == "cuda":
        return int(torch.cuda.mem_get_info(model.device)[0] // 4)
    # A batch of long chats takes more than 1 GiB even with a small model.
    return max(2**30, _free_memory() // 4)


def _free_memory() -> int:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows, macOS
        return 0
