"""Measure the env steps per second of each collector, with fast and slow policies and tools:
`python benchmarks/rollouts.py`.

The policy sleeps once per batch, like a model on a GPU, or once per reply, like an endpoint. The
tool sleeps in each step. The same run measures a bare loop, the vector envs of Gymnasium and, if
installed, the vector envs of `gem-llm`.

The argument `slots`, optionally followed by engine names, measures the CPU time and memory of 1,000
and 10,000 slots and of a bare event loop. The argument `sampler` measures the utilisation of a
simulated sampler with heavy-tailed tool times.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

import agentgym
from agentgym import Chat, Reply, ToolCall, render
from agentgym.training.rollout import ENGINES, Collector

SLOTS = 16
# Numbers of slots to measure with the argument `slots`.
MANY = (1_000, 10_000)
# Take the best of several rounds, because other processes can slow a round down.
ROUNDS = 3
# Numbers of slots to measure with the argument `sampler`.
SAMPLED = (64, 512, 4_096)
# Seconds for which the simulated sampler is measured.
SAMPLING = 5.0
TURNS = 12
# Sleep times of the policy and the tool in milliseconds.
DELAYS = (0, 5, 50)
# Minimum duration of a measurement in seconds.
BUDGET = 1.5
# The env refuses this call, so every episode lasts until the turn budget is exhausted.
POP = Reply(render(ToolCall("pop", {"id": 99})))

Run = Callable[..., float]
"""Return steps per second for a policy and a tool with these sleeping times in seconds."""


class SlowTool(gymnasium.Wrapper[Chat, str, Chat, str], RecordConstructorArgs):
    def __init__(self, env: gymnasium.Env[Chat, str], seconds: float) -> None:
        RecordConstructorArgs.__init__(self, seconds=seconds)
        super().__init__(env)
        self.seconds = seconds

    def step(self, action: str) -> Any:
        pause(self.seconds)
        return self.env.step(action)


class Policy:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        pause(self.seconds)
        return [POP] * len(chats)

    async def areply(self, chat: Chat) -> Reply:
        if self.seconds:
            await asyncio.sleep(self.seconds)
        return POP


def pause(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)


def make_env(tool: float = 0.0) -> gymnasium.Env[Any, Any]:
    return SlowTool(
        agentgym.make("ListWorld", items=8, removals=2, budget_factor=1.0, budget_slack=TURNS - 3),
        tool,
    )


def main() -> None:
    alone: dict[str, Callable[..., None]] = {"slots": print_slots, "sampler": print_sampler}
    if sys.argv[1:]:
        alone[sys.argv[1]](*sys.argv[2:])
        return
    runs = {"bare loop over envs": bare, **collectors(), **gymnasium_vectors(), **gem_vectors()}
    cells = list(itertools.product(DELAYS, DELAYS))
    print(f"steps/s with {SLOTS} envs; p/t: ms of a policy and of a tool\n")
    print("| " + " | ".join(["", *(f"{policy}/{tool}" for policy, tool in cells)]) + " |")
    print("|---" * (len(cells) + 1) + "|")
    for name, run in runs.items():
        print(
            f"| {name} | "
            + " | ".join(f"{run(policy / 1e3, tool / 1e3):,.0f}" for policy, tool in cells)
            + " |",
            flush=True,
        )
    print(
        "\n| a round of all slots over that of the bare loop, as a share of a 10 ms policy | 1 "
        f"slot | {SLOTS} slots |"
    )
    print("|---|---|---|")
    for name, shares in overheads().items():
        print(f"| {name} | " + " | ".join(f"{share:.1%}" for share in shares) + " |", flush=True)
    print_slots()
    print_sampler()


def print_slots(*engines: str) -> None:
    print("\n| µs of processor time a step | " + " | ".join(f"{n:,} slots" for n in MANY), end="")
    print(
        f" | ratio | over the bare event loop at {MANY[-1]:,} | kB a slot |\n|---|---|---|---|---|---|"
    )
    engines = engines or ("lockstep", "threads", "asyncio", "processes")
    names = ["bare event loop and thread pool", *engines]
    bare_cost = 0.0
    for name in names:
        measure = partial(slot_cost, name) if name in ENGINES else loop_cost
        (few, _), (many, memory) = map(measure, MANY)
        bare_cost = bare_cost or many
        print(
            f"| {name} | {few:.0f} | {many:.0f} | {many / few:.2f} | {many / bare_cost:.2f} | "
            f"{memory:.0f} |",
            flush=True,
        )


def slot_cost(engine: str, slots: int) -> tuple[float, float]:
    """Return the CPU microseconds per step in the best round, and the memory per slot in kB."""
    gc.collect()
    before = resources()[1]
    with Collector(make_env, slots, engine=engine) as collector:
        played = collector.collect(Policy(0.0), itertools.count())

        def play() -> int:
            return sum(len(trajectory.steps) for trajectory in itertools.islice(played, slots))

        play()
        memory = resources()[1]
        cost = min(cost_of(play) for _ in range(ROUNDS))
    return cost, (memory - before) / slots / 1e3


def cost_of(play: Callable[[], int]) -> float:
    start = resources()[0]
    steps = play()
    return (resources()[0] - start) / steps * 1e6


def loop_cost(slots: int) -> tuple[float, float]:
    gc.collect()
    before, policy = resources()[1], Policy(0.0)
    envs = [make_env() for _ in range(slots)]

    async def play(env: gymnasium.Env[Any, Any]) -> None:
        chat, _ = await asyncio.to_thread(env.reset, seed=0)
        for _ in range(TURNS):
            reply = await policy.areply(chat)
            chat, *_ = await asyncio.to_thread(env.step, reply.text)

    async def play_all() -> None:
        await asyncio.gather(*map(play, envs))

    def play_round() -> int:
        asyncio.run(play_all())
        return slots * TURNS

    play_round()
    memory = resources()[1]
    cost = min(cost_of(play_round) for _ in range(ROUNDS))
    return cost, (memory - before) / slots / 1e3


class HeavyTailed(SlowTool):
    def step(self, action: str) -> Any:
        draw = random.random()
        self.seconds = 0.005 if draw < 0.9 else 0.1 if draw < 0.99 else 0.5
        return super().step(action)


class Sampler(Policy):
    """Simulated sampler that takes 20 ms per batch plus 0.2 ms per chat and records its busy
    time.
    """

    def __init__(self) -> None:
        super().__init__(0.0)
        self.busy, self.replies = 0.0, 0

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        began = time.perf_counter()
        time.sleep(0.02 + 0.0002 * len(chats))
        self.busy += time.perf_counter() - began
        self.replies += len(chats)
        return [POP] * len(chats)


def print_sampler() -> None:
    print("\n| the sampler is at work (replies/s) | one batch | two in flight |\n|---|---|---|")
    for slots in SAMPLED:
        cells = [sampler_busy(slots, in_flight) for in_flight in (1, 2)]
        texts = " | ".join(f"{busy:.0%} ({replies:,.0f})" for busy, replies in cells)
        print(f"| {slots:,} slots | {texts} |", flush=True)


def sampler_busy(slots: int, in_flight: int) -> tuple[float, float]:
    """Return the share of time in which the sampler is busy, and the replies per second."""
    sampler = Sampler()
    make_slow = lambda: HeavyTailed(make_env().env, 0.0)  # type: ignore[attr-defined]  # noqa: E731
    with Collector(make_slow, slots, engine="threads", in_flight=in_flight) as collector:
        played = collector.collect(sampler, itertools.count())
        for _ in itertools.islice(played, slots):  # wait until slots are at different turns
            pass
        sampler.busy, sampler.replies = 0.0, 0
        start = time.perf_counter()
        while (spent := time.perf_counter() - start) < SAMPLING:
            next(played)
    return sampler.busy / spent, sampler.replies / spent


def resources() -> tuple[float, float]:
    """Return the CPU seconds and memory in bytes of this process and its workers (Linux only)."""
    seconds, memory = time.process_time(), 0.0
    for worker in multiprocessing.active_children():
        fields = (
            Path(f"/proc/{worker.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
        # In the `stat` file, user and system time follow the process name, which may contain
        # spaces.
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    for pid in (os.getpid(), *(worker.pid for worker in multiprocessing.active_children())):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
        # Pss divides shared pages among the processes that share them.
        memory += next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return seconds, memory


def rate(play: Callable[[], int]) -> float:
    start, steps = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < BUDGET:
        steps += play()
    return steps / spent


def bare(policy: float, tool: float, slots: int = SLOTS) -> float:
    envs, asked = [make_env(tool) for _ in range(slots)], Policy(policy)

    def play() -> int:
        chats = [env.reset(seed=0)[0] for env in envs]
        for _ in range(TURNS):
            chats = [env.step(reply.text)[0] for env, reply in zip(envs, asked(chats), strict=True)]
        return slots * TURNS

    return rate(play)


def collectors() -> dict[str, Run]:
    found = {
        f"agentgym {engine}": partial(collected, engine)
        for engine in ("lockstep", "threads", "asyncio", "processes")
    }
    with contextlib.suppress(ImportError):
        import ray  # noqa: PLC0415

        # Disable usage reports to Ray's servers.
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        ray.init(
            log_to_driver=False,
            logging_level="error",
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
        )
        found["agentgym ray"] = partial(collected, "ray")
    return found


def collected(engine: str, policy: float, tool: float, slots: int = SLOTS) -> float:
    with Collector(partial(make_env, tool), slots, engine=engine) as collector:

        def play() -> int:
            return sum(
                len(trajectory.steps)
                for trajectory in collector.collect(Policy(policy), range(slots))
            )

        play()  # start the workers
        return rate(play)


def gymnasium_vectors() -> dict[str, Run]:

    def stepped(mode: str, policy: float, tool: float, slots: int = SLOTS) -> float:
        make = [partial(make_env, tool)] * slots
        kwargs: dict[str, Any] = {"shared_memory": False} if mode == "AsyncVectorEnv" else {}
        vector = getattr(gymnasium.vector, mode)(make, **kwargs)
        steps = stepping(vector, slots, Policy(policy), POP.text)
        next(steps)
        found = rate(lambda: next(steps))
        vector.close()
        return found

    return {
        f"gymnasium {mode}": partial(stepped, mode) for mode in ("SyncVectorEnv", "AsyncVectorEnv")
    }


def gem_vectors() -> dict[str, Run]:
    try:
        import gem  # noqa: PLC0415
        from gem.core import EnvWrapper  # noqa: PLC0415
        from gem.wrappers.wrapper_factory import WRAPPER_FACTORY  # noqa: PLC0415
    except ImportError:
        print(
            "gem-llm is not installed, so there is nothing to compare with: pip install "
            "'agentgym-suite[bench]'",
            file=sys.stderr,
        )
        return {}

    class Slow(EnvWrapper):  # type: ignore[misc]
        seconds = 0.0

        def reset(self, seed: int | None = None) -> Any:
            return self.env.reset(seed)

        def step(self, action: str) -> Any:
            pause(self.seconds)
            return self.env.step(action)

    def stepped(policy: float, tool: float, threads: bool) -> float:
        Slow.seconds = tool
        with contextlib.redirect_stdout(None):
            vector = gem.make_vec(
                ["game:GuessTheNumber-v0-hard"] * SLOTS,
                wrappers=[WRAPPER_FACTORY["concat_with_action"], Slow],
                async_mode=threads,
                max_number=10_000_000,
                max_turns=TURNS,
            )
        steps = stepping(vector, SLOTS, Policy(policy), "\\boxed{1}")
        next(steps)
        return rate(lambda: next(steps))

    return {
        "gem-llm SyncVectorEnv": partial(stepped, threads=False),
        "gem-llm AsyncVectorEnv": partial(stepped, threads=True),
    }


def stepping(vector: Any, slots: int, policy: Policy, action: str) -> Iterator[int]:
    """Step a vector env; after each episode, yield the number of steps, excluding resets."""
    observations, _ = vector.reset(seed=list(range(slots)))
    over = [False] * slots
    while True:
        steps = 0
        for _ in range(TURNS + 1):
            steps += slots - sum(over)
            observations, _, ended, cut, _ = vector.step([action] * len(policy(observations)))
            over = [bool(one or other) for one, other in zip(ended, cut, strict=True)]
        yield steps


def overheads() -> dict[str, list[float]]:
    """Return the overhead of a round over the bare loop, relative to a policy call of 10 ms."""
    runs: dict[str, Callable[..., float]] = {
        f"agentgym {engine}": partial(collected, engine)
        for engine in ("lockstep", "threads", "processes")
    }
    found: dict[str, list[float]] = {}
    for name, run in {**runs, **gymnasium_vectors()}.items():
        for slots in (1, SLOTS):
            extra = [
                slots / run(0.01, 0.0, slots=slots) - slots / bare(0.01, 0.0, slots)
                for _ in range(3)
            ]
            found.setdefault(name, []).append(statistics.median(extra) / 0.01)
    return found


if __name__ == "__main__":
    main()
