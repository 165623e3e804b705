"""Policies over a sampler of tokens: ids are sampled once and kept, and no text is tokenised a
second time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from agentgym.arguments import check_float, check_int
from agentgym.messages import Chat
from agentgym.policy import PolicyError, Reply
from agentgym.training.rollout.renderer import Renderer, stop_ids
from agentgym.training.rollout.sampler import BATCH, Sampler, SamplingOptions, TransformersSampler


class TokenPolicy:
    """Plays with whatever samples tokens. Pictures are left out; `render="scene"` describes them
    in words.

    Args:
        sampler: Samples the tokens.
        renderer: Turns chats into token ids, with the tokenizer of the sampler's model.
        temperature: Of the sampling; 0 for the most probable token.
        max_new_tokens: The most tokens of a reply.
        seed: Seeds the sampling.
    """

    def __init__(
        self,
        sampler: Sampler,
        renderer: Renderer,
        temperature: float = 1.0,
        max_new_tokens: int = 64,
        seed: int = 0,
    ) -> None:
        check_float("temperature", temperature, 0.0, 100.0)
        check_int("max_new_tokens", max_new_tokens, 1, 1_000_000)
        self.sampler, self.renderer = sampler, renderer
        self.temperature, self.max_new_tokens, self.seed = temperature, max_new_tokens, seed
        sampler.seed(seed)

    def reseed(self, number: int) -> None:
        """Seed the sampling by the number of this copy of the policy, so that copies draw
        differently.
        """
        mixed = np.random.SeedSequence([self.seed, number]).generate_state(1)
        self.sampler.seed(int(mixed[0]))

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Reply to all chats.

        Raises:
            PolicyError: A prompt leaves no room in the model's context; the others have replies.
        """
        prompts = [self.renderer.ids(chat) for chat in chats]
        fitting = [k for k, prompt in enumerate(prompts) if len(prompt) < self.sampler.context]
        options = SamplingOptions(self.temperature, self.max_new_tokens, self.renderer.stops)
        samples = self.sampler.sample([tuple(prompts[k]) for k in fitting], options)
        replies: dict[int, Reply] = {}
        for k, sample in zip(fitting, samples, strict=True):
            text = self.renderer.decode(sample.ids)
            replies[k] = Reply(text, prompts[k], sample.ids, sample.logprobs)
            self.renderer.remember(chats[k], replies[k])
        if len(replies) < len(chats):
            raise self._too_long(prompts, replies)
        return [replies[k] for k in range(len(chats))]

    def _too_long(
        self, prompts: Sequence[Sequence[int]], replies: Mapping[int, Reply]
    ) -> PolicyError:
        def describe(length: int) -> PolicyError:
            return PolicyError(
                f"a prompt has {length} tokens and the model takes {self.sampler.context}; play "
                "with a window or a longer context"
            )

        error = describe(max(map(len, prompts)))
        error.replies = [
            replies[k] if k in replies else describe(len(prompt))
            for k, prompt in enumerate(prompts)
        ]
        return error


class LocalPolicy(TokenPolicy):
    """Plays with a causal language model of transformers in this process.

    Args:
        model: The model; its device is where it runs.
        tokenizer: Its tokenizer, with a chat template.
        temperature: Of the sampling; 0 for the most probable token.
        max_new_tokens: The most tokens of a reply.
        seed: Seeds the sampling; the global generator is not touched.
        batch_size: The most prompts that go through the model together.
        template: Variables of the chat template, such as `enable_thinking`.
        native_tools: Pass the schemas of the tools to the template too.

    Attributes:
        renderer: Turns chats into token ids.
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
        super().__init__(sampler, renderer, temperature, max_new_tokens, seed)
        self.model = model


def make_renderer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    template: Mapping[str, Any] | None = None,
    *,
    native_tools: bool = False,
) -> Renderer:
    """Return a renderer that ends replies where the model does."""
    stops = stop_ids(model.generation_config)
    return Renderer(tokenizer, stops, template, native_tools=native_tools)
