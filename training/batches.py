"""Rows as tensors, and the log-probabilities that a model gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from agentgym.training.rows import Row


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows padded on the right, as tensors of shape (rows, tokens).

    Attributes:
        ids: Token ids.
        attended: 1 where there is a token.
        sampled: 1.0 where the token was sampled.
        logprobs: Of the sampled tokens under the policy that sampled them.
    """

    ids: torch.Tensor
    attended: torch.Tensor
    sampled: torch.Tensor
    logprobs: torch.Tensor


def batch(items: Sequence[Row], pad: int, device: torch.device | str = "cpu") -> Batch:
    """Rows as tensors.

    Args:
        items: The rows.
        pad: The id to pad with.
        device: Where the tensors go.

    Raises:
        ValueError: The log-probabilities of a row are not known.
    """
    longest = max(len(row.ids) for row in items)
    if any(row.logprobs is None for row in items):
        raise ValueError("a row has no log-probabilities; train on trajectories of a policy that records them with its ids")

    def padded(values: Sequence[Sequence[float]], fill: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([[*value, *[fill] * (longest - len(value))] for value in values], dtype=dtype, device=device)

    return Batch(
        padded([row.ids for row in items], pad, torch.long),
        padded([[1] * len(row.ids) for row in items], 0, torch.long),
        padded([row.sampled for row in items], 0, torch.float32),
        padded([row.logprobs or () for row in items], 0, torch.float32),
    )


def logprobs_of(model: torch.nn.Module, rows: Batch, temperature: float = 1.0) -> torch.Tensor:
    """The log-probability of each token given those before it, shape (rows, tokens); 0 for the first of a row."""
    logits = model(input_ids=rows.ids, attention_mask=rows.attended).logits[:, :-1].float() / temperature
    chosen = logits.log_softmax(-1).gather(-1, rows.ids[:, 1:, None])[..., 0]
    return torch.nn.functional.pad(chosen, (1, 0))
