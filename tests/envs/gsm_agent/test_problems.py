from __future__ import annotations

import re
import statistics
from collections import Counter
from random import Random
from typing import Any

import pytest

import agentgym.envs.gsm_agent.database as drawing
from agentgym.envs.gsm_agent.database import DatabaseOptions, draw_tasks, get_database
from agentgym.envs.gsm_agent.documents import month_name, write_document
from agentgym.envs.gsm_agent.facts import Fact, Quantity, open_quantities, solve
from agentgym.envs.gsm_agent.narration import OUTDATED, Narrator, read_facts
from agentgym.envs.gsm_agent.problems import Problem, ProblemOptions, draw_problem
from agentgym.envs.gsm_agent.questions import Question, read_question, write_question
from agentgym.envs.gsm_agent.stories import PARTICIPLE, STORIES, split_item, unit_of
from tests.envs.gsm_agent import reader
from tests.envs.gsm_agent.well_posed import find_faults, tasks_of

PEOPLE = [
    f"{first} {last}"
    for first in ("Adela", "Bruno", "Clara", "Dario")
    for last in ("Marsh", "Novak", "Olsen")
]


def drawn(count: int, **options: Any) -> list[Problem]:
    return [draw_problem(Random(seed), PEOPLE, ProblemOptions(**options)) for seed in range(count)]


@pytest.mark.parametrize(
    "options",
    [
        {"tasks": 60},
        {"tasks": 60, "people": "test", "database_seed": 7, "distractors": 0.5},
        {"tasks": 20, "premises": 10, "decoys": 0, "near_duplicates": 0.6},
        {"tasks": 60, "premises": 3, "anonymised": 1.0, "decoys": 2},
        pytest.param({"tasks": 2_000}, marks=pytest.mark.exhaustive),
    ],
    ids=str,
)
def test_tasks_are_well_posed_and_an_independent_reader_needs_every_document(
    options: dict[str, Any],
) -> None:
    database = get_database(DatabaseOptions(**options))
    assert list(find_faults(database)) == []
    for task, documents in tasks_of(database):
        texts = [(document.name, document.content) for document in documents]
        assert str(reader.solve(task.question, texts)) == task.answer
        assert len(texts) == 1 or task.answer not in re.findall(r"\d+", task.question)
        for k in range(len(texts)):
            assert reader.solve(task.question, texts[:k] + texts[k + 1 :]) is None


def test_stories_are_many_and_their_words_can_be_told_apart() -> None:
    """There are many schemas, and no item contains a word that the reader uses as a separator."""
    schemas = {
        (kind, name, schema.target)
        for name, story in STORIES.items()
        for some in story.schemas.values()
        for schema in some
        for kind in [schema.kind]
    }
    assert len(schemas) >= 180
    for story in STORIES.values():
        for item in story.items:
            assert split_item(item) == (item, "")
            assert not set(item.split()) & set(PARTICIPLE)
            assert unit_of(item) == ""


def test_there_are_as_many_documents_as_in_table_3() -> None:
    counts = [len(problem.premises()) for problem in drawn(2_000)]
    assert statistics.mean(counts) == pytest.approx(4.41, abs=0.15)
    assert statistics.pstdev(counts) == pytest.approx(1.74, abs=0.2)
    assert (min(counts), statistics.median(counts), max(counts) <= 14) == (1, 4, True)


@pytest.mark.parametrize("premises", [1, 2, 3, 7, 14, 40, 64, 128])
def test_problems_have_the_asked_premises_and_whole_numbers(premises: int) -> None:
    most = 20_000 if premises > 64 else 2_000
    for problem in drawn(50 if premises < 64 else 15, premises=premises, max_answer=most):
        assert len(problem.premises()) == premises
        assert sum(fact.number is not None for fact in problem.facts.values()) == premises
        values = [solve(problem.facts, target) for target in problem.facts]
        assert all(value is not None and 1 <= value <= most for value in values)
        assert 1 <= problem.answer <= most
        assert all(
            len([fact for fact in some if fact.number is not None]) == 1
            for some in problem.premises()
        )


def test_all_relations_and_kinds_of_question_occur() -> None:
    every = drawn(1_500)
    kinds = {fact.kind for problem in every for fact in problem.facts.values()}
    assert len(kinds) == 15
    assert len({problem.question.kind for problem in every}) == 13


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(
        ValueError,
        match="found no problem with 128 premises and max_answer=100; increase max_answer",
    ):
        draw_problem(Random(0), PEOPLE, ProblemOptions(premises=128, max_answer=100))


def test_every_fact_and_question_is_read_back() -> None:
    """The owner of a fact may be a name, `I` or a role."""
    wordings = set()
    for seed, problem in enumerate(drawn(400)):
        for facts in problem.premises():
            owners = tuple(dict.fromkeys(owner for fact in facts for owner in fact.owners))
            for voice in ("", "I", "the host")[: 3 if len(owners) == 1 else 1]:
                names = {owners[0]: voice} if voice else {}
                narrator = Narrator(Random(seed), names, ["Guess what,"], lines=seed % 3 == 0)
                texts = [narrator.write(fact) for fact in facts]
                assert read_facts("\n".join(texts), owners) == facts
                assert not names or owners[0] not in "\n".join(texts)
        for month in ("", "May 1990"):
            text = write_question(problem.question, month, Random(seed))
            wordings.add(re.sub("[A-Z][a-z]+ [A-Z][a-z]+|[a-z' ]{25,}", "", text))
            assert read_question(text) == (problem.question, month)
    assert len(wordings) > 40
    assert read_question("How old is the cat?") is None


def test_without_a_whole_value_there_is_no_answer() -> None:
    one, two = Quantity("A B", "cups made"), Quantity("A B", "kites made")
    stated = {one: Fact(one, "is", 9), two: Fact(two, "is", 4)}
    for kind in ("average", "ratio", "share", "percentage"):
        assert Question(kind, (one, two)).answer(stated) is None
    assert Question("gap", (one, two)).answer({one: stated[one]}) is None
    facts = {one: Fact(one, "more", 1, (two,)), two: Fact(two, "fewer", 1, (one,))}
    assert solve(facts, one) is None
    assert open_quantities(facts, [one]) == []
    assert open_quantities({}, [one, two, one]) == [one, two]
    assert Fact(one, "part", 4, (two,)).value([10]) is None


def test_documents_are_records_and_anonymous_ones_name_nobody() -> None:
    target = Quantity("Adela Marsh", "kites made at home")
    kinds = set()
    for seed in range(400):
        document = write_document(
            [Fact(target, "is", 7)], "1990-05", "Dunmere", anonymous=seed % 2 == 0, rng=Random(seed)
        )
        assert ("Adela" in document.content) == (seed % 2 == 1)
        assert (document.timestamp, document.name) == ("1990-05", "Adela Marsh")
        kinds.add((document.type, "May 1990" in document.content))
    assert len(kinds) == 20, "ten genres, with a month and without"
    pair = Fact(target, "more", 3, (Quantity("Bruno Novak", "kites made at home"),))
    assert (
        "Adela Marsh"
        in write_document([pair], "1990-05", "Dunmere", anonymous=True, rng=Random(0)).content
    )
    assert month_name("1990-12") == "December 1990"
    assert month_name("1990") == "1990"


def test_outdated_documents_define_nothing_and_others_correct_them() -> None:
    """An outdated document and the correction from the same month differ only in the number."""
    database = get_database(DatabaseOptions(tasks=150))
    valid: dict[tuple[str, Quantity], Fact] = {}
    outdated: dict[tuple[str, Quantity], Fact] = {}
    for document in database.documents:
        names = tuple(document.name.split(", "))
        mark = next((mark for mark in OUTDATED if mark in document.content), "")
        assert not (mark and read_facts(document.content, names))
        table = outdated if mark else valid
        for fact in read_facts(
            document.content.replace(mark, "Noted.") if mark else document.content, names
        ):
            table[document.timestamp, fact.target] = fact
    assert len(outdated) > 100
    for key, fact in outdated.items():
        assert valid[key].kind == fact.kind
        assert valid[key].sources == fact.sources
    assert sum(valid[key].number != fact.number for key, fact in outdated.items()) > 100


def test_documents_are_varied() -> None:
    """Count the distinct words in 20,000 words, and the repeated sentences, ignoring numbers."""
    database = get_database(DatabaseOptions(people="test"))
    places = [place for task in list(database.tasks)[:160] for place in task.documents]
    texts = [database.documents[place].content for place in places]
    words = re.findall("[a-z']+", " ".join(texts).lower())[:20_000]
    assert len(set(words)) >= 1_000
    sentences = Counter(
        re.sub(r"\d+", "#", sentence)
        for text in texts
        for sentence in re.split(r"(?<=[.!?])\s+|\n", text)
    )
    repeated = sum(count for count in sentences.values() if count > 1)
    assert repeated <= 0.3 * sum(sentences.values())


@pytest.mark.rotation
def test_too_many_colours_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "FIRST_NAMES", ("Adela", "Bruno"))
    monkeypatch.setattr(drawing, "LAST_NAMES", ("Marsh", "Novak"))
    with pytest.raises(
        ValueError,
        match=r"tasks=9000 needs [0-9]+ different months, but there are only 720",
    ):
        draw_tasks(DatabaseOptions(tasks=9_000, premises=1))
