"""Policies: functions from the chats they are shown to the texts they write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentgym.text.messages import Chat
from agentgym.text.token_ids import TokenIds


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply of a policy.

    Attributes:
        text: The action for `env.step`.
        prompt_ids: The token ids the text was sampled after; empty if the policy has no tokens. As
            `TokenIds`, the prompts of an episode share their memory.
        ids: The sampled token ids.
        logprobs: Their log-probabilities under the sampler, in nats, one per id.
    """

    text: str
    prompt_ids: TokenIds | tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()


class Policy(Protocol):
    """A batched, stateless policy: one reply per chat, in order."""

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Reply to each chat."""
        ...


class PolicyError(RuntimeError):
    """A policy could not reply, for want of its server say.

    That is no fault of the agent, so an episode that it ends has no score.
    """

    replies: Sequence[Reply | PolicyError] = ()
    """The reply to each chat of a batch, or the error in its place, if only some have none; empty
    if the error is that of the whole batch.
    """
