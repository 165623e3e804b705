"""Announcements and emails that are irrelevant to the task."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from numpy.random import Generator

from agentgym.envs.loca.draws import DrawnValues, load_texts, pick, shuffled, whole
from agentgym.envs.loca.records import Fields
from agentgym.envs.loca.writing.exam_notices import SLOTS, draw_place
from agentgym.envs.loca.writing.phrase_book import PhraseBook, PhraseSlot

# Topics for which the task provides the first sentence.
ANCHORS = ("midterm", "project")
# Lower bound and exclusive upper bound of the number of sentences after the first sentence.
_MORE = (3, 5)


class News:
    """Generator for news texts, assembled from phrases about a topic."""

    def __init__(
        self, texts: Mapping[str, Mapping[str, Sequence[str]]], slots: Mapping[str, PhraseSlot]
    ):
        self._books = {topic: PhraseBook(parts, slots) for topic, parts in texts.items()}
        self.topics = list(texts)

    def draw(
        self, rng: Generator, values: Fields, topic: str = "", first: str = ""
    ) -> tuple[str, str, str]:
        """Draw the sender, title and text of a news item about a topic."""
        book = self._books[topic or pick(rng, self.topics)]
        more = shuffled(rng, book.kinds["more"])[: whole(rng, *_MORE)]
        texts = [phrase.write(rng, values) for phrase in more]
        sender = ""
        if "senders" in book.kinds:
            sender = book.write("senders", rng, values)
        title = book.write("titles", rng, values)
        return sender, title, " ".join([first or book.write("first", rng, values), *texts])


def idle_values(rng: Generator, now: datetime, names: Sequence[str]) -> Fields:
    """Return slot values for irrelevant sentences about the people in `names`."""
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
    """Return the generator for irrelevant course announcements."""
    return News(load_texts("course_news"), SLOTS)


@functools.cache
def inbox_news() -> News:
    """Return the generator for irrelevant emails from shops, friends and offices."""
    return News(load_texts("inbox_news"), SLOTS)
