"""Policies that ignore the task and use constants, prompt options, learnt rules or copied episodes.

The policies see the chat and the tool schemas, and learn from successful episodes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any

from agentgym.testing.guesses import Guess, learn_guess, options, words
from agentgym.testing.playing import Act, Transcript
from agentgym.text.messages import ToolCall
from agentgym.text.tools import Tool

Calls = Sequence[ToolCall]
# a transcript and the call that followed
NextCall = tuple[Transcript, ToolCall]
# Makes the calls of a probe in each training episode and returns the transcripts.
Probing = Callable[[Act], Sequence[Transcript]]

# maximum number of answers to try if a wrong answer does not end the episode
_TRIES = 3
# maximum number of final calls to try in the first turn
_ENDS = 8


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


def _scripted(replies: Sequence[Calls]) -> Act:
    def act(seen: Transcript) -> Calls:
        turn = len(seen.turns)
        return replies[turn] if turn < len(replies) else ()

    return act


def _option(answer: Answer, choose: Callable[[list[str]], str]) -> Act:
    def act(seen: Transcript) -> Calls:
        listed = options(seen.task)
        if seen.turns or not listed or len(answer.guesses) != 1:
            return ()
        ((name, (_, kind)),) = answer.guesses.items()
        calls = []
        for value in _typed(choose(listed), kind):
            calls.append(ToolCall(answer.tool, {**answer.constants, name: value}))
        return calls

    return act


def _answer_after(probe: Act, answer: Answer, repeats: int = 1) -> Act:
    """Make the probe's calls, then try one guess per turn."""

    def act(seen: Transcript) -> Calls:
        turn, probes = len(seen.turns), probe(seen.before(0))
        before = repeats if probes else 0
        if turn < before:
            return probes
        calls = list(islice(answer.calls(seen.before(before)), _TRIES))
        return calls[turn - before : turn - before + 1]

    return act


def _copy(demonstrations: Sequence[Transcript]) -> Act:
    """Repeat the episode with the most similar prompt."""
    known = [(set(words(d.task)), d) for d in demonstrations]

    def act(seen: Transcript) -> Calls:
        task = set(words(seen.task))
        _, nearest = max(known, key=lambda pair: len(pair[0] & task))
        turn = len(seen.turns)
        if turn < len(nearest.turns):
            return [call for call, _ in nearest.turns[turn]]
        return ()

    return act


def _copy_by_position(demonstrations: Sequence[Transcript]) -> Act:
    """Repeat frequent calls, with arguments from learnt positions in the text."""
    common, _ = Counter(map(_names, demonstrations)).most_common(1)[0]
    alike = [d for d in demonstrations if _names(d) == common]
    answers = [_answer_of_turn(turn, alike) for turn in range(len(common))]

    def act(seen: Transcript) -> Calls:
        turn = len(seen.turns)
        return answers[turn].likeliest(seen) if turn < len(answers) else ()

    return act


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


def learn_shortcuts(demonstrations: Sequence[Transcript], probing: Probing) -> dict[str, Act]:
    """Learn policies that try to score without doing the task, by name, from successful episodes.

    A policy gives up by returning no calls.
    """
    finals = [d.final_call for d in demonstrations]
    blank = Answer([(d.before(0), d.final_call) for d in demonstrations])
    ending = {call.name for call in finals}
    calls = {_text(call): call for call in reversed(finals)}
    common = Counter(map(_text, finals)).most_common(_TRIES)
    constants = [[calls[text]] for text, _ in common]
    shortcuts = {"nothing at all": _scripted(()), **_ends(demonstrations[0].tools, ending)}
    shortcuts["most frequent answers of other episodes"] = _scripted(constants)
    for name, choose in _OPTIONS.items():
        shortcuts[f"{name} option"] = _option(blank, choose)
    shortcuts["prompt alone: rules and features"] = _answer_after(lambda seen: (), blank)
    for name, probe in _probes(demonstrations, ending).items():
        answer = Answer(list(zip(probing(probe), finals, strict=True)))
        shortcuts[f"answer after {name}"] = _answer_after(probe, answer)
        if name == _FIRST:
            shortcuts["re-reading, then an answer"] = _answer_after(probe, answer, 3)
    shortcuts["copy of another episode"] = _copy(demonstrations)
    name = "copy of another episode, arguments by position"
    shortcuts[name] = _copy_by_position(demonstrations)
    return shortcuts


_OPTIONS: Mapping[str, Callable[[list[str]], str]] = {
    "first": lambda listed: listed[0],
    "last": lambda listed: listed[-1],
    "longest": lambda listed: max(listed, key=len),
}
_FIRST = "the first call of other episodes"


def _text(call: ToolCall) -> str:
    return f"{call.name} {sorted(call.arguments.items(), key=repr)}"


def _ends(tools: Sequence[Tool], ending: Set[str]) -> dict[str, Act]:
    shortcuts: dict[str, Act] = {}
    for tool in tools:
        if tool.final or tool.name in ending:
            for arguments in _choices(tool.parameters):
                call = ToolCall(tool.name, arguments)
                if len(shortcuts) < _ENDS:
                    shortcuts[f"at once {_label(call)}"] = _scripted([[call]])
    return shortcuts


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


def _probes(demonstrations: Sequence[Transcript], ending: Set[str]) -> dict[str, Act]:
    probes: dict[str, Act] = {}
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
