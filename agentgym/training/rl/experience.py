"""Episodes as rows to learn from: for each sampled token its advantage, its share in the objective
and its reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from agentgym.training.rl.batches import Batch, batch
from agentgym.training.rl.token_rows import rows
from agentgym.training.rollout import Trajectory


@dataclass(frozen=True)
class Experience(Batch):
    """Rows to learn from.

    Attributes:
        shares: The share of each sampled token in the objective; they sum to 1.
        advantages: The advantage of each sampled token.
        replies: The number of the reply that each sampled token belongs to.
    """

    shares: torch.Tensor
    advantages: torch.Tensor
    replies: torch.Tensor


def mean_over_replies(values: torch.Tensor, data: Experience) -> torch.Tensor:
    """Return the mean over its reply in place of the value of each sampled token."""
    flat = values[data.sampled]
    numbers: Any = data.replies[data.sampled]
    reply = numbers.unique(return_inverse=True)[1]
    count = int(reply.max()) + 1 if len(reply) else 0
    sums = flat.new_zeros(count).index_add(0, reply, flat)
    means = sums / torch.bincount(reply, minlength=count)
    return torch.zeros_like(values).masked_scatter(data.sampled, means[reply])


def experience(
    trajectories: Sequence[Trajectory],
    advantages: torch.Tensor,
    weight: str,
    pad: int,
    max_new_tokens: int = 1,
) -> Experience:
    """Return episodes as rows to learn from.

    Args:
        trajectories: The episodes.
        advantages: Those of all sampled tokens, in order.
        weight: As in `GRPOConfig`.
        pad: The id to pad with.
        max_new_tokens: The most tokens of a reply, for the weight `constant`.
    """
    data = batch([row for trajectory in trajectories for row in rows(trajectory)], pad)
    by_step = [length for trajectory in trajectories for length in reply_lengths(trajectory)]
    lengths = [sum(reply_lengths(trajectory)) for trajectory in trajectories]
    parts: dict[str, Any] = vars(data)
    return Experience(
        **parts,
        shares=data.place(spread(shares(lengths, weight, max_new_tokens), lengths)),
        advantages=data.place(advantages),
        replies=data.place(spread(torch.arange(len(by_step)), by_step)),
    )


def reply_lengths(trajectory: Trajectory) -> list[int]:
    """Return the number of sampled tokens of each step.

    Raises:
        ValueError: A step has none.
    """
    lengths = [len(step.reply.ids) for step in trajectory.steps]
    if 0 in lengths:
        where = f"step {lengths.index(0)} of seed {trajectory.seed}"
        raise ValueError(f"{where} has no token ids: play it with a policy that records them")
    return lengths


def shares(lengths: Sequence[int], weight: str, most: int = 1) -> list[float]:
    """Return the share of one of the equal parts of each episode, so that all parts of all episodes
    sum to 1; with `constant`, to the mean length of an episode over `most`.

    Args:
        lengths: The number of parts (tokens, say) of each episode.
        weight: `episode`, if each episode counts the same; else each part does.
        most: The constant that lengths are divided by, for `constant`.
    """
    total = sum(lengths)
    if weight == "constant":
        return [1 / most / len(lengths)] * len(lengths)
    return [1 / length / len(lengths) if weight == "episode" else 1 / total for length in lengths]


def spread(values: Sequence[float] | torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Repeat each value as often as its length says: from steps to tokens, say."""
    return torch.as_tensor(values, dtype=torch.float32).repeat_interleave(torch.tensor(lengths))


def corrected(data: Experience, logprobs: torch.Tensor, cap: float) -> Experience:
    """Return experience of an older policy as if it were that of the present one: each advantage
    with the ratio of the probabilities of its token now and when it was sampled, `cap` at most
    (truncated importance sampling: Espeholt et al. 2018, section 4.1), and clipping measured from
    the present probabilities.

    Args:
        data: The experience.
        logprobs: The log-probabilities of the sampled tokens under the present policy.
        cap: The largest ratio.
    """
    ratio = (logprobs - data.logprobs).exp().clamp(max=cap)
    advantages = torch.where(data.sampled, data.advantages * ratio, data.advantages)
    return replace(data, advantages=advantages, logprobs=logprobs)
