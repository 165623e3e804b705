"""Measure SearchWorld with 30,000 documents: `python benchmarks/gsm_agent.py`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from random import Random

from agentgym import make, tool_env
from agentgym.envs.gsm_agent.database import Database, DatabaseOptions, draw_tasks, get_database
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import rollout

TASKS = 7_000
ROUNDS = 400


def main() -> None:
    options = DatabaseOptions(tasks=TASKS)
    start = time.perf_counter()
    draw_tasks(options)
    drawn = time.perf_counter() - start
    start = time.perf_counter()
    database = get_database(options)
    built = time.perf_counter() - start
    print(
        f"{len(database.documents):,} documents of {TASKS:,} tasks: drawn in {drawn:.1f} s, drawn "
        f"and indexed in {built:.1f} s\n"
    )
    print("| | median ms | 95% ms |")
    print("|---|---|---|")
    questions = [database.tasks[Random(k).randrange(TASKS)].question for k in range(ROUNDS)]
    show("search by words, the question as query", lambda k: database.index.best(questions[k], 100))
    env = tool_env(make("SearchWorld", tasks=TASKS))
    show("reset", lambda k: env.reset(seed=k))
    env.reset(seed=0)
    show("search, as a call", lambda k: env.call("search", {"query": questions[k]}))
    policy = OraclePolicy("SearchWorld")
    show("solving a task with the scripted searcher", lambda k: rollout(policy, env, k))
    if find_spec("wordllama"):
        dense(options, questions)


def dense(options: DatabaseOptions, questions: list[str]) -> None:
    documents, tasks = draw_tasks(options).part(1, options.database_seed)
    start = time.perf_counter()
    database = Database.of(documents, tasks, "wordllama")
    seconds = time.perf_counter() - start
    show(
        f"search by wordllama (indexed in {seconds:.0f} s)",
        lambda k: database.index.best(questions[k], 100),
    )


def show(name: str, act: Callable[[int], object]) -> None:
    times = []
    for k in range(ROUNDS):
        start = time.perf_counter()
        act(k)
        times.append(time.perf_counter() - start)
    print(
        f"| {name} | {statistics.median(times) * 1e3:.2f} | "
        f"{statistics.quantiles(times, n=20)[-1] * 1e3:.2f} |"
    )


if __name__ == "__main__":
    main()
