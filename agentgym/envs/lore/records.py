"""Documents of bottom-up domains (TaskWeaver, appendix B.1), and knowledge from reading them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Self

from agentgym.envs.lore.graph import Value, below, shuffled
from agentgym.envs.lore.knowledge import ReadDocuments, split_list
from agentgym.envs.lore.operators import evaluate, variables
from agentgym.envs.reading import expect

FORMS = (
    "{} = {}.",
    "{}: {}.",
    "{} holds {}.",
    "The value recorded for {} is {}.",
    "Setting {} was fixed at {}.",
    "Entry {} reads {}.",
)
"""Sentences that state the value of a variable."""

_TEXT = "(-?[0-9]+|[A-Za-z]+)"
_VALUE = re.compile(
    r"(?:The value recorded for |Setting |Entry )?(v[0-9]+)(?: =|:| holds| is| was fixed at| "
    rf"reads) {_TEXT}"
)
_NUMBER_RULE = (
    "the value of {}. Put a minus sign in front when X is below zero and no sign otherwise."
)
_TEXT_RULE = "the text given by {}. All variables here are text, and + joins pieces end to end."
_OPEN = "Open the document called 'v{}%X' next, where X is "
_RULE = re.compile(
    r"Open the document called '(v[0-9]+)%X' next, where X is "
    r"(?:the value of (.+)\. Put a minus sign .* otherwise|the text given by (.+)\. All variables "
    r".* end to end)\."
)
_INDEX = "This record only points onward. Related documents: {}."
_LISTED = re.compile(r"'([^']+)'(?: \((v[0-9]+)\))?")
_ENTRY = re.compile(r"([^ \n]+)(?: \((v[0-9]+)\))?")
_POINTS = re.compile(
    rf"{re.escape(_INDEX.format(''))[:-2]}({_LISTED.pattern}(?:, {_LISTED.pattern})*)\."
)

_STATE = re.compile(
    r"(?:v[0-9]+ is (?P<answer>[A-Za-z]+)|The value of v[0-9]+ is not known yet)\.\n"
    r"Known values: (?P<values>.*)\nRules: (?P<rules>.*)\nUnread documents: (?P<ready>.*)"
    r"(?:\nPossibly irrelevant: (?P<doubtful>.*))?(?:\nRead ahead of their rules: "
    r"(?P<ahead>.*))?\nRead last: (?P<recent>.*)"
)


def write_values(style: Random, values: Iterable[tuple[int, Value]]) -> str:
    """Write sentences about variables and values, in random order and with random wording."""
    sentences = []
    for number, value in shuffled(style, values):
        form = FORMS[below(style, len(FORMS))]
        sentences.append(form.format(f"v{number}", value))
    return " ".join(sentences)


def write_rule(prefix: int, expression: str, operand: str) -> str:
    """Write the rule that determines the id of a document; `operand` is `number` or `text`."""
    rule = _NUMBER_RULE if operand == "number" else _TEXT_RULE
    return _OPEN.format(prefix) + rule.format(expression)


def write_index(entries: Iterable[str]) -> str:
    """Write a list of quoted ids, each optionally followed by a variable."""
    return _INDEX.format(", ".join(entries))


@dataclass
class Facts:
    """The content of a document: values, a rule (id prefix, expression), or ids with variables."""

    values: dict[str, Value] = field(default_factory=dict)
    rule: tuple[str, str] | None = None
    files: Sequence[tuple[str, str]] = ()


def read_document(text: str) -> Facts:
    """Parse a document; raise ValueError if the text is not a document."""
    if match := _RULE.fullmatch(text):
        return Facts(rule=(match[1], match[2] or match[3]))
    if match := _POINTS.fullmatch(text):
        return Facts(files=_LISTED.findall(match[1]))
    values: dict[str, Value] = {}
    sentences = expect(re.fullmatch(r"(.+)\.", text), "a document", text)[1]
    for sentence in sentences.split(". "):
        match = expect(_VALUE.fullmatch(sentence), "a document", text)
        values[match[1]] = _typed(match[2])
    return Facts(values)


def _typed(text: str) -> Value:
    if text.isalpha():
        return text
    return int(text)


def _prefix(file: str) -> str:
    return file.partition("%")[0]


@functools.lru_cache(maxsize=16384)  # cached, because every step sorts the same files
def _number(file: str) -> int:
    return int(_prefix(file)[1:])


def _late_first(files: Iterable[str]) -> list[str]:
    # Documents have smaller numbers than their dependencies, so read the largest numbers first.
    return sorted(files, key=_number, reverse=True)


@dataclass
class Records(ReadDocuments):
    """Values, unapplied rules and ids from the documents read so far.

    Attributes:
        values: The values of variables, except inputs of rules that have been applied.
        rules: Maps the id prefix of an unread document to the expression that completes the id.
        ready: Maps the known ids of unread, relevant documents to the variables in them, if known.
        doubtful: Like `ready`, for unread documents that may be irrelevant.
        ahead: The ids of documents that were read before any other document led to them.
    """

    target: str = "v0"
    values: dict[str, Value] = field(default_factory=dict)
    rules: dict[str, str] = field(default_factory=dict)
    ready: dict[str, str] = field(default_factory=dict)
    doubtful: dict[str, str] = field(default_factory=dict)
    ahead: dict[str, None] = field(default_factory=dict)
    _waiting: dict[str, str] = field(default_factory=dict)

    @classmethod
    def begin(cls, target: str, start: Iterable[str]) -> Self:
        """Return the initial knowledge; `start` lists ids, some followed by a variable."""
        known = cls(target=target)
        for file, variable in _ENTRY.findall("\n".join(start)):
            known._follow(file, variable)
        return known

    def facts(self, text: str) -> Facts:
        """Parse a document; subclasses may support other kinds of documents."""
        return read_document(text)

    def learn(self, file: str, text: str) -> list[str]:
        facts = self.facts(text)
        if file in self.read:
            return []
        if not self.follows(file) and _prefix(file) not in self.rules:
            self.ahead[file] = None
        self.ready.pop(file, None)
        self.doubtful.pop(file, None)
        self.record(file, read=True)
        self._finish(_prefix(file))
        before = len(self.order)
        for variable, value in facts.values.items():
            if variable == self.target:
                self.answer = str(value)
            else:
                self.values[variable] = value
                self._compute(self._waiting.get(variable, ""))
        if facts.rule:
            self._add_rule(*facts.rule)
        for listed, variable in facts.files:
            self._follow(listed, variable)
        return list(islice(reversed(self.order), len(self.order) - before))[::-1]

    def _add_rule(self, prefix: str, expression: str) -> None:
        self.rules[prefix] = expression
        self._waiting.update(dict.fromkeys(variables(expression), prefix))
        for file, variable in [*self.doubtful.items()]:
            if variable in self._waiting:
                self.ready[file] = self.doubtful.pop(file)
        # If the document of the rule has already been read, nothing needs to be computed.
        if early := next((file for file in self.ahead if _prefix(file) == prefix), None):
            del self.ahead[early]
            self._finish(prefix)
        self._compute(prefix)

    def _compute(self, prefix: str) -> None:
        expression = self.rules.get(prefix)
        if expression and self.values.keys() >= {*variables(expression)}:
            self._follow(f"{prefix}%{evaluate(expression, self.values)}")

    def _follow(self, file: str, variable: str = "") -> None:
        self.ahead.pop(file, None)
        if file not in self.read:
            # A list names a variable only if some of the listed documents may be irrelevant.
            if variable in ("", self.target) or variable in self._waiting:
                self.ready[file] = variable
            else:
                self.doubtful[file] = variable
            self.order[file] = None

    def _finish(self, prefix: str) -> None:
        for variable in variables(self.rules.pop(prefix, "")):
            self._waiting.pop(variable, None)
            self.values.pop(variable, None)

    def unread(self) -> Sequence[str]:
        return _late_first((*self.ready, *self.doubtful))

    def follows(self, file: str) -> bool:
        return file in self.ready or file in self.doubtful

    def useful(self) -> Sequence[str]:
        return _late_first(self.ready)

    def lines(self) -> list[str]:
        values = sorted(self.values.items(), key=lambda item: int(item[0][1:]))
        rules = [f"{prefix}%X with X = {self.rules[prefix]}" for prefix in _late_first(self.rules)]
        # Omit ids that the agent must compute.
        unread = [file for file in _late_first(self.ready) if _prefix(file) not in self.rules]
        rows = {
            "Known values": ", ".join(f"{variable} = {value}" for variable, value in values),
            "Rules": "; ".join(rules),
            "Unread documents": ", ".join(unread),
        }
        if self.doubtful:
            doubtful = [f"{file} ({self.doubtful[file]})" for file in _late_first(self.doubtful)]
            rows["Possibly irrelevant"] = ", ".join(doubtful)
        if self.ahead:
            rows["Read ahead of their rules"] = ", ".join(_late_first(self.ahead))
        rows["Read last"] = ", ".join(self.recent())
        head = f"The value of {self.target} is not known yet."
        if self.answer:
            head = f"{self.target} is {self.answer}."
        return [head, *(f"{title}: {row or 'none'}" for title, row in rows.items())]

    @classmethod
    def from_lines(cls, start: Self, text: str) -> Self:
        match = expect(_STATE.fullmatch(text), "what was found out", text)
        known = cls(target=start.target)
        known.answer = match["answer"]
        known.ahead = dict.fromkeys(split_list(match["ahead"]))
        recent = split_list(match["recent"])
        earlier = [file for file in known.ahead if file not in recent]
        for file in earlier + recent:
            known.record(file, read=True)
        for file in split_list(match["ready"]):
            known._follow(file)
        for file, variable in _ENTRY.findall("\n".join(split_list(match["doubtful"]))):
            known._follow(file, variable)
        for entry in split_list(match["values"]):
            variable, value = entry.split(" = ")
            known.values[variable] = _typed(value)
        for rule in split_list(match["rules"], "; "):
            known._add_rule(*rule.split("%X with X = "))
        return known

    def describe(self, file: str) -> str:
        prefix = _prefix(file)
        if prefix not in self.rules:
            return f"Read document '{file}'."
        return f"Work out X = {self.rules[prefix]}, then read document '{prefix}%X'."

    def resolve(self, step: str) -> str | None:
        match = re.fullmatch(r"(?:Work out X = .*, then r|R)ead document '([^']+)'\.", step)
        if match is None or not match[1].endswith("%X"):
            return match and match[1]
        return next((file for file in self.ready if _prefix(file) == _prefix(match[1])), None)
