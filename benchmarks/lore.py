"""Measure the cost of drawing and solving LORE tasks of different sizes: `python
benchmarks/lore.py`.

Every round measures all sizes, and the table shows medians over rounds. The second table compares a
policy that reads only the new messages of each chat with policies that read whole chats (a sample
of the chats, scaled up to the episode).
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Sequence

from agentgym import make
from agentgym.envs.lore.document_world import DocumentWorld
from agentgym.oracles import OraclePolicy
from agentgym.play.policy import Reply
from agentgym.text.messages import Chat
from agentgym.training.rollout import rollout

SIZES = (1, 10, 100, 350, 1_000, 10_000)
ROUNDS = 15
WORLDS = ("DocumentWorld", "MultimodalWorld", "CodeWorld")
PLAYED = (10, 30, 60, 350)
# Number of whole chats to read per episode; the cost grows linearly, so a sample suffices.
SHOWN_WHOLE = 50


def main() -> None:
    for difficulty in ("standard", "hard"):
        times: dict[int, list[float]] = {size: [] for size in SIZES}
        for seed in range(ROUNDS):
            for size in SIZES:
                times[size].append(draw(size, seed, difficulty)[0])
        base = statistics.median(times[100]) / 100
        print(
            f"| {difficulty}: operations | documents | ms (median) | µs an operation | ratio to "
            "100 | kB | bytes a document |"
        )
        print("|---|---|---|---|---|---|---|")
        for size in SIZES:
            seconds = statistics.median(times[size])
            documents, kept = memory(size, difficulty)
            each = f"{seconds * 1e3:.2f} | {seconds / size * 1e6:.1f} | {seconds / size / base:.2f}"
            print(
                f"| {size:,} | {documents:,} | {each} | {kept / 1e3:,.0f} | "
                f"{kept / documents:,.0f} |"
            )
        print()
    print(
        "| played | operations | turns | policy, s | ms a turn | reading all, s | ratio | env, s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in WORLDS:
        for size in PLAYED:
            print(play(name, size))


def play(name: str, size: int) -> str:
    policy, spent = OraclePolicy(name), [0.0]

    def timed(chats: Sequence[Chat]) -> list[Reply]:
        start = time.process_time()
        replies = policy(chats)
        spent[0] += time.process_time() - start
        return replies

    start = time.process_time()
    steps = rollout(timed, make(name, operations=size), 0).steps
    env = time.process_time() - start - spent[0]
    shown = steps[:: max(1, len(steps) // SHOWN_WHOLE)]
    start = time.process_time()
    for step in shown:
        OraclePolicy(name)([step.chat])
    whole = (time.process_time() - start) * len(steps) / len(shown)
    return (
        f"| {name} | {size} | {len(steps):,} | {spent[0]:.3f} | "
        f"{spent[0] / len(steps) * 1e3:.2f} | {whole:.2f} | {whole / spent[0]:.0f} | {env:.2f} |"
    )


def draw(size: int, seed: int, difficulty: str) -> tuple[float, DocumentWorld]:
    world = DocumentWorld(DocumentWorld.Config(operations=size, difficulty=difficulty), seed)
    start = time.perf_counter()
    world.generate()
    return time.perf_counter() - start, world


def memory(size: int, difficulty: str) -> tuple[int, int]:
    tracemalloc.start()
    _, world = draw(size, 0, difficulty)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return len(world.graph.nodes), kept


if __name__ == "__main__":
    main()
