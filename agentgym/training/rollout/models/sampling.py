"""Options of the models that play in this process, and the seam between training and whatever samples:
token ids in, ids and log-probabilities out, with the version of the weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from pydantic import Field

from agentgym.play.policy import PolicyError
from agentgym.training.rollout.endpoints.chat_completions import ROUNDING
from agentgym.world.config import Config, TokenCount

DType = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Config):
    """Options of a model of transformers that plays.

    Attributes:
        device: The device, as PyTorch names it; `auto` for a GPU if there is one.
        dtype: The type of the weights; `auto` for that of the folder on a GPU, and `float32` on a
            processor, most of which compute slowly in bfloat16.
        temperature: Of the sampling; 0 for the most probable token.
        max_new_tokens: The most tokens of a reply; None for the number that the folder gives, else
            512.
        batch_size: The most episodes that are played at once, in one batch.
        template: Variables of the chat template, such as `enable_thinking`.
        native_tools: Pass the schemas of the tools to the chat template too.
    """

    device: str = "auto"
    dtype: DType = "auto"
    temperature: Annotated[float, Field(ge=0.0, le=100.0)] = 0.0
    max_new_tokens: Annotated[int, Field(ge=1, le=1_000_000), TokenCount()] | None = None
    batch_size: Annotated[int, Field(ge=1, le=100_000)] = 32
    template: Mapping[str, Any] = field(default_factory=dict)
    native_tools: bool = False

    def to_json(self) -> str:
        """Return the options as JSON text."""
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """Options of one request.

    Attributes:
        temperature: Of the sampling; 0 for the most probable token.
        max_new_tokens: The most tokens of a reply.
        stops: The ids that end a reply, which is their last one.
    """

    temperature: float
    max_new_tokens: int
    stops: frozenset[int]


@dataclass(frozen=True, slots=True)
class Sample:
    """Tokens that were sampled after a prompt.

    Attributes:
        ids: The ids, with the one that ended the reply.
        logprobs: Their log-probabilities under the distribution that they were drawn from, in nats.
        version: The version of the weights.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int


class Sampler(Protocol):
    """A backend that samples: token ids in, ids and log-probabilities out.

    Attributes:
        context: The most tokens of a prompt and its reply.
    """

    context: int

    @property
    def version(self) -> int:
        """Return the version of the weights, which grows when they change."""

    def sample(
        self, prompts: Sequence[tuple[int, ...]], options: SamplingOptions
    ) -> Sequence[Sample | PolicyError]:
        """Return a sample for each prompt, in order, or the cause why that one has none."""

    def seed(self, seed: int) -> None:
        """Seed the draws."""

    def update(self, model: Any, tokenizer: Any) -> None:
        """Sample with the weights of a model of transformers from now on."""


class RequestSeeds:
    """Seeds of requests to a backend that takes one with each: those of a run differ, and are the
    same in the next run.

    Args:
        seed: Seeds them all.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed, self._count = seed, 0

    def draw(self, count: int) -> list[int]:
        """Return the seeds of so many requests."""
        start, self._count = self._count, self._count + count
        return list(map(int, np.random.SeedSequence([self._seed, start]).generate_state(count)))


def find_fault(
    sample: Sample, options: SamplingOptions, vocabulary: int | None = None
) -> str | None:
    """Return the reason why a sample cannot be trained on, or None. Whatever a backend answers is
    checked before it is played, so that nothing malformed is learnt from.

    Args:
        sample: The answer of a backend.
        options: What it was asked for.
        vocabulary: The ids that the model has; None if they are not known.
    """
    ids, logprobs = sample.ids, sample.logprobs
    if not ids:
        return "it has no tokens"
    if len(ids) != len(logprobs):
        return f"it has {len(ids)} ids and {len(logprobs)} log-probabilities"
    if len(ids) > options.max_new_tokens:
        return f"it has {len(ids)} tokens and {options.max_new_tokens} were asked for"
    for k, (token, logprob) in enumerate(zip(ids, logprobs, strict=True)):
        if type(token) is not int or not 0 <= token < (vocabulary or math.inf):
            return f"token {k} is {token!r}, which is no id of the model"
        if not isinstance(logprob, float) or not math.isfinite(logprob) or logprob > ROUNDING:
            return f"token {k} has the log-probability {logprob!r}"
    if early := options.stops.intersection(ids[:-1]):
        return f"it goes on after the end of the reply (id {min(early)})"
    return None
