"""Generate questions about a log, with answers, evidence and chance scores (section 2.3.3)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, islice
from typing import Any, TypeVar

import numpy as np

from agentgym.envs.agentlongbench.engine import dumps
from agentgym.envs.agentlongbench.items import OPERATORS, Value
from agentgym.envs.agentlongbench.logs import (
    Log,
    LogMessages,
    Round,
    count_lists,
    largest_section,
    within,
)
from agentgym.envs.agentlongbench.questions import QuestionSpec
from agentgym.envs.agentlongbench.scoring import Answer
from agentgym.text.tokens import TokenCounter

# Preferred maximum number of items in an intersection that the model must write out.
_SHORT = 100
_T = TypeVar("_T")
_LIST = re.compile(r'"(?:intersection|candidates)": \[')


@dataclass(frozen=True, slots=True)
class Span:
    """Part of a message's text: `text[start:end]`."""

    message: int
    start: int
    end: int


@dataclass(frozen=True)
class LogQuestion:
    """A question about a log.

    Attributes:
        scan: The evidence that a naive reader needs: whole tool results or profiles.
        least: A minimal part of the log that proves the answer.
        chance: The maximum expected score of an answer that ignores the evidence.
    """

    spec: QuestionSpec
    answer: Answer
    scan: tuple[Span, ...]
    least: tuple[Span, ...]
    chance: float
    extra: Mapping[str, Any]


def ask(task: str, log: Log, rng: np.random.Generator) -> LogQuestion:
    """Draw a question for a task, about a log of at least three rounds.

    In the concise style, the `intersection` task requires a log played with `isolate`. The task
    `find_round_largest_value_env` requires a log played with `peak`.
    """
    return _BUILDERS[task](log, rng)


def context_length(spans: Iterable[Span], log: LogMessages, counter: TokenCounter) -> int:
    """Return the number of tokens of evidence; section 4.3 of the paper gives no formula."""
    messages = list(log.messages)
    total = 0
    for span in spans:
        text = messages[span.message].text
        total += counter.length(text[span.start : span.end])
    return total


def _count_frequency_tool(log: Log, rng: np.random.Generator) -> LogQuestion:
    turn = _tool_round(log, rng)
    holding = count_lists(turn.lists, len(log.table))
    place, chance = _balanced(holding.tolist(), rng)
    name = log.table.names[place]
    least = []
    for k, places in enumerate(turn.lists):
        least.append(_entry(turn, k, name) if place in places else _list(turn, k))
    return LogQuestion(
        QuestionSpec("count_frequency_tool", i=turn.number, name=name),
        answer=int(holding[place]),
        scan=(_whole(turn),),
        least=tuple(least),
        chance=chance,
        extra={"round": turn.number, "target_name": name},
    )


def _find_duplicates(log: Log, rng: np.random.Generator) -> LogQuestion:
    turns = first, second = _two(log.rounds[1:], rng)
    in_first = count_lists(first.lists, len(log.table)) > 0
    in_second = count_lists(second.lists, len(log.table)) > 0
    both, one = in_first & in_second, in_first ^ in_second
    # If the answer is no, prefer an item in only one result, whose reader would then guess yes.
    wrong = one if one.any() else ~both
    # Draw the answers yes and no with equal probability if both are possible.
    drawn = both if rng.random() < 0.5 or not wrong.any() else wrong
    place = int(rng.choice(np.flatnonzero(drawn)))
    name, answer = log.table.names[place], bool(both[place])
    least = []
    if answer:
        for turn in turns:
            k = next(k for k, places in enumerate(turn.lists) if place in places)
            least.append(_entry(turn, k, name))
    else:
        least.append(_whole(second if in_first[place] else first))
    return LogQuestion(
        QuestionSpec("find_duplicates_tool", i=first.number, j=second.number, name=name),
        answer,
        scan=(_whole(first), _whole(second)),
        least=tuple(least),
        chance=0.5 if wrong.any() else 1.0,
        extra={"i_round": first.number, "j_round": second.number, "pokemon_name": name},
    )


def _find_offsets(log: Log, rng: np.random.Generator) -> LogQuestion:
    turns = [turn for turn in log.rounds[1:] if _followed(turn, turn.guess) is not None]
    if turns:
        turn = _one(turns, rng)
        place = turn.guess
    else:  # no guessed item is followed by two others in a list, so use another item
        turn = _tool_round(log, rng)
        place = int(rng.choice(turn.lists[0][:-2]))
    k, at = _followed(turn, place) or (0, 0)
    names = [log.table.names[p] for p in turn.lists[k][at : at + 3]]
    return LogQuestion(
        QuestionSpec("find_target_offsets_tool", i=turn.number, name=names[0]),
        answer=names[1:],
        scan=(_whole(turn),),
        least=(Span(turn.start + 1, 0, _entry(turn, k, names[2]).end),),
        # An answer that names only the first item earns half the points.
        chance=0.5 / (len(log.table) - 1),
        extra={"round": turn.number, "i_round": turn.number, "guess_name": names[0]},
    )


def _correct(log: Log, turn: Round) -> list[str]:
    atoms = log.table.feedback_atoms(turn.guess, log.target)
    return [section for section, operator, _ in atoms if operator in OPERATORS["correct"]]


def _count_correctness(log: Log, rng: np.random.Generator) -> LogQuestion:
    answers = [len(_correct(log, turn)) for turn in log.rounds]
    place, chance = _balanced(answers, rng)
    turn = log.rounds[place]
    spans = (_sections(turn),)
    spec = QuestionSpec("count_correctness_env", i=turn.number)
    return LogQuestion(spec, answers[place], spans, spans, chance, {"round": turn.number})


def _count_frequency_env(log: Log, rng: np.random.Generator) -> LogQuestion:
    table = log.table
    texts = [k for k, section in enumerate(table.sections) if not section.numeric]
    counts = Counter[tuple[int, Value]]()
    for turn in log.rounds:
        for place in texts or [0]:
            for value in table.columns[place][turn.guess]:
                counts[place, value] += 1
    number, chance = _balanced(list(counts.values()), rng)
    place, value = list(counts)[number]
    section = table.sections[place].name
    return LogQuestion(
        QuestionSpec("count_frequency_env", last=len(log.rounds), name=str(value), section=section),
        answer=counts[place, value],
        scan=tuple(map(_sections, log.rounds)),
        least=tuple(_line(turn, section) for turn in log.rounds),
        chance=chance,
        extra={"property_value": str(value)},
    )


def _find_largest(log: Log, rng: np.random.Generator) -> LogQuestion:
    place = largest_section(log.table)
    section = log.table.sections[place].name
    numbers = [int(log.table.columns[place][turn.guess][0]) for turn in log.rounds]
    return LogQuestion(
        QuestionSpec("find_round_largest_value_env", last=len(numbers), section=section),
        answer=1 + numbers.index(max(numbers)),
        scan=tuple(map(_sections, log.rounds)),
        least=tuple(_line(turn, section) for turn in log.rounds),
        chance=1 / len(numbers),
        extra={"base_stats_info": {str(k): number for k, number in enumerate(numbers, 1)}},
    )


def _weighted_summation(log: Log, rng: np.random.Generator) -> LogQuestion:
    weights = {section.name: section.weight for section in log.table.sections}
    rounds: dict[int, list[Round]] = {}
    for turn in log.rounds:
        total = sum(weights[name] for name in _correct(log, turn))
        rounds.setdefault(total, []).append(turn)
    pairs = []
    for one, other in combinations_with_replacement(sorted(rounds), 2):
        if one != other or len(rounds[one]) > 1:
            pairs.append((one, other))
    pair, chance = _balanced([other - one for one, other in pairs], rng)
    low, high = pairs[pair]
    if low == high:
        drawn = _two(rounds[low], rng)
    else:
        drawn = _one(rounds[low], rng), _one(rounds[high], rng)
    first, second = sorted(drawn, key=lambda turn: turn.number)
    spans = (_sections(first), _sections(second))
    return LogQuestion(
        QuestionSpec("weighted_summation_env", i=first.number, j=second.number, weights=weights),
        answer=high - low,
        scan=spans,
        least=spans,
        chance=chance,
        extra={"i_round": first.number, "j_round": second.number},
    )


def _intersection(log: Log, rng: np.random.Generator) -> LogQuestion:
    if log.style == "concise":
        return _hidden(log)
    return _common(log, rng)


def _hidden(log: Log) -> LogQuestion:
    name = log.table.names[log.target]
    turns = log.rounds[1:]
    return LogQuestion(
        QuestionSpec("intersection", last=len(log.rounds), style="concise"),
        answer=name,
        scan=tuple(map(_whole, turns)),
        least=tuple(map(_whole, _cover(turns, len(log.table)))),
        chance=1 / len(log.table),
        extra={"answer_name": name},
    )


def _common(log: Log, rng: np.random.Generator) -> LogQuestion:
    def rank(turn: Round) -> tuple[bool, int]:
        return len(turn.lists) == 1, int(within(turn.lists, len(log.table)).sum())

    # Prefer short intersections of several lists.
    several = [turn for turn in log.rounds[1:] if rank(turn) <= (False, _SHORT)]
    turn = _one(several, rng) if several else min(log.rounds[1:], key=rank)
    names = sorted(log.table.listed(within(turn.lists, len(log.table))))
    return LogQuestion(
        QuestionSpec("intersection", i=turn.number, style="verbose"),
        answer=names,
        scan=(_whole(turn),),
        least=tuple(_list(turn, k) for k in range(len(turn.lists))),
        # Naming every item achieves this F1 score.
        chance=2 * len(names) / (len(names) + len(log.table)),
        extra={"round": turn.number, "answer_name": names},
    )


_BUILDERS: Mapping[str, Callable[[Log, np.random.Generator], LogQuestion]] = {
    "count_frequency_tool": _count_frequency_tool,
    "find_duplicates_tool": _find_duplicates,
    "find_target_offsets_tool": _find_offsets,
    "count_correctness_env": _count_correctness,
    "count_frequency_env": _count_frequency_env,
    "find_round_largest_value_env": _find_largest,
    "weighted_summation_env": _weighted_summation,
    "intersection": _intersection,
}


def _tool_round(log: Log, rng: np.random.Generator) -> Round:
    return log.rounds[1 + rng.integers(len(log.rounds) - 1)]


def _one(choices: Sequence[_T], rng: np.random.Generator) -> _T:
    return choices[int(rng.integers(len(choices)))]


def _balanced(values: Sequence[int], rng: np.random.Generator) -> tuple[int, float]:
    distinct = sorted(set(values))
    value = _one(distinct, rng)
    places = [place for place, each in enumerate(values) if each == value]
    return _one(places, rng), 1 / len(distinct)


def _two(turns: Sequence[Round], rng: np.random.Generator) -> tuple[Round, Round]:
    first, second = sorted(rng.choice(len(turns), 2, replace=False).tolist())
    return turns[first], turns[second]


def _followed(turn: Round, place: int) -> tuple[int, int] | None:
    for k, places in enumerate(turn.lists):
        at = np.flatnonzero(places == place)
        if len(at):
            if at[0] + 2 < len(places):
                return k, int(at[0])
            break
    return None


def _cover(turns: Sequence[Round], items: int) -> list[Round]:
    """Greedily choose a few rounds whose lists have the same common items as all lists."""
    lists = np.array([within(turn.lists, items) for turn in turns])
    left, last = np.ones(items, bool), int(lists.all(axis=0).sum())
    chosen: list[int] = []
    while left.sum() > last:
        best = int(np.argmin((lists & left).sum(axis=1)))
        left &= lists[best]
        chosen.append(best)
    return [turns[k] for k in sorted(chosen)]


def _whole(turn: Round) -> Span:
    return Span(turn.start + 1, 0, len(turn.result.text))


def _sections(turn: Round) -> Span:
    text = turn.feedback.text
    return Span(
        turn.start + len(turn.messages) - 1, text.index("Sections:"), text.index("\nResult: ")
    )


def _line(turn: Round, section: str) -> Span:
    text = turn.feedback.text
    start = text.index(f"\n  - {section}: ") + 1
    return Span(turn.start + len(turn.messages) - 1, start, text.index("\n", start))


def _list(turn: Round, k: int) -> Span:
    start = next(islice(_LIST.finditer(turn.result.text), k, None)).end() - 1
    return Span(turn.start + 1, start, turn.result.text.index("]", start) + 1)


def _entry(turn: Round, k: int, name: str) -> Span:
    span, entry = _list(turn, k), dumps(name)
    start = turn.result.text.index(entry, span.start)
    return Span(span.message, start, start + len(entry))


def as_json(answer: Answer) -> str:
    """Write an answer in a format accepted by `read` and by the published evaluator."""
    return dumps(answer) if isinstance(answer, list) else str(answer)
