"""Exam sentences state one fact each, other texts none, and they vary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agentgym.envs.loca.writing.exam_notices import (
    SLOTS,
    UPDATES,
    facts_book,
    fillers_book,
    read_notice,
    resolve,
)
from agentgym.envs.loca.writing.news import course_news, inbox_news
from agentgym.envs.loca.writing.phrase_book import DURATIONS, Phrase
from benchmarks.texts import documents, variety
from tests.envs.loca.office import fresh
from tests.envs.loca.phrases import check_readings

VALUES = {
    "date": "2025-02-03",
    "time": "14:00",
    "duration": 90,
    "days": 14,
    "place": "Hall 3",
    "person": "Ada Beck (ada.beck@mcp.com)",
    "number": 83,
    "course": "CS131-2",
    "name": "Ada",
}
BOOK = facts_book()


def values_of(phrase: Phrase) -> dict[str, Any]:
    return {name: VALUES[name.rpartition("_")[2]] for name in phrase.names}


def test_each_sentence_says_what_its_kind_is_and_nothing_else() -> None:
    names = {name for group in BOOK.kinds.values() for phrase in group for name in phrase.names}
    check_readings(BOOK, BOOK.kinds, {name: VALUES[name.rpartition("_")[2]] for name in names})


def test_every_kind_is_read() -> None:
    of_themselves = {"about", "exempt", "not_exempt", "exemption", "score"}
    anchors = {"midterm", "project", "credits", "welcome_open", "welcome_closed"}
    assert set(BOOK.kinds) == UPDATES | of_themselves | anchors


def test_other_sentences_say_nothing_about_the_exam() -> None:
    rng = np.random.default_rng(0)
    texts = [
        phrase.write(rng, values_of(phrase))
        for phrases in fillers_book().kinds.values()
        for phrase in phrases
    ]
    for news in (course_news(), inbox_news()):
        texts += [
            news.draw(rng, {**VALUES, "few_number": 3}, topic, "-.")[2]
            for topic in news.topics
            for _ in range(20)
        ]
    assert [said for text in texts for said in read_notice(text)] == []


@pytest.mark.parametrize("kind", ["date", "time", "duration", "days"])
def test_every_form_of_a_value_is_read(kind: str) -> None:
    rng, slot = np.random.default_rng(1), SLOTS[kind]
    values: dict[str, list[Any]] = {
        "date": ["2024-12-31", "2025-02-03", "2026-01-11"],
        "time": ["07:00", "12:00", "13:30", "19:00"],
        "duration": [*DURATIONS, 105, 195],
        "days": [1, 7, 12, 13, 14, 55],
    }
    for value in values[kind]:
        assert {slot.read(slot.write(value, rng)) for _ in range(20)} == {value}


def test_later_notices_change_what_they_mention() -> None:
    text = (
        "The midterm takes place on 1 December 2024 in Hall 3. The exam takes place exactly two weeks after the midterm. "
        "We start at 9 am sharp. It lasts 90 minutes. It takes place where we wrote the midterm."
    )
    first = read_notice(text)
    exam = resolve(first, section=4)
    assert exam is not None
    assert (exam.day, exam.time, exam.minutes, exam.place) == ("2024-12-15", "09:00", 90, "Hall 3")
    moved = "Section 4 sits the final exam on 2025-01-20; for every other section the day is 2025-01-21."
    more = "We add half an hour to the time allowed in the final exam."
    exam = resolve([*first, *read_notice(f"{moved} {more}")], section=4)
    assert exam is not None
    assert (exam.day, exam.time, exam.minutes, exam.place) == ("2025-01-20", "09:00", 120, "Hall 3")
    assert resolve(read_notice("Nothing here is about it."), section=4) is None


def test_texts_do_not_repeat() -> None:
    """Published texts have 104 sentences and 392 words in announcements, 59 and 220 in mails."""
    texts = documents(fresh("CanvasArrangeExam", 128_000, 0))
    for kind, words in (("announcements", 392), ("mails", 220)):
        _, distinct, _, vocabulary = (float(cell.replace(",", "")) for cell in variety(texts[kind]))
        assert distinct >= 100, kind
        assert vocabulary >= words, kind
