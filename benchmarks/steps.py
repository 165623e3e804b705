"""Measure the relative cost of steps in one run: `make bench` or `python benchmarks/steps.py`.

If installed, `gem-llm` plays GuessTheNumber in episodes of the same length. The table shows the
best of several alternating rounds.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import gymnasium

import agentgym
from agentgym import ToolCall, render
from agentgym.text.parsing import Dialect

TURNS = 20
EPISODES = 200
ROUNDS = 12
LONG = 2_000

Episode = Callable[[], tuple[float, float]]
"""Play one episode of `TURNS` turns; return the seconds of the reset and of the steps."""


def main() -> None:
    episodes: dict[str, Episode] = {
        f"agentgym ListWorld, {form} calls": list_world(form) for form in ("json", "python")
    }
    thought = "<think>The first element is not in the target, so it goes.</think>\n"
    episodes["agentgym ListWorld, json calls after a thought"] = list_world("json", thought)
    episodes |= guess_the_number()
    rates = measure(episodes)
    base = next(iter(rates.values()))[0]
    print(f"| env, {TURNS} turns an episode | steps/s | with resets | ratio |\n|---|---|---|---|")
    for name, (steps, whole) in rates.items():
        print(f"| {name} | {steps:,.0f} | {whole:,.0f} | {steps / base:.2f} |")
    print("\n| cost of a step | turn 2,000 : turn 10 |\n|---|---|")
    for arm in ("", "P"):
        print(f"| ListWorld, oracles {arm or 'none'} | {growth(arm):.2f} |")
    print(f"\nimport agentgym: {import_seconds():.2f} s (median of 7 fresh processes)")


def list_world(form: Dialect, thought: str = "") -> Episode:
    env = gymnasium.make("agentgym/ListWorld-v0", items=TURNS, removals=TURNS)
    seeds = itertools.count()
    action = thought + render(ToolCall("pop", {"id": 0}), form)

    def play() -> tuple[float, float]:
        start = time.process_time()
        env.reset(seed=next(seeds))
        middle = time.process_time()
        for _ in range(TURNS):
            env.step(action)
        return middle - start, time.process_time() - middle

    return play


def guess_the_number() -> dict[str, Episode]:
    try:
        import gem  # noqa: PLC0415
        from gem.wrappers.wrapper_factory import WRAPPER_FACTORY  # noqa: PLC0415
    except ImportError:
        print(
            "gem-llm is not installed, so there is nothing to compare with: pip install "
            "'agentgym-suite[bench]'",
            file=sys.stderr,
        )
        return {}

    def episode(wrapper: str) -> Episode:
        made = gem.make("game:GuessTheNumber-v0-hard", max_number=50, max_turns=TURNS + 1)
        env = WRAPPER_FACTORY[wrapper](made)

        def play() -> tuple[float, float]:
            start = time.process_time()
            env.reset(seed=0)
            middle = time.process_time()
            # Omit the correct guess, which would end the episode.
            hidden = made.unwrapped.game_number
            actions = [f"\\boxed{{{guess}}}" for guess in range(1, 51) if guess != hidden][:TURNS]
            ready = time.process_time()
            for action in actions:
                env.step(action)
            return middle - start, time.process_time() - ready

        return play

    names = {"concat": "observations", "concat_with_action": "observations and actions"}
    return {
        f"gem-llm GuessTheNumber, {name} concatenated": episode(wrapper)
        for wrapper, name in names.items()
    }


def measure(episodes: dict[str, Episode]) -> dict[str, tuple[float, float]]:
    best = dict.fromkeys(episodes, (0.0, 0.0))
    for _ in range(ROUNDS):
        for name, play in episodes.items():
            times = [play() for _ in range(EPISODES)]
            steps = sum(step for _, step in times)
            resets = sum(reset for reset, _ in times)
            count = EPISODES * TURNS
            best[name] = (
                max(best[name][0], count / steps),
                max(best[name][1], count / (steps + resets)),
            )
    return best


def growth(arm: str) -> float:
    """Return the cost of a ListWorld step around turn 2,000 relative to turn 10.

    The env refuses every call at the same cost, so any growth is due to the history.
    """
    early: list[float] = []
    late: list[float] = []
    for _ in range(ROUNDS):
        # The turn budget exceeds the number of turns, so the episode does not end.
        env = agentgym.make("ListWorld", oracles=arm, items=20, removals=20, budget_slack=3 * LONG)
        env.reset(seed=0)
        times = list(step_times(env, LONG + 100))
        early.append(statistics.median(times[:100]))
        late.append(statistics.median(times[-100:]))
    # The fastest rounds are least affected by other processes.
    return min(late) / min(early)


def step_times(env: gymnasium.Env[agentgym.Chat, str], turns: int) -> Iterator[float]:
    action = render(ToolCall("pop", {"id": 99}))
    # Garbage collection is disabled, because its cost depends on the whole process.
    gc.disable()
    for _ in range(turns):
        start = time.perf_counter()
        env.step(action)
        yield time.perf_counter() - start
    gc.enable()


def import_seconds() -> float:
    code = (
        "import time; start = time.perf_counter(); import agentgym; print(time.perf_counter() "
        "- "
        "start)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(7)
    ]
    return statistics.median(float(run.stdout) for run in runs)


if __name__ == "__main__":
    main()
