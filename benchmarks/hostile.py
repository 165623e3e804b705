"""Compare the cost of hostile replies with the cost of prose of the same length: `python
benchmarks/hostile.py` (needs an operating system with `fork`).

Each text from `hostile_texts.py` is played as a reply and inside a tool call, under several context
strategies. Two short replies follow, so that the strategies edit the text.

Options: `--stacks none,trim`, `--kinds fence` (part of a name), `--rounds 3`, `--world ListWorld`.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import time
from collections.abc import Callable, Iterator

import gymnasium
from hostile_texts import REPLIES, TEXTS

import agentgym
from agentgym import Chat, ToolCall, render

SIZES = (500_000, 1_000_000)
LIMIT = 60  # CPU time limit of a measurement in seconds
# Minimum CPU seconds used in ratios, because CPU clocks are coarse.
RESOLUTION = 0.02
STACKS = {
    "none": "",
    "clear_thinking": "clear_thinking",
    "clear_results": "clear_results",
    "compaction": "compaction",
    "awareness": "awareness",
    "all": "memory+clear_thinking+clear_results+compaction+awareness",
}
ANSWER = "I go on."
Env = gymnasium.Env[Chat, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stacks", default=",".join(STACKS))
    parser.add_argument("--kinds", default="")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--world", default="ListWorld")
    options = parser.parse_args()
    rows: list[tuple[float, float, str]] = []
    for stack in options.stacks.split(","):
        env = make(options.world, stack)
        tool = next(t for t in agentgym.tool_env(env).tools if t.parameters.get("required"))
        argument = next(iter(tool.parameters["required"]))
        prose = [cost(env, TEXTS["prose"], size, options.rounds) for size in SIZES]
        for name, text in kinds(tool.name, argument):
            if options.kinds not in name:
                continue
            half, whole = (cost(env, text, size, options.rounds) for size in SIZES)
            over, growth = whole / prose[1], whole / max(half, RESOLUTION)
            row = (
                f"| {name} | {stack} | {1_000 * half:.0f} | {1_000 * whole:.0f} | "
                f"{growth:.1f} | {over:.1f} |"
            )
            rows.append((over, growth, row))
    print("| reply | strategies | ms at 500k | ms at 1M | growth | over prose |")
    print("|---|---|---|---|---|---|")
    for _, _, row in sorted(rows, reverse=True):
        print(row)
    print(f"\nmost over prose: {max(over for over, _, _ in rows):.1f}")
    print(f"most growth: {max(growth for _, growth, _ in rows):.2f}")


def kinds(tool: str, argument: str) -> Iterator[tuple[str, Callable[[int], str]]]:
    for name, text in TEXTS.items():
        yield name, text
        yield f"{name}, in a thought", lambda size, text=text: f"<think>{text(size - 15)}</think>"
        yield (
            f"{name}, in a call",
            lambda size, text=text: (
                render(ToolCall(tool, {argument: text(200_000)})) + text(size - 210_000)
            ),
        )
    for name, reply in REPLIES.items():
        yield name, lambda size, reply=reply: reply(tool, argument, size)


def make(world: str, stack: str) -> Env:
    context = STACKS[stack]
    env = agentgym.make(world, context=context) if context else agentgym.make(world)
    env.reset(seed=0)
    env.step(ANSWER)
    return env


def cost(env: Env, text: Callable[[int], str], size: int, rounds: int) -> float:
    """Return the total CPU seconds of a reply and the two short replies that follow."""
    reply = text(size)

    def play() -> None:
        for action in (reply, ANSWER, ANSWER):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                break

    env.reset(seed=0)
    # The fastest round is least affected by other processes.
    return min(in_fork(play) for _ in range(rounds))


def in_fork(play: Callable[[], None]) -> float:
    """Return the CPU seconds of `play` in a forked process, or infinity after the time limit."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
        gc.disable()
        start = time.process_time()
        play()
        os.write(writing, repr(time.process_time() - start).encode())
        # Skip the exit handlers, which would flush the parent's buffers.
        os._exit(0)
    os.close(writing)
    seconds = os.read(reading, 64)
    os.close(reading)
    os.waitpid(child, 0)
    return float(seconds) if seconds else float("inf")


if __name__ == "__main__":
    main()
