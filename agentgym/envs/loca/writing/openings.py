"""Vary the first prompt, because deterministic policies repeat themselves on equal prompts."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from numpy.random import Generator

from agentgym.envs.loca.draws import DrawnValues, load_texts, people, pick, shuffled, whole
from agentgym.envs.loca.writing.phrase_book import COMMON_SLOTS, PhraseBook, PhraseSlot

# Brackets without `|` are ordinary text, such as JSON.
_ALTERNATIVES = re.compile(r"\[([^\[\]]*\|[^\[\]]*)\]")


@functools.cache
def _texts() -> tuple[Mapping[str, Sequence[str]], Mapping[str, PhraseBook]]:
    texts = dict(load_texts("openings"))
    names = texts.pop("names")
    slots = {**COMMON_SLOTS, **dict.fromkeys(names, PhraseSlot(".+"))}
    return names, {task: PhraseBook(kinds, slots) for task, kinds in texts.items()}


def draw_opening(rng: Generator, task: str, rules: str, now: datetime) -> str:
    """Draw the first prompt, which consists of an introduction and the rules.

    Brackets in the rules contain alternatives to choose from. Consecutive lines that begin with
    "- " are shuffled. If the task has no introductions, the prompt contains only the rules.
    """
    text = _ALTERNATIVES.sub(lambda match: pick(rng, match[1].split("|")), rules)
    parts: list[str] = []
    for listed, lines in groupby(text.split("\n"), key=lambda line: line.startswith("- ")):
        block = list(lines)
        parts += shuffled(rng, block) if listed else block
    names, books = _texts()
    if task in books:
        first, second = people(rng, 2)
        draws: dict[str, Callable[[], str]] = {
            "date": lambda: f"{now + timedelta(days=whole(rng, 2, 20)):%Y-%m-%d}",
            "time": lambda: f"{whole(rng, 13, 20):02}:{pick(rng, (0, 15, 30, 45)):02}",
        }
        for kind, some in names.items():
            draws[kind] = functools.partial(pick, rng, some)
        values = DrawnValues(draws, name=first, other_name=second)
        parts.insert(0, books[task].write("first", rng, values))
    return "\n".join(parts)
