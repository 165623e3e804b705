"""Sampler behind an OpenAI-compatible server that takes and returns token ids: that of vLLM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import httpx2
from pydantic import Field

from agentgym.play.policy import PolicyError
from agentgym.training.rollout.endpoints.chat_completions import (
    AnswerError,
    dig,
    load_json,
    load_json_or_none,
    quote,
    to_usage,
)
from agentgym.training.rollout.endpoints.endpoint import (
    Client,
    EndpointError,
    HttpClient,
    RequestConfig,
)
from agentgym.training.rollout.models.sampling import RequestSeeds, Sample, SamplingOptions
from agentgym.training.rollout.openai_policy import OpenAIClient, failures_of_openai
from agentgym.training.rollout.token_usage import EndpointUsage
from agentgym.world.config import TokenCount

ADAPTER_NAME = "agentgym"
"""The name by which a server knows the adapter that was handed to it."""
ENDINGS = frozenset({"stop", "length"})
"""Reasons for which a reply may end; any other (`abort`, `error`) says that it was cut off."""
PLAIN_SAMPLING: Mapping[str, Any] = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "ignore_eos": True,
    "skip_special_tokens": False,
}
"""Options of vLLM under which a reply is drawn from the distribution of the model and ends where we
say. A backend would else take those of the model's `generation_config`.
"""


@dataclass(frozen=True)
class SamplingServerConfig(RequestConfig):
    """Options of `ServerSampler`, besides those of `RequestConfig`.

    Attributes:
        base_url: Where the API is, up to the part before `/completions`.
        context: The most tokens of a prompt and its reply, as the server was started with
            (`--max-model-len`).
        extra_body: Further fields of the requests.

    Raises:
        ValueError: An option is out of range.
    """

    base_url: str = "http://127.0.0.1:8000/v1"
    api_key_env: str = "OPENAI_API_KEY"
    context: Annotated[int, Field(ge=2, le=10**9), TokenCount()] = field(kw_only=True)
    extra_body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Prompt:
    """One request.

    Attributes:
        ids: The ids of the prompt.
        body: The fields of the request.
        version: The version of the weights that has to answer; 0 if it does not matter.
    """

    ids: tuple[int, ...]
    body: Mapping[str, Any]
    version: int


@dataclass(frozen=True, slots=True)
class _Control:
    """A request to a path of the server beside its API, whose answer is JSON, if it has a body."""

    path: str
    body: Mapping[str, Any]


class ServerSampler(HttpClient[SamplingServerConfig, _Prompt | _Control, Any]):
    """Samples behind the endpoint `/v1/completions` of a server that takes a prompt as token ids
    and returns the ids that it drew (`return_token_ids`), such as vLLM since 0.10.2. Requests are
    sent again after failures that may pass; a prompt that gets no usable answer costs its episode
    alone. Untested on a GPU.

    The server must report the log-probabilities of the distribution that it draws from (vLLM:
    `--logprobs-mode processed_logprobs`). `update` writes the weights to a folder that both see,
    and has the server read them, for which vLLM needs `VLLM_SERVER_DEV_MODE=1`, and for adapters
    `--enable-lora` with `VLLM_ALLOW_RUNTIME_LORA_UPDATING=1`.

    Args:
        config: The server.
        folder: Where weights are handed over; None for a server whose weights stay as they are.
        seed: Seeds the draws: each request has a seed of its own.

    Attributes:
        context: The most tokens of a prompt and its reply.
        version: The number of times that weights were handed over.
    """

    remedies: ClassVar[Mapping[int, str]] = {
        400: "correct the options; the prompt and its reply must fit into the server's context",
        404: "check model and base_url, which mostly ends in /v1; weights are handed over to vLLM "
        "only with VLLM_SERVER_DEV_MODE=1",
    }
    answer = "completion with token ids"

    def __init__(
        self, config: SamplingServerConfig, folder: Path | None = None, seed: int = 0
    ) -> None:
        super().__init__(config)
        self.context, self.folder = config.context, folder
        self._model, self.version = config.model, 0
        self._seeds = RequestSeeds(seed)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.config, self.folder)

    def seed(self, seed: int) -> None:
        """Seed the draws."""
        self._seeds = RequestSeeds(seed)

    def connect(self) -> Client[_Prompt | _Control, Any]:
        """Return a client of the server."""
        return _Client(self.config)

    def sample(
        self, prompts: Sequence[tuple[int, ...]], options: SamplingOptions
    ) -> Sequence[Sample | PolicyError]:
        """Return a sample for each prompt, in order, or the cause why that one has none."""
        requests = [
            _Prompt(prompt, self._body(prompt, options, seed), self.version)
            for prompt, seed in zip(prompts, self._seeds.draw(len(prompts)), strict=True)
        ]
        try:
            return self.ask(requests)
        except EndpointError as error:
            if len(error.replies) != len(prompts):
                raise
            return cast("Sequence[Sample | PolicyError]", error.replies)

    def _body(self, prompt: tuple[int, ...], options: SamplingOptions, seed: int) -> dict[str, Any]:
        return {
            "model": self._model,
            "prompt": list(prompt),
            "max_tokens": min(options.max_new_tokens, self.context - len(prompt)),
            "temperature": options.temperature,
            "logprobs": 0,  # of the token that was drawn alone
            "seed": seed,
            "extra_body": {
                **PLAIN_SAMPLING,
                "stop_token_ids": sorted(options.stops),
                "return_token_ids": True,
                "return_weight_versions": True,
                **self.config.extra_body,
            },
        }

    def update(self, model: Any, tokenizer: Any) -> None:
        """Write the weights of a model to the folder and have the server sample with them.

        Raises:
            ValueError: There is no folder.
            EndpointError: The server does not take them.
        """
        if self.folder is None:
            raise ValueError(
                "the weights of this server stay as they are; give ServerSampler a folder that it "
                "can read, in which they are handed over"
            )
        from agentgym.training.rollout.models.pretrained import has_adapter, save_model  # noqa: PLC0415 - needs another extra

        save_model(model, tokenizer, self.folder)
        folder = str(self.folder.resolve())
        if has_adapter(model):
            adapter = {"lora_name": ADAPTER_NAME, "lora_path": folder, "load_inplace": True}
            self.ask([_Control("v1/load_lora_adapter", adapter)])
            self._model = ADAPTER_NAME
        else:
            reload = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
            self.ask([_Control("collective_rpc", reload)])
        (forgotten,) = self.ask([_Control("reset_prefix_cache", {})])
        if not dig(forgotten, "success"):
            raise EndpointError(
                f"{self.config.base_url} did not forget the states of the weights before; update "
                "when no request is running"
            )
        self.version += 1
        self.ask([_Control("update_weight_version", {"new_version": str(self.version)})])


class _Client(OpenAIClient[SamplingServerConfig]):
    """Client of a completions endpoint."""

    async def ask(self, question: _Prompt | _Control) -> tuple[Any, EndpointUsage]:
        """Sample after a prompt, or change something."""
        if isinstance(question, _Control):
            root = self._config.base_url.rstrip("/").removesuffix("/v1")
            with failures_of_openai():
                done = await self._client.post(
                    f"{root}/{question.path}",
                    body=dict(question.body),
                    cast_to=httpx2.Response,
                )
            return load_json_or_none(done.text), EndpointUsage()
        with failures_of_openai():
            response = await self._client.completions.with_raw_response.create(**question.body)
        answer = load_json(response.http_response.text)
        return to_sample(answer, question.ids, question.version), to_usage(answer)


def to_sample(answer: Any, prompt: Sequence[int], version: int) -> Sample:
    """Return the sample in a completion.

    Args:
        answer: The completion, as plain data.
        prompt: The ids that it should be sampled after.
        version: The version of the weights that should have sampled; 0 for any.

    Raises:
        AnswerError: A part is missing, the reply was cut off, or it belongs to another prompt or
            to other weights.
    """
    choice = dig(answer, "choices", 0)
    ids, logprobs = dig(choice, "token_ids"), dig(choice, "logprobs", "token_logprobs")
    if not isinstance(ids, list) or not isinstance(logprobs, list):
        raise AnswerError(
            "it has no token_ids or no token_logprobs; the server has to know return_token_ids, "
            f"as vLLM does: {quote(answer)}"
        )
    if dig(choice, "finish_reason") not in ENDINGS:
        raise AnswerError(f"the reply ended by {quote(dig(choice, 'finish_reason'))}")
    seen = dig(choice, "prompt_token_ids")
    if seen is not None and seen != list(prompt):
        raise AnswerError(f"the server sampled after another prompt: {quote(seen)}")
    for span in dig(choice, "weight_versions") or ():
        if version and dig(span, "version") != str(version):
            raise AnswerError(
                f"weights {quote(dig(span, 'version'))} sampled, where {version} were handed over"
            )
    return Sample(
        tuple(ids),
        # JSON has no floats: some servers write a whole number without its point.
        tuple(float(score) if type(score) is int else score for score in logprobs),
        version,
    )
