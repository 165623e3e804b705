"""Phrase books: the sentences of office texts as data, which write facts in words and read them
back.

A phrase is a sentence with alternatives in brackets and slots in braces: `[It|The exam] begins at
{time}.` A book has phrases by kind, which is what they say.
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.envs.loca.draws import pick

TEXTS = Path(__file__).with_name("texts")
_PIECE = re.compile(r"\[([^\[\]]*)\]|\{(\w+)\}")
_SENTENCE = re.compile(r"\s(?:(?<=[.!?]\s)\s*|(?<=\n)\n)")
"""What stands between sentences. It begins with a blank, for which the text is searched fast."""


@dataclass(frozen=True, slots=True)
class Slot:
    """How values of one type stand in a sentence.

    Attributes:
        pattern: A regular expression without groups of all the forms that `write` draws.
        write: Draws a form of a value.
        read: Returns the value of a form.
    """

    pattern: str
    write: Callable[[Any, np.random.Generator], str] = lambda value, rng: str(value)
    read: Callable[[str], Any] = str


Parts = Sequence[tuple[str, ...] | str]
"""A phrase: alternatives, and the names of slots."""


class Phrase:
    """A sentence with alternatives and slots.

    Args:
        text: The sentence.
        slots: Slots by type; `old_date` is of the type `date`.
    """

    def __init__(self, text: str, slots: Mapping[str, Slot]) -> None:
        self.parts = _split(text)
        self.names = [part for part in self.parts if isinstance(part, str)]
        self._slots = {name: slots[name.rpartition("_")[2]] for name in self.names}
        choices = [part for part in self.parts if isinstance(part, tuple)]
        self.count = math.prod(map(len, choices))
        pattern = "".join(
            f"(?P<{part}>{self._slots[part].pattern})"
            if isinstance(part, str)
            else f"(?:{'|'.join(map(re.escape, part))})"
            for part in self.parts
        )
        self._pattern = re.compile(pattern)
        self._forms: dict[int, list[str]] = {}

    def forms(self) -> Iterator[str]:
        """Yield the sentence with each choice of alternatives, slots in braces."""
        parts = [part if isinstance(part, tuple) else (f"{{{part}}}",) for part in self.parts]
        yield from map("".join, itertools.product(*parts))

    def write(self, rng: np.random.Generator, values: Mapping[str, Any]) -> str:
        """Draw a form of the sentence with values in its slots."""
        form = self._form(int(rng.integers(self.count)) if self.count > 1 else 0)
        texts = list(form)
        for place in range(1, len(form), 2):
            name = form[place]
            texts[place] = self._slots[name].write(values[name], rng)
        return "".join(texts)

    def _form(self, number: int) -> list[str]:
        """Return the form of a number: texts, and between them the names of slots. It is made once,
        as most sentences are drawn many times.
        """
        form = self._forms.get(number)
        if form is None:
            form, rest = [""], number
            for part in self.parts:
                if isinstance(part, str):
                    form += [part, ""]
                else:
                    rest, place = divmod(rest, len(part))
                    form[-1] += part[place]
            self._forms[number] = form
        return form

    def read(self, sentence: str) -> dict[str, Any] | None:
        """Return the values in a sentence; None if it is another sentence."""
        match = self._pattern.fullmatch(sentence)
        if match is None:
            return None
        return self._values(match)

    def find(self, text: str) -> dict[str, Any] | None:
        """Return the values in the first place of a text that has the sentence; None without one."""
        match = self._pattern.search(text)
        return None if match is None else self._values(match)

    def _values(self, match: re.Match[str]) -> dict[str, Any]:
        return {name: self._slots[name].read(match[name]) for name in self.names}


class PhraseBook:
    """Phrases by kind.

    Args:
        phrases: The texts of the phrases, by kind.
        slots: See `Phrase`.
    """

    def __init__(self, phrases: Mapping[str, Sequence[str]], slots: Mapping[str, Slot]) -> None:
        self.kinds = {
            kind: tuple(Phrase(text, slots) for text in texts) for kind, texts in phrases.items()
        }
        # Phrases by the first and last words of the sentence: most others need not be tried.
        self._by_ends: dict[str, dict[str, list[tuple[str, Phrase]]]] = {}
        for kind, group in self.kinds.items():
            for phrase in group:
                for start, end in {_literal_ends(form) for form in phrase.forms()}:
                    by_end = self._by_ends.setdefault(start, {})
                    by_end.setdefault(end, []).append((kind, phrase))

    def write(
        self,
        kind: str,
        rng: np.random.Generator,
        idle: Mapping[str, Any] | None = None,
        /,
        **values: Any,
    ) -> str:
        """Draw a sentence that says something of a kind, with values by name or, where nothing
        depends on them, those of `idle`.
        """
        return pick(rng, self.kinds[kind]).write(rng, values if idle is None else idle)

    def write_some(
        self,
        kind: str,
        rng: np.random.Generator,
        count: int,
        values: Callable[[], Mapping[str, Any]],
    ) -> list[str]:
        """Draw sentences of a kind by different phrases; `values` draws those of each."""
        phrases = self.kinds[kind]
        return [phrases[int(k)].write(rng, values()) for k in rng.permutation(len(phrases))[:count]]

    def read(self, text: str) -> list[tuple[str, dict[str, Any]]]:
        """Return what the sentences of a text say, in their order: kind and values, without those
        that are in no phrase of the book.
        """
        facts = (self._read_sentence(sentence) for sentence in sentences(text))
        return [fact for fact in facts if fact is not None]

    def find(self, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield what the phrases that occur in a text say, in the order of the book; for texts whose
        sentences and lines cannot be told apart, such as those of PDF files.
        """
        joined = " ".join(text.split())
        for kind, group in self.kinds.items():
            for phrase in group:
                if (values := phrase.find(joined)) is not None:
                    yield kind, values

    def _read_sentence(self, sentence: str) -> tuple[str, dict[str, Any]] | None:
        starts, ends = _ends(sentence)
        for start in starts:
            if by_end := self._by_ends.get(start):
                for end in ends:
                    for kind, phrase in by_end.get(end, ()):
                        if (values := phrase.read(sentence)) is not None:
                            return kind, values
        return None


def sentences(text: str) -> list[str]:
    """Split a text into sentences, which end with a mark and a blank or an empty line."""
    return [sentence for part in _SENTENCE.split(text) if (sentence := part.strip())]


def load_texts(name: str) -> dict[str, Any]:
    """Return the tables of a file of texts."""
    return tomllib.loads((TEXTS / f"{name}.toml").read_text(encoding="utf-8"))


def _split(text: str) -> Parts:
    parts: list[tuple[str, ...] | str] = []
    end = 0
    for match in _PIECE.finditer(text):
        parts.append((text[end : match.start()],))
        parts.append(match[2] or tuple(match[1].split("|")))
        end = match.end()
    return [part for part in [*parts, (text[end:],)] if part != ("",)]


def _ends(text: str) -> tuple[tuple[str, str, str], tuple[str, str]]:
    """Return the first two words of a sentence, the first and none, and its last word and none."""
    first, _, rest = text.partition(" ")
    two = f"{first} {rest.partition(' ')[0]}"
    return (two, first, ""), (text.rpartition(" ")[2], "")


def _literal_ends(form: str) -> tuple[str, str]:
    """Return the most words at the start and at the end of a form of a phrase that no slot is in."""
    starts, ends = _ends(form)
    start, end = (next(text for text in texts if "{" not in text) for texts in (starts, ends))
    return start, end
