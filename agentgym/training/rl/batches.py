"""Training rows as tensors, and the model's output for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Self, TypeVar

import torch
from torch.nn.functional import pad as pad_tensor
from torch.nn.utils.rnn import pad_sequence

from agentgym.training.rl.token_rows import TrainingRow, rows
from agentgym.training.rollout import Trajectory
from agentgym.training.rollout.models.prefixes import logits_at, shared_groups, tree


@dataclass(frozen=True)
class Batch:
    """Rows padded on the right, as tensors of shape (rows, tokens).

    `tensor[batch.sampled]` lists values of sampled tokens in step order; `place` reverses this.

    Attributes:
        attended: 1 for tokens, 0 for padding.
        sampled: True for sampled tokens.
        logprobs: Log-probabilities under the sampling policy, in nats; 0 for other tokens.
        shared: Whether to compute shared prefixes once; the rows must be in lexicographic order.
    """

    ids: torch.Tensor
    attended: torch.Tensor
    sampled: torch.Tensor
    logprobs: torch.Tensor
    shared: bool = field(default=False, kw_only=True)

    def take(self, rows: torch.Tensor, device: torch.device | str | None = None) -> Self:
        """Return selected rows without superfluous padding."""
        longest = int(self.attended[rows].sum(1).max())
        taken: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, torch.Tensor):
                taken[name] = value[rows, :longest].to(device)
        return replace(self, **taken)

    def passes(
        self, size: int, *, share: bool, device: torch.device | str | None = None
    ) -> Iterator[tuple[torch.Tensor, Self]]:
        """Yield batches of at most `size` rows (0 for no limit), each with its row indices.

        With `share`, rows with long shared prefixes are computed together; other rows are batched
        by length.
        """
        lengths = self.attended.sum(1)
        size = size or len(lengths)
        alone = list(range(len(lengths)))
        if share:
            ids = [row[:n] for row, n in zip(self.ids.tolist(), lengths.tolist(), strict=True)]
            alone = []
            for group in shared_groups(ids, size):
                if len(group) == 1:
                    alone += group
                    continue
                chosen = torch.tensor(group)
                yield chosen, replace(self.take(chosen, device), shared=True)
        whole = torch.tensor(alone, dtype=torch.long)
        for chosen in torch.split(whole[lengths[whole].argsort(stable=True)], size):
            if len(chosen):
                yield chosen, self.take(chosen, device)

    def place(self, stream: torch.Tensor | Sequence[float]) -> torch.Tensor:
        """Return values of sampled tokens as a (rows, tokens) tensor, with 0 elsewhere."""
        device = self.ids.device
        return torch.zeros(self.ids.shape, device=device).masked_scatter(
            self.sampled, torch.as_tensor(stream, dtype=torch.float32, device=device)
        )


BatchT = TypeVar("BatchT", bound=Batch)


def batch(items: Sequence[TrainingRow], pad: int) -> Batch:
    """Return rows as tensors; each row needs log-probabilities."""
    if any(row.logprobs is None for row in items):
        raise ValueError(
            "a row has no log-probabilities; use a policy that records log-probabilities"
        )

    def padded(field: str, fill: int, dtype: torch.dtype) -> torch.Tensor:
        values = [torch.tensor(getattr(row, field), dtype=dtype) for row in items]
        return pad_sequence(values, batch_first=True, padding_value=fill)

    ids = padded("ids", pad, torch.long)
    lengths = torch.tensor([len(row.ids) for row in items])
    attended = torch.arange(ids.shape[1]) < lengths[:, None]
    sampled, logprobs = padded("sampled", 0, torch.bool), padded("logprobs", 0, torch.float32)
    return Batch(ids, attended.long(), sampled, logprobs)


@dataclass(frozen=True)
class Experience(Batch):
    """Rows for training; `shares` are the weights of sampled tokens in the objective."""

    shares: torch.Tensor
    advantages: torch.Tensor
    replies: torch.Tensor


def mean_over_replies(values: torch.Tensor, data: Experience) -> torch.Tensor:
    """Replace each sampled token's value by the mean over its reply."""
    flat = values[data.sampled]
    numbers: Any = data.replies[data.sampled]
    reply = numbers.unique(return_inverse=True)[1]
    count = int(reply.max()) + 1 if len(reply) else 0
    totals = flat.new_zeros(count).index_add(0, reply, flat)
    means = totals / torch.bincount(reply, minlength=count)
    return torch.zeros_like(values).masked_scatter(data.sampled, means[reply])


def experience(
    trajectories: Sequence[Trajectory],
    advantages: torch.Tensor,
    weight: str,
    pad: int,
    max_new_tokens: int = 1,
) -> Experience:
    """Return the episodes' rows for training; `advantages` contains one value per sampled token."""
    data = batch([row for trajectory in trajectories for row in rows(trajectory)], pad)
    by_episode = list(map(reply_lengths, trajectories))
    by_step, lengths = list(chain.from_iterable(by_episode)), list(map(sum, by_episode))
    return Experience(
        **vars(data),
        shares=data.place(spread(shares(lengths, weight, max_new_tokens), lengths)),
        advantages=data.place(advantages),
        replies=data.place(spread(torch.arange(len(by_step)), by_step)),
    )


def reply_lengths(trajectory: Trajectory) -> list[int]:
    """Return the number of sampled tokens of each step; 0 for the steps of frozen seats.

    Raises:
        ValueError: A step has no token ids, although other steps of its agent have token ids.
    """
    lengths = [len(step.reply.ids) for step in trajectory.steps]
    for numbers in trajectory.by_agent().values():
        own = [lengths[k] for k in numbers]
        if 0 in own and (any(own) or not any(lengths)):
            raise ValueError(
                f"step {numbers[own.index(0)]} of seed {trajectory.seed} has no token ids; use a "
                "policy that records token ids"
            )
    return lengths


def shares(lengths: Sequence[int], weight: str, most: int = 1) -> list[float]:
    """Return one value per episode: the share of each of its tokens in the objective.

    With `episode`, all episodes have equal total shares; otherwise all tokens have equal shares.
    The shares of all tokens sum to 1; with `constant`, they sum to the mean episode length
    divided by `most`.
    """
    total = sum(lengths)
    if weight == "constant":
        return [1 / most / len(lengths)] * len(lengths)
    if weight == "episode":
        return [1 / length / len(lengths) for length in lengths]
    return [1 / total for _ in lengths]


def spread(values: Sequence[float] | torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Repeat each value as many times as its length."""
    return torch.as_tensor(values, dtype=torch.float32).repeat_interleave(torch.tensor(lengths))


def corrected(data: Experience, logprobs: torch.Tensor, cap: float) -> Experience:
    """Return an older policy's experience with corrected advantages and new `logprobs`.

    Each advantage is multiplied by its token's probability ratio, at most `cap` (truncated
    importance sampling: Espeholt et al. 2018, section 4.1).
    """
    # The clipped objective then computes its ratios relative to the new log-probabilities.
    ratio = (logprobs - data.logprobs).exp().clamp(max=cap)
    advantages = torch.where(data.sampled, data.advantages * ratio, data.advantages)
    return replace(data, advantages=advantages, logprobs=logprobs)


@dataclass(frozen=True)
class Prediction:
    """Log-probabilities and entropies in nats, of shape (rows, tokens); 0 for unsampled tokens."""

    logprobs: torch.Tensor
    entropies: torch.Tensor


def predict(
    model: Any,
    data: Batch,
    temperature: float = 1.0,
    precision: str = "fp32",
    *,
    entropy_gradient: bool = False,
) -> Prediction:
    """Run a model on a batch; gradients of entropies take more memory."""
    if data.shared:
        inputs, places = tree(data.ids, data.attended, model)
    else:
        inputs = {"input_ids": data.ids, "attention_mask": data.attended}
        places = torch.arange(data.ids.numel(), device=data.ids.device).view_as(data.ids)
    chosen = data.sampled[:, 1:]
    sources: Any = places[:, :-1][chosen]
    needed, number = sources.unique(return_inverse=True)
    with autocast(data.ids.device, precision):
        logits, _ = logits_at(model, needed, **inputs, use_cache=False)
    # The softmax runs in float32 regardless of the model's precision.
    logprobs = (logits.float() / temperature).log_softmax(-1)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropies = -(logprobs.exp() * logprobs).sum(-1)
    nothing = torch.zeros(chosen.shape, device=data.ids.device)
    of_tokens = logprobs[number, data.ids[:, 1:][chosen]]
    return Prediction(
        pad_tensor(nothing.masked_scatter(chosen, of_tokens), (1, 0)),
        pad_tensor(nothing.masked_scatter(chosen, entropies[number]), (1, 0)),
    )


def logprobs_of(
    model: Any, data: Batch, temperature: float = 1.0, precision: str = "fp32"
) -> torch.Tensor:
    """Return the log-probability of each sampled token."""
    return predict(model, data, temperature, precision).logprobs


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return the autocast context for a precision."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def checkpoint_activations(model: Any) -> None:
    """Enable gradient checkpointing, without the dropout of training mode."""
    enable = getattr(model, "activation_checkpointing_enable", None)
    (enable or model.gradient_checkpointing_enable)()
    model.enable_input_require_grads()  # gradients must reach adapters behind a frozen first layer
    # Only checkpointing itself requires training mode; dropout would change the losses.
    model.eval()
    for module in model.modules():
        module.training = bool(getattr(module, "gradient_checkpointing", False))
        for name, value in vars(module).items():
            if module.training and name.endswith("dropout") and isinstance(value, float):
                setattr(module, name, 0.0)
