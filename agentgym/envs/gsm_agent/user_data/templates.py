"""GSM-Symbolic templates (Mirzadeh et al.): stories with variables.

A template is a TOML file in the format of the package `multilingual-gsm-symbolic`. The field
`question_annotated` contains a story with slots `{variable,default}`, then `#init:`, `#conditions:`
and `#answer:`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any

from agentgym.envs.gsm_agent.user_data.formulas import Formula, Several, to_number, write_number
from agentgym.envs.gsm_agent.user_data.stories import (
    RawProblem,
    find_numbers,
    group_sentences,
    split_if,
    split_sentences,
    why_unclear,
)
from agentgym.envs.gsm_agent.vocabulary import capital

_SLOT = re.compile(r"\{\s*([A-Za-z_]\w*)\s*(?:,[^{}]*)?\}")
_SOLVED = re.compile(r"^#### *\{(.+)\}", re.MULTILINE)
_HEADING = re.compile(r"^#(init|conditions|answer):", re.MULTILINE)
_ASKS = re.compile(r"\?$|^(?:calculate|find|determine)\b|, (?:calculate|find) ", re.IGNORECASE)
_MOST_TRIES = 200_000  # some published templates need 20,000 attempts
_ALTERNATIVES = 12  # several, because rounding can hide the effect of a single change


class Line:
    """A line in `#init:` that draws one or more variables."""

    def __init__(self, text: str, lists: Mapping[str, Any]) -> None:
        names, equals, formula = text.partition("=")
        self.names = tuple(re.findall(r"[A-Za-z_]\w*", names))
        if not equals or not self.names:
            raise ValueError(f"expected `variable = ...` in #init, got {text!r}")
        self.formula = Formula(formula)
        self._fixed = self.formula(lists) if self.formula.names <= lists.keys() else None

    def options(self, values: Mapping[str, Any], rng: Random) -> Iterator[Any]:
        """Yield the possible values of this line in random order."""
        drawn = self.formula(values) if self._fixed is None else self._fixed
        if isinstance(drawn, Several):
            drawn = drawn.draw(rng)
        left = list(drawn) if isinstance(drawn, list) else [drawn]
        while left:
            place = rng.randrange(len(left))
            left[place], left[-1] = left[-1], left[place]
            yield left.pop()

    def values(self, option: Any) -> Iterator[tuple[str, Any]]:
        """Yield (variable, value) pairs for a drawn option."""
        if len(self.names) == 1:
            return iter([(self.names[0], option)])
        parts = list(option)
        if len(parts) != len(self.names):
            # Flatten the pairs of a line such as `(a, a_text), (b, b_text) = ...`.
            parts = list(chain.from_iterable(parts))
        return zip(self.names, parts, strict=True)


class _Draw:
    """The values of a template's variables: `shown` for the text, `values` for formulas."""

    def __init__(self, lists: Mapping[str, Any]) -> None:
        self.shown: dict[str, Any] = {}
        self.values: dict[str, Any] = dict(lists)
        self.tries = 0

    def take(self, line: Line, option: Any) -> None:
        for name, value in line.values(option):
            self.shown[name], self.values[name] = value, to_number(value)

    def write(self, text: str) -> str:
        return capital(_SLOT.sub(lambda slot: write_number(self.shown[slot[1]]), text))


class Template:
    """A story with variables. Malformed text raises ValueError.

    Args:
        name: The template's id.
        text: The template's `question_annotated`.
        solution: The template's `answer_annotated`, with a formula after `####`; an empty string to
            use `#answer:`.
        lists: The lists that formulas may refer to, such as `names`.
    """

    def __init__(self, name: str, text: str, solution: str, lists: Mapping[str, Any]) -> None:
        self.name, self._lists = name, lists
        story, *parts = _HEADING.split(text)
        given = dict(zip(parts[::2], parts[1::2], strict=True))
        if not story.strip() or not {"init", "answer"} <= given.keys():
            raise ValueError("expected a story, #init: and #answer:")
        solved = _SOLVED.findall(solution)
        self.answer = Formula(solved[-1] if solved else given["answer"])
        self.conditions = list(map(Formula, _items(given.get("conditions", ""))))
        self.lines = self._sort([Line(line, lists) for line in _items(given["init"])])
        self._check(story)
        self._due = self._schedule()
        self._relevant = set(self.answer.names)
        for line in reversed(self.lines):
            if not self._relevant.isdisjoint(line.names):
                self._relevant |= line.formula.names
        self.people: list[str] = []
        for line in self.lines:
            if any(each.startswith("names") for each in line.formula.names):
                self.people += line.names
        # Remove the default values of slots, which may contain full stops.
        self._split(split_sentences(_SLOT.sub(r"{\1}", " ".join(story.split()))))

    def _sort(self, lines: list[Line]) -> list[Line]:
        used = set[str]().union(*(each.names for each in self.conditions))
        used |= set().union(*(line.formula.names for line in lines))
        return sorted(lines, key=lambda line: used.isdisjoint(line.names))

    def _check(self, story: str) -> None:
        known = set(self._lists)
        for line in self.lines:
            _require(line.formula.names, known)
            known |= set(line.names)
        for formula in (self.answer, *self.conditions):
            _require(formula.names, known)
        _require(_SLOT.findall(story), known - self._lists.keys())

    def _schedule(self) -> list[list[Formula]]:
        due: list[list[Formula]] = []
        known, left = set(self._lists), self.conditions
        for line in self.lines:
            known |= set(line.names)
            due.append([each for each in left if each.names <= known])
            left = [each for each in left if not each.names <= known]
        return due

    def _split(self, sentences: list[str]) -> None:
        self._story = sentences
        *self.sentences, self.question = sentences
        self.unclear = "" if _ASKS.search(self.question) else "its last sentence asks nothing"
        premise, question = split_if(self.question)
        if find_numbers(self._fill(Random(0)).write(premise)):
            self.sentences.append(premise)
            self.question = question

    def draw(self, number: int, rng: Random) -> RawProblem:
        """Draw and decompose a problem; raise ValueError if no draw meets the conditions."""
        draw = self._fill(rng)
        groups = [] if self.unclear else self._groups(draw, rng)
        documents = tuple(" ".join(map(draw.write, group)) for group in groups)
        text = " ".join(map(draw.write, self._story))
        names = tuple(str(draw.shown[name]) for name in self.people)
        question = draw.write(self.question)
        unclear = self.unclear or why_unclear(question, names)
        if not groups and not unclear:
            unclear = "its sentences lack a number that decides the answer"
        answer, own_id = self._answer(draw), f"{self.name}#{number}"
        return RawProblem(own_id, text, question, documents, answer, unclear, names, exact=True)

    def _fill(self, rng: Random) -> _Draw:
        draw = _Draw(self._lists)
        if not self._extend(0, draw, rng):
            raise ValueError("no draw satisfies #conditions")
        return draw

    def _answer(self, draw: _Draw) -> str:
        try:
            return write_number(self.answer(draw.values))
        except (ArithmeticError, ValueError):
            return ""

    def _extend(self, place: int, draw: _Draw, rng: Random) -> bool:
        if place == len(self.lines):
            return bool(self._answer(draw))
        line = self.lines[place]
        for option in line.options(draw.values, rng):
            draw.tries += 1
            if draw.tries > _MOST_TRIES:
                return False
            draw.take(line, option)
            holds = all(_holds(each, draw) for each in self._due[place])
            if holds and self._extend(place + 1, draw, rng):
                return True
        return False

    def _groups(self, draw: _Draw, rng: Random) -> list[list[str]]:
        """Group the sentences so that each group has a number that affects the answer."""
        # Skip the variables of an equation, each of which follows from the others.
        equated = set().union(*(each.names for each in self.conditions if each.has_equality))
        places = []
        for line in self.lines:
            drawn = equated.isdisjoint(line.names) and not self._relevant.isdisjoint(line.names)
            if not drawn or not self._decides(line, draw, rng):
                continue
            where = _places(line, [*self.sentences, self.question])
            if where:
                places.append(where)
            elif line.formula.names <= self._lists.keys():
                return []

        def tells(group: Sequence[str]) -> bool:
            own = {self.sentences.index(sentence) for sentence in group}
            return any(where <= own for where in places)

        return group_sentences(self.sentences, tells)

    def _decides(self, line: Line, draw: _Draw, rng: Random) -> bool:
        right = self.answer(draw.values)
        for option in islice(line.options(draw.values, rng), _ALTERNATIVES):
            other = _Draw(draw.values)
            other.take(line, option)
            try:
                for each in self.lines:
                    options = list(each.options(other.values, rng))
                    # A line with a single option computes its value from earlier lines.
                    if len(options) == 1 and not each.formula.names.isdisjoint(line.names):
                        other.take(each, options[0])
                changed = self.answer(other.values) != right
            except (ArithmeticError, ValueError):
                changed = True
            if changed:
                return True
        return False


def load_templates(path: Path) -> list[Template]:
    """Load a template, or all templates in the folder of a language.

    Raise ValueError, with the file and field, if a template is malformed.
    """
    folder = path if path.is_dir() else path.parent
    if (folder / "symbolic").is_dir():
        folder /= "symbolic"
    files = sorted(folder.glob("*.toml")) if path.is_dir() else [path]
    lists = _load_lists(folder)
    return [_load(file, lists) for file in files]


def _load_lists(folder: Path) -> dict[str, Any]:
    for place in (folder, folder.parent):
        file = place / "replacements.json"
        if file.exists():
            try:
                lists = json.loads(file.read_text(encoding="utf-8-sig"))
            except (OSError, RecursionError, ValueError) as error:
                raise ValueError(f"{file}: expected a JSON object of lists ({error})") from None
            if isinstance(lists, dict) and all(isinstance(each, list) for each in lists.values()):
                return lists
            raise ValueError(f"{file}: expected a JSON object of lists")
    return {}


def _load(file: Path, lists: Mapping[str, Any]) -> Template:
    field = "question_annotated"
    try:
        fields = tomllib.loads(file.read_text(encoding="utf-8-sig"))
        return Template(file.stem, fields[field], fields.get("answer_annotated", ""), lists)
    except KeyError:
        raise ValueError(f"{file}: the field {field} is missing") from None
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{file}: expected TOML ({error})") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}, field {field}: {error}") from error


def _items(text: str) -> list[str]:
    items = []
    for line in text.splitlines():
        item = line.strip().removeprefix("-").strip()
        if item not in ("", "True"):
            items.append(item)
    return items


def _require(names: Sequence[str] | frozenset[str], known: set[str]) -> None:
    if unknown := set(names) - known:
        raise ValueError(
            f"the variable {min(unknown)!r} must be defined in #init before it is used"
        )


def _holds(condition: Formula, draw: _Draw) -> bool:
    try:
        return bool(condition(draw.values))
    except (ArithmeticError, ValueError):
        return False


def _places(line: Line, sentences: Sequence[str]) -> set[int]:
    places = set()
    for place, sentence in enumerate(sentences):
        if not set(line.names).isdisjoint(_SLOT.findall(sentence)):
            places.add(place)
    return places
