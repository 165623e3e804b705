"""Training rows as tensors, and the model's output for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch.nn.functional import pad as pad_tensor

from agentgym.training.rl.token_rows import TrainingRow, rows
from agentgym.training.rollout import Trajectory
from agentgym.training.rollout.models.sampler import takes_logits_to_keep


@dataclass(frozen=True)
class Batch:
    """Rows padded on the right, as tensors of shape (rows, tokens).

    `tensor[batch.sampled]` lists the sampled tokens of episode rows in step order, however many
    rows an edited context produced; `place` is its inverse.

    Attributes:
        attended: 1 for tokens, 0 for padding.
        sampled: True for sampled tokens.
        logprobs: In nats, under the sampling policy; 0 elsewhere.
    """

    ids: torch.Tensor
    attended: torch.Tensor
    sampled: torch.Tensor
    logprobs: torch.Tensor

    def take(self, rows: torch.Tensor, device: torch.device | str | None = None) -> Self:
        """Return some rows without superfluous padding."""
        longest = int(self.attended[rows].sum(1).max())
        return replace(
            self,
            **{
                item.name: getattr(self, item.name)[rows, :longest].to(device)
                for item in fields(self)
            },
        )

    def chunks(self, size: int) -> Sequence[torch.Tensor]:
        """Return row indices in chunks of similar lengths; size 0 means one chunk."""
        order = self.attended.sum(1).argsort(stable=True)
        return torch.split(order, size or len(order))

    def place(self, stream: torch.Tensor | Sequence[float]) -> torch.Tensor:
        """Return values of sampled tokens as a (rows, tokens) tensor, with 0 elsewhere."""
        device = self.ids.device
        return torch.zeros(self.ids.shape, device=device).masked_scatter(
            self.sampled, torch.as_tensor(stream, dtype=torch.float32, device=device)
        )


def batch(items: Sequence[TrainingRow], pad: int) -> Batch:
    """Return rows as tensors; each row needs log-probabilities."""
    longest = max(len(row.ids) for row in items)
    if any(row.logprobs is None for row in items):
        raise ValueError(
            "a row has no log-probabilities; use a policy that records them with its ids"
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
class Experience(Batch):
    """Rows for training, with one value per sampled token.

    Attributes:
        shares: The token's share in the objective; shares sum to 1.
        advantages: The token's advantage.
        replies: The index of the token's reply.
    """

    shares: torch.Tensor
    advantages: torch.Tensor
    replies: torch.Tensor


def mean_over_replies(values: torch.Tensor, data: Experience) -> torch.Tensor:
    """Replace each sampled token's value by the mean over its reply."""
    flat = values[data.sampled]
    numbers: Any = data.replies[data.sampled]
    reply = numbers.unique(return_inverse=True)[1]
    count = int(reply.max()) + 1 if len(reply) else 0
    means = flat.new_zeros(count).index_add(0, reply, flat) / torch.bincount(reply, minlength=count)
    return torch.zeros_like(values).masked_scatter(data.sampled, means[reply])


def experience(
    trajectories: Sequence[Trajectory],
    advantages: torch.Tensor,
    weight: str,
    pad: int,
    max_new_tokens: int = 1,
) -> Experience:
    """Return episodes as rows for training, with the advantages of all sampled tokens in order."""
    data = batch([row for trajectory in trajectories for row in rows(trajectory)], pad)
    by_step = [length for trajectory in trajectories for length in reply_lengths(trajectory)]
    lengths = [sum(reply_lengths(trajectory)) for trajectory in trajectories]
    return Experience(
        **vars(data),
        shares=data.place(spread(shares(lengths, weight, max_new_tokens), lengths)),
        advantages=data.place(advantages),
        replies=data.place(spread(torch.arange(len(by_step)), by_step)),
    )


def reply_lengths(trajectory: Trajectory) -> list[int]:
    """Return each step's number of sampled tokens."""
    lengths = [len(step.reply.ids) for step in trajectory.steps]
    if 0 in lengths:
        raise ValueError(
            f"step {lengths.index(0)} of seed {trajectory.seed} has no token ids: play it with a "
            "policy that records them"
        )
    return lengths


def shares(lengths: Sequence[int], weight: str, most: int = 1) -> list[float]:
    """Return each episode's share per part, such as a token.

    With `episode`, all episodes have equal shares; otherwise all parts have. Shares sum to 1; with
    `constant`, to the mean episode length divided by `most`.
    """
    total = sum(lengths)
    if weight == "constant":
        return [1 / most / len(lengths)] * len(lengths)
    return [1 / length / len(lengths) if weight == "episode" else 1 / total for length in lengths]


def spread(values: Sequence[float] | torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Repeat each value as often as its length."""
    return torch.as_tensor(values, dtype=torch.float32).repeat_interleave(torch.tensor(lengths))


def corrected(data: Experience, logprobs: torch.Tensor, cap: float) -> Experience:
    """Return an older policy's experience, corrected to the current log-probabilities.

    Each advantage is multiplied by its token's probability ratio, at most `cap` (truncated
    importance sampling: Espeholt et al. 2018, section 4.1).
    """
    # Clipping refers to the new log-probabilities from now on.
    ratio = (logprobs - data.logprobs).exp().clamp(max=cap)
    advantages = torch.where(data.sampled, data.advantages * ratio, data.advantages)
    return replace(data, advantages=advantages, logprobs=logprobs)


@dataclass(frozen=True)
class Prediction:
    """Model output for a batch, as tensors of shape (rows, tokens), in nats.

    Values are 0 for tokens that were not sampled or have no predecessor.
    """

    logprobs: torch.Tensor
    entropies: torch.Tensor


def predict(
    model: torch.nn.Module,
    data: Batch,
    temperature: float = 1.0,
    precision: str = "fp32",
    *,
    entropy_gradient: bool = False,
) -> Prediction:
    """Run a model on a batch; entropies with a gradient take more memory."""
    # The softmax runs in float32 regardless of the model's precision.
    sampled_mask = data.sampled[:, 1:]
    # Logits are large (a vocabulary-sized row per position), so compute them only where a
    # sampled token follows.
    places = sampled_mask.any(0).nonzero()[:, 0] if takes_logits_to_keep(model) else None
    with autocast(data.ids.device, precision):
        out: Any = model(
            input_ids=data.ids,
            attention_mask=data.attended,
            use_cache=False,
            **({} if places is None else {"logits_to_keep": places}),
        )
    logits = out.logits[:, :-1] if places is None else out.logits
    chosen = sampled_mask if places is None else sampled_mask[:, places]
    logprobs = (logits[chosen].float() / temperature).log_softmax(-1)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropies = -(logprobs.exp() * logprobs).sum(-1)
    chosen_logprobs = logprobs.gather(-1, data.ids[:, 1:][sampled_mask][:, None])[:, 0]
    nothing = torch.zeros(sampled_mask.shape, device=data.ids.device)
    return Prediction(
        pad_tensor(nothing.masked_scatter(sampled_mask, chosen_logprobs), (1, 0)),
        pad_tensor(nothing.masked_scatter(sampled_mask, entropies), (1, 0)),
    )


def logprobs_of(
    model: torch.nn.Module, data: Batch, temperature: float = 1.0, precision: str = "fp32"
) -> torch.Tensor:
    """Return the log-probability of each sampled token, as in `predict`."""
    return predict(model, data, temperature, precision).logprobs


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return a precision's autocast context; the weights keep their type."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def checkpoint_activations(model: Any) -> None:
    """Enable gradient checkpointing."""
    # Checkpointing requires training mode.
    enable = getattr(model, "activation_checkpointing_enable", None)
    (enable or model.gradient_checkpointing_enable)()
    model.enable_input_require_grads()  # otherwise nothing behind a frozen first layer is kept
    model.train()
