"""Short belief states for long episodes."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym.text.messages import ToolCall

# Maximum characters of a belief state, about 4,000 tokens, which fit into any context window.
LIMIT = 12_000
# Number of pending steps whose words decide which facts are relevant.
NEXT_STEPS = 10
# Maximum number of changes to list; an agent that has lost track needs only the last few.
_NEWEST = 5
# Facts of at most this many characters, such as a record of a dozen fields, are not split.
_SMALL = 300
# Maximum characters of one record, so that no record crowds out the others.
_LONGEST = 1_500
# Words that occur in more records than this, such as years, barely indicate relevance.
_COMMON = 500
# Maximum number of records to rank, several times as many as fit into a belief state.
_LOOKED_AT = 1_000
# Further kinds of reading steps are counted as `others`; no plan has more than eight kinds.
_KINDS = 12
_OTHERS = "others"
_LABEL, _CALL = 60, 200
_KIND_ROOM = _LABEL + 80
# The selection stops after this many successive records that are too long.
_MISSES = 100
_WORD = re.compile(r"[\w@+-]+(?:\.[\w@+-]+)*")
_NUMBERED = re.compile(r"(?<!\S)\S*\d\S*")  # a word with a digit


def words_of(text: str) -> frozenset[str]:
    """Return the casefolded words of a string."""
    return frozenset(_WORD.findall(text.casefold()))


def split_fact(fact: Any) -> list[str]:
    """Split a fact into its records, as JSON text."""
    if fact in (None, "", [], {}):
        return []
    return list(_parts("", fact, _SMALL))


def _parts(name: str, value: Any, most: int = _LONGEST) -> Iterator[str]:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > most and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _parts(str(key), item)
    elif len(text) > most and isinstance(value, list):
        for item in value:
            yield from _parts("", item)
    else:
        yield f"{name}: {text}" if name else text


@dataclass(slots=True)
class _Reads:
    count: int = 0
    pieces: int = 0
    newest: str = ""


class OfficeBelief:
    """Facts of an episode, indexed by word to avoid scans."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[str]] = {}  # the records by label, oldest first
        self._ages: dict[str, int] = {}
        self._changes: dict[str, None] = {}
        self._empty: dict[str, None] = {}
        self._index: dict[str, list[tuple[str, int]]] = {}
        self._kinds: dict[str, _Reads] = {}

    def learn(self, label: str, fact: Any) -> None:
        """Add a fact from the result of a step."""
        pieces = split_fact(fact)
        if not pieces:
            self._empty[label] = None
            return
        self._ages[label] = len(self._ages)
        self._pieces[label] = [_cut(piece, _LONGEST) for piece in pieces]
        for place, piece in enumerate(pieces):
            for word in words_of(piece):
                self._index.setdefault(word, []).append((label, place))
        kind = self._kinds.setdefault(self._kind(label), _Reads())
        kind.count += 1
        kind.pieces += len(pieces)
        kind.newest = label

    def change(self, label: str) -> None:
        """Add a change."""
        self._changes[label] = None

    def forget(self, label: str) -> None:
        """Remove a reverted change, if the label is known."""
        self._changes.pop(label, None)
        self._empty.pop(label, None)

    def brief(self, needed: frozenset[str], room: int, off_plan: Sequence[ToolCall]) -> list[str]:
        """Return lines of at most `room` characters, preferring facts with words in `needed`."""
        head = self._summary(off_plan)
        room -= sum(len(line) + 1 for line in head)
        shown = self._choose(needed, room - len(self._kinds) * _KIND_ROOM)
        facts = [self._line(label, places) for label, places in shown.items()]
        return [*head, *facts, *self._rest(shown)]

    def _summary(self, off_plan: Sequence[ToolCall]) -> list[str]:
        lines = []
        if self._changes:
            newest = [*itertools.islice(reversed(self._changes), _NEWEST)][::-1]
            named = "; ".join(map(_cut, newest))
            lines.append(f"- done: {len(self._changes)} changes; the newest: {named}")
        for call in off_plan[-_NEWEST:]:
            arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
            lines.append(f"- also done: {_cut(f'{call.name} {arguments}')}")
        if len(off_plan) > _NEWEST:
            lines.append(f"- also done: {len(off_plan) - _NEWEST} more such calls, before these")
        if self._empty:
            lines.append(f"- reads without a result: {len(self._empty)}")
        return lines

    def _choose(self, needed: frozenset[str], room: int) -> dict[str, list[int]]:
        chosen: dict[str, list[int]] = {}
        misses = 0
        for label, place in self._ranked(needed):
            if place in chosen.get(label, ()):
                continue
            cost = len(self._pieces[label][place]) + 2
            if label not in chosen:
                cost += len(self._line(label, [])) + 1
            if cost <= room:
                chosen.setdefault(label, []).append(place)
                room -= cost
                misses = 0
            elif (misses := misses + 1) == _MISSES:
                break
        return {label: sorted(places) for label, places in chosen.items()}

    def _ranked(self, needed: frozenset[str]) -> Iterator[tuple[str, int]]:
        weights: dict[tuple[str, int], float] = {}
        rarest = sorted((len(self._index[word]), word) for word in needed & self._index.keys())
        looked_at = 0
        for count, word in rarest:  # a fixed order gives reproducible sums
            looked_at += count
            if count > _COMMON or looked_at > _LOOKED_AT:
                break
            for spot in self._index[word]:
                weights[spot] = weights.get(spot, 0.0) + 1 / count

        def rank(spot: tuple[str, int]) -> tuple[float, int, int]:
            label, place = spot
            return -weights[spot], -self._ages[label], place

        yield from sorted(weights, key=rank)
        for label in reversed(self._pieces):
            for place in range(len(self._pieces[label])):
                yield (label, place)

    def _line(self, label: str, places: Sequence[int]) -> str:
        pieces = self._pieces[label]
        texts = "; ".join(pieces[place] for place in places)
        if len(places) == len(pieces):
            return f"- {label} => {texts}"
        return f"- {label} => {texts} ({len(places)} of {len(pieces)})"

    def _rest(self, shown: Mapping[str, Sequence[int]]) -> list[str]:
        records = Counter[str]()
        for label, places in shown.items():
            records[self._kind(label)] += len(places)
        lines = []
        for name, kind in self._kinds.items():
            if records[name] < kind.pieces and not (kind.count == 1 and records[name]):
                reads = "read" if kind.count == 1 else "reads"
                lines.append(
                    f"- in part: {records[name]} of {kind.pieces} records of {kind.count} {reads}; "
                    f"the newest: {_cut(kind.newest, _LABEL)}"
                )
        return lines

    def _kind(self, label: str) -> str:
        name = _NUMBERED.sub("#", label)  # labels that differ only in numbers have the same kind
        return name if name in self._kinds or len(self._kinds) < _KINDS else _OTHERS


def _cut(text: str, most: int = _CALL) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
