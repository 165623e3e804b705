"""Policies that ignore the task and use constants, prompt options, learnt rules or copied episodes.

The policies see the chat and the tool schemas, and learn from successful episodes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any, Protocol

from agentgym.testing.guesses import Guess, learn_guess, options, words
from agentgym.testing.playing import Transcript
from agentgym.text.messages import ToolCall
from agentgym.text.tools import Tool

Calls = Sequence[ToolCall]
# a transcript and the call that followed
NextCall = tuple[Transcript, ToolCall]
Probe = Callable[[Transcript], Calls]
# A function that makes a probe's calls in each training episode and returns the transcripts.
Probing = Callable[[Probe], Sequence[Transcript]]

# maximum number of answers to try if a wrong answer does not end the episode
_TRIES = 3
# maximum number of final calls to try in the first turn
_ENDS = 8


class Shortcut(Protocol):
    """A policy that tries to score without doing the task."""

    name: str

    def act(self, seen: Transcript) -> Calls:
        """Return the next calls; an empty sequence means that the policy gives up."""


class Answer:
    """Policy that makes one final call with arguments guessed from examples."""

    def __init__(self, examples: Sequence[NextCall]) -> None:
        by_shape: dict[tuple[str, ...], list[NextCall]] = defaultdict(list)
        for seen, call in examples:
            by_shape[call.name, *sorted(call.arguments)].append((seen, call))
        alike = max(by_shape.values(), key=len)
        transcripts, calls = zip(*alike, strict=True)
        self.tool, names = calls[0].name, sorted(calls[0].arguments)
        self.constants: dict[str, Any] = {}
        self.guesses: dict[str, tuple[Guess, type]] = {}
        for name in names:
            values = [call.arguments[name] for call in calls]
            kind = type(values[0])
            texts = list(map(str, values))
            if kind in (int, float, str) and len(set(texts)) > 1:
                guess = learn_guess(list(zip(transcripts, texts, strict=True)))
                self.guesses[name] = guess, kind
            else:
                counts = Counter(map(repr, values))
                self.constants[name] = max(values, key=lambda value: counts[repr(value)])

    def calls(self, seen: Transcript) -> Iterator[ToolCall]:
        """Yield calls, the likeliest first."""
        if not self.guesses:
            yield ToolCall(self.tool, dict(self.constants))
        picks: list[list[Any]] = []
        for guess, kind in self.guesses.values():
            picks.append([])
            for text in islice(guess.pick(seen), _TRIES):
                picks[-1] += _typed(text, kind)
        for values in zip(*picks, strict=False):
            guessed = dict(zip(self.guesses, values, strict=True))
            yield ToolCall(self.tool, self.constants | guessed)

    def likeliest(self, seen: Transcript) -> Calls:
        """Return the likeliest call, or an empty list if no rule applies."""
        return list(islice(self.calls(seen), 1))


def _typed(text: str, kind: type) -> list[Any]:
    try:
        return [kind(text)]
    except ValueError:
        return []


class ScriptedShortcut:
    """Shortcut that plays fixed replies."""

    def __init__(self, name: str, replies: Sequence[Calls]) -> None:
        self.name, self._replies = name, replies

    def act(self, seen: Transcript) -> Calls:
        """Play this turn's reply."""
        turn = len(seen.turns)
        return self._replies[turn] if turn < len(self._replies) else ()


class OptionAnswer:
    """Shortcut that answers with an option from the prompt."""

    def __init__(self, name: str, answer: Answer, choose: Callable[[list[str]], str]) -> None:
        self.name, self._answer, self._choose = name, answer, choose

    def act(self, seen: Transcript) -> Calls:
        """Answer with the chosen option in the first turn."""
        listed, answer = options(seen.task), self._answer
        if seen.turns or not listed or len(answer.guesses) != 1:
            return ()
        ((name, (_, kind)),) = answer.guesses.items()
        calls = []
        for value in _typed(self._choose(listed), kind):
            calls.append(ToolCall(answer.tool, {**answer.constants, name: value}))
        return calls


class ProbeAnswer:
    """Shortcut that makes some calls and then answers by a rule learnt on other seeds."""

    def __init__(self, name: str, probe: Probe, answer: Answer, repeats: int = 1) -> None:
        self.name, self._probe, self._answer, self._repeats = name, probe, answer, repeats

    def act(self, seen: Transcript) -> Calls:
        """Make the initial calls, then try one guess per turn."""
        turn, probes = len(seen.turns), self._probe(seen.before(0))
        before = self._repeats if probes else 0
        if turn < before:
            return probes
        calls = list(islice(self._answer.calls(seen.before(before)), _TRIES))
        return calls[turn - before : turn - before + 1]


class Copy:
    """Shortcut that repeats the episode with the most similar prompt."""

    name = "copy of another episode"

    def __init__(self, demonstrations: Sequence[Transcript]) -> None:
        self._demonstrations = [(set(words(d.task)), d) for d in demonstrations]

    def act(self, seen: Transcript) -> Calls:
        """Play the next calls."""
        task = set(words(seen.task))
        _, nearest = max(self._demonstrations, key=lambda pair: len(pair[0] & task))
        turn = len(seen.turns)
        if turn < len(nearest.turns):
            return [call for call, _ in nearest.turns[turn]]
        return ()


class CopyByPosition:
    """Shortcut that repeats frequent calls, with arguments from learnt positions in the text."""

    name = "copy of another episode, arguments by position"

    def __init__(self, demonstrations: Sequence[Transcript]) -> None:
        common, _ = Counter(map(_names, demonstrations)).most_common(1)[0]
        alike = [d for d in demonstrations if _names(d) == common]
        self._answers = [_answer_of_turn(turn, alike) for turn in range(len(common))]

    def act(self, seen: Transcript) -> Calls:
        """Play the next call."""
        turn = len(seen.turns)
        return self._answers[turn].likeliest(seen) if turn < len(self._answers) else ()


def _answer_of_turn(turn: int, demonstrations: Sequence[Transcript]) -> Answer:
    return Answer([(d.before(turn), d.turns[turn][-1][0]) for d in demonstrations])


def _names(demonstration: Transcript) -> tuple[str, ...]:
    return tuple(exchange[-1][0].name for exchange in demonstration.turns)


def opaque_ids(seen: Transcript) -> set[str]:
    """Return the ids used in calls, except ids that appear in the task."""
    ids = set()
    for call in seen.calls:
        for name, value in call.arguments.items():
            if not isinstance(value, str) or value in seen.task:
                continue
            if _ID_NAME.search(name) and _OPAQUE.fullmatch(value):
                ids.add(value)
    return ids


# Parameters that take ids. Sheet ranges, paths and dates are not ids.
_ID_NAME = re.compile(r"(?:^|_)ids?$|Id$")
# An id must be too long to recur by chance, and must not be a date or a number.
_OPAQUE = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w-]{8,64}")


def learn_shortcuts(demonstrations: Sequence[Transcript], probing: Probing) -> list[Shortcut]:
    """Learn all shortcuts from successful episodes."""
    finals = [d.final_call for d in demonstrations]
    blank = Answer([(d.before(0), d.final_call) for d in demonstrations])
    ending = {call.name for call in finals}
    calls = {_text(call): call for call in reversed(finals)}
    common = Counter(map(_text, finals)).most_common(_TRIES)
    constants = [[calls[text]] for text, _ in common]
    shortcuts: list[Shortcut] = [
        ScriptedShortcut("nothing at all", ()),
        *_ends(demonstrations[0].tools, ending),
        ScriptedShortcut("most frequent answers of other episodes", constants),
        *(OptionAnswer(f"{name} option", blank, rule) for name, rule in _OPTIONS.items()),
        ProbeAnswer("prompt alone: rules and features", lambda seen: (), blank),
    ]
    for name, probe in _probes(demonstrations, ending).items():
        answer = Answer(list(zip(probing(probe), finals, strict=True)))
        shortcuts.append(ProbeAnswer(f"answer after {name}", probe, answer))
        if name == _FIRST:
            shortcuts.append(ProbeAnswer("re-reading, then an answer", probe, answer, 3))
    return [*shortcuts, Copy(demonstrations), CopyByPosition(demonstrations)]


_OPTIONS: Mapping[str, Callable[[list[str]], str]] = {
    "first": lambda listed: listed[0],
    "last": lambda listed: listed[-1],
    "longest": lambda listed: max(listed, key=len),
}
_FIRST = "the first call of other episodes"


def _text(call: ToolCall) -> str:
    return f"{call.name} {sorted(call.arguments.items(), key=repr)}"


def _ends(tools: Sequence[Tool], ending: Set[str]) -> list[Shortcut]:
    shortcuts: list[Shortcut] = []
    for tool in tools:
        if tool.final or tool.name in ending:
            for arguments in _choices(tool.parameters):
                call = ToolCall(tool.name, arguments)
                shortcuts.append(ScriptedShortcut(f"at once {_label(call)}", [[call]]))
    return shortcuts[:_ENDS]


def _label(call: ToolCall) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return f"{call.name}({arguments})"


def _choices(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    values = {name: _values(schema["properties"][name]) for name in schema.get("required", ())}
    least = {name: choices[0] for name, choices in values.items()}
    for name, choices in values.items():
        if len(choices) > 1:
            return [{**least, name: value} for value in choices]
    return [least]


def _values(schema: Mapping[str, Any]) -> list[Any]:
    if "enum" in schema:
        return list(schema["enum"])
    if "anyOf" in schema:
        return _values(schema["anyOf"][0])
    least: Mapping[str, list[Any]] = {
        "boolean": [True, False],
        "string": [""],
        "array": [[]],
        "object": [{}],
    }
    return least.get(schema.get("type", ""), [schema.get("minimum", 0)])


def _probes(demonstrations: Sequence[Transcript], ending: Set[str]) -> dict[str, Probe]:
    probes: dict[str, Probe] = {}
    longer = [d for d in demonstrations if len(d.turns) > 1]
    if longer:
        probes[_FIRST] = _answer_of_turn(0, longer).likeliest
    used = {call.name for d in longer for call in d.calls} - ending
    bare: list[ToolCall] = []
    for tool in demonstrations[0].tools:
        if tool.name in used and not tool.final and not tool.parameters.get("required"):
            bare.append(ToolCall(tool.name, {}))
    if bare:
        probes["all calls without arguments"] = lambda seen: bare
    for name, page in _last_pages(longer).items():
        probes[f"the last page of {name}"] = page.likeliest
    return probes


def _last_pages(demonstrations: Sequence[Transcript]) -> dict[str, Answer]:
    examples: dict[str, list[NextCall]] = {}
    for demonstration in demonstrations:
        largest: dict[str, tuple[int, ToolCall]] = {}
        for call in demonstration.before(-1).calls:
            for value in call.arguments.values():
                known = largest.get(call.name)
                if type(value) is int and (known is None or value > known[0]):
                    largest[call.name] = value, call
        for tool, (_, call) in largest.items():
            examples.setdefault(tool, []).append((demonstration.before(0), call))
    return {tool: Answer(some) for tool, some in examples.items()}
