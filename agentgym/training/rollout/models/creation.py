"""Small language models and tokenizers, created from scratch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from agentgym.text.validation import check_int

END = "<|end|>"
PAD = "<|pad|>"
_ROLES = {
    "system": "<|system|>",
    "user": "<|user|>",
    "assistant": "<|assistant|>",
    "tool": "<|tool|>",
}

# The template omits the system message, which is the same in all episodes of a world.
TEMPLATE = (
    "{% for message in messages %}{% if message.role != 'system' %}"
    "{{ '<|' + message.role + '|>' + message.content + '<|end|>' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def make_tokenizer(texts: Iterable[str], size: int = 512) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer of at most `size` tokens."""
    check_int("size", size, 300, 1_000_000)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[0-9]{1,3}|[^0-9]+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[PAD, END, *_ROLES.values()],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, chat_template=TEMPLATE
    )


def make_model(
    tokenizer: PreTrainedTokenizerBase,
    width: int = 128,
    layers: int = 3,
    heads: int = 4,
    context: int = 1_024,
    seed: int = 0,
) -> GPT2LMHeadModel:
    """Return a randomly initialised GPT-2 model without touching the global random generator.

    A small model learns the positions in a list much sooner with GPT-2's absolute position
    embeddings than with rotary ones. The standard deviation of the weights is `width**-0.5`.
    `width` must be a multiple of `heads`; `context` is the maximum number of tokens.
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
    """Initialise key weights equal to query weights (Trockman and Kolter 2023, Mimetic
    Initialization of Self-Attention Layers).

    With this initialisation, tokens attend to equal tokens, so a small model learns to copy in
    hundreds instead of thousands of steps.
    """
    width = model.config.n_embd
    blocks: Any = model.transformer.h
    with torch.no_grad():
        for block in blocks:
            query_key_value = block.attn.c_attn.weight
            query_key_value[:, width : 2 * width] = query_key_value[:, :width]
