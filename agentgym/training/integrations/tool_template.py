"""A chat template with tools, as plain text, for models whose own template has none."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import TypeVar

from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerBase
from trl.chat_template_utils import (
    is_chat_template_prefix_preserving,
    supports_tool_calling,
)

TokenizerT = TypeVar("TokenizerT", bound=PreTrainedTokenizerBase)

# a text that occurs in no template
_MARK = "a8f3e2b1"

# Rewrites tools, calls and results as plain messages, for the template that follows.
_PRELUDE = Path(__file__).with_suffix(".jinja").read_text(encoding="utf-8")


def with_tool_template(tokenizer: TokenizerT) -> TokenizerT:
    """Return a tokenizer whose chat template has tools, for `environment_factory`.

    The system message lists the tools (or the first user message if the template has no system
    role), calls are JSON between `<tool_call>` and `</tool_call>`, and results are user messages.
    Pass the result to `trl.GRPOTrainer` as its `processing_class`. Templates with tools are
    unchanged.

    Raises:
        ValueError: It has no chat template, or one that does not mark the start or end of a reply,
            or that renders earlier messages differently when more follow.
    """
    if not isinstance(tokenizer.chat_template, str):
        raise ValueError("the tokenizer has no single chat template: set tokenizer.chat_template")
    if supports_tool_calling(tokenizer):
        return tokenizer
    start, ends = _reply_bounds(tokenizer)
    system_role = _writes(tokenizer, [{"role": "system", "content": _MARK}, _user("Hello.")])
    made = copy.deepcopy(tokenizer)
    prelude = _PRELUDE.replace("SYSTEM_ROLE", str(system_role).lower())
    made.chat_template = prelude + tokenizer.chat_template
    made.response_template = {
        "defaults": {"role": "assistant"},
        "start_anchor": start,
        "fields": {
            "tool_calls": {
                "open": "<tool_call>",
                "close_pattern": r"</tool_call>\s*",
                "repeats": True,
                "content": "json",
                "transform": {"type": "function", "function": "{content}"},
            },
            "content": {
                "close_pattern": rf"(?:{'|'.join(map(re.escape, ends))})\s*",
                "content": "text",
            },
        },
    }
    if not is_chat_template_prefix_preserving(made):
        raise ValueError(
            "TRL's tool loop needs a chat template that only appends, but this one writes earlier "
            "messages differently when more follow; train with rollout_func, which does not"
        )
    return made


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _render(
    tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], prompt: bool
) -> str:
    return str(
        tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
    )


def _writes(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> bool:
    try:
        return _MARK in _render(tokenizer, messages, prompt=False)
    except TemplateError:
        return False


def _reply_bounds(tokenizer: PreTrainedTokenizerBase) -> tuple[str, list[str]]:
    """Return the text before a reply, and the texts that end it: the template's mark and end token."""
    start = _render(tokenizer, [_user(_MARK)], prompt=True).rpartition(_MARK)[2]
    reply = {"role": "assistant", "content": _MARK}
    whole = _render(tokenizer, [_user("Hello."), reply], prompt=False)
    _, mark, after = whole.rpartition(_MARK)
    ids = tokenizer.encode(after.strip(), add_special_tokens=False)
    if not mark or not ids or not start.strip():
        raise ValueError(
            "the chat template does not mark where a reply begins and ends; got "
            f"{whole!r} for a question and a reply"
        )
    return start, sorted({str(tokenizer.decode(ids[:1])), str(tokenizer.eos_token)})
