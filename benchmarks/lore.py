"""Cost of drawing a task of LORE, against its size: `python benchmarks/lore.py` where agentgym is
installed.

The sizes are measured in turn, round after round, and the median of each is shown: other work on
the machine slows all alike, so the ratios hold even where the milliseconds do not. Memory is
counted by `tracemalloc` in one run of its own.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc

from agentgym.envs.lore.document_world import DocumentWorld

SIZES = (1, 10, 100, 350, 1_000, 10_000)
ROUNDS = 15


def main() -> None:
    """Print the table."""
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


def draw(size: int, seed: int, difficulty: str) -> tuple[float, DocumentWorld]:
    """The seconds that a task took to draw, and the task."""
    world = DocumentWorld(DocumentWorld.Config(operations=size, difficulty=difficulty), seed)
    start = time.perf_counter()
    world.generate()
    return time.perf_counter() - start, world


def memory(size: int, difficulty: str) -> tuple[int, int]:
    """The documents of a task, and the bytes that it keeps."""
    tracemalloc.start()
    _, world = draw(size, 0, difficulty)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return len(world.graph.nodes), kept


if __name__ == "__main__":
    main()
