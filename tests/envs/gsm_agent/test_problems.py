"""GSM-Agent's problems are exact, well-posed and varied, with the paper's document counts."""

from __future__ import annotations

import itertools
import operator
import re
import statistics
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import agentgym.envs.gsm_agent.database as drawing
from agentgym.envs.gsm_agent.checks import CHECKS
from agentgym.envs.gsm_agent.database import (
    Database,
    DatabaseOptions,
    colour,
    draw_tasks,
    get_database,
)
from agentgym.envs.gsm_agent.documents import month_name, write_document
from agentgym.envs.gsm_agent.facts import (
    Fact,
    Quantity,
    open_quantities,
    read_facts,
    solve,
    write_fact,
)
from agentgym.envs.gsm_agent.problems import (
    OPERATORS,
    Problem,
    ProblemOptions,
    draw_problem,
)
from agentgym.envs.gsm_agent.questions import Question, read_question, write_question
from agentgym.testing import laws

PEOPLE = [
    f"{first} {last}"
    for first in ("Adela", "Bruno", "Clara", "Dario")
    for last in ("Marsh", "Novak", "Olsen")
]


def drawn(count: int, **options: Any) -> list[Problem]:
    return [draw_problem(Random(seed), PEOPLE, ProblemOptions(**options)) for seed in range(count)]


def evaluate(problem: Problem) -> int:
    """Compute the answer by exact fractions, independently of the package."""
    signs = {"more": "+", "fewer": "-", "times": "*", "part": "/", "sum": "+", "minus": "-"}
    signs["product"] = "*"

    def expression(target: Quantity) -> str:
        fact = problem.facts[target]
        parts = [expression(source) for source in fact.sources] + (
            [f"F({fact.number})"] if fact.number is not None else []
        )
        return parts[0] if fact.kind == "is" else f"({parts[0]} {signs[fact.kind]} {parts[1]})"

    texts = [expression(target) for target in problem.question.targets]
    joined = {"total": texts[0], "gap": " - ".join(texts), "share": " / ".join(texts)}[
        problem.question.kind
    ]
    value = eval(joined, {"F": __import__("fractions").Fraction})
    assert value.denominator == 1
    return int(value)


def test_answers_are_exact() -> None:
    for problem in drawn(400):
        assert problem.answer == evaluate(problem)
        values = [solve(problem.facts, target) for target in problem.facts]
        assert all(value is not None and 1 <= value <= 2_000 for value in values)
        assert 1 <= problem.answer <= 2_000


def test_there_are_as_many_documents_as_in_table_3() -> None:
    counts = [len(problem.premises()) for problem in drawn(2_000)]
    assert statistics.mean(counts) == pytest.approx(4.41, abs=0.15)
    assert statistics.pstdev(counts) == pytest.approx(1.74, abs=0.2)
    assert (min(counts), statistics.median(counts), max(counts) <= 14) == (1, 4, True)


@pytest.mark.parametrize("premises", [1, 2, 3, 7, 14, 40, 64, 128])
def test_a_number_of_premises_can_be_asked_for(premises: int) -> None:
    for problem in drawn(20, premises=premises, max_answer=20_000 if premises > 64 else 2_000):
        assert len(problem.premises()) == premises
        assert sum(fact.number is not None for fact in problem.facts.values()) == premises
        assert all(
            len([fact for fact in some if fact.number is not None]) == 1
            for some in problem.premises()
        )


def test_operators_can_be_chosen_and_all_of_them_occur() -> None:
    kinds = {fact.kind for problem in drawn(300) for fact in problem.facts.values()}
    assert kinds == {"is", *OPERATORS} - {"gap", "share"}
    assert {problem.question.kind for problem in drawn(300)} == {"total", "gap", "share"}
    few = drawn(100, operators=("more", "sum"))
    assert {fact.kind for problem in few for fact in problem.facts.values()} == {
        "is",
        "more",
        "sum",
    }
    assert {problem.question.kind for problem in few} == {"total"}


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(
        ValueError,
        match="no problem with 128 premises was found below max_answer=100; raise max_answer",
    ):
        draw_problem(Random(0), PEOPLE, ProblemOptions(premises=128, max_answer=100))


def test_every_wording_of_a_fact_is_read_back() -> None:
    one, other = "Adela Marsh", "Bruno Novak"
    for phrases in (
        ("tin kites", "red cups", "blue jam jars"),
        ("bill for the kites", "price of the cups", "coupon for the jars"),
    ):
        target, first, last = (Quantity(one, phrase) for phrase in phrases)
        theirs = Quantity(other, phrases[1])
        facts = [Fact(target, "is", 12)]
        for source in (first, theirs):
            facts += [Fact(target, kind, 5, (source,)) for kind in ("more", "fewer")]
            facts += [
                Fact(target, kind, n, (source,)) for kind in ("times", "part") for n in (2, 3, 4)
            ]
        facts += [Fact(target, kind, None, (first, last)) for kind in ("sum", "minus", "product")]
        for fact, seed in itertools.product(facts, range(12)):
            assert read_facts(write_fact(fact, Random(seed)), fact.owners) == (fact,)
            if len(fact.owners) == 1:
                hidden = write_fact(fact, Random(seed), {one: "the organiser"})
                assert one not in hidden
                assert read_facts(hidden, (one,)) == (fact,)


def test_every_question_is_read_back() -> None:
    seen = set()
    for seed, problem in enumerate(drawn(300)):
        for month in ("", "May 1990"):
            text = write_question(problem.question, month, Random(seed))
            seen.add(re.sub("[A-Z][a-z]+ [A-Z][a-z]+|[a-z ]{25,}", "", text))
            assert read_question(text) == (problem.question, month)
    assert len(seen) > 10
    assert read_question("How old is the cat?") is None


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("total", [9], 9),
        ("gap", [9, 4], 5),
        ("share", [9, 3], 3),
        ("share", [9, 4], None),
        ("gap", [4, None], None),
        ("gap", [4, 4], 0),
    ],
)
def test_what_questions_ask(kind: str, values: list[int | None], expected: int | None) -> None:
    targets = [Quantity("A B", str(k)) for k in range(len(values))]
    facts = {
        target: Fact(target, "is", value)
        for target, value in zip(targets, values, strict=True)
        if value is not None
    }
    assert Question(kind, tuple(targets)).answer(facts) == expected


def test_facts_in_a_circle_have_no_value() -> None:
    one, two = Quantity("A B", "cups"), Quantity("A B", "kites")
    facts = {one: Fact(one, "more", 1, (two,)), two: Fact(two, "fewer", 1, (one,))}
    assert solve(facts, one) is None
    assert open_quantities(facts, [one]) == []
    assert open_quantities({}, [one, two, one]) == [one, two]
    assert Fact(one, "part", 4, (two,)).value([10]) is None


def test_documents_are_records_with_a_date_and_anonymous_ones_name_nobody() -> None:
    target = Quantity("Adela Marsh", "tin kites")
    facts = [
        Fact(
            target,
            "sum",
            None,
            (Quantity("Adela Marsh", "red cups"), Quantity("Adela Marsh", "blue cups")),
        ),
        Fact(target, "is", 7),
    ]
    kinds = set()
    for seed in range(60):
        document = write_document(
            facts[1:], "1990-05", "Dunmere", anonymous=seed % 2 == 0, rng=Random(seed)
        )
        assert "May 1990" in document.content
        assert ("Adela" in document.content) == (seed % 2 == 1)
        assert (document.timestamp, document.name) == ("1990-05", "Adela Marsh")
        kinds.add(document.type)
    assert len(kinds) == 8
    pair = Fact(target, "more", 3, (Quantity("Bruno Novak", "red cups"),))
    assert (
        "Adela Marsh"
        in write_document([pair], "1990-05", "Dunmere", anonymous=True, rng=Random(0)).content
    )
    assert month_name("1990-12") == "December 1990"
    assert month_name("1990") == "1990"


@pytest.mark.parametrize(
    "options",
    [
        {"tasks": 150, "distractors": 0.5},
        {"tasks": 60, "decoys": 2},
        {"tasks": 60, "premises": 10, "operators": ("more", "sum")},
        {"tasks": 100, "people": "train"},
        {"tasks": 100, "people": "test"},
        pytest.param({"tasks": 2_000}, marks=pytest.mark.exhaustive),
    ],
    ids=str,
)
@pytest.mark.parametrize("check", CHECKS)
def test_tasks_are_well_posed(check: str, options: dict[str, Any]) -> None:
    assert list(CHECKS[check](get_database(DatabaseOptions(**options)))) == []


def broken(change: str) -> Database:
    full = draw_tasks(
        DatabaseOptions(tasks=2, premises=3, operators=("more",), anonymised=0.0, decoys=0)
    )
    documents, (task, other) = full.part(1, 0)
    first = documents[0]
    if change == "answer":
        task = replace(task, answer="99999")
    if change == "extra":
        task = replace(task, documents=(*task.documents, other.documents[0]))
    if change == "number":
        documents[0] = replace(first, content=f"{first.content} Only seven came.")
    if change == "twice":
        documents.append(replace(first, id="zzz"))
    if change == "month":
        other = replace(task, id="again")
    if change == "hidden":
        documents[0] = replace(first, content="Xyzzy.")
    return Database.of(documents, [task, other], "words")


@pytest.mark.parametrize(
    ("change", "check", "message"),
    [
        ("answer", "solvable", "its answer is 99999"),
        ("extra", "necessary", "can be solved without"),
        ("number", "without_leaks", "seven"),
        ("twice", "unique", "its content is that of"),
        ("twice", "unambiguous", "it defines"),
        ("month", "apart", "in the same month"),
        ("hidden", "discoverable", "searching does not find"),
    ],
)
def test_checks_find_what_is_wrong(change: str, check: str, message: str) -> None:
    assert message in str(list(CHECKS[check](broken(change))))
    assert list(CHECKS[check](broken(""))) == []


def test_neighbours_have_different_colours_and_few_are_used() -> None:
    rng = Random(1)
    casts = [rng.sample(PEOPLE, rng.randint(1, 3)) for _ in range(120)]
    colours = colour(casts)
    for (one, first), (two, second) in itertools.combinations(zip(casts, colours, strict=True), 2):
        assert first != second or not set(one) & set(two)
    assert (
        max(colours)
        < max(sum(map(operator.contains, casts, [person] * 120)) for person in PEOPLE) * 3
    )
    assert colour([["A"], ["B"], ["A", "B"]]) == [1, 1, 0]
    assert colour([]) == []


@pytest.mark.rotation
def test_too_many_colours_are_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"tasks=9000 need [0-9]+ months to keep people apart, but there are 720; ask for fewer",
    ):
        crowded(9_000)


def crowded(tasks: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "FIRST_NAMES", ("Adela", "Bruno"))
        patch.setattr(drawing, "LAST_NAMES", ("Marsh", "Novak"))
        draw_tasks(DatabaseOptions(tasks=tasks, premises=1))


@pytest.mark.rotation
def test_the_same_options_make_the_same_bytes_in_another_process() -> None:
    laws.check_same_bytes(["SearchWorld-easy"])
    one, other = (
        get_database(DatabaseOptions(tasks=30, database_seed=seed)).documents for seed in (0, 1)
    )
    assert one.block.tobytes() != other.block.tobytes()
