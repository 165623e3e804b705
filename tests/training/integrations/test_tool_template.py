"""A template with tools for models without one: TRL's own checks, and real training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from trl.chat_template_utils import (
    is_chat_template_prefix_preserving,
    parse_response,
    supports_tool_calling,
)

import agentgym
from agentgym.training.integrations.trl import environment_factory, prompts, with_tool_template
from agentgym.training.rollout import make_tokenizer
from tests.training.integrations.trl_trainer import FILTERS, call_optimally, logged, trainer_for

pytestmark = FILTERS
SMALL: dict[str, Any] = {"items": 5, "removals": 2}
ENDS = {"gemma": "<end_of_turn>", "llama3": "<|eot_id|>", "house": "<|end|>"}
TOOL = {
    "type": "function",
    "function": {"name": "pop", "parameters": {"type": "object", "properties": {}}},
}
CALL = {"type": "function", "function": {"name": "pop", "arguments": {"id": 3}}}
CHAT = [
    {"role": "system", "content": "Edit a list."},
    {"role": "user", "content": "Begin."},
    {"role": "assistant", "content": "I pop.", "tool_calls": [CALL, CALL]},
    {"role": "tool", "name": "pop", "content": "One gone."},
    {"role": "tool", "name": "pop", "content": "Two gone."},
]


def tokenizer_of(name: str, end: str = "") -> Any:
    torch.set_num_threads(1)
    chat, _ = agentgym.make("ListWorld", **SMALL).reset(seed=0)
    made = make_tokenizer([chat.to_text()], 400)
    if name != "house":
        folder = Path(trl.__file__).parent / "chat_templates"
        made.chat_template = (folder / f"{name}.jinja").read_text(encoding="utf-8")
        made.add_special_tokens({"eos_token": end or ENDS[name], "bos_token": "<bos>"})
    return made


@pytest.mark.parametrize("name", ENDS)
def test_calls_results_and_tools_are_written_and_read(name: str) -> None:
    plain = tokenizer_of(name)
    assert not supports_tool_calling(plain)
    before = plain.chat_template
    made = with_tool_template(plain)
    assert plain.chat_template == before
    assert supports_tool_calling(made)
    assert is_chat_template_prefix_preserving(made)
    text = made.apply_chat_template(CHAT, tools=[TOOL], tokenize=False, add_generation_prompt=True)
    assert text.index("Edit a list.") < text.index('"name": "pop", "parameters"')
    assert text.index("</tool_call>", text.index("I pop.")) < text.index("One gone.")
    assert text.count('{"name": "pop", "arguments": {"id": 3}}') == 2
    results = "<tool_response>\nOne gone.\n</tool_response>\n<tool_response>\nTwo gone."
    assert results in text
    prefix = made.apply_chat_template(CHAT[:2], add_generation_prompt=True, return_dict=False)
    reply = 'I pop.\n<tool_call>\n{"name": "pop", "arguments": {"id": 3}}\n</tool_call>'
    parsed = parse_response(made, made.encode(reply + ENDS[name], add_special_tokens=False), prefix)
    assert parsed["tool_calls"] == [CALL]
    assert parsed["content"].strip() == "I pop."
    assert with_tool_template(made) is made


@pytest.mark.parametrize("template", [None, "{{ messages[0].content }}"])
def test_a_template_that_marks_no_reply_is_refused(template: str | None) -> None:
    tokenizer = tokenizer_of("house")
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match="chat template"):
        with_tool_template(tokenizer)


def test_a_template_that_does_not_only_append_is_refused() -> None:
    """Phi-3's template ends with the end-of-text token unless a reply is requested."""
    with pytest.raises(ValueError, match=r"only appends, but .* train with rollout_func"):
        with_tool_template(tokenizer_of("phi3", "<|endoftext|>"))


@pytest.mark.rotation
def test_a_model_without_tools_is_trained_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second episode is played optimally through TRL's own tool loop."""
    plain = tokenizer_of("gemma")
    stack: dict[str, Any] = {
        "environment_factory": environment_factory("ListWorld", **SMALL),
        "train_dataset": prompts("ListWorld", range(4), **SMALL),
    }
    with pytest.raises(ValueError, match="does not support tool calling"):
        trainer_for(plain, tmp_path, 512, **stack)
    made = with_tool_template(plain)
    trainer = trainer_for(made, tmp_path, 512, **stack)

    def generate(prompt_ids: list[list[int]], *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        replies = [call_optimally(trainer.environments[0]), "I give up."][: len(prompt_ids)]
        return [made.encode(f"{reply}<end_of_turn>") for reply in replies], None

    monkeypatch.setattr(trainer, "_generate_single_turn", generate)
    trainer.train()
    assert logged(trainer, "rewards/ListWorld/mean") == [0.5, 0.5]
    assert logged(trainer, "tools/call_frequency") == [1.5, 1.5], "two pops and done, by one of two"
    assert logged(trainer, "tools/failure_frequency") == [0.0, 0.0]
    assert min(logged(trainer, "grad_norm")) > 0
