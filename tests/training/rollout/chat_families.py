"""Chat templates with the constraints of eight model families, and tiny models that use them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import collect

ALTERNATE = (
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
)
CHATML = "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
OPEN = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"


@dataclass(frozen=True)
class Family:
    """A chat template and its constraints: the roles that it accepts, and whether prompts grow.

    Attributes:
        eos: The tokenizer's end-of-text token.
        end: The token that ends a turn.
        neighbours: Whether it accepts consecutive messages of one role.
        original: The original's file among TRL's templates; empty if TRL has none.
    """

    template: str
    marks: tuple[str, ...]
    eos: str
    end: str
    bos: str = ""
    tool: bool = True
    system: bool = True
    neighbours: bool = True
    grows: bool = True
    original: str = ""


FAMILIES = {
    "llama2": Family(
        "{% if messages[0]['role'] == 'system' %}{% set s = '<<SYS>>\n' + messages[0]['content'] + "
        "'\n<</SYS>>\n\n' %}{% set rest = messages[1:] %}{% else %}{% set s = '' %}"
        "{% set rest = messages %}{% endif %}{% for m in rest %}" + ALTERNATE + "{% set c = (s if "
        "loop.first else '') + m['content'] %}{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + "
        "c.strip() + ' [/INST]' }}{% else %}{{ ' ' + c.strip() + ' ' + eos_token }}{% endif %}"
        "{% endfor %}",
        ("<s>", "</s>"),
        "</s>",
        "</s>",
        bos="<s>",
        tool=False,
        neighbours=False,
        grows=False,  # it pads a reply with spaces
    ),
    "llama3": Family(
        "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + ('ipython' if m['role'] == "
        "'tool' else m['role']) + '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}"
        "{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
        (
            "<|begin_of_text|>",
            "<|end_of_text|>",
            "<|eot_id|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
        ),
        "<|end_of_text|>",
        "<|eot_id|>",
        bos="<|begin_of_text|>",
        original="llama3",
    ),
    "gemma": Family(
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}"
        "{% endif %}{% for m in messages %}" + ALTERNATE + "{{ '<start_of_turn>' + ('model' if "
        "m['role'] == 'assistant' else m['role']) + '\n' + m['content'] | trim + '<end_of_turn>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
        ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        "<eos>",
        "<end_of_turn>",
        bos="<bos>",
        tool=False,
        system=False,
        neighbours=False,
        original="gemma",
    ),
    "mistral": Family(
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set s = messages[0]['content'] + "
        "'\n\n' %}{% set rest = messages[1:] %}{% else %}{% set s = '' %}{% set rest = messages %}"
        "{% endif %}{% for m in rest %}"
        + ALTERNATE
        + "{% if m['role'] == 'user' %}{{ '[INST] ' + (s "
        "if loop.last else '') + m['content'] + '[/INST]' }}{% else %}{{ m['content'] + eos_token }}"
        "{% endif %}{% endfor %}",
        ("<s>", "</s>", "[INST]", "[/INST]"),
        "</s>",
        "</s>",
        bos="<s>",
        tool=False,
        neighbours=False,
        grows=False,  # it shows the system message in the last turn
    ),
    "qwen2.5": Family(
        "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}"
        "{% endif %}{% for m in messages %}{% if m['role'] == 'tool' %}{{ '<|im_start|>user\n"
        "<tool_response>\n' + m['content'] + '\n</tool_response><|im_end|>\n' }}{% else %}"
        + CHATML
        + "{% endif %}{% endfor %}"
        + OPEN,
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        "<|im_end|>",
        "<|im_end|>",
        original="qwen2_5",
    ),
    "qwen3": Family(
        "{% for m in messages %}{% set c = m['content'] %}{% if m['role'] == 'assistant' and "
        "'</think>' in c and not loop.last %}{% set c = c.split('</think>')[-1] %}{% endif %}"
        "{{ '<|im_start|>' + m['role'] + '\n' + c + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% if enable_thinking is "
        "defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}",
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        "<|im_end|>",
        "<|im_end|>",
        original="qwen3",
    ),
    "phi3": Family(
        "{% for m in messages %}{% if m['role'] in ('system', 'user', 'assistant') %}{{ '<|' + "
        "m['role'] + '|>\n' + m['content'] + '<|end|>\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
        ("<|endoftext|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"),
        "<|endoftext|>",
        "<|end|>",
        tool=False,
        original="phi3",
    ),
    "deepseek-r1": Family(
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}"
        "{% elif m['role'] == 'assistant' %}{{ '<｜Assistant｜>' + m['content'].split('</think>')[-1] "
        "+ '<｜end▁of▁sentence｜>' }}{% else %}{{ '<｜User｜>' + m['content'] }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\n' }}{% endif %}",
        ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
        "<｜end▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        bos="<｜begin▁of▁sentence｜>",
        grows=False,  # it starts a turn with thinking, which it later omits
        original="deepseek_r1_distill",
    ),
}


@lru_cache
def _texts() -> tuple[str, ...]:
    env = agentgym.spec("ListWorld", items=4, removals=1)
    return tuple(
        m.raw or m.text
        for t in collect(OraclePolicy("ListWorld"), env, range(8))
        for m in t.last.messages
    )


def make_family_tokenizer(family: Family, template: str = "") -> Any:
    """Return a tokenizer that adds the start token to any text, as for Llama and Gemma."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=list(family.marks),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    names = {"eos_token": family.eos, **({"bos_token": family.bos} if family.bos else {})}
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=tokenizer, chat_template=template or family.template, **names)


def make_llama(tokenizer: Any, seed: int = 0, **changes: Any) -> Any:
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=4_096,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
        **changes,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()
