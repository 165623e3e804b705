from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agentgym.envs.loca.writing.exam_notices import SLOTS, UPDATES, facts_book, read_notice, resolve
from agentgym.envs.loca.writing.phrase_book import DURATIONS

BOOK = facts_book()


def test_every_kind_is_read() -> None:
    of_themselves = {"about", "exempt", "not_exempt", "exemption", "score"}
    anchors = {"midterm", "project", "credits", "welcome_open", "welcome_closed"}
    assert set(BOOK.kinds) == UPDATES | of_themselves | anchors


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
