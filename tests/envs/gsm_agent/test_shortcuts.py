from __future__ import annotations

from typing import Any

import pytest

from agentgym.envs.gsm_agent import narration
from agentgym.envs.gsm_agent.database import Database, DatabaseOptions, get_database
from agentgym.envs.gsm_agent.knowledge import PAGE, PAGES, SearchKnowledge
from tests.envs.gsm_agent.well_posed import search_alone

TASKS = 150


def precision(database: Database) -> float:
    """Return the share of a task's documents among documents about the same people and month."""
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


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"people": "test"},
        {"premises": 2},
        {"decoys": 0, "anonymised": 0.0},
    ],
    ids=str,
)
def test_all_pages_of_the_question_as_the_only_query_seldom_suffice(
    options: dict[str, Any],
) -> None:
    database = get_database(DatabaseOptions(**options))
    tasks = [database.tasks[number] for number in range(150)]
    solvable = [
        task
        for task in tasks
        if set(task.documents) <= {*database.index.best(task.question, PAGE * PAGES)}
    ]
    assert len(solvable) <= 0.15 * len(tasks)  # all other tasks need more than one query


@pytest.mark.parametrize(
    ("template", "most"),
    [
        ("{names} {month}", 0.15),
        ("{month}", 0.15),
        ("{phrases} {month} {month}", 0.25),
    ],
)
def test_no_single_query_solves_many_tasks(template: str, most: float) -> None:
    """Even a reader who knows the grammar and sees all 20 pages of a query solves few tasks."""
    database = get_database(DatabaseOptions(people="test"))
    solved = 0
    for number in range(150):
        task = database.tasks[number]
        known = SearchKnowledge.of(task.question)
        assert known.question is not None
        targets = known.question.targets
        query = template.format(
            question=task.question,
            names=" ".join(target.owner for target in targets),
            phrases=" ".join(target.phrase for target in targets),
            month=known.month,
        )
        places = database.index.best(query, PAGE * PAGES)
        known.learn("\n\n".join(database.documents[place].show() for place in places))
        solved += known.answer() == task.answer
    assert solved <= most * 150


def test_who_overlooks_that_a_figure_is_outdated_is_often_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = get_database(DatabaseOptions(people="test"))
    tasks = [database.tasks[number] for number in range(100)]
    assert all(search_alone(database, task.question)[0] == task.answer for task in tasks)
    monkeypatch.setattr(narration, "OUTDATED", ())
    narration.read_facts.cache_clear()
    right = [search_alone(database, task.question)[0] == task.answer for task in tasks]
    narration.read_facts.cache_clear()
    assert sum(right) <= 75
