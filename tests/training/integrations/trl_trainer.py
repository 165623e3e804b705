"""A GRPO trainer of TRL with a small random model, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from transformers import PreTrainedTokenizerFast

import agentgym
from agentgym import render, tool_env
from agentgym.training.rollout import make_model, make_tokenizer

# TRL warns about its own environments and checkpointing.
FILTERS = [
    pytest.mark.filterwarnings("ignore:You are using '.*', which is an experimental:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning"),
]


def call_optimally(environment: Any) -> str:
    """Return a reply with an environment's optimal call, or `Done.` if the episode has ended."""
    calls = tool_env(environment._env).world.optimal_calls()
    return render(calls[0]) if calls else "Done."


def make_trl_tokenizer() -> PreTrainedTokenizerFast:
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
    arguments = trl.GRPOConfig(
        output_dir=str(folder),
        report_to="none",
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=2,
        num_generations=2,
        save_strategy="no",
        disable_tqdm=True,
        max_steps=2,
        learning_rate=0.1,
        logging_steps=1,
        max_completion_length=longest,
    )
    model = make_model(tokenizer, 32, context=2_048)
    return trl.GRPOTrainer(model=model, processing_class=tokenizer, args=arguments, **named)


def weights(trainer: trl.GRPOTrainer) -> torch.Tensor:
    return torch.cat([each.detach().flatten().clone() for each in trainer.model.parameters()])


def logged(trainer: trl.GRPOTrainer, name: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry]
