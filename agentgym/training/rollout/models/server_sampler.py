"""Sampler that calls an OpenAI-compatible server with token ids, such as vLLM."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, NamedTuple, cast

import openai
from pydantic import Field

from agentgym.play.policy import PolicyError
from agentgym.training.rollout.endpoints.answers import AnswerError, quote
from agentgym.training.rollout.endpoints.chat_completions import to_usage
from agentgym.training.rollout.endpoints.config import RequestConfig
from agentgym.training.rollout.endpoints.connection import EndpointError
from agentgym.training.rollout.endpoints.endpoint import HttpClient
from agentgym.training.rollout.models.sampling import RequestSeeds, Sample, SamplingOptions
from agentgym.training.rollout.token_usage import EndpointUsage
from agentgym.world.config import TokenCount

# Name under which the server loads the LoRA adapter.
ADAPTER_NAME = "agentgym"
# Finish reasons of complete replies; others (`abort`, `error`) mean that the reply was cut off.
ENDINGS = frozenset({"stop", "length"})
# vLLM options that sample from the model's own distribution and stop only at the given ids;
# otherwise the server would apply the model's `generation_config`.
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


@dataclass(frozen=True)
class SamplingServerConfig(RequestConfig):
    """Options of `ServerSampler` and `RequestConfig`.

    Attributes:
        base_url: The API's URL up to, but without, `/completions`.
        context: Maximum tokens of prompt plus reply, as the server was started with
            (`--max-model-len`).
        extra_body: Additional request fields.

    Raises:
        ValueError: An option is out of range.
    """

    base_url: str = "http://127.0.0.1:8000/v1"
    api_key_env: str = "OPENAI_API_KEY"
    context: Annotated[int, Field(ge=2, le=10**9), TokenCount()] = field(kw_only=True)
    extra_body: Mapping[str, Any] = field(default_factory=dict)


class _Prompt(NamedTuple):
    """Sampling request; `version` is the required version of the weights, 0 for any."""

    ids: tuple[int, ...]
    body: Mapping[str, Any]
    version: int


class ServerSampler(HttpClient[SamplingServerConfig, _Prompt, Sample]):
    """Sampler that uses a server's `/v1/completions` endpoint. Untested on a GPU.

    The server must accept prompts as token ids and return the sampled ids (`return_token_ids`), as
    vLLM does since 0.10.2, and log-probabilities of the distribution that it samples from (vLLM:
    `--logprobs-mode processed_logprobs`). A prompt without a usable answer costs only its episode.

    `update` writes the weights to the shared folder and asks the server to load them. For this,
    vLLM needs `VLLM_SERVER_DEV_MODE=1`, and for adapters `--enable-lora` and
    `VLLM_ALLOW_RUNTIME_LORA_UPDATING=1`.

    Args:
        folder: Shared folder for weights; None if the weights never change.
        seed: Seeds the sampling; each request gets its own seed.
    """

    sdk: ClassVar[ModuleType] = openai
    client = openai.AsyncOpenAI
    path = "/completions"
    remedies: ClassVar[Mapping[int, str]] = {
        400: "correct the options; the prompt and its reply must fit into the server's context",
        404: "check model and base_url, which usually ends in /v1; vLLM accepts weights "
        "only with VLLM_SERVER_DEV_MODE=1",
    }
    answer: ClassVar[str] = "completion with token ids"

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
        """Seed the sampling."""
        self._seeds = RequestSeeds(seed)

    def request(self, prompt: _Prompt) -> dict[str, Any]:
        """Return the request body."""
        return dict(prompt.body)

    def read(self, prompt: _Prompt, answer: Any) -> tuple[Sample, EndpointUsage]:
        """Convert an answer."""
        return to_sample(answer, prompt.ids, prompt.version), to_usage(answer)

    def sample(
        self, prompts: Sequence[tuple[int, ...]], options: SamplingOptions
    ) -> Sequence[Sample | PolicyError]:
        """Return a sample, or an error, for each prompt in order."""
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
            "logprobs": 0,  # only the sampled token's
            "seed": seed,
            **PLAIN_SAMPLING,
            "stop_token_ids": sorted(options.stops),
            "return_token_ids": True,
            "return_weight_versions": True,
            **self.config.extra_body,
        }

    def update(self, model: Any, tokenizer: Any) -> None:
        """Write the model's weights to the folder and have the server load them.

        Raises:
            ValueError: There is no folder.
            EndpointError: The server does not load them.
        """
        if self.folder is None:
            raise ValueError(
                "ServerSampler has no folder for weights; give it one that the server can read"
            )
        from agentgym.training.rollout.models.pretrained import has_adapter, save_model  # noqa: PLC0415 - needs another extra

        save_model(model, tokenizer, self.folder)
        folder = str(self.folder.resolve())
        if has_adapter(model):
            adapter = {"lora_name": ADAPTER_NAME, "lora_path": folder, "load_inplace": True}
            self._control("v1/load_lora_adapter", adapter)
            self._model = ADAPTER_NAME
        else:
            reload = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
            self._control("collective_rpc", reload)
        if not self._control("reset_prefix_cache", {}).get("success"):
            raise EndpointError(
                f"{self.config.base_url} did not reset its prefix cache; update "
                "when no request is running"
            )
        self.version += 1
        self._control("update_weight_version", {"new_version": str(self.version)})

    def _control(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        root = self.config.base_url.rstrip("/").removesuffix("/v1")
        try:
            with openai.OpenAI(**self.config.client_options()) as client:
                text = client.post(f"{root}/{path}", body=dict(body), cast_to=str)
        except openai.APIError as error:
            raise self.explain(error, 1) from error
        try:
            answer = json.loads(text)
        except ValueError:  # some confirmations are sentences
            return {}
        return answer if isinstance(answer, dict) else {}


def to_sample(answer: Any, prompt: Sequence[int], version: int) -> Sample:
    """Convert a completion to a sample; a malformed one raises an error in `MALFORMED`.

    Raises:
        AnswerError: A part is missing, the reply was cut off, or it belongs to another prompt or to
            weights other than `version` (0 for any).
    """
    choice = answer["choices"][0]
    ids = choice.get("token_ids")
    logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
    if not isinstance(ids, list) or not isinstance(logprobs, list):
        raise AnswerError(
            "it has no token_ids or no token_logprobs; the server must support return_token_ids, "
            f"as vLLM does: {quote(answer)}"
        )
    ending = choice.get("finish_reason")
    if ending not in ENDINGS:
        raise AnswerError(f"the reply ended with finish_reason {quote(ending)}")
    seen = choice.get("prompt_token_ids")
    if seen is not None and seen != list(prompt):
        raise AnswerError(f"the server used another prompt: {quote(seen)}")
    for span in choice.get("weight_versions") or ():
        if version and span["version"] != str(version):
            raise AnswerError(
                f"the server sampled with weights {quote(span['version'])} instead of {version}"
            )
    return Sample(
        tuple(ids),
        # Some servers write whole numbers without a decimal point.
        tuple(float(score) if type(score) is int else score for score in logprobs),
        version,
    )
