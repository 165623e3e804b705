"""Forward and backward passes that compute shared prefixes of token rows only once.

The distinct tokens of a batch form a tree, which a model processes as one sequence. Each token
attends only to its ancestors, and positions are counted from the start of the row. Outputs and
gradients are the same as without sharing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

Inputs = dict[str, torch.Tensor]


def shared_groups(rows: Sequence[Sequence[int]], most: int) -> Iterator[list[int]]:
    """Yield groups of at most `most` row indices within which sharing prefixes saves work.

    A group's rows are in lexicographic order. Sharing never takes more memory than separate rows.
    """
    group: list[int] = []
    before, tokens = np.empty(0, dtype=int), 0
    for number in sorted(range(len(rows)), key=lambda k: tuple(rows[k])):
        row = np.asarray(rows[number])
        new = len(row) - common_length(before, row)
        # This row would raise the number of attention pairs from tokens² to (tokens + new)².
        if len(group) == most or new * (2 * tokens + new) > len(row) ** 2:
            if group:
                yield group
            group, tokens, new = [], 0, len(row)
        group.append(number)
        before, tokens = row, tokens + new
    if group:
        yield group


def common_length(first: np.ndarray, second: np.ndarray) -> int:
    """Return the length of the shared prefix of two sequences."""
    size = min(len(first), len(second))
    differing = first[:size] != second[:size]
    return int(differing.argmax()) if differing.any() else size


def tree(ids: torch.Tensor, attended: torch.Tensor, model: Any) -> tuple[Inputs, torch.Tensor]:
    """Return model inputs for the distinct tokens of rows, and each row token's index in the
    inputs.

    `ids` are right-padded rows in lexicographic order, of shape (rows, tokens). The inputs have
    batch size 1; the indices have the shape of `ids` and are arbitrary for padding.
    """
    tokens = attended.bool()
    new = tokens.clone()
    same = (ids[1:] == ids[:-1]) & tokens[1:] & tokens[:-1]
    new[1:] &= ~same.cumprod(1).bool()
    numbers = (new.flatten().cumsum(0) - 1).view_as(ids)
    # The index of a shared token is taken from the nearest earlier row that introduced the token.
    places = torch.where(new, numbers, 0).cummax(0).values
    # In the inputs, a token's descendants are contiguous and directly follow the token.
    ends = places.gather(1, attended.sum(1, keepdim=True) - 1).expand_as(places)
    order = torch.arange(int(new.sum()), device=ids.device)
    last = order.scatter_reduce(0, places[tokens], ends[tokens], "amax")
    mask = (order <= order[:, None]) & (order[:, None] <= last)
    columns = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    return {
        "input_ids": ids[new][None],
        "position_ids": columns[new][None],
        "attention_mask": attention_mask(mask[None, None], model),
    }, places


def attention_mask(allowed: torch.Tensor, model: Any) -> torch.Tensor:
    """Convert a boolean mask to the type that the model's attention expects."""
    if model.config._attn_implementation == "sdpa":
        return allowed
    # Attention implementations other than SDPA add the mask to the attention scores.
    lowest = torch.finfo(model.dtype).min
    return torch.zeros(allowed.shape, dtype=model.dtype, device=allowed.device).masked_fill(
        ~allowed, lowest
    )


def logits_at(model: Any, places: torch.Tensor, **inputs: Any) -> tuple[torch.Tensor, Any]:
    """Return a model's logits at given indices of the flattened batch, and the model's output."""
    # Compute logits only at these indices, because each row of logits is as long as the vocabulary.
    head = model.get_output_embeddings()
    hook = head and head.register_forward_pre_hook(
        lambda module, states: (states[0].flatten(0, 1)[places][None],)
    )
    try:
        out = model(**inputs)
    finally:
        if hook:
            hook.remove()
    logits = out.logits.flatten(0, 1)
    return logits if head else logits[places], out


@contextmanager
def sampling_mode(model: torch.nn.Module) -> Iterator[None]:
    """Switch a model to evaluation mode, and restore each module's mode afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


# Cached results of `sharing_fault`, by model.
_FAULTS: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def sharing_fault(model: Any) -> str:
    """Return the reason why a model cannot share prefixes, or an empty string if it can."""
    if model not in _FAULTS:
        _FAULTS[model] = _try_sharing(model)
    return _FAULTS[model]


@torch.no_grad()
def _try_sharing(model: Any) -> str:
    # Layers with windows or recurrence have other types.
    if any(type(layer) is not DynamicLayer for layer in DynamicCache(config=model.config).layers):
        return "its layers do not attend to all earlier tokens"
    # These masks go by the order of the inputs, and a tree may be longer than the longest row.
    longest = getattr(model.config, "max_position_embeddings", None)
    if any(buffer.shape[-2:] == (longest, longest) for buffer in model.buffers()):
        return f"its attention masks are fixed to {longest} tokens"
    ids = torch.tensor([[1, 2, 3, 4, 5], [1, 2, 5, 4, 3]], device=model.device)
    attended = torch.ones_like(ids)
    inputs, places = tree(ids, attended, model)
    try:
        with sampling_mode(model):
            whole = model(input_ids=ids, attention_mask=attended, use_cache=False).logits
            shared = model(**inputs, use_cache=False).logits[0, places]
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        return f"it rejects positions or an attention mask ({str(error).splitlines()[0]})"
    if differ(whole, shared):
        return "it ignores positions or the attention mask"
    return ""


def differ(logits: torch.Tensor, others: torch.Tensor) -> bool:
    """Report whether logits differ by more than rounding."""
    rounding = torch.finfo(logits.dtype).eps ** 0.5 * logits.abs().max()
    return bool((logits - others).abs().max() > rounding)
