"""Chat templates with the constraints of eight model families, and tiny models that use the
templates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import collect

ALTERNATE = (
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
)
TEMPLATES = Path(trl.__file__).parent / "chat_templates"


@dataclass(frozen=True)
class Family:
    """A chat template and its constraints, such as the roles that the template accepts.

    Attributes:
        template: The template, or the name of the original template in TRL.
        eos: The tokenizer's end-of-text token.
        end: The token that ends a turn.
        neighbours: Whether the template accepts consecutive messages of one role.
    """

    template: str
    marks: str
    eos: str
    end: str
    bos: str = ""
    tool: bool = True
    system: bool = True
    neighbours: bool = True
    grows: bool = True

    @property
    def text(self) -> str:
        file = TEMPLATES / f"{self.template}.jinja"
        return file.read_text(encoding="utf-8") if self.template.isidentifier() else self.template


CHATML = "<|endoftext|> <|im_start|> <|im_end|>"
FAMILIES = {
    "llama2": Family(
        "{% if messages[0]['role'] == 'system' %}{% set s = '<<SYS>>\n' + messages[0]['content'] + "
        "'\n<</SYS>>\n\n' %}{% set rest = messages[1:] %}{% else %}{% set s = '' %}"
        "{% set rest = messages %}{% endif %}{% for m in rest %}" + ALTERNATE + "{% set c = (s if "
        "loop.first else '') + m['content'] %}{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + "
        "c.strip() + ' [/INST]' }}{% else %}{{ ' ' + c.strip() + ' ' + eos_token }}{% endif %}"
        "{% endfor %}",
        "<s> </s>",
        "</s>",
        "</s>",
        bos="<s>",
        tool=False,
        neighbours=False,
        grows=False,  # the template pads replies with spaces
    ),
    "llama3": Family(
        "llama3",
        "<|begin_of_text|> <|end_of_text|> <|eot_id|> <|start_header_id|> <|end_header_id|>",
        "<|end_of_text|>",
        "<|eot_id|>",
        bos="<|begin_of_text|>",
    ),
    "gemma": Family(
        "gemma",
        "<bos> <eos> <start_of_turn> <end_of_turn>",
        "<eos>",
        "<end_of_turn>",
        bos="<bos>",
        tool=False,
        system=False,
        neighbours=False,
    ),
    "mistral": Family(
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set s = messages[0]['content'] + "
        "'\n\n' %}{% set rest = messages[1:] %}{% else %}{% set s = '' %}{% set rest = messages %}"
        "{% endif %}{% for m in rest %}"
        + ALTERNATE
        + "{% if m['role'] == 'user' %}{{ '[INST] ' + (s "
        "if loop.last else '') + m['content'] + '[/INST]' }}{% else %}{{ m['content'] + eos_token }}"
        "{% endif %}{% endfor %}",
        "<s> </s> [INST] [/INST]",
        "</s>",
        "</s>",
        bos="<s>",
        tool=False,
        neighbours=False,
        grows=False,  # the template shows the system message in the last turn
    ),
    "qwen2.5": Family("qwen2_5", CHATML, "<|im_end|>", "<|im_end|>"),
    "qwen3": Family("qwen3", CHATML, "<|im_end|>", "<|im_end|>"),
    "phi3": Family(
        "phi3",
        "<|endoftext|> <|end|> <|system|> <|user|> <|assistant|>",
        "<|endoftext|>",
        "<|end|>",
        tool=False,
    ),
    "deepseek-r1": Family(
        "deepseek_r1_distill",
        "<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜>",
        "<｜end▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        bos="<｜begin▁of▁sentence｜>",
        grows=False,  # the template later omits a turn's thinking
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
        special_tokens=family.marks.split(),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    names = {"eos_token": family.eos, **({"bos_token": family.bos} if family.bos else {})}
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=tokenizer, chat_template=template or family.text, **names)


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
