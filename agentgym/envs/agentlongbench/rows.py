"""The benchmark's published row format (AgentLongBench, appendix B and the data card)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np

from agentgym.envs.agentlongbench import FULL, TASKS
from agentgym.envs.agentlongbench.config import QAConfig
from agentgym.envs.agentlongbench.logs import Log
from agentgym.envs.agentlongbench.rollout import draw_log
from agentgym.envs.agentlongbench.scoring import metric
from agentgym.envs.agentlongbench.tasks import LogQuestion, ask, context_length
from agentgym.envs.reading import load_texts
from agentgym.text.messages import Chat
from agentgym.text.tokens import TokenCounter

ANSWERS = "answers.jsonl"
"""File of a cell's rows without their messages, sufficient for scoring."""
K = 1_024  # the benchmark counts lengths in units of 1,024 tokens
LENGTHS: Mapping[str, int] = {
    "32k": 32 * K,
    "64k": 64 * K,
    "128k": 128 * K,
    "256k": 256 * K,
    "512k": 512 * K,
    "1M": 1_024 * K,
    "2M": 2_048 * K,
    "4M": 4_096 * K,
}
"""The benchmark's lengths in tokens, by folder name."""
_FOLDERS = {"tool": "tool_response", "env": "env_response", "intersection": "final_guess"}
TARGETS: Mapping[str, str] = {task: _FOLDERS[task.rpartition("_")[2]] for task in TASKS}
"""Folder of each task's file."""
COUNTS: Mapping[str, Mapping[str, Sequence[int]]] = load_texts(__file__, "counts")
"""Samples of each task at each length (tables 3 to 6), by style."""

_FORM = " Write the answer alone between <answer> and </answer>."


def count(setting: str, length: str, task: str) -> int:
    """Return the paper's number of rows for a setting, length and task (tables 3 to 6)."""
    return COUNTS[FULL[setting]["style"]][task][list(LENGTHS).index(length)]


def make_log(
    setting: str,
    tokens: int,
    sample: int,
    seed: int,
    counter: TokenCounter,
    *,
    published: bool = False,
) -> Log:
    """Return the log of a sample; the questions of all tasks refer to the same log."""
    config = QAConfig(
        **FULL[setting], length=tokens, min_list=50, counter=counter.name, published=published
    )
    rng = np.random.default_rng((seed, list(FULL).index(setting), tokens, sample))
    return draw_log(config, rng, counter, isolate=config.style == "concise", peak=True)


def make_rows(
    setting: str,
    tokens: int,
    sample: int,
    tasks: Mapping[str, int],
    seed: int,
    counter: TokenCounter,
    *,
    published: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield one row for each task that has a sample with the index `sample`.

    `tokens` is the length of the log and question, and `tasks` maps tasks to sample counts.
    `published` selects the names used in the published prompts.
    """
    names = [task for task, samples in tasks.items() if sample < samples]
    if not names:
        return
    log = make_log(setting, tokens, sample, seed, counter, published=published)
    messages = Chat(tuple(log.messages)).to_openai()
    for task in names:
        rng = np.random.default_rng(
            (seed, list(FULL).index(setting), tokens, sample, list(TASKS).index(task))
        )
        yield _row(ask(task, log, rng), log, messages, sample, counter) | {
            "setting": setting,
            "length": tokens,
        }


def _row(
    question: LogQuestion,
    log: Log,
    messages: list[dict[str, Any]],
    sample: int,
    counter: TokenCounter,
) -> dict[str, Any]:
    spec = question.spec
    name = str(sample)
    if spec.j:
        name = f"{sample}_i{spec.i}_j{spec.j}"
    elif spec.i:
        name = f"{sample}_r{spec.i}"
    return {
        "id": name,
        "sample_id": sample,
        "question_type": TASKS[spec.task],
        "messages": messages,
        "question": spec.text() + _FORM,
        "answer": question.answer,
        **question.extra,
        "task": spec.task,
        "metric": metric(spec.task, spec.style),
        "chance": question.chance,
        "rounds": len(log.rounds),
        "tokens": log.tokens,
        "acl_scan": context_length(question.scan, log, counter),
        "acl_min": context_length(question.least, log, counter),
        "evidence": [list(astuple(span)) for span in question.scan],
    }


def prompt(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row's messages; the last message includes the question, so that roles alternate."""
    *messages, last = row["messages"]
    return [*messages, {**last, "content": f"{last['content']}\n\n{row['question']}"}]
