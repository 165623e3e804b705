"""Compare each context strategy's step time at turn 2,000 with the step time at turn 10."""

from __future__ import annotations

import time
from statistics import median

import agentgym
from agentgym import ToolCall, make, render

TURNS = 2_000
ALL = "clear_thinking+clear_results+compaction+awareness+memory"
ROWS = {
    "no wrapper": {},
    "bare window (trim)": {"window": 4_000},
    "clear_results": {"context": "clear_results", "window": 4_000},
    "clear_thinking, window of 10^9": {"context": "clear_thinking", "window": 10**9},
    "awareness, window of 10^9": {"context": "awareness", "window": 10**9},
    "all strategies": {"context": ALL, "window": 4_000},
    "all, with plan and state hints": {
        "context": ALL,
        "window": 4_000,
        "oracles": "SP",
        "hint_scope": "ephemeral",
    },
}


def seconds(options: dict[str, object]) -> list[float]:
    """Return the duration of each of 2,000 steps in seconds."""
    env = make("GridWorld", size=8, budget_factor=1.0, budget_slack=100_000, **options)
    env.reset(seed=0)
    times: list[float] = []
    turn = 0
    while turn < TURNS:
        move = render(ToolCall("right" if turn % 2 else "left", {}))
        action = f"<think>Step {turn}: to and fro, and each thought is another.</think>{move}"
        begin = time.perf_counter()
        *_, info = env.step(action)
        times.append(time.perf_counter() - begin)
        turn = info["turn"]
        assert not info["detail"].ended
    return times


def main() -> None:
    print(f"agentgym {agentgym.__version__}, counted with cl100k_base")
    print("| context | µs a step at turn 10 | mean µs up to turn 2,000 | turn 2,000 : turn 10 |")
    print("|---|---|---|---|")
    for name, options in ROWS.items():
        runs = [seconds(options) for _ in range(5)]
        early = median(median(times[5:105]) for times in runs)
        late = median(median(times[-100:]) for times in runs)
        mean = median(sum(times) / len(times) for times in runs)
        print(f"| {name} | {1e6 * early:.0f} | {1e6 * mean:.0f} | {late / early:.2f} |")


if __name__ == "__main__":
    main()
