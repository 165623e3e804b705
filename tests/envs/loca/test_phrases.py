from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agentgym
from agentgym.envs.loca.draws import load_texts
from agentgym.envs.loca.writing.phrase_book import COMMON_SLOTS, Phrase, PhraseSlot, sentences
from benchmarks.texts import documents
from tests.envs.loca.office import TASKS, fresh

FILES = sorted(path.stem for path in Path(agentgym.__file__).parent.glob("envs/loca/texts/*.toml"))
# TOML files that do not contain phrases.
PLAIN = {"letters", "prompts", "invoices", "questions", "subjects", "harmless", "words"}
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


# Placeholders that are allowed because a task explains how to fill them in.
PLACEHOLDERS = {"Name", "Student_ID", "Last_Name", "n", "scenario", "name", "student ID"}
REMNANT = re.compile(r"\{\w*\}|\[[^\][]*\|[^\][]*\]|<([A-Za-z_ ]+)>")  # unfilled slots and choices
VOWEL = r"(?!(?:eu|one\b|once\b|uni|us[ae]|uti)\w*)[aeiou]\w*"
ERRORS = {
    "a plural of one": r"\b1 (?:days|weeks|pages|minutes|hours|pieces|points|students|slots|years)\b",
    "a singular": r"\b(?:[2-9]|\d\d+|two|three|four|five|six|seven|eight|nine|ten) "
    r"(?:day|week|minute|page|hour|year|month|point)\b(?!-)",
    "an article": rf"\ba {VOWEL}|\ban (?!hour|honest|heir|[A-Z]\b|MBA|NLP|SMS)[b-df-hj-np-tv-z]\w*",
    "two articles": r"\b(?:the|a|an|your|my|our|its) (?:(?:an?|the|half an) \w+|one (?:hour|day|week|and a))",
    "an ordinal": r"\b(?:\d*[^1\W]|)(?:1(?!st)|2(?!nd)|3(?!rd))(?:th|st|nd|rd)\b",
    "the number of a verb": r"\b(?:an hour|one (?:day|week)|and a half) (?:are|have|were|pass|lie)\b"
    r"|\b(?:minutes|hours|days|weeks) (?:is|has|was|passes|lies)\b(?<!after that is)",
    "punctuation": r" [,.;:!?](?:\s|$)|[^ \n|]  [^ \n]|,,|[^.]\.\.(?!\.)|\?\.|!\.|;\.",
    "a word twice": r"\b(\w+) \1\b(?<!that that)(?<!had had)",
}


def wrong(text: str) -> Iterator[tuple[str, str]]:
    for found in REMNANT.finditer(text):
        if found[1] not in PLACEHOLDERS:
            yield "an open slot", found[0]
    for fault, pattern in ERRORS.items():
        for found in re.finditer(pattern, text):
            yield fault, text[max(0, found.start() - 30) : found.end() + 30]
    counts = Counter(part for part in sentences(text) if len(part.split()) > 2)
    yield from (("a sentence twice", part) for part, count in counts.items() if count > 1)


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
                faults += wrong(shown)
    assert not faults, faults[:20]


@pytest.mark.rotation(task=TASKS, length=[8_000, 128_000])
def test_shown_texts_are_complete_and_grammatical(task: str, length: int) -> None:
    faults: list[tuple[str, str]] = []
    for texts in documents(fresh(task, length)).values():
        for text in texts:
            faults += wrong(text)
    assert not faults, faults[:20]


@pytest.mark.parametrize(
    "text", ["[{key}: notes|Notes] for authors", "A [b|[c|d]].", "{a", "b}", "[c", "d]", "{a b}"]
)
def test_a_slot_inside_alternatives_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="phrase"):
        Phrase(text, SLOTS)


# A relative date must be a number of days before or after another date. With words such as
# "between", it is unclear whether the first or the last day counts.
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


# Pattern that every phrase of a kind must match to be understandable on its own.
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
