"""The belief state of a long episode in few words: what concerns the next steps, and how much else
there is.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from agentgym.messages import ToolCall

LIMIT = 12_000
"""The most characters of a brief belief: some 4,000 tokens, a small part of any context window."""
NEXT_STEPS = 10
"""The steps whose needs come first: about as many as one reply of an agent has calls."""
_NEWEST = 5
"""The changes that are named; an agent that has lost its place finds it in the last few."""
_SMALL = 300
"""The characters up to which a fact is not split: those of a record of a dozen fields."""
_LONGEST = 1_500
"""The characters of a record of a fact, so that no single one takes the room of all others."""
_WORD = re.compile(r"[\w@+-]+(?:\.[\w@+-]+)*")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a fact that is of use by itself: a small fact, or a record of a large one.

    Attributes:
        text: The part as JSON, cut where it is very long.
        words: The words in it.
    """

    text: str
    words: frozenset[str]


def words_of(text: str) -> frozenset[str]:
    """Return the words in a text: names, numbers, addresses, paths."""
    return frozenset(_WORD.findall(text.casefold()))


def split_fact(fact: Any) -> tuple[Piece, ...]:
    """Return the pieces of a fact; none of one that says nothing."""
    if fact in (None, "", [], {}):
        return ()
    return tuple(
        Piece(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…", words_of(text))
        for text in _parts("", fact, _SMALL)
    )


def _parts(name: str, value: Any, most: int = _LONGEST) -> Iterator[str]:
    """Yield a value whole if it has at most so many characters, else its parts; an item of an
    object has its name.
    """
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= most or not isinstance(value, (Mapping, list)):
        yield f"{name}: {text}" if name else text
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _parts(str(key), item)
    else:
        for item in value:
            yield from _parts("", item)


@dataclass(frozen=True, slots=True)
class Belief:
    """Contents of a belief state.

    Attributes:
        facts: The pieces of each fact, by the label of the step that learnt it, in the order in
            which they were learnt.
        changes: The labels of the changes that were made, in order.
        off_plan: Calls that cannot be undone and that no step asked for.
    """

    facts: Mapping[str, Sequence[Piece]]
    changes: Sequence[str]
    off_plan: Sequence[ToolCall]

    def brief(self, needed: frozenset[str], room: int) -> list[str]:
        """Return lines of at most `room` characters together, line ends included.

        Args:
            needed: The words of the next steps; facts with most of these come first, and among
                equals the newest.
            room: The room for the lines.
        """
        head = self._summary()
        room -= sum(len(line) + 1 for line in head)
        shown = self._choose(needed, room)
        return [*head, *(self._line(label, indices) for label, indices in shown.items())]

    def _summary(self) -> list[str]:
        """Return lines on what was done and on reads that taught nothing."""
        lines = []
        if self.changes:
            newest = "; ".join(_cut(label) for label in self.changes[-_NEWEST:])
            lines.append(f"- done: {len(self.changes)} changes; the newest: {newest}")
        lines += [
            f"- also done: {_cut(f'{call.name} {json.dumps(dict(call.arguments), ensure_ascii=False)}')}"
            for call in self.off_plan[-_NEWEST:]
        ]
        if more := len(self.off_plan[:-_NEWEST]):
            lines.append(f"- also done: {more} more such calls, before these")
        if empty := sum(not pieces for pieces in self.facts.values()):
            lines.append(f"- read without a finding: {empty}")
        return lines

    def _choose(self, needed: frozenset[str], room: int) -> dict[str, list[int]]:
        """Return the places of the pieces that fit, by label, the most needed labels first."""
        matches = [
            (age, place, label, piece.words & needed)
            for age, (label, pieces) in enumerate(self.facts.items())
            for place, piece in enumerate(pieces)
        ]
        # A word that is everywhere, such as a year, says little about what is needed.
        count = Counter(chain.from_iterable(words for _, _, _, words in matches))
        ranked = sorted(
            (-sum(1 / count[word] for word in words), -age, place, label)
            for age, place, label, words in matches
        )
        chosen: dict[str, list[int]] = {}
        for _, _, place, label in ranked:
            cost = len(self.facts[label][place].text) + 2
            if label not in chosen:
                cost += len(self._line(label, [])) + 1
            if cost <= room:
                chosen.setdefault(label, []).append(place)
                room -= cost
        return {label: sorted(places) for label, places in chosen.items()}

    def _line(self, label: str, places: Sequence[int]) -> str:
        pieces = self.facts[label]
        count = f" ({len(places)} of {len(pieces)})" if len(places) < len(pieces) else ""
        return f"- {label} => {'; '.join(pieces[place].text for place in places)}{count}"


def _cut(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"  # a label, or the head of a mail
