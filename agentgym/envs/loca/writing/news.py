"""Announcements and emails that do not matter for the task."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from agentgym.envs.loca.draws import DrawnValues, load_texts, pick, whole
from agentgym.envs.loca.writing.exam_notices import SLOTS, draw_place
from agentgym.envs.loca.writing.phrase_book import PhraseBook, PhraseSlot

# The task writes the first sentence about these topics.
ANCHORS = ("midterm", "project")
# Minimum and maximum number of sentences after the first.
_MORE = (3, 4)


class News:
    """Texts by topic, assembled from senders, titles, and first and further sentences."""

    def __init__(
        self, texts: Mapping[str, Mapping[str, Sequence[str]]], slots: Mapping[str, PhraseSlot]
    ):
        self._books = {topic: PhraseBook(parts, slots) for topic, parts in texts.items()}
        self.topics = list(texts)

    def draw(
        self,
        rng: np.random.Generator,
        values: Mapping[str, Any],
        topic: str = "",
        first: str = "",
    ) -> tuple[str, str, str]:
        """Draw sender, title and text on a topic."""
        book = self._books[topic or pick(rng, self.topics)]
        more = book.kinds["more"]
        order = rng.permutation(len(more))[: whole(rng, _MORE[0], _MORE[1] + 1)]
        texts = [more[int(k)].write(rng, values) for k in order]
        sender = book.write("senders", rng, values) if "senders" in book.kinds else ""
        title = book.write("titles", rng, values)
        return sender, title, " ".join([first or book.write("first", rng, values), *texts])


def idle_values(rng: np.random.Generator, now: datetime, names: Sequence[str]) -> Mapping[str, Any]:
    """Return values for irrelevant sentences that mention people by `names`."""
    integers = rng.integers
    return DrawnValues(
        {
            "date": lambda: f"{now + timedelta(days=int(integers(-20, 40))):%Y-%m-%d}",
            "time": lambda: f"{integers(8, 20):02}:00",
            "number": lambda: int(integers(13, 90)),
            "few_number": lambda: int(integers(3, 12)),
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
    """Return emails from shops, friends and offices."""
    return News(load_texts("inbox_news"), SLOTS)
