"""Policies: functions from observed chats to reply texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from agentgym.text.messages import Chat
from agentgym.text.token_ids import TokenIds


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply of a policy.

    Attributes:
        text: The action for `env.step`.
        prompt_ids: The prompt's token ids, if known; with `TokenIds`, the prompts of an episode
            share memory.
        ids: The sampled token ids.
        logprobs: The log-probability of each id under the sampler, in nats.
        ended: Why the policy stopped, such as `over_window` (`StepInfo.ended`), so that the episode
            ends with the current score; empty if the policy replied.
        usage: `prompt_tokens`, `completion_tokens` and `seconds` of the reply, if the policy knows
            them; recorded as `info["usage"]`.
    """

    text: str
    prompt_ids: TokenIds | tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    ended: str = field(default="", compare=False)  # recorded in `StepInfo.ended`
    usage: Mapping[str, float] | None = field(default=None, compare=False)


class Policy(Protocol):
    """A batched, stateless policy."""

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Return one reply for each chat, in order."""
        ...


class PolicyError(RuntimeError):
    """Error for a policy that cannot reply, for example because its server is down.

    An episode with this error gets no score.
    """

    # A fatal error stops the run, because every later request would fail too.
    fatal: ClassVar[bool] = False
    # One reply or error per chat if only some chats failed; empty if the whole batch failed.
    replies: Sequence[Reply | PolicyError] = ()
