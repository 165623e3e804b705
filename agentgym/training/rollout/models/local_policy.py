"""Policies that sample and store token ids, so no text is tokenised twice."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from agentgym.play.policy import PolicyError, Reply
from agentgym.text.messages import Chat
from agentgym.text.token_ids import TokenIds
from agentgym.text.validation import check_float, check_int
from agentgym.training.rollout.models.renderer import Renderer, list_ids
from agentgym.training.rollout.models.sampler import BATCH, TransformersSampler
from agentgym.training.rollout.models.sampling import Sample, Sampler, SamplingOptions, find_fault


class TokenPolicy:
    """Policy that uses any token sampler. Chats with images raise `ImageError`.

    Args:
        renderer: Converts chats to ids with the tokenizer of the sampler's model.
        temperature: Sampling temperature; 0 for greedy decoding.
        max_new_tokens: Maximum reply length in tokens.
        vocabulary: The number of ids in the model's vocabulary, if known; samples with larger ids
            are rejected.
    """

    def __init__(
        self,
        sampler: Sampler,
        renderer: Renderer,
        temperature: float = 1.0,
        max_new_tokens: int = 64,
        seed: int = 0,
        *,
        vocabulary: int | None = None,
    ) -> None:
        check_float("temperature", temperature, 0.0, 100.0)
        check_int("max_new_tokens", max_new_tokens, 1, 1_000_000)
        self.sampler, self.renderer = sampler, renderer
        self.temperature, self.max_new_tokens, self.seed = temperature, max_new_tokens, seed
        self.vocabulary = vocabulary
        sampler.seed(seed)

    def reseed(self, number: int) -> None:
        """Reseed the sampler with a seed derived from the policy's seed and `number`."""
        (mixed,) = np.random.SeedSequence([self.seed, number]).generate_state(1)
        self.sampler.seed(int(mixed))

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Return a reply for each chat; if some chats fail, `PolicyError.replies` contains the
        valid replies.
        """
        prompts = [self.renderer.ids(chat) for chat in chats]
        fitting = [k for k, prompt in enumerate(prompts) if len(prompt) < self.sampler.context]
        options = SamplingOptions(self.temperature, self.max_new_tokens, self.renderer.stops)
        samples = self.sampler.sample([tuple(prompts[k]) for k in fitting], options)
        if len(samples) != len(fitting):
            raise PolicyError(f"sampler returned {len(samples)} samples for {len(fitting)} prompts")
        outcomes: list[Reply | PolicyError] = [
            PolicyError(
                f"a prompt has {len(prompt)} tokens but the model's context is "
                f"{self.sampler.context}; use a window or a longer context"
            )
            for prompt in prompts
        ]
        for k, sample in zip(fitting, samples, strict=True):
            outcomes[k] = self._read(sample, chats[k], prompts[k], options)
        for chat, outcome in zip(chats, outcomes, strict=True):
            if isinstance(outcome, Reply):
                self.renderer.remember(chat, outcome)
        if errors := [outcome for outcome in outcomes if isinstance(outcome, PolicyError)]:
            whole = copy.copy(errors[0])
            whole.replies = outcomes
            raise whole
        return cast("list[Reply]", outcomes)

    def _read(
        self, sample: Sample | PolicyError, chat: Chat, prompt: TokenIds, options: SamplingOptions
    ) -> Reply | PolicyError:
        if isinstance(sample, PolicyError):
            return sample
        if fault := find_fault(sample, options, self.vocabulary):
            return PolicyError(f"the sample is invalid: {fault}")
        text = self._text(chat, prompt, sample.ids)
        return Reply(text, prompt, sample.ids, sample.logprobs)

    def _text(self, chat: Chat, prompt: TokenIds, ids: Sequence[int]) -> str:
        return self.renderer.decode(ids)


class LocalPolicy(TokenPolicy):
    """Policy that runs a transformers causal language model, with at most `batch_size` prompts per
    forward pass. For `template` and `native_tools`, see `ModelOptions`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        temperature: float = 1.0,
        max_new_tokens: int = 64,
        seed: int = 0,
        *,
        batch_size: int = BATCH,
        template: Mapping[str, Any] | None = None,
        native_tools: bool = False,
    ) -> None:
        renderer = make_renderer(model, tokenizer, template, native_tools=native_tools)
        sampler = TransformersSampler(model, renderer.pad, batch_size=batch_size)
        super().__init__(
            sampler,
            renderer,
            temperature,
            max_new_tokens,
            seed,
            vocabulary=count_ids(model),
        )
        self.model = model


def count_ids(model: PreTrainedModel) -> int:
    """Return a model's vocabulary size, which may exceed the tokenizer's."""
    embeddings: Any = model.get_input_embeddings()
    return int(embeddings.weight.shape[0])


def make_renderer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    template: Mapping[str, Any] | None = None,
    *,
    native_tools: bool = False,
) -> Renderer:
    """Return a renderer that uses the model's stop ids."""
    stops = list_ids(getattr(model.generation_config, "eos_token_id", None))
    return Renderer(tokenizer, stops, template, native_tools=native_tools)
