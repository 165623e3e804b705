"""Announcements and mails that are beside the point of a task."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from agentgym.envs.loca.exam_notices import BUILDINGS, SLOTS
from agentgym.envs.loca.phrase_book import Phrase, Slot, load_texts

ANCHORS = ("midterm", "project")
"""Topics of course announcements whose first sentence is for the task to write."""
_MORE = (3, 4)
"""The fewest and the most sentences after the first."""


class News:
    """Texts by topic, each a title, a first sentence and others.

    Args:
        texts: Senders, titles and sentences by topic.
        slots: See `Phrase`.
    """

    def __init__(self, texts: Mapping[str, Mapping[str, Sequence[str]]], slots: Mapping[str, Slot]):
        self.topics = list(texts)
        self._phrases = {
            topic: {part: [Phrase(text, slots) for text in lines] for part, lines in parts.items()}
            for topic, parts in texts.items()
        }

    def draw(
        self,
        rng: np.random.Generator,
        topic: str,
        values: Callable[[], Mapping[str, Any]],
        first: str = "",
    ) -> tuple[str, str, str]:
        """Draw sender, title and text.

        Args:
            rng: The generator to draw from.
            topic: The topic.
            values: Draws values for the slots of a sentence.
            first: Stands in place of a first sentence.
        """
        parts = self._phrases[topic]

        def one(part: str) -> str:
            lines = parts.get(part)
            return lines[int(rng.integers(len(lines)))].write(rng, values()) if lines else ""

        order = rng.permutation(len(parts["more"]))[: int(rng.integers(_MORE[0], _MORE[1] + 1))]
        more = [parts["more"][int(k)].write(rng, values()) for k in order]
        return one("senders"), one("titles"), " ".join([first or one("first"), *more])


def idle_values(rng: np.random.Generator, now: datetime, names: Sequence[str]) -> Mapping[str, Any]:
    """Draw values for the slots of a sentence that nothing depends on; `names` are of people."""
    return _IdleValues(rng.integers(1_000_000, size=6).tolist(), now, names)


class _IdleValues(dict[str, Any]):
    """Values by slot, each made when it is asked for: most sentences have one slot or none."""

    def __init__(self, numbers: Sequence[int], now: datetime, names: Sequence[str]) -> None:
        self._numbers, self._now, self._names = numbers, now, names

    def __missing__(self, slot: str) -> Any:
        day, hour, number, few, room, name = self._numbers
        match slot:
            case "date":
                return (self._now + timedelta(days=day % 60 - 20)).date().isoformat()
            case "time":
                return f"{8 + hour % 12:02}:00"
            case "number":
                return 13 + number % 77
            case "few_number":
                return 3 + few % 9
            case "place":
                return f"{BUILDINGS[room % len(BUILDINGS)]} {1 + room // 100 % 89}"
            case "duration":
                return (60, 90, 120)[few % 3]
            case "name":
                return self._names[name % len(self._names)]
        raise KeyError(slot)


@functools.cache
def course_news() -> News:
    """Return the announcements of courses."""
    return News(load_texts("course_news"), SLOTS)


@functools.cache
def inbox_news() -> News:
    """Return the mails of shops, friends and offices."""
    return News(load_texts("inbox_news"), SLOTS)
