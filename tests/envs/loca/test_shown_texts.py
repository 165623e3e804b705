"""Every shown text is complete, grammatical and free of repetition."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from agentgym.envs.loca import LENGTHS
from tests.envs.loca.office import TASKS
from tests.envs.loca.shown_texts import masked, sentences, shown

CASES = [(name, length) for name in TASKS for length in ("8k", "32k", "128k")]
SEEDS = {"8k": (0, 1, 2, 3), "32k": (4, 5), "128k": (6,)}  # fewer where states are larger
# Written by people; the other kinds are data.
PROSE = re.compile(r"^mail$|description$|message$|body$|customer_note$|pdf$")
# A task explains these: professors prescribe names with them.
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


@pytest.mark.rotation(case=CASES)
def test_texts_are_complete_and_grammatical(case: tuple[str, str]) -> None:
    name, length = case
    for seed in SEEDS[length]:
        texts = shown(name, LENGTHS[length], seed)
        faults = [
            (kind, *fault) for kind in texts for text in texts[kind] for fault in wrong(kind, text)
        ]
        assert not faults, faults[:20]
        assert not overused(texts)


def wrong(kind: str, text: str) -> Iterator[tuple[str, str]]:
    for found in REMNANT.finditer(text):
        is_template = kind in ("prompt", "template")
        if found[1] not in PLACEHOLDERS and not is_template:
            yield "an open slot", found[0]
    if not PROSE.search(kind):
        return
    for fault, pattern in ERRORS.items():
        for found in re.finditer(pattern, text):
            yield fault, text[max(0, found.start() - 30) : found.end() + 30]
    counts = Counter(sentence for sentence in sentences(text) if len(sentence.split()) > 2)
    yield from (("a sentence twice", each) for each, count in counts.items() if count > 1)


# Maximum share of a kind's documents with the same sentence.
SHARE, FEW = 0.12, 100


def overused(texts: Mapping[str, tuple[str, ...]]) -> list[tuple[str, str, float]]:
    found = []
    for kind in filter(PROSE.search, texts):
        # A mail's first line is its subject.
        documents = [text.partition("\n")[2] if kind == "mail" else text for text in texts[kind]]
        if len(documents) < FEW:
            continue
        counts = Counter(
            each
            for text in documents
            for each in {masked(s) for s in sentences(text) if len(s.split()) > 3}
        )
        for sentence, count in counts.most_common(3):
            if count > SHARE * len(documents):
                found.append((kind, sentence, count / len(documents)))
    return found
