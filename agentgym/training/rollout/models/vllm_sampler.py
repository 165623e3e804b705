"""Sampler that uses vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm import LLM, SamplingParams  # type: ignore[import-not-found,unused-ignore]
from vllm.lora.request import LoRARequest  # type: ignore[import-not-found,unused-ignore]
from vllm.platforms import current_platform  # type: ignore[import-not-found,unused-ignore]

from agentgym.play.policy import PolicyError
from agentgym.training.rollout.models.pretrained import has_adapter, save_model
from agentgym.training.rollout.models.sampling import RequestSeeds, Sample, SamplingOptions

_ADAPTER = "agentgym"
# Finish reasons of complete replies; others (`abort`, `error`) mean an incomplete reply.
_ENDINGS = ("stop", "length")
# Sample from the model's own distribution and stop only at the given ids; otherwise vLLM would
# apply the model's `generation_config`.
_PLAIN_SAMPLING: dict[str, Any] = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "ignore_eos": True,
    "skip_special_tokens": False,
}


class VLLMSampler:
    """Sampler that runs vLLM in this process. Untested on a GPU.

    vLLM refuses temperatures above 2.

    Args:
        model: Transformers folder for `vllm.LLM`, including the tokenizer.
        folder: Folder for updated weights, created if missing.
        sleeps: Whether to release GPU memory during weight updates.
        **options: Options of `vllm.LLM`, such as `enable_lora=True` and `max_lora_rank` for
            adapters.
    """

    def __init__(
        self, model: str, folder: Path, seed: int = 0, *, sleeps: bool = False, **options: Any
    ) -> None:
        # By default vLLM reports log-probabilities before the temperature is applied.
        options = {"logprobs_mode": "processed_logprobs", "enable_sleep_mode": sleeps, **options}
        self._llm = LLM(model=model, seed=seed, **options)
        self.folder, self.sleeps = folder, sleeps
        self.context: int = self._llm.model_config.max_model_len
        self._adapter: Any = None
        self.version, self._seeds = 0, RequestSeeds(seed)

    def seed(self, seed: int) -> None:
        """Set the seed of the sampler."""
        self._seeds = RequestSeeds(seed)

    def sample(
        self, prompts: Sequence[tuple[int, ...]], options: SamplingOptions
    ) -> Sequence[Sample | PolicyError]:
        """Return a sample, or an error, for each prompt in order."""
        outcomes: list[Sample | PolicyError] = [
            PolicyError(f"a prompt has {len(prompt)} tokens but vLLM's context is {self.context}")
            for prompt in prompts
        ]
        seeds = self._seeds.draw(len(prompts))
        fitting = [k for k, prompt in enumerate(prompts) if len(prompt) < self.context]
        if not fitting:
            return outcomes
        outputs = self._llm.generate(
            [{"prompt_token_ids": list(prompts[k])} for k in fitting],
            [self._params(prompts[k], seeds[k], options) for k in fitting],
            use_tqdm=False,
            lora_request=self._adapter,
        )
        for k, output in zip(fitting, outputs, strict=True):
            outcomes[k] = _to_sample(output, prompts[k], self.version)
        return outcomes

    def _params(self, prompt: tuple[int, ...], seed: int, options: SamplingOptions) -> Any:
        return SamplingParams(
            temperature=options.temperature,
            max_tokens=min(options.max_new_tokens, self.context - len(prompt)),
            stop_token_ids=sorted(options.stops),
            logprobs=0,  # only the sampled token's log-probability
            seed=seed,
            detokenize=False,
            **_PLAIN_SAMPLING,
        )

    def update(self, model: Any, tokenizer: Any) -> None:
        """Write a model's weights to the folder and have vLLM load them."""
        _check_output_weights(model)
        save_model(model, tokenizer, self.folder)
        path = str(self.folder.resolve())
        self.version += 1
        if has_adapter(model):  # a new version number makes vLLM read the folder again
            self._adapter = LoRARequest(_ADAPTER, self.version, path)
        else:
            self._reload(path)
        # vLLM keys cached states by an adapter's name and path, not by its weights.
        if not self._llm.reset_prefix_cache():
            raise RuntimeError("vLLM did not reset its prefix cache")

    def _reload(self, path: str) -> None:
        if self.sleeps:
            self._llm.sleep(level=2)
            self._llm.wake_up(tags=["weights"])
        self._llm.collective_rpc("reload_weights", kwargs={"weights_path": path})
        if self.sleeps:
            self._llm.wake_up(tags=["kv_cache"])


def _check_output_weights(model: Any) -> None:
    # On a CPU, vLLM 0.32.0 never reloads its packed copy of tied weights.
    if has_adapter(model) or not current_platform.is_cpu():
        return
    if model.get_output_embeddings().weight is model.get_input_embeddings().weight:
        raise ValueError(
            "on a CPU, vLLM does not reload output weights that are tied to the embeddings; train "
            "adapters, or sample with transformers"
        )


def _to_sample(output: Any, prompt: tuple[int, ...], version: int) -> Sample | PolicyError:
    if list(output.prompt_token_ids or ()) != list(prompt):
        return PolicyError("vLLM used another prompt")
    completion = output.outputs[0]
    if completion.finish_reason not in _ENDINGS:
        return PolicyError(f"a vLLM reply ended with finish_reason {completion.finish_reason!r}")
    ids = tuple(completion.token_ids)
    steps = completion.logprobs or ()
    if len(steps) != len(ids) or any(i not in step for i, step in zip(ids, steps, strict=True)):
        return PolicyError(f"vLLM returned {len(ids)} ids without matching log-probabilities")
    logprobs = (float(step[i].logprob) for i, step in zip(ids, steps, strict=True))
    return Sample(ids, tuple(logprobs), version)
