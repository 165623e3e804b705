"""What a policy is: a function from the chats it is shown to the texts it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentgym.messages import Chat


@dataclass(frozen=True, slots=True)
class Reply:
    """What a policy wrote.

    Attributes:
        text: The action for `env.step`.
        prompt_ids: The token ids the text was sampled after; empty if the policy has no tokens.
        ids: The sampled token ids.
        logprobs: Their log-probabilities under the sampler, in nats, one per id.
    """

    text: str
    prompt_ids: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()


class Policy(Protocol):
    """A batched, stateless policy: one reply per chat, in order."""

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Reply to each chat."""
        ...


class PolicyError(RuntimeError):
    """A policy could not reply, say for want of its server. That is no fault of the agent: an episode that it ends has no score."""
