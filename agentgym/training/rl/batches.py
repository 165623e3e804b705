"""Rows as tensors, and the output of a model for their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch.nn.functional import pad as pad_tensor

from agentgym.training.rl.token_rows import Row
from agentgym.training.rollout.sampler import takes_logits_to_keep


@dataclass(frozen=True)
class Batch:
    """Rows padded on the right, as tensors of shape (rows, tokens).

    The sampled tokens of the rows of episodes, read row by row, are those of the steps in their
    order, into however many rows an edited context has cut them: `tensor[batch.sampled]` is that
    stream, and `place` is the way back.

    Attributes:
        ids: Token ids.
        attended: 1 where there is a token.
        sampled: True where the token was sampled.
        logprobs: Of the sampled tokens under the policy that sampled them, in nats; 0 elsewhere.
    """

    ids: torch.Tensor
    attended: torch.Tensor
    sampled: torch.Tensor
    logprobs: torch.Tensor

    def take(self, rows: torch.Tensor, device: torch.device | str | None = None) -> Self:
        """Return some of the rows, without padding that none of them needs.

        Args:
            rows: Their numbers.
            device: Where the tensors go; None leaves them where they are.
        """
        longest = int(self.attended[rows].sum(1).max())
        return replace(
            self,
            **{
                item.name: getattr(self, item.name)[rows, :longest].to(device)
                for item in fields(self)
            },
        )

    def chunks(self, size: int) -> Sequence[torch.Tensor]:
        """Return the numbers of all rows, those of like length together, `size` at a time; 0 for
        all at once.
        """
        order = self.attended.sum(1).argsort(stable=True)
        return torch.split(order, size or len(order))

    def place(self, stream: torch.Tensor | Sequence[float]) -> torch.Tensor:
        """Return values of the sampled tokens, in order, as a tensor of shape (rows, tokens) with 0
        elsewhere.
        """
        values = torch.as_tensor(stream, dtype=torch.float32, device=self.ids.device)
        return torch.zeros(self.ids.shape, device=self.ids.device).masked_scatter(
            self.sampled, values
        )


def batch(items: Sequence[Row], pad: int) -> Batch:
    """Return rows as tensors.

    Args:
        items: The rows.
        pad: The id to pad with.

    Raises:
        ValueError: The log-probabilities of a row are not known.
    """
    longest = max(len(row.ids) for row in items)
    if any(row.logprobs is None for row in items):
        raise ValueError(
            "a row has no log-probabilities; train on trajectories of a policy that records them "
            "with its ids"
        )

    def padded(values: Sequence[Sequence[float]], fill: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(
            [[*value, *[fill] * (longest - len(value))] for value in values], dtype=dtype
        )

    return Batch(
        padded([row.ids for row in items], pad, torch.long),
        padded([[1] * len(row.ids) for row in items], 0, torch.long),
        padded([row.sampled for row in items], 0, torch.bool),
        padded([row.logprobs or () for row in items], 0, torch.float32),
    )


@dataclass(frozen=True)
class Prediction:
    """Output of a model for a batch, as tensors of shape (rows, tokens): 0 where no token was
    sampled, or none came before.

    Attributes:
        logprobs: The log-probability of each sampled token, given those before it, in nats.
        entropies: Of the distribution that it is from, in nats.
    """

    logprobs: torch.Tensor
    entropies: torch.Tensor


def predict(
    model: torch.nn.Module,
    rows: Batch,
    temperature: float = 1.0,
    precision: str = "fp32",
    *,
    entropy_gradient: bool = False,
) -> Prediction:
    """Run a model on a batch.

    The softmax is over the positions of sampled tokens only, and in float32 whatever the precision
    of the model.

    Args:
        model: A causal language model.
        rows: The batch, on the device of the model.
        temperature: Of the sampling.
        precision: `fp32`, as the model is, or `bf16` for autocast.
        entropy_gradient: Let the entropies carry a gradient, which takes more memory.
    """
    sampled_mask = rows.sampled[:, 1:]
    # Logits are large (a row for each position, of the size of the vocabulary), so they are computed
    # only where a row has a sampled token next.
    places = sampled_mask.any(0).nonzero()[:, 0] if takes_logits_to_keep(model) else None
    with autocast(rows.ids.device, precision):
        out: Any = model(
            input_ids=rows.ids,
            attention_mask=rows.attended,
            use_cache=False,
            **({} if places is None else {"logits_to_keep": places}),
        )
    logits = out.logits[:, :-1] if places is None else out.logits
    chosen = sampled_mask if places is None else sampled_mask[:, places]
    logprobs = (logits[chosen].float() / temperature).log_softmax(-1)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropies = -(logprobs.exp() * logprobs).sum(-1)
    chosen_logprobs = logprobs.gather(-1, rows.ids[:, 1:][sampled_mask][:, None])[:, 0]
    nothing = torch.zeros(sampled_mask.shape, device=rows.ids.device)
    return Prediction(
        pad_tensor(nothing.masked_scatter(sampled_mask, chosen_logprobs), (1, 0)),
        pad_tensor(nothing.masked_scatter(sampled_mask, entropies), (1, 0)),
    )


def logprobs_of(
    model: torch.nn.Module, rows: Batch, temperature: float = 1.0, precision: str = "fp32"
) -> torch.Tensor:
    """Return the log-probability of each sampled token, as in `predict`."""
    return predict(model, rows, temperature, precision).logprobs


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return the context in which a model runs in a precision, with its weights as they are."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def checkpoint_activations(model: Any) -> None:
    """Let a model compute activations again in the backward pass in place of keeping them, with the
    method that its release of transformers has, and put it into training mode, without which it
    does not.
    """
    enable = getattr(model, "activation_checkpointing_enable", None)
    (enable or model.gradient_checkpointing_enable)()
    model.enable_input_require_grads()  # else nothing is kept behind a frozen first layer
    model.train()
