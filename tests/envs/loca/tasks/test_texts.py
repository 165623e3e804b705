"""Check that each office text states one fact, and that no single word reveals the answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pytest

from agentgym.envs.loca.catalog import products_book
from agentgym.envs.loca.tasks.course_assistant import presentations_book
from agentgym.envs.loca.tasks.set_conf_cr_ddl import conference_news
from agentgym.envs.loca.tasks.set_conf_cr_ddl import facts_book as deadlines_book
from agentgym.envs.loca.writing import exam_notices
from agentgym.envs.loca.writing.applications import ASKING, replies_book
from agentgym.envs.loca.writing.coursework import coursework_book
from agentgym.envs.loca.writing.invoices import payment_books
from agentgym.envs.loca.writing.news import course_news, inbox_news
from agentgym.envs.loca.writing.order_notes import notes_book
from agentgym.envs.loca.writing.phrase_book import Phrase, PhraseBook
from benchmarks import text_policies
from benchmarks.texts import documents, variety
from tests.envs.loca.office import fresh

VALUES: Mapping[str, Any] = {
    "big_number": 4711,
    "code": "CS131-2",
    "count": 3,
    "course": "CS131-2",
    "date": "2024-05-06",
    "days": 14,
    "duration": 90,
    "few_number": 4,
    "first_money": 100,
    "key": "ECWS2",
    "later_date": "2024-06-05",
    "money": 123_456,
    "name": "Mary Costa",
    "number": 17,
    "old_number": 90,
    "one_person": "Ada Beck",
    "other_name": "Ada Beck",
    "other_person": "Jan Ito",
    "other_product": "Gift Card",
    "part_number": 2,
    "person": "Ada Beck (ada.beck@mcp.com)",
    "place": "Hall 3",
    "points_number": 80,
    "product": "Desk 061",
    "time": "18:00",
    "title": "CS131-2 Unit Quiz 1",
    "track": "Demo Track",
}
NOTES = {"remark"}
COURSEWORK = "policy corrected revoked dropped restored kept voluntary counted".split()
READINGS: Mapping[str, tuple[PhraseBook, Collection[str]]] = {
    "applications": (replies_book(), ASKING),
    "coursework": (coursework_book(), COURSEWORK),
    "deadlines": (deadlines_book(), deadlines_book().kinds),
    "exams": (exam_notices.facts_book(), exam_notices.facts_book().kinds),
    "presentations": (presentations_book(), ("not_final", "final")),
    "products": (products_book(), products_book().kinds.keys() - {"about"}),
    "notes about furniture": (
        notes_book("furniture"),
        notes_book("furniture").kinds.keys() - NOTES,
    ),
    "notes about books": (notes_book("books"), notes_book("books").kinds.keys() - NOTES),
}
# Two opposite kinds of phrases, and words that occur in both kinds.
SHARED: Mapping[str, tuple[PhraseBook, tuple[str, str], str]] = {
    "a file is final": (
        presentations_book(),
        ("not_final", "final"),
        "draft final version placeholder finished slides handout gaps",
    ),
    "a product is kept out of the outlet": (
        products_book(),
        ("excluded", "admitted"),
        "never outlet maker excluded clearance permanent range promise",
    ),
    "a product is ordered": (
        products_book(),
        ("gone", "stays"),
        "discontinued longer ordered last batch closed line sold ended",
    ),
}
# Keyword policies with their maximum scores on one seed.
SHORTCUTS: Mapping[str, tuple[Callable[[Any], float], float]] = {
    "ApplyPhDEmail": (text_policies.find_professors, 0.8),
    "CanvasArrangeExam": (text_policies.find_exams, 0.2),
    "SetConfCrDdl": (text_policies.find_reminders, 0.5),
    "UpdateMaterialInventory": (text_policies.find_pieces, 0.5),
    "WoocommerceNewWelcome": (text_policies.find_customers, 0.9),
}
# The minimum number of distinct sentences and words in a 128K-token state.
VARIETY: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "ApplyPhDEmail": {"mails": (300, 600)},
    # LOCA-bench's announcements have 104 distinct sentences and 392 distinct words.
    "CanvasArrangeExam": {"announcements": (104, 392), "mails": (100, 220)},
    "CanvasListTest": dict.fromkeys(
        ("announcements", "assignments", "quizzes", "questions", "submissions"), (100, 200)
    ),
    "SetConfCrDdl": {"mails": (220, 220)},
    "UpdateMaterialInventory": {"notes": (300, 500)},
    "WoocommerceNewWelcome": {"notes": (180, 400)},
}


def values_of(phrase: Phrase) -> dict[str, Any]:
    """Return values for each slot, selected by slot name or slot type."""
    return {name: VALUES.get(name, VALUES[name.rpartition("_")[2]]) for name in phrase.names}


@pytest.mark.parametrize("name", READINGS)
def test_each_sentence_says_what_its_kind_is_and_nothing_else(name: str) -> None:
    book, kinds = READINGS[name]
    rng = np.random.default_rng(0)
    for kind, phrases in book.kinds.items():
        for phrase in phrases:
            own = values_of(phrase)
            for _ in range(phrase.count + 2):
                text = phrase.write(rng, own)
                readings = []
                for other in kinds:
                    for each in book.kinds[other]:
                        found = each.read(text)
                        readings += [] if found is None else [(other, found)]
                assert readings == [(kind, own)] * (kind in kinds), text
                assert kind not in kinds or book.read(text) == readings, text


def test_each_text_on_a_payment_says_what_its_kind_is_and_nothing_else() -> None:
    books, rng = payment_books(), np.random.default_rng(0)
    for name, book in books.items():
        for kind, phrases in book.kinds.items():
            for phrase in phrases:
                own = values_of(phrase)
                for _ in range(phrase.count + 2):
                    text = f"Total: $5.00 {phrase.write(rng, own)} Tax: $1.00"
                    found = [*books["boxes"].find(text), *books["notes"].find(text)]
                    assert found == [(kind, own)] * (name != "fillers"), text


def test_other_texts_say_nothing() -> None:
    rng = np.random.default_rng(0)
    texts = []
    for phrases in exam_notices.fillers_book().kinds.values():
        texts += [phrase.write(rng, values_of(phrase)) for phrase in phrases]
    for news in (course_news(), inbox_news(), conference_news()):
        for topic in news.topics:
            texts += [news.draw(rng, VALUES, topic, "-.")[2] for _ in range(20)]
    for name in ("applications", "coursework", "deadlines", "exams"):
        book, kinds = READINGS[name]
        assert [said for text in texts for said in book.read(text) if said[0] in kinds] == []


@pytest.mark.parametrize("name", SHARED)
def test_no_word_tells_whether(name: str) -> None:
    book, kinds, shared = SHARED[name]
    for kind in kinds:
        texts = [form for phrase in book.kinds[kind] for form in phrase.forms()]
        assert set(shared.split()) <= set(re.findall("[a-z]+", " ".join(texts).lower()))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("task", SHORTCUTS)
def test_regular_expressions_do_not_find_the_answer(task: str, seed: int) -> None:
    find, most = SHORTCUTS[task]
    assert find(fresh(task, 64_000, seed)) <= most


@pytest.mark.parametrize("task", VARIETY)
def test_texts_do_not_repeat(task: str) -> None:
    texts = documents(fresh(task, 128_000))
    for kind, (sentences, vocabulary) in VARIETY[task].items():
        _, distinct, _, words = (float(cell.replace(",", "")) for cell in variety(texts[kind]))
        assert distinct >= sentences, kind
        assert words >= vocabulary, kind
