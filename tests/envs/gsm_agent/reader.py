"""Independent reader of SearchWorld's texts, which solves tasks with exact fractions.

The grammar of numeric sentences and questions is handwritten. The reader uses word lists and
sentences about structure from the TOML files, but no code from the package.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import NamedTuple

import agentgym

_TEXTS = Path(agentgym.__file__).parent / "envs" / "gsm_agent" / "texts"
_STORIES = tomllib.loads((_TEXTS / "stories.toml").read_text("utf-8"))
_ROLES = tomllib.loads((_TEXTS / "vocabulary.toml").read_text("utf-8"))["roles"]
_MARKS = tomllib.loads((_TEXTS / "genres.toml").read_text("utf-8"))["marks"]["outdated"]
_FORMS = [forms.split() for forms in _STORIES["verbs"]]
_BASE = {form: base for base, past, participle in _FORMS for form in (base, past, participle)}
_PARTICIPLES = {participle for _, _, participle in _FORMS}
_FACTORS = {
    "twice": 2,
    "half": Fraction(1, 2),
    "a third": Fraction(1, 3),
    "a quarter": Fraction(1, 4),
}
_FACTORS |= {"three times": 3, "four times": 4, "five times": 5, "a fifth": Fraction(1, 5)}
_UNITS = {
    ("minutes", "hours"): 60,
    ("hours", "days"): 24,
    ("days", "weeks"): 7,
    ("inches", "feet"): 12,
}
_NAME = "[A-Z][a-z]+ [A-Z][a-z]+"
_ROLE = f"[Tt]he (?:{'|'.join(_ROLES)})"
_WHO = rf"(?:{_NAME}|{_ROLE}|I|[Ss]he|[Hh]e|me|her|him)"
_F = f"(?P<f>{'|'.join(_FACTORS)})"


class Key(NamedTuple):
    """A quantity, identified by owner, noun, verb and the remaining words."""

    owner: str
    noun: str
    verb: str
    tail: str


def _phrase_key(owner: str, phrase: str) -> Key:
    words = phrase.split()
    place = next(k for k, word in enumerate(words) if k and word in _PARTICIPLES)
    tail = " ".join(words[place + 1 :])
    return Key(owner, " ".join(words[:place]), _BASE[words[place]], tail)


def _phrases() -> Iterator[str]:
    yield from _STORIES["sharers"]["phrases"]
    for story in _STORIES["stories"].values():
        entries = [part for entry in (*story["schemas"], *story["asks"]) for part in entry[1:4]]
        for frame in (*story["frames"], *entries):
            if _PARTICIPLES & {*frame.split()[1:]} and "{w}" not in frame:
                yield from {frame.replace("{i}", item) for item in story["items"]}


_KEYS = [_phrase_key("", phrase) for phrase in _phrases()]
_TAILS = {key.tail for key in _KEYS}
_ITEMS = {item for story in _STORIES["stories"].values() for item in story["items"]}
_NOUNS = sorted({*_ITEMS, *(key.noun for key in _KEYS)}, key=len, reverse=True)

Rule = tuple[Key, Callable[..., Fraction], tuple[Key, ...]]


class Reader:
    """Reader of one document.

    Args:
        names: The people in the document's metadata.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self.last = names, ""

    def rules(self, text: str) -> Iterator[Rule]:
        """Yield the definitions of quantities in a text."""
        if any(mark in text for mark in _MARKS):
            return
        for sentence in re.split(r"(?<=[.!?])\s+|\n", text):
            body = sentence.strip().removesuffix(".")
            found = self._structure(body) or self._number(body)
            if found:
                yield found
            places = {body.rfind(name): name for name in self.names}
            anonymous = [match.start() for match in re.finditer(rf"{_ROLE}|\bI\b", body)]
            places |= dict.fromkeys(anonymous, self.names[0])
            self.last = places[max(places)] if max(places) >= 0 else self.last

    def _person(self, text: str) -> str:
        if text.lower() in ("she", "he", "her", "him"):
            return self.last
        return self.names[0] if text in ("I", "me") or text.lower().startswith("the ") else text

    def _structure(self, body: str) -> Rule | None:
        for pattern, kind, phrases in _structures():
            if match := pattern.search(body):
                item, owner = match.groupdict().get("i", ""), self._person(match["w"])
                keys = [_phrase_key(owner, phrase.replace("{i}", item)) for phrase in phrases]
                return keys[0], _operation(kind, keys), tuple(keys[1:])
        return None

    def _number(self, body: str) -> Rule | None:
        for pattern, read in _GRAMMAR:
            match = re.search(rf"(?:^|[:,] |that ){pattern}$", body)
            rule = read(self, match) if match else None
            if rule:
                return rule
        return None

    def clause(self, who: str, words: str, noun: str = "") -> Key | None:
        """Return the quantity in a clause such as `bought muffins on Friday`.

        If the clause does not contain a noun, use `noun`.
        """
        verb, _, rest = words.partition(" ")
        rest = rest.replace("money", "dollars", 1) if rest.startswith("money") else rest
        for known in (each for each in _NOUNS if not noun):
            if rest == known or rest.startswith(f"{known} "):
                noun, rest = known, rest[len(known) :].strip()
                break
        if verb not in _BASE or not noun:
            return None
        return Key(self._person(who), noun, _BASE[verb], rest)

    def compared(self, mine: Key, text: str) -> Key | None:
        """Return the quantity in `text`, with which `mine` is compared."""
        match = re.fullmatch(rf"({_WHO})(?: did)?(?: (.+))?", text)
        if match and match[1] not in ("me", "her", "him"):
            pronoun = match[1] in ("she", "he", "I")
            owner = mine.owner if pronoun else self._person(match[1])
            if match[2] is None:
                return mine._replace(owner=owner)
            words = match[2]
            found = self.clause(owner, words)
            if found is None:
                return self.clause(owner, words, mine.noun)
            return found if found.tail else found._replace(tail=mine.tail)
        if text in _NOUNS:
            return mine._replace(noun=text)
        return mine._replace(tail=text)


@cache
def _structures() -> list[tuple[re.Pattern[str], str, list[str]]]:
    found = []
    for story in _STORIES["stories"].values():
        for kind, *parts in story["schemas"]:
            count = 2 if kind == "convert" else 3
            for text in parts[count:]:
                pattern = re.escape(text).replace(r"\{i\}", "(?P<i>[a-z' -]+?)", 1)
                pattern = pattern.replace(r"\{i\}", "(?P=i)")
                pattern = re.sub(r"\\\{[wo]\\\}", lambda _: f"(?P<w>{_WHO})", pattern, count=1)
                pattern = re.sub(r"\\\{[sh]\\\}", "(?:she|he|I|her|his|my)", pattern)
                compiled = re.compile(f"(?:^|[:,] |that ){pattern}$", re.IGNORECASE)
                found.append((compiled, kind, parts[:count]))
    return found


def _operation(kind: str, keys: Sequence[Key]) -> Callable[..., Fraction]:
    if kind == "convert":
        factor = _UNITS[keys[0].noun, keys[1].noun]
        return lambda a: a * factor
    operations: dict[str, Callable[..., Fraction]] = {
        "sum": lambda a, b: a + b,
        "minus": lambda a, b: a - b,
        "product": lambda a, b: a * b,
        "quotient": Fraction,
        "around": lambda a, b: a + b + a + b,
    }
    return operations[kind]


def _relation(match: re.Match[str]) -> Callable[[Fraction], Fraction]:
    parts = match.groupdict()
    if parts.get("f"):
        factor = Fraction(_FACTORS[parts["f"].lower()])
        return lambda a: a * (1 - factor if "all but" in match[0] else factor)
    number = Fraction(int(parts["n"]))
    if "of" in parts:
        return lambda a: a * number / 100
    sign = (
        -1
        if re.search(r"\b(fewer|less|fell short|younger)\b|\d( percent)? below\b", match[0])
        else 1
    )
    if re.search(r"\d percent", match[0]):
        return lambda a: a * (100 + sign * number) / 100
    return lambda a: a + sign * number


def _stated(reader: Reader, match: re.Match[str]) -> Rule | None:
    words = re.sub(r"(?:exactly |precisely |a total of )?[0-9]+ ", "", match["c"], count=1)
    key = reader.clause(match["w"], words)
    return (key, lambda: Fraction(int(match["n"])), ()) if key else None


def _stated_apart(reader: Reader, match: re.Match[str]) -> Rule | None:
    noun = match.groupdict().get("a") or "dollars"
    key = reader.clause(match["w"], match["c"], noun)
    return (key, lambda: Fraction(int(match["n"])), ()) if key else None


def _in_front(reader: Reader, match: re.Match[str]) -> Rule | None:
    words = (match["t"][0].lower() + match["t"][1:]).split()
    tails = [tail for k in range(len(words)) if (tail := " ".join(words[k:])) in _TAILS]
    if not tails or match["a"] not in _NOUNS:
        return None
    key = reader.clause(match["w"], f"{match['c']} {match['a']} {tails[0]}")
    return (key, lambda: Fraction(int(match["n"])), ()) if key else None


def _entry(reader: Reader, match: re.Match[str]) -> Rule | None:
    words = match["q"][0].lower() + match["q"][1:]
    if not any(word in _PARTICIPLES for word in words.split()[1:]):
        return None
    key = _phrase_key(reader._person(match["w"]), words)
    return key, lambda: Fraction(int(match["n"])), ()


def _versus(reader: Reader, match: re.Match[str]) -> Rule | None:
    parts = match.groupdict()
    words = f"{match['v']} {parts.get('u') or ''} {match['c']}".replace("  ", " ").strip()
    mine = reader.clause(match["w"], words)
    source = reader.compared(mine, match["r"]) if mine else None
    return (mine, _relation(match), (source,)) if mine and source else None


def _numbers(reader: Reader, match: re.Match[str]) -> Rule | None:
    mine = reader.clause(match["w"], match["c"], match["a"])
    owner = mine.owner if mine and match["w2"] in ("she", "he", "I") else match["w2"]
    source = reader.clause(owner, match["d"], match["b"])
    return (mine, _relation(match), (source,)) if mine and source else None


def _part(reader: Reader, match: re.Match[str]) -> Rule | None:
    whole = reader.clause(match["w"], match["d"], match["a"])
    if whole is None:
        return None
    mine = reader.clause(whole.owner, f"{match['v']}{match['t']}", match["a"])
    return (mine, _relation(match), (whole,)) if mine else None


def _age(reader: Reader, match: re.Match[str]) -> Rule | None:
    mine = Key(reader._person(match["w"]), "years", "be", "")
    other = match.groupdict().get("r")
    if not other:
        return mine, lambda: Fraction(int(match["n"])), ()
    return mine, _relation(match), (mine._replace(owner=reader._person(other)),)


_W, _N = rf"(?P<w>{_WHO})", r"(?P<n>\d+)"
_A = rf"[Tt]he number of (?P<a>.+?) that {_W} (?P<c>.+?) "
_B = rf"the number of (?P<b>.+?) that (?P<w2>{_WHO}) (?P<d>.+?)"
_V = r"(?P<v>[a-z]+)"
_GRAMMAR: Sequence[tuple[str, Callable[[Reader, re.Match[str]], Rule | None]]] = [
    (rf"{_W} was {_N} years (?:older|younger) than (?P<r>{_WHO})", _age),
    (rf"{_W} was {_F} as old as (?P<r>{_WHO})", _age),
    (rf"{_W} was {_N} years old", _age),
    (rf"[Oo]f the (?P<a>.+?) that {_W} (?P<d>.+?), (?:she|he|I) {_V} {_N}(?P<of> percent)(?P<t>.*)", _part),
    (rf"[Oo]f the (?P<a>.+?) that {_W} (?P<d>.+?), (?:she|he|I) {_V} (?:all but )?{_F}(?P<t>.*)", _part),
    (rf"{_N}(?P<of> percent) of the (?P<a>.+?) that {_W} (?P<d>.+?) were those that (?:she|he|I) {_V}(?P<t>.*)", _part),
    (rf"(?i:{_F}) of the (?P<a>.+?) that {_W} (?P<d>.+?) were those that (?:she|he|I) {_V}(?P<t>.*)", _part),
    (rf"{_A}(?:exceeded|fell short of) {_B} by {_N}(?: percent)?", _numbers),
    (rf"{_A}was {_N}(?: percent)? (?:above|below) {_B}", _numbers),
    (rf"{_A}(?:was|came to) {_F}(?: of)? {_B}", _numbers),
    (rf"{_A}was {_N}", _stated_apart),
    (rf"[Tt]he amount that {_W} (?P<c>.+) was {_N} dollars", _stated_apart),
    (rf"{_W} {_V} (?:more|fewer|less) (?P<c>.+?) than (?P<r>.+), the difference being {_N}(?: dollars)?", _versus),
    (rf"{_W} {_V} {_N} (?:percent )?(?:more|fewer|less) (?P<c>.+?) than (?P<r>.+)", _versus),
    (rf"{_W} {_V} {_N} (?P<u>[a-z]+) (?:more|less) ?(?P<c>.*?) ?than (?P<r>.+)", _versus),
    (rf"{_W} {_V} (?:exactly )?{_F} as (?:many|much) (?P<c>.+?) as (?P<r>.+)", _versus),
    (rf"(?P<t>[A-Za-z][A-Za-z' ,:-]+), {_W} (?P<c>[a-z]+) {_N} (?P<a>[a-z' -]+)", _in_front),
    (rf"(?P<w>{_WHO}) (?P<c>(?P<v>[a-z]+) (?:exactly |precisely |a total of )?(?P<n>\d+) .+)", _stated),
    (rf"(?P<q>[A-Z][A-Za-z' -]+?)(?: by|,) {_W}: {_N}", _entry),
    (rf"{_N} (?P<q>[a-z][A-Za-z' -]+?) by {_W}", _entry),
]  # fmt: skip


_MONTH = r"(?: in [A-Z][a-z]+ \d{4})?"
_V2 = r"(?P<d>.+?)"
_SHARED = r"how many did each of them get\?"
_SHARERS = rf"equally among the (?P<b>.+?) that (?:she|he) {_V2}{_MONTH}"
_QUESTIONS: Sequence[tuple[str, str]] = [
    (rf"If {_W} shared the (?P<a>.+?) that (?:she|he) (?P<c>.+?) {_SHARERS}, {_SHARED}", "share"),
    (rf"The (?P<a>.+?) that {_W} (?P<c>.+?) were divided {_SHARERS}\. H{_SHARED[1:]}", "share"),
    (rf"What percentage of the (?P<a>.+?) that {_W} (?P<c>.+?) did (?:she|he) {_V2}{_MONTH}\?", "percentage"),
    (rf"Of the (?P<a>.+?) that {_W} (?P<c>.+?), what percentage had (?:she|he) {_V2}{_MONTH}\?", "percentage"),
    (rf"How many of the (?P<a>.+?) that {_W} (?P<c>.+?) did (?:she|he) not {_V2}{_MONTH}\?", "left"),
    (rf"How many of the (?P<a>.+?) that {_W} (?P<c>.+?) remained, apart from those (?:she|he) {_V2}{_MONTH}\?", "left"),
    (rf"How many times as many (?P<a>.+?) did {_W} (?P<c>.+?) as (?P<w2>{_NAME}){_MONTH}\?", "ratio"),
    (rf"How many (?P<a>.+?) did {_W} and (?P<w2>{_NAME}) (?P<c>.+?) on average{_MONTH}\?", "average"),
    (rf"What is the average number of (?P<a>.+?) that {_W} and (?P<w2>{_NAME}) (?P<c>.+?){_MONTH}\?", "average"),
    (rf"How many (?P<a>.+?) did {_W} and (?P<w2>{_NAME}) (?P<c>.+?) altogether{_MONTH}\?", "together"),
    (rf"What is the combined number of (?P<a>.+?) that {_W} and (?P<w2>{_NAME}) (?P<c>.+?){_MONTH}\?", "together"),
    (rf"By how many years was {_W} older than (?P<w2>{_NAME}){_MONTH}\?", "gap"),
    (rf"How many years younger than {_W} was (?P<w2>{_NAME}){_MONTH}\?", "gap"),
    (rf"How many more (?P<a>.+?) than (?P<b>.+?) did {_W} (?P<c>.+?){_MONTH}\?", "excess"),
    (rf"By how many did the (?P<a>.+?) that {_W} (?P<c>.+?) outnumber the (?P<b>.+?){_MONTH}\?", "excess"),
    (rf"How many more (?P<a>.+?) did {_W} (?P<c>.+?) than (?P<w2>{_NAME}){_MONTH}\?", "gap"),
    (rf"How many fewer (?P<a>.+?) did (?P<w2>{_NAME}) (?P<c>.+?) than {_W}{_MONTH}\?", "gap"),
    (rf"(?:How old was|What was the age of) {_W}(?: in years)?{_MONTH}\?", "total"),
    (rf"(?:How far, in|How much money, in|How much time, in) (?P<a>.+?), did {_W} (?P<c>.+?){_MONTH}\?", "total"),
    (rf"(?:What was the number of|Can you work out how many) (?P<a>.+?)(?: that)? {_W} (?P<c>.+?){_MONTH}\?", "total"),
    (rf"How many (?P<a>.+?) did {_W} (?P<c>.+?){_MONTH}\?", "total"),
]  # fmt: skip


def _question(text: str) -> tuple[str, list[Key]]:
    for story in _STORIES["stories"].values():
        for kind, first, last, *wordings in story["asks"]:
            for wording in wordings:
                pattern = re.escape(wording).replace(r"\{w\}", f"(?P<w>{_NAME})")
                pattern = pattern.replace(r"\{s\}", "(?:she|he)").replace(r"\{m\}", _MONTH)
                if match := re.fullmatch(pattern, text):
                    return kind, [_phrase_key(match["w"], phrase) for phrase in (first, last)]
    reader = Reader(())
    for pattern, kind in _QUESTIONS:
        match = re.fullmatch(pattern, text)
        if match is None:
            continue
        parts = {key: value for key, value in match.groupdict().items() if value}
        noun, words = parts.get("a", "years"), parts.get("c", "was")
        owner = parts["w"]
        one = reader.clause(owner, words, noun)
        assert one, text
        if kind == "total":
            return kind, [one]
        if kind == "excess":
            return kind, [one, one._replace(noun=parts["b"])]
        if "d" in parts:
            other = reader.clause(owner, parts["d"], parts.get("b", noun))
            assert other, text
            return kind, [one, other]
        return kind, [one, one._replace(owner=parts["w2"])]
    raise AssertionError(f"the reader cannot parse the question {text!r}")


def solve(question: str, documents: Sequence[tuple[str, str]]) -> Fraction | None:
    """Return the answer to a question, or None if the documents do not determine the answer.

    Raises:
        AssertionError: A quantity has two definitions, or is not a positive integer.
    """
    rules: dict[Key, Rule] = {}
    for names, content in documents:
        for rule in Reader(names.split(", ")).rules(content):
            assert rule[0] not in rules, f"{rule[0]} has two definitions"
            rules[rule[0]] = rule

    def value(key: Key) -> Fraction | None:
        if key not in rules:
            return None
        _, operation, sources = rules[key]
        values = [value(source) for source in sources]
        if None in values:
            return None
        result = operation(*values)
        assert result.denominator == 1, f"{key} is {result}"
        assert result > 0, f"{key} is {result}"
        return result

    kind, keys = _question(question)
    found = [value(key) for key in keys]
    if None in found:
        return None
    first, last = found[0], found[-1]
    assert first is not None
    assert last is not None
    return {
        "total": first,
        "together": first + last,
        "average": Fraction(first + last, 2),
        "ratio": Fraction(first, last),
        "share": Fraction(first, last),
        "percentage": 100 * Fraction(last, first),
        "area": first * last,
        "around": 2 * first + 2 * last,
    }.get(kind, first - last)
