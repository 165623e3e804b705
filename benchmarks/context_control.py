"""Print the tables of docs/context.md: `PYTHONPATH=. python benchmarks/context_control.py`.

The agents and their archive of pages are those of `tests/wrappers/test_context_control.py`. Values
are the mean ± standard deviation of seeds 0 to 2.
"""

from __future__ import annotations

from statistics import fmean, stdev
from typing import Any

from agentgym.wrappers import ContextBudget
from tests.wrappers.test_context_control import BUDGET, NEEDS, play

SEEDS = range(3)
STACKS: dict[str, tuple[str, ...]] = {
    "none (trim)": (),
    "clear_results": ("clear_results",),
    "clear_thinking": ("clear_thinking",),
    "awareness": ("awareness",),
    "clear_results + memory": ("clear_results", "memory"),
    "compaction": ("compaction",),
    "programmatic": ("programmatic",),
}


def measure(*names: str, budget: ContextBudget = BUDGET, **options: Any) -> list[str]:
    """Return score, replies, all prompts, longest prompt, cache misses and rewrites as texts."""
    rows = []
    for seed in SEEDS:
        score, replies, records = play(*names, budget=budget, seed=seed, **options)
        prompts = records[:-1]
        tokens = [record.tokens for record in prompts]
        misses = sum(record.tokens - record.reused for record in prompts)
        rewrites = sum(record.removed > 0 for record in records)
        rows.append((score, replies, sum(tokens), max(tokens), misses, rewrites))
    return [
        f"{fmean(column):,.0f}" + (f" ± {stdev(column):,.0f}" if stdev(column) >= 1 else "")
        for column in zip(*rows, strict=True)
    ]


def main() -> None:
    print("| context | score | replies | all prompts | longest prompt | cache misses | rewrites |")
    print("|---|---|---|---|---|---|---|")
    wide = measure(budget=ContextBudget(100_000))
    print(f"| window of 100,000 | {' | '.join(wide)} |")
    for name, stack in STACKS.items():
        print(f"| {name} | {' | '.join(measure(*stack))} |")
    for name, (policy, pages, others) in NEEDS.items():
        for label, stack in (("without", others), ("with", (name, *others))):
            cells = measure(*stack, policy=policy, pages=pages)
            print(f"| {label} {name}, {pages} pages | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
