"""Announcements and mails that are irrelevant to the task."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from agentgym.envs.loca.draws import DrawnValues, load_texts, pick
from agentgym.envs.loca.writing.exam_notices import SLOTS, draw_place
from agentgym.envs.loca.writing.phrase_book import Phrase, PhraseSlot

ANCHORS = ("midterm", "project")
"""Announcement topics whose first sentence the task writes."""
# Minimum and maximum number of sentences after the first.
_MORE = (3, 4)


class News:
    """Texts by topic: a title, a first sentence and further sentences.

    Args:
        texts: Senders, titles and sentences by topic.
        slots: See `Phrase`.
    """

    def __init__(
        self, texts: Mapping[str, Mapping[str, Sequence[str]]], slots: Mapping[str, PhraseSlot]
    ):
        self.topics = list(texts)
        self._phrases: dict[str, dict[str, list[Phrase]]] = {}
        for topic, parts in texts.items():
            phrases = self._phrases[topic] = {}
            for part, lines in parts.items():
                phrases[part] = [Phrase(text, slots) for text in lines]

    def draw(
        self,
        rng: np.random.Generator,
        values: Mapping[str, Any],
        topic: str = "",
        first: str = "",
    ) -> tuple[str, str, str]:
        """Draw sender, title and text.

        Args:
            rng: The random generator.
            values: The values for the slots.
            topic: The topic; empty for any.
            first: Replaces the first sentence.
        """
        parts = self._phrases[topic or pick(rng, self.topics)]

        def one(part: str) -> str:
            lines = parts.get(part)
            return pick(rng, lines).write(rng, values) if lines else ""

        order = rng.permutation(len(parts["more"]))[: int(rng.integers(_MORE[0], _MORE[1] + 1))]
        more = [parts["more"][int(k)].write(rng, values) for k in order]
        return one("senders"), one("titles"), " ".join([first or one("first"), *more])


def idle_values(rng: np.random.Generator, now: datetime, names: Sequence[str]) -> Mapping[str, Any]:
    """Return values for the slots of irrelevant sentences; `names` are names of people."""

    def integer(low: int, high: int) -> int:
        return int(rng.integers(low, high))

    return DrawnValues(
        {
            "date": lambda: (now + timedelta(days=integer(-20, 40))).date().isoformat(),
            "time": lambda: f"{integer(8, 20):02}:00",
            "number": lambda: integer(13, 90),
            "few_number": lambda: integer(3, 12),
            "place": lambda: draw_place(rng),
            "duration": lambda: pick(rng, (60, 90, 120)),
            "name": lambda: pick(rng, names),
        }
    )


@functools.cache
def course_news() -> News:
    """Return the course announcements."""
    return News(load_texts("course_news"), SLOTS)


@functools.cache
def inbox_news() -> News:
    """Return mails from shops, friends and offices."""
    return News(load_texts("inbox_news"), SLOTS)
