"""Every phrase-book sentence with every possible slot value."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from agentgym.envs.loca.draws import TEXTS, load_texts
from agentgym.envs.loca.writing.phrase_book import COMMON_SLOTS, Phrase, PhraseSlot
from tests.envs.loca.test_shown_texts import wrong

FILES = sorted(path.stem for path in TEXTS.glob("*.toml"))
# Texts that are not phrases.
PLAIN = {"letters", "prompts", "invoices", "questions", "subjects"}
SLOTS = {
    **COMMON_SLOTS,
    **dict.fromkeys(
        ("key", "track", "title", "code", "course", "money", "place", "person", "school"),
        PhraseSlot(".+"),
    ),
    **dict.fromkeys(("office", "plant", "paper", "product", "count"), PhraseSlot(".+")),
}
VALUES: Mapping[str, tuple[Any, ...]] = {
    "date": ("2025-03-02", "2024-12-31"),
    "time": ("07:00", "13:30"),
    "duration": (15, 30, 60, 90, 120, 150, 180),
    "days": (1, 2, 7, 13, 14),
    "number": (3, 11, 12, 13, 21, 22, 83),
    "name": ("Ada Beck",),
    "count": ("one", "two", "8"),
    "product": ("Desk 061", "Gift Card"),
}


def phrases(texts: Any) -> Iterator[str]:
    if isinstance(texts, str):
        yield texts
    else:
        for part in texts.values() if isinstance(texts, dict) else texts:
            yield from phrases(part)


@pytest.mark.parametrize("name", sorted({*FILES} - PLAIN))
def test_sentences_are_grammatical_with_every_value(name: str) -> None:
    rng = np.random.default_rng(0)
    faults: list[tuple[str, str]] = []
    for text in phrases(load_texts(name)):
        phrase = Phrase(text, SLOTS)
        types = [name.rpartition("_")[2] for name in phrase.names]
        for values in itertools.product(*(VALUES.get(kind, ("Thing 5",)) for kind in types)):
            for _ in range(phrase.count):
                shown = phrase.write(rng, dict(zip(phrase.names, values, strict=True)))
                faults += wrong("body", shown)
    assert not faults, faults[:20]


@pytest.mark.parametrize(
    "text", ["[{key}: notes|Notes] for authors", "A [b|[c|d]].", "{a", "b}", "[c", "d]", "{a b}"]
)
def test_a_slot_inside_alternatives_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="phrase"):
        Phrase(text, SLOTS)


# A relative date is a number of days before or after. "Between", "from … to", "pass",
# "leaves" and "count back" may or may not include the first or the last day.
COUNTED = re.compile(
    r"\{\w*days\} (?:after|before|later|earlier|more)\b|by \{\w*days\}|(?:add|adds|subtract) \{\w*days\}",
    re.I,
)
BOTH_WAYS = re.compile(
    r"\bbetween\b|\bpass(?:es)?\b|\bcount|\blies?\b|\bwithin\b|\bleaves\b|\bhave \{|\bhas \{|\bmove[sd]? (?:back|forward)",
    re.I,
)


@pytest.mark.parametrize("name", ["conference_facts", "exam_facts"])
def test_counted_dates_can_be_read_in_one_way(name: str) -> None:
    counted = [text for text in phrases(load_texts(name)) if re.search(r"\{(\w*_)?days\}", text)]
    assert len(counted) > 8
    for text in counted:
        assert COUNTED.search(text), text
        assert not BOTH_WAYS.search(text), text


# Words that make a sentence explicit about its task, by task and kind.
EXPLICIT: Mapping[tuple[str, str, str], str] = {
    ("products", "any", "gone"): r"order|discontinu",
    ("products", "any", "excluded"): r"outlet|clear",
    (
        "order_notes",
        "books",
        "declined",
    ): r"\bmails?\b|mailing|newsletter|list\b|advertis|send me nothing|send nothing",
    ("order_notes", "books", "revoked"): r"\bmails?\b|mailing|list\b|none",
    (
        "applications",
        "mails",
        "closed",
    ): r"papers|materials|archive|documents|request|what I asked|list in my last|send nothing|asked of you|wanted to have",
}


@pytest.mark.parametrize("place", EXPLICIT)
def test_decisive_sentences_name_what_they_decide(place: tuple[str, str, str]) -> None:
    name, table, kind = place
    implied = [
        text for text in load_texts(name)[table][kind] if not re.search(EXPLICIT[place], text)
    ]
    assert not implied
