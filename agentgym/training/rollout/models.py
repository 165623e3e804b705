"""Small language models made on the spot, and the policy that plays with any causal language model
of transformers.

Token ids are sampled once and kept: a prompt that continues an earlier prompt and its reply is
built from their ids, and text is never tokenised a second time.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

from agentgym.arguments import check_float, check_int
from agentgym.messages import Chat
from agentgym.policy import PolicyError, Reply
from agentgym.training.rollout.storage import filling

END = "<|end|>"
PAD = "<|pad|>"
_ROLES = {
    "system": "<|system|>",
    "user": "<|user|>",
    "assistant": "<|assistant|>",
    "tool": "<|tool|>",
}
TOKENIZER, MODEL = "tokenizer_config.json", "config.json"
"""The files that are written last, so that their presence says that the others are there."""
_REMEMBERED = 4_096
"""Prompts whose ids are kept: those of all episodes that are played at once have to fit."""

TEMPLATE = (
    "{% for message in messages %}{% if message.role != 'system' %}"
    "{{ '<|' + message.role + '|>' + message.content + '<|end|>' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""The chat template of a model made on the spot.

It leaves out the system message, which is the same in all episodes of a world.
"""


def make_tokenizer(texts: Iterable[str], size: int = 512) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on texts, in which a number is one token if its digits are
    among the merges.

    Args:
        texts: The texts to train on.
        size: The most entries of the vocabulary, at least 256 for the bytes.
    """
    check_int("size", size, 300, 1_000_000)
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(r"[0-9]{1,3}|[^0-9]+"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[PAD, END, *_ROLES.values()],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast: Any = PreTrainedTokenizerFast  # it has no types
    tokenizer_fast: PreTrainedTokenizerFast = fast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, chat_template=TEMPLATE
    )
    return tokenizer_fast


def make_model(
    tokenizer: PreTrainedTokenizerBase,
    width: int = 128,
    layers: int = 3,
    heads: int = 4,
    context: int = 1_024,
    seed: int = 0,
) -> GPT2LMHeadModel:
    """Return a randomly initialised transformer for a tokenizer, without touching the global random
    generator.

    It is of the GPT-2 kind: with learned absolute positions, a small model learns to name places in
    a list much sooner than with rotary ones, from which it would first have to count. The weights
    begin at the scale of the width.

    Args:
        tokenizer: Gives the size of the vocabulary.
        width: The width of the residual stream; a multiple of the heads.
        layers: The number of layers.
        heads: The number of attention heads.
        context: The most tokens of a prompt and its reply.
        seed: Seeds the weights.
    """
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=context,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        activation_function="gelu_pytorch_tanh",
        initializer_range=width**-0.5,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GPT2LMHeadModel(config)


def mimic(model: GPT2LMHeadModel) -> None:
    """Let keys begin as queries (Trockman and Kolter 2023, Mimetic Initialization of Self-Attention
    Layers).

    So a token attends first to those that are the same, and a small model learns to copy and to
    compare in hundreds of steps in place of thousands.
    """
    width = model.config.n_embd
    blocks: Any = model.transformer.h
    with torch.no_grad():
        for block in blocks:
            query_key_value = block.attn.c_attn.weight
            query_key_value[:, width : 2 * width] = query_key_value[:, :width]


class Renderer:
    """Turns chats into token ids, reusing the ids of earlier prompts and replies.

    An assistant message is rendered as the exact text that was written. A template that edits
    history (one that strips earlier thinking, say) makes a prompt that does not begin with the one
    before; it is tokenised again, and training cuts there.

    Args:
        tokenizer: With a chat template.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self._cache: OrderedDict[str, tuple[int, ...]] = OrderedDict()

    def ids(self, chat: Chat) -> tuple[int, ...]:
        """The prompt for the next reply."""
        text = self._text(chat, len(chat.messages))
        last = max(
            (k for k, message in enumerate(chat.messages) if message.role == "assistant"),
            default=None,
        )
        if last is not None:
            start = self._text(chat, last) + chat.messages[last].raw
            ids = self._cache.get(start)
            if ids is not None and text.startswith(start):
                return ids + self._encode(self._after(text[len(start) :], ids))
        return self._encode(text)

    def encode_reply(self, text: str) -> tuple[int, ...]:
        """The tokens of a reply that was not sampled, with the end mark."""
        end: Any = self.tokenizer.eos_token_id
        return (*self._encode(text), end)

    def remember(self, chat: Chat, reply: Reply) -> None:
        """Keep the ids of a prompt and its reply, for the prompt that continues them."""
        key = self._text(chat, len(chat.messages)) + reply.text
        self._cache[key] = reply.prompt_ids + reply.ids
        self._cache.move_to_end(key)
        if len(self._cache) > _REMEMBERED:
            self._cache.popitem(last=False)

    def _after(self, text: str, ids: Sequence[int]) -> str:
        """Return the text after a reply, without the end mark that the reply already has."""
        end = str(self.tokenizer.eos_token)
        return text.removeprefix(end) if ids[-1] == self.tokenizer.eos_token_id else text

    def _text(self, chat: Chat, count: int) -> str:
        messages = [{"role": m.role, "content": m.raw or m.text} for m in chat.messages[:count]]
        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return str(text)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))


class LocalPolicy:
    """Plays with a causal language model of transformers. Pictures are left out; `render="scene"`
    describes them in words.

    Args:
        model: The model; its device is where it runs.
        tokenizer: Its tokenizer, with a chat template.
        temperature: Of the sampling; 0 for the most probable token.
        max_new_tokens: The most tokens of a reply.
        seed: Seeds the sampling; the global generator is not touched.

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
    ) -> None:
        check_float("temperature", temperature, 0.0, 100.0)
        check_int("max_new_tokens", max_new_tokens, 1, 1_000_000)
        self.model, self.temperature, self.max_new_tokens = model, temperature, max_new_tokens
        self.renderer = Renderer(tokenizer)
        self.seed = seed
        self._context = getattr(model.config, "max_position_embeddings", None) or sys.maxsize
        self.generator = torch.Generator(device=model.device).manual_seed(seed)

    def reseed(self, number: int) -> None:
        """Seed the sampling by the number of this copy of the policy, so that copies draw
        differently.
        """
        mixed = np.random.SeedSequence([self.seed, number]).generate_state(1)
        self.generator.manual_seed(int(mixed[0]))

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Reply to all chats in one batch.

        Raises:
            PolicyError: A prompt leaves no room in the model's context.
        """
        prompts = [self.renderer.ids(chat) for chat in chats]
        sampled = self._generate(prompts)
        replies = []
        for chat, prompt, (ids, logprobs) in zip(chats, prompts, sampled, strict=True):
            text = self.renderer.tokenizer.decode(self._without_end(ids), skip_special_tokens=False)
            reply = Reply(str(text), prompt, ids, logprobs)
            self.renderer.remember(chat, reply)
            replies.append(reply)
        return replies

    def _without_end(self, ids: Sequence[int]) -> list[int]:
        return list(ids[:-1] if ids and ids[-1] == self.renderer.tokenizer.eos_token_id else ids)

    @torch.inference_mode()
    def _generate(
        self, prompts: Sequence[tuple[int, ...]]
    ) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
        """Sampled ids with their log-probabilities under the model as it samples, one row for each
        prompt.
        """
        tokenizer, device = self.renderer.tokenizer, self.model.device
        longest, context = max(map(len, prompts)), self._context
        if longest >= context:
            raise PolicyError(
                f"a prompt has {longest} tokens and the model takes {context}; play with a window "
                "or a longer context"
            )
        pad = int(tokenizer.pad_token_id)
        ids = torch.tensor([[pad] * (longest - len(p)) + list(p) for p in prompts], device=device)
        mask = torch.tensor(
            [[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=device
        )
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        going = torch.ones(len(prompts), dtype=torch.bool, device=device)
        tokens: list[torch.Tensor] = []
        scores: list[torch.Tensor] = []
        alive: list[torch.Tensor] = []
        past: Any = None
        for _ in range(self.max_new_tokens):
            out = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=past,
                use_cache=True,
            )
            past = out.past_key_values
            token, score = self._sample(out.logits[:, -1].float())
            tokens.append(token)
            scores.append(score)
            alive.append(going)
            last = positions[:, -1:] + 1
            going = going & (token != tokenizer.eos_token_id) & (last[:, 0] < context - 1)
            if not bool(going.any()):
                break
            ids, positions = (
                token[:, None],
                last.clamp(max=context - 1),
            )  # of rows that have ended, too
            mask = torch.cat([mask, mask.new_ones(len(prompts), 1)], 1)
        lengths = torch.stack(alive).sum(0).tolist()
        rows = zip(
            torch.stack(tokens, 1).tolist(), torch.stack(scores, 1).tolist(), lengths, strict=True
        )
        return [(tuple(row[:length]), tuple(score[:length])) for row, score, length in rows]

    def _sample(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.temperature == 0:
            token = logits.argmax(-1)
            logprobs = logits.log_softmax(-1)
        else:
            logprobs = (logits / self.temperature).log_softmax(-1)
            token = torch.multinomial(logprobs.exp(), 1, generator=self.generator)[:, 0]
        return token, logprobs.gather(-1, token[:, None])[:, 0]


def save_policy(policy: LocalPolicy, folder: Path) -> None:
    """Write a model, its tokenizer and the most tokens of its replies in the format of
    transformers, each file in one step.

    Raises:
        OSError: They cannot be written; the files that are there stay as they are.
    """
    policy.model.generation_config.max_new_tokens = policy.max_new_tokens
    save_tokenizer(policy.renderer.tokenizer, folder)
    try:
        with _no_bars(), filling(folder, last=MODEL) as part:
            policy.model.save_pretrained(part)
    except SafetensorError as error:  # what the disk said, in another class
        raise OSError(f"the model cannot be written to {folder}: {error}") from error


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a tokenizer, each file in one step, and last the one that says that all are there."""
    with filling(folder, last=TOKENIZER) as part:
        tokenizer.save_pretrained(part)


def load_policy(folder: Path, temperature: float = 0.0, seed: int = 0) -> LocalPolicy:
    """Load the policy that `save_policy` has written, or that of any causal language model of
    transformers with a chat template.

    Args:
        folder: Where it is; nothing is downloaded.
        temperature: Of the sampling; 0 for the most probable token.
        seed: Seeds the sampling.

    Raises:
        OSError: The folder holds no model.
    """
    with _no_bars():
        model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    return LocalPolicy(
        model,
        load_tokenizer(folder),
        temperature,
        model.generation_config.max_new_tokens or 512,
        seed,
    )


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer in a folder.

    Raises:
        OSError: The folder holds none.
    """
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


@contextmanager
def _no_bars() -> Iterator[None]:
    """Without the progress bars of transformers, which last for a moment here."""
    bars: Any = logging  # it has no types
    enabled = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            bars.enable_progress_bar()
