"""GRPO with TRL through a wrapper stack: the model sees plan hints and an edited context.

Needs: pip install 'agentgym-suite[trl]'

Prints: TRL's metrics, and the mean reward of each step. The default model is tiny and random,
and only shows that the components work together. Pass --model with the folder or id of a chat
model, such as Qwen/Qwen3-0.6B, and increase --steps to learn something.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

import agentgym
from agentgym.training.integrations import trl
from agentgym.training.rollout import make_model, make_tokenizer

OPTIONS = {"items": 4, "removals": 1, "max_failed_rounds": 1}
STACK = {"oracles": "P", "context": "clear_results:trigger=2turns:keep=1", "window": 1_500}
ROWS = 3  # maximum number of TRL rows per episode; each context edit starts a new row


def main(arguments: Sequence[str] | None = None) -> GRPOTrainer:
    """Train a model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a folder or an id; a tiny model by default")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--episodes", type=int, default=4, help="of each instance")
    parser.add_argument("--out", type=Path, help="folder of the run; a temporary one by default")
    given = parser.parse_args(arguments)
    if given.model:
        tokenizer = AutoTokenizer.from_pretrained(given.model)
        model = AutoModelForCausalLM.from_pretrained(given.model)
    else:
        chat, _ = agentgym.make("ListWorld", **OPTIONS).reset(seed=0)
        tokenizer = make_tokenizer([chat.to_text()])
        model = make_model(tokenizer, width=32, layers=1, context=2_048)
    gpu = torch.cuda.is_available()
    config = GRPOConfig(
        output_dir=str(given.out or mkdtemp()),
        max_steps=given.steps,
        per_device_train_batch_size=ROWS * given.episodes,
        num_generations=ROWS * given.episodes,
        max_completion_length=32 if given.model is None else 256,  # reply tokens
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=not gpu,
        bf16=gpu,
    )
    stack = agentgym.spec("ListWorld", **OPTIONS, **STACK)
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=config,
        rollout_func=trl.rollout_func(stack, rows_per_episode=ROWS),
        reward_funcs=trl.env_reward,
        train_dataset=trl.prompts("ListWorld", range(1_000), **OPTIONS, **STACK),
    )
    trainer.train()
    if given.out:
        trainer.save_model()
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    print("mean reward of each step:", rewards)
    return trainer


if __name__ == "__main__":
    main()
