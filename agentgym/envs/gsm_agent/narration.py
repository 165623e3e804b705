"""Convert facts to sentences and sentences to facts with the same table of wordings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, product
from random import Random

from agentgym.envs.gsm_agent.facts import Fact, Quantity
from agentgym.envs.gsm_agent.stories import (
    AGE,
    PAST,
    STORIES,
    Parts,
    Relation,
    is_rate,
    is_tail,
    parts_of,
    split_item,
)
from agentgym.envs.gsm_agent.vocabulary import FIRST_NAMES, ROLES, capital, pronouns
from agentgym.envs.reading import load_texts

_TEXTS = load_texts(__file__, "wordings")
_LEADS: Sequence[str] = _TEXTS["leads"]
_WORDINGS: Mapping[str, Mapping[str, Sequence[str]]] = _TEXTS
_GENRES = load_texts(__file__, "genres")
OUTDATED: Sequence[str] = _GENRES["marks"]["outdated"]
# Match long leading phrases first, because some of them begin with a shorter leading phrase.
_ALL_LEADS = sorted(
    chain(_LEADS, *(genre["leads"] for genre in _GENRES["genres"].values())), key=len, reverse=True
)
_LEAD = re.compile(rf"\A(?:{'|'.join(map(re.escape, _ALL_LEADS))})?\s*")
_CLASSES = {"": "counts", "years": "ages", "dollars": "dollars"}
# A phrase that begins with one of these words may move to the start of a sentence.
_IN_FRONT = ("on", "at", "in", "for", "during", "before", "after")
_PARTS = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth"}
_TIMES = {2: "twice", 3: "three times", 4: "four times", 5: "five times"}
_FACTORS = {word: ("times", number) for number, word in _TIMES.items()} | {
    word: ("part", number) for number, word in _PARTS.items()
}
NUMBER_WORDS = re.compile(
    r"\b(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen"
    r"|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|dozen|once|twice|thrice|double|triple|half"
    r"|third|thirds|quarter|quarters|fifth|fifths|single|pair|couple|first|second|both|percent)\b",
    re.IGNORECASE,
)
_LED = 0.3  # the share of sentences that begin with a leading phrase
_NAME = r"[A-Z][a-z]+ [A-Z][a-z]+"
_ROLE = rf"[Tt]he (?:{'|'.join(ROLES)})"
# Match known first names, because streets and holidays are capitalised too.
_SOMEBODY = re.compile(rf"(?:{'|'.join(FIRST_NAMES)}) [A-Z][a-z]+|{_ROLE}|I\b")
_CAPITALS = frozenset((*FIRST_NAMES, "I"))
_NUMERIC = re.compile(rf"[0-9]|{'|'.join(_FACTORS)}")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n")


def number_word(fact: Fact) -> str:
    """Write the number of a fact as digits, or as a word such as `twice`."""
    number = fact.number or 0
    if fact.kind in ("percent", "raise", "cut"):
        return f"{number} percent"
    words = {"times": _TIMES, "part": _PARTS, "rest": _PARTS}.get(fact.kind, {})
    return words.get(number, str(number))


def _table(fact: Fact) -> str:
    if fact.sources and not fact.target.unit:
        mine, theirs = fact.target.parts, fact.sources[0].parts
        if mine.item != theirs.item and mine.verb != theirs.verb:
            return "numbers"
    # Parts of a whole use the same wordings for all units.
    if _is_part(fact):
        return "counts"
    return _CLASSES.get(fact.target.unit, "units")


def _is_part(fact: Fact) -> bool:
    """Return whether the fact describes a part of a quantity, not a comparison of quantities."""
    if fact.kind != "part":
        return fact.kind in ("percent", "rest")
    mine, whole = fact.target, fact.sources[0]
    alike = mine.owner == whole.owner and mine.parts.item == whole.parts.item
    return alike and mine.parts.verb != whole.parts.verb


@dataclass
class Narrator:
    """Writes the facts of one document as text.

    Attributes:
        names: Replacements for names of people, either `I` or a role.
        leads: Additional phrases that can begin a sentence.
        lines: Whether to write list items instead of sentences.
        last: The person named last, to whom a pronoun refers.
    """

    rng: Random
    names: Mapping[str, str]
    leads: Sequence[str] = ()
    lines: bool = False
    last: str = ""

    def write(self, fact: Fact) -> str:
        """Write a fact as a sentence or a list item."""
        owner, mine = fact.target.owner, fact.target.parts
        name = self.names.get(owner, owner)
        forms = dict(pronouns("I" if name == "I" else owner))
        subject = name
        if name != "I" and (self.last != owner or self.lines or self.rng.random() < 0.4):
            forms["o"] = name
        elif name != "I":
            subject = forms["s"]
        source = fact.sources[0] if fact.sources else fact.target
        wording = fact.wording or self._wording(fact)
        wording = wording[0].lower() + wording[1:]
        factor = number_word(fact)
        if "{f} the" in wording and factor.startswith("a "):
            factor += " of"
        text = wording.format(
            w=subject,
            **forms,
            n=fact.number,
            f=factor,
            i=mine.item,
            v=mine.verb.past,
            t=mine.tail,
            x=mine.item + mine.tail,
            T=mine.tail.strip(),
            q=mine.phrase,
            v2=source.parts.verb.past,
            t2=source.parts.tail,
            r=self._compared(fact, forms["s"]) if "{r}" in wording else "",
        )
        self.last = source.owner
        if "{q}" in wording:
            return capital(text)
        if self.rng.random() < _LED:
            text = f"{self.rng.choice((*self.leads, *self.leads, *_LEADS))} {text}"
        return f"{capital(text)}."

    def _wording(self, fact: Fact) -> str:
        if self.lines and fact.kind == "is" and fact.target.phrase != AGE:
            return self.rng.choice(_WORDINGS["lines"]["is"])
        kind = "times" if fact.kind == "part" and not _is_part(fact) else fact.kind
        wordings = _WORDINGS[_table(fact)][kind]
        wording = self.rng.choice(wordings)
        tail = fact.target.parts.tail.split()
        in_front = tail and tail[0] in _IN_FRONT and not is_rate(fact.target.phrase)
        if "{T}" in wording and not in_front:
            return wordings[0]
        return wording

    def _compared(self, fact: Fact, pronoun: str) -> str:
        source, mine = fact.sources[0], fact.target.parts
        item, verb, tail = theirs = source.parts
        apart = source.owner != fact.target.owner
        named = source.owner if apart else pronoun
        if _table(fact) == "numbers":
            return f"{item} that {named} {verb.past}{tail}"
        if apart and theirs == mine:
            return named if source.phrase == AGE else named + self.rng.choice(("", " did"))
        if not apart and (verb, tail) == mine[1:]:
            return item
        if not apart and (item, verb) == mine[:2] and tail:
            return tail.strip()
        clause = verb.past
        if item != mine.item:
            clause += f" {item}"
        if (verb, tail) != mine[1:]:
            clause += tail
        return f"{named} {clause}"


@lru_cache(maxsize=4096)  # scripted policies parse the same documents at every step
def read_facts(text: str, names: tuple[str, ...]) -> tuple[Fact, ...]:
    """Parse the facts in a document; ignore outdated documents.

    A role or `I` refers to the first name in the metadata, and a pronoun to the last named person.
    """
    if any(mark in text for mark in OUTDATED):
        return ()
    facts, last = [], ""
    for sentence in _SENTENCE.split(text):
        if fact := _read_sentence(sentence, names, last):
            facts.append(fact)
        if mentioned := _SOMEBODY.findall(sentence):
            last = _person(mentioned[-1], names, last)
    return tuple(facts)


def _person(text: str, names: Sequence[str], last: str) -> str:
    if text in ("she", "he", "her", "him"):
        return last
    anonymous = text in ("I", "me") or text[:4].lower() == "the "
    if anonymous and names:
        return names[0]
    return text


def _read_sentence(sentence: str, names: Sequence[str], last: str) -> Fact | None:
    text = _LEAD.sub("", sentence.rstrip("."))
    if text.partition(" ")[0] not in _CAPITALS:
        text = text[:1].lower() + text[1:]
    for literal, pattern, schema in _schema_patterns():
        if literal in text and (match := pattern.fullmatch(text)):
            item, owner = match.groupdict().get("i", ""), _person(match["w"], names, last)
            target, *sources = (
                Quantity(owner, phrase.format(i=item))
                for phrase in (schema.target, *schema.sources)
            )
            return Fact(target, schema.kind, None, tuple(sources))
    if not _NUMERIC.search(text):
        return None
    for kind, table, pattern in _number_patterns():
        match = pattern.fullmatch(text)
        fact = match and _numeric(kind, match, names, last)
        if fact and table in ("lines", _table(fact)):
            return fact
    return None


def _numeric(kind: str, match: re.Match[str], names: Sequence[str], last: str) -> Fact | None:
    parts = match.groupdict()
    owner = _person(parts["w"], names, last)
    mine = _target(parts)
    if mine is None:
        return None
    target = Quantity(owner, parts.get("q", mine.phrase))
    if "f" in parts:
        factor, number = _FACTORS[parts["f"]]
        if kind == "times":
            kind = factor
    else:
        number = int(parts["n"])
    if kind == "is":
        return Fact(target, kind, number)
    if "r" in parts:
        source = _source(target, parts["r"], names, last)
    else:
        verb = PAST.get(parts["v2"])
        source = verb and Quantity(owner, Parts(mine.item, verb, parts["t2"]).phrase)
    if source is None:
        return None
    return Fact(target, kind, number, (source,))


def _target(parts: Mapping[str, str]) -> Parts | None:
    if "q" in parts:
        try:
            return parts_of(parts["q"])
        except ValueError:
            return None
    if "v" not in parts:
        return Parts("years", PAST["was"], "")
    item, tail = parts.get("i", "dollars"), parts.get("t", "")
    if "x" in parts:
        item, tail = split_item(parts["x"])
    if "T" in parts:
        tail = f" {parts['T']}"
    if parts["v"] not in PAST or (tail and not is_tail(tail.strip())):
        return None
    return Parts(item, PAST[parts["v"]], tail)


def _source(target: Quantity, text: str, names: Sequence[str], last: str) -> Quantity | None:
    mine = target.parts
    item, that, clause = text.partition(" that ")
    if that:
        text = clause
    match = re.match(rf"({_NAME}|{_ROLE}|she|he|I)\b ?(.*)", text)
    if match is None:
        theirs = mine._replace(tail=f" {text}") if is_tail(text) else mine._replace(item=text)
        return Quantity(target.owner, theirs.phrase)
    owner = target.owner
    # A pronoun refers to the subject of the sentence.
    if match[1] not in ("she", "he", "I"):
        owner = _person(match[1], names, last)
    past, _, rest = match[2].partition(" ")
    verb = PAST.get(past)
    if that and verb:
        return Quantity(owner, Parts(item, verb, rest and f" {rest}").phrase)
    if past in ("", "did"):
        return Quantity(owner, target.phrase)
    if verb is None:
        return None
    item, tail = split_item(rest)
    if is_tail(rest):
        item, tail = mine.item, f" {rest}"
    return Quantity(owner, Parts(item, verb, tail or mine.tail).phrase)


def groups(keys: str, pattern: str) -> dict[str, str]:
    """Return a named group with the same pattern for each of the keys."""
    return {key: f"(?P<{key}>{pattern})" for key in keys.split()}


PHRASE = "[A-Za-z' -]+?"
SLOTS = {
    "w": rf"(?P<w>{_NAME}|{_ROLE}|she|he|I)",
    "o": rf"(?P<w>{_NAME}|{_ROLE}|her|him|me)",
    "s": "(?:she|he|I)",
    "h": "(?:her|his|my)",
    **groups("i x T q r", PHRASE),
    **groups("t t2", f"(?: {PHRASE})?"),
    **groups("v v2", "[a-z]+"),
    **groups("n", "[0-9]+"),
    "f": f"(?P<f>{'|'.join(_FACTORS)})(?: of)?",
}


def to_pattern(wording: str, slots: Mapping[str, str]) -> re.Pattern[str]:
    """Convert a wording to a regular expression with a group for each slot."""
    parts, seen = [], set()
    for k, text in enumerate(re.split(r"\{(\w+)\}", wording)):
        if k % 2 == 0:
            parts.append(re.escape(text))
        elif text in seen and "?P<" in slots[text]:
            parts.append(f"(?P={text})")
        else:
            parts.append(slots[text])
            seen.add(text)
    return re.compile("".join(parts))


@cache
def _number_patterns() -> Sequence[tuple[str, str, re.Pattern[str]]]:
    """Return a (kind, table, pattern) triple for each numeric wording, most general kind last."""
    kinds = ("raise", "cut", "more", "fewer", "times", "percent", "part", "rest", "is")
    tables = ("dollars", "counts", "numbers", "units", "ages", "lines")
    patterns = []
    for kind, table in product(kinds, tables):
        for wording in _WORDINGS[table].get(kind, ()):
            patterns.append((kind, table, to_pattern(wording, SLOTS)))
    return patterns


@cache
def _schema_patterns() -> Sequence[tuple[str, re.Pattern[str], Relation]]:
    """Return the story patterns, each with a substring that every match contains."""
    patterns = []
    for story in STORIES.values():
        for schema in chain.from_iterable(story.schemas.values()):
            for text in schema.texts:
                start = text[0].lower() + text[1:]
                literal = max(re.split(r"\{\w+\}", start), key=len)
                patterns.append((literal, to_pattern(start, SLOTS), schema))
    return patterns
