"""A GRPO trainer of TRL with a small random model, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import trl
from transformers import PreTrainedTokenizerFast

import agentgym
from agentgym.training.rollout import make_model, make_tokenizer


def make_trl_tokenizer() -> PreTrainedTokenizerFast:
    """Return a small tokenizer with the chat template of Qwen 2.5."""
    chat, _ = agentgym.make("ListWorld").reset(seed=0)
    made = make_tokenizer([chat.to_text()], 800)
    made.add_special_tokens({"eos_token": "<|im_end|>"})
    made.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja").read_text(
        encoding="utf-8"
    )
    return made


def trainer_for(
    tokenizer: PreTrainedTokenizerFast, folder: Path, longest: int = 16, **named: Any
) -> trl.GRPOTrainer:
    pair, quiet = (
        {"per_device_train_batch_size": 2, "num_generations": 2},
        {"save_strategy": "no", "disable_tqdm": True},
    )
    steps = {
        "max_steps": 2,
        "learning_rate": 0.1,
        "logging_steps": 1,
        "max_completion_length": longest,
    }
    arguments = trl.GRPOConfig(
        output_dir=str(folder), report_to="none", use_cpu=True, bf16=False, **pair, **steps, **quiet
    )
    return trl.GRPOTrainer(
        model=make_model(tokenizer, 32, context=2_048),
        processing_class=tokenizer,
        args=arguments,
        **named,
    )


def weights(trainer: trl.GRPOTrainer) -> torch.Tensor:
    return torch.cat([each.detach().flatten().clone() for each in trainer.model.parameters()])


def logged(trainer: trl.GRPOTrainer, name: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry]
