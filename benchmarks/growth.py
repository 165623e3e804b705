"""Measure how storage, transfer and memory per step grow with the length of episodes with token
ids: `python benchmarks/growth.py` (needs the extra `train`).

The last columns show what the size would be if every step stored the whole prompt. Sizes are exact, but only the
ratios of the CPU times are meaningful.
"""

from __future__ import annotations

import gc
import json
import pickle
import time
import tracemalloc
from collections.abc import Callable

from agentgym import make
from agentgym.oracles import OraclePolicy
from agentgym.training.rl import rows
from agentgym.training.rl.cloning import Tokenized
from agentgym.training.rollout import Renderer, Trajectory, make_tokenizer, rollout
from agentgym.training.rollout.engines.servers import EnvServer, encode_answer

# Operations of DocumentWorld
SIZES = (10, 40, 160)
WORLD = "DocumentWorld"


def main() -> None:
    demo = rollout(OraclePolicy(WORLD), make(WORLD, operations=4), 0)
    tokenizer = make_tokenizer([m.raw or m.text for m in demo.last.messages], 600)
    policy = Tokenized(OraclePolicy(WORLD), Renderer(tokenizer))
    heads = ["turns", "ids of the last prompt", "JSON, B", "pickle, B", "sent, B", "read back, B"]
    times = ["to_json, ms", "from_json, ms", "rows, ms"]
    print("| " + " | ".join([*heads, *times, "whole prompts, B", "ratio of bytes"]) + " |")
    print("|---" * (len(heads) + len(times) + 2) + "|")
    for size in SIZES:
        print(row(size, policy), flush=True)


def row(size: int, policy: Tokenized) -> str:
    """Return a table row."""
    played = rollout(policy, make(WORLD, operations=size), 0)
    steps = len(played.steps)
    line, prompts = played.to_json(), [list(step.reply.prompt_ids) for step in played.steps]
    kept = memory_of(lambda: Trajectory.from_json(line))
    sizes = [len(line), len(pickle.dumps(played)), sent(size), kept]
    times = [
        seconds(call)
        for call in (played.to_json, lambda: Trajectory.from_json(line), lambda: rows(played))
    ]
    whole = len(line) + len(json.dumps(prompts))
    cells = [f"{steps:,}", f"{len(prompts[-1]):,}", *(f"{size / steps:,.0f}" for size in sizes)]
    cells += [f"{each / steps * 1e3:.3f}" for each in times]
    return "| " + " | ".join([*cells, f"{whole / steps:,.0f}", f"{whole / len(line):.1f}"]) + " |"


def sent(size: int) -> int:
    played = rollout(OraclePolicy(WORLD), make(WORLD, operations=size), 0)
    server = EnvServer(make(WORLD, operations=size))
    total = len(encode_answer("reset", (True, server.reset(0))))
    for step in played.steps:
        total += len(encode_answer("step", (True, server.step((step.reply.text, "")))))
    return total


def memory_of(make_object: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    kept = make_object()
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return size


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


if __name__ == "__main__":
    main()
