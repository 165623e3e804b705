"""Model options, and the interface between training and samplers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from pydantic import Field

from agentgym.play.policy import PolicyError
from agentgym.text.validation import check_float, check_int
from agentgym.world.config import Config, TokenCount

# Maximum log-probability in nats: bfloat16 rounding can produce values slightly above 0.
_ROUNDING = 0.01
DType = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Config):
    """Options of a local transformers model.

    Attributes:
        device: PyTorch device; `auto` selects a GPU if available.
        dtype: Data type of the weights; `auto` uses the checkpoint's type on a GPU, and `float32`
            on a CPU because bfloat16 is slow on most CPUs.
        temperature: Sampling temperature; 0 or None for greedy decoding.
        max_new_tokens: Maximum reply length in tokens; None uses the model folder's limit, or 512.
        batch_size: Maximum number of concurrent episodes, which form one batch.
        template: Variables for the chat template, such as `enable_thinking`.
        native_tools: Whether to also pass tool schemas to the chat template.
    """

    device: str = "auto"
    dtype: DType = "auto"
    temperature: Annotated[float, Field(ge=0.0, le=100.0)] | None = None
    max_new_tokens: Annotated[int, Field(ge=1, le=1_000_000), TokenCount()] | None = None
    batch_size: Annotated[int, Field(ge=1, le=100_000)] = 32
    template: Mapping[str, Any] = field(default_factory=dict)
    native_tools: bool = False

    def to_json(self) -> str:
        """Return the options as JSON text."""
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """Options of one request."""

    temperature: float
    max_new_tokens: int
    stops: frozenset[int]

    def __post_init__(self) -> None:
        check_float("temperature", self.temperature, 0.0, 100.0)
        check_int("max_new_tokens", self.max_new_tokens, 1, 1_000_000)


@dataclass(frozen=True, slots=True)
class Sample:
    """Sampled reply tokens, including the stop id, with log-probabilities in nats."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int


class Sampler(Protocol):
    """Sampling backend that maps prompts' token ids to sampled ids and log-probabilities."""

    context: int

    @property
    def version(self) -> int:
        """Version number of the weights, which increases with each change."""

    def sample(
        self, prompts: Sequence[tuple[int, ...]], options: SamplingOptions
    ) -> Sequence[Sample | PolicyError]:
        """Return a sample, or an error, for each prompt in order."""

    def seed(self, seed: int) -> None:
        """Set the seed of the sampler."""

    def update(self, model: Any, tokenizer: Any) -> None:
        """Switch to the weights of a transformers model."""


class RequestSeeds:
    """Distinct, reproducible seeds for requests to a backend."""

    def __init__(self, seed: int = 0) -> None:
        self._seed, self._count = seed, 0

    def draw(self, count: int) -> list[int]:
        """Return seeds for `count` requests."""
        start, self._count = self._count, self._count + count
        return list(map(int, np.random.SeedSequence([self._seed, start]).generate_state(count)))


def find_fault(
    sample: Sample, options: SamplingOptions, vocabulary: int | None = None
) -> str | None:
    """Return the reason why a sample cannot be used for training, or None."""
    # Samples are checked before they are played, so that malformed samples never reach training.
    ids, logprobs = sample.ids, sample.logprobs
    if not ids:
        return "it has no tokens"
    if len(ids) != len(logprobs):
        return f"it has {len(ids)} ids and {len(logprobs)} log-probabilities"
    if len(ids) > options.max_new_tokens:
        return f"it has {len(ids)} tokens and the limit is {options.max_new_tokens}"
    for k, (token, logprob) in enumerate(zip(ids, logprobs, strict=True)):
        if type(token) is not int or not 0 <= token < (vocabulary or math.inf):
            return f"token {k} is {token!r}, which is not an id of the model"
        if not isinstance(logprob, float) or not math.isfinite(logprob) or logprob > _ROUNDING:
            return f"token {k} has the log-probability {logprob!r}"
    if early := options.stops.intersection(ids[:-1]):
        return f"it continues after the stop id {min(early)}"
    return None
