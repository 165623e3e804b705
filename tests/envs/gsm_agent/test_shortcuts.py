"""Metadata do not reveal which documents matter."""

from __future__ import annotations

from typing import Any

import pytest

from agentgym.envs.gsm_agent.config import SearchConfig
from agentgym.envs.gsm_agent.database import Database, DatabaseOptions, get_database
from agentgym.envs.gsm_agent.knowledge import PAGE, PAGES
from agentgym.envs.gsm_agent.search_world import SearchWorld

TASKS = 150


def precision(database: Database) -> float:
    """Return the share of the task's documents among those about its people in its month."""
    shares = []
    for task in database.tasks:
        gold = [database.documents[place] for place in task.documents]
        people = {name for document in gold for name in document.name.split(", ")}
        dated = [each for each in database.documents if each.timestamp == gold[0].timestamp]
        alike = [document for document in dated if people & {*document.name.split(", ")}]
        shares.append(len(gold) / len(alike))
    return sum(shares) / len(shares)


def test_names_and_dates_do_not_mark_the_documents_of_a_task() -> None:
    assert precision(get_database(DatabaseOptions(tasks=TASKS))) <= 0.6
    assert precision(get_database(DatabaseOptions(tasks=TASKS, decoys=3))) <= 0.35
    assert (
        precision(get_database(DatabaseOptions(tasks=TASKS, decoys=0, near_duplicates=0.0))) == 1.0
    )


def test_a_task_has_the_same_key_whatever_the_seed_and_the_setting() -> None:
    def key(seed: int, **options: object) -> str:
        world = SearchWorld(SearchConfig(tasks=40, **options), seed)  # type: ignore[arg-type]
        world.generate()
        return world.instance_key()

    assert key(1, task=7) == key(2, task=7) == key(3, task=7, setting="static")
    assert len({key(0, task=number) for number in range(40)}) == 40


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"people": "test"},
        {"people": "train", "database_seed": 3},
        {"premises": 2},
        {"premises": 5},
        {"operators": ("more", "gap", "share")},
        {"decoys": 0, "anonymised": 0.0},
    ],
    ids=str,
)
def test_all_pages_of_the_question_as_the_only_query_seldom_suffice(
    options: dict[str, Any],
) -> None:
    database = get_database(DatabaseOptions(**options))
    tasks = [database.tasks[number] for number in range(300)]
    solvable = [
        task
        for task in tasks
        if set(task.documents) <= {*database.index.best(task.question, PAGE * PAGES)}
    ]
    assert len(solvable) <= 0.15 * len(tasks)  # the rest need further queries
