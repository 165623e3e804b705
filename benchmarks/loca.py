"""The office tasks: `python benchmarks/loca.py` where `agentgym[office]` is installed.

For each task, what it takes to draw a state of 256K tokens (at most 2 s), to reset to one that was
drawn before (at most 100 ms), to carry out the reference plan, and to check the final state.
`python benchmarks/loca.py lengths` writes docs/loca_lengths.md: the environment description length
of every released state, in tokens of cl100k.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import agentgym
from agentgym import worlds
from agentgym.envs.loca.config import LENGTHS
from agentgym.envs.loca.plan import CLAIM
from agentgym.envs.loca.task import OfficeTask

SEEDS = 5
DRAW_S, RESET_MS = 2.0, 100.0
TASKS = [entry.world.__name__ for entry in worlds() if issubclass(entry.world, OfficeTask)]
TABLE = Path(__file__).parents[1] / "docs" / "loca_lengths.md"


def main() -> None:
    """Print the times, or write the table of lengths."""
    if sys.argv[1:] == ["lengths"]:
        write_lengths()
        return
    print(
        "| task, 256K tokens | draw, s | of 2 s | reset, ms | of 100 ms | plan, steps | plan, s | "
        "check, ms |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for task in TASKS:
        print(row_of(task), flush=True)


def row_of(task: str) -> str:
    """The times of a task; seconds of the processor, the median over seeds."""
    env = agentgym.tool_env(agentgym.make(task, length=LENGTHS["8k"]))
    env.reset(seed=0)  # whatever a first state imports
    env = agentgym.tool_env(agentgym.make(task, length=LENGTHS["256k"]))
    draw, reset, play, check, steps = [], [], [], [], []
    for seed in range(3):
        draw.append(seconds(lambda seed=seed: env.reset(seed=seed)))  # type: ignore[misc]
        reset.append(seconds(lambda seed=seed: env.reset(seed=seed)))  # type: ignore[misc]
        counted: list[int] = []
        play.append(seconds(lambda counted=counted: counted.append(carry_out(env.world))))  # type: ignore[misc]
        check.append(seconds(lambda: list(env.world.task_failures())))
        assert not list(env.world.task_failures())
        steps += counted
    ms = 1_000 * median(reset)
    shares = f"{median(draw):.2f} | {median(draw) / DRAW_S:.2f} | {ms:.0f} | {ms / RESET_MS:.2f}"
    return (
        f"| {task} | {shares} | {median(steps)} | {median(play):.2f} | "
        f"{1_000 * median(check):.0f} |"
    )


def carry_out(world: Any) -> int:
    """Carry out the reference plan; how many calls it took, the claim included."""
    count = 1
    while (steps := world.progress.pending()) != [CLAIM]:
        call = steps[0].call
        world.read_result(call, world.office.call(call.name, call.arguments))
        count += 1
    return count


def seconds(act: Callable[[], object]) -> float:
    """Seconds of the processor that something takes."""
    start = time.process_time()
    act()
    return time.process_time() - start


def write_lengths() -> None:
    """Write the table of description lengths: the least and the greatest of the released seeds."""
    lines = [
        "# Environment description lengths of the office tasks",
        "",
        (
            f"Tokens (cl100k) of the least and the greatest state of the seeds 0 to {SEEDS - 1}, and "
            "the number of steps of the"
        ),
        "reference plan with seed 0 (`python benchmarks/loca.py lengths`).",
        "",
        f"| task | {' | '.join(name.upper() for name in LENGTHS)} |",
        "|---" * (1 + len(LENGTHS)) + "|",
    ]
    for task in TASKS:
        cells = []
        for length in LENGTHS.values():
            env = agentgym.tool_env(
                agentgym.make(task, length=length, budget_factor=1.0, budget_slack=0)
            )
            states = []
            for seed in range(SEEDS):
                env.reset(seed=seed)
                states.append((env.world.tokens, env.world.max_turns))
            tokens = sorted(count for count, _ in states)
            assert 0.9 * length <= tokens[0] <= tokens[-1] <= 1.1 * length, (task, length, tokens)
            cells.append(f"{tokens[0]:,} to {tokens[-1]:,}; {states[0][1]}")
        lines.append(f"| {task} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
