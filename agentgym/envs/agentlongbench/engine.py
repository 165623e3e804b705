"""Write and parse query results and feedback on guesses (section 2.1)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from agentgym.envs.agentlongbench.items import OPERATORS, Atom, ItemTable, Operator
from agentgym.envs.reading import load_texts
from agentgym.text.tools import ToolError, echo

TEXTS: Mapping[str, Mapping[str, str]] = load_texts(__file__, "prompts")
"""Rules of the game, and questions about logs with how to answer them."""
STYLES = ("concise", "verbose")
TOOL = "query_items"
PUBLISHED_TOOL = "query_pokemon"
MOST_CONDITIONS = 1_024
"""Conditions per query, and values per condition; bounds the time of a call."""

_FEEDBACK = re.compile(
    r"^Round (?P<round>[0-9]+): Guess (?P<label>[^\n]+)\nSections:\n(?P<sections>(?:  - [^\n]+\n)+)"
    r"Result: (?P<result>correct|wrong)\nRemaining rounds: (?P<left>[0-9]+)",
    re.MULTILINE,
)
# A line about a section, indented by one space (paper) or two spaces (published rows).
_LINE = re.compile(r"^ {1,2}- ([^:\n]+): ([^\n]+)", re.MULTILINE)
_NUMBER = re.compile(r" \(#[0-9]{4}\)$")
_INTEGER = re.compile(r"-?[0-9]+")
_VALUE_KEYS = {"type", "section", "values", "exclude"}


@with_config(ConfigDict(strict=True, extra="forbid"))
class Condition(TypedDict):
    """What items have to meet: type `value` takes values and exclude, type `numeric` takes a comparator and a threshold."""

    type: Literal["value", "numeric"]
    section: str
    values: NotRequired[list[str]]
    exclude: NotRequired[bool]
    comparator: NotRequired[Literal[">", "<", "=="]]
    threshold: NotRequired[int]


@dataclass(frozen=True, slots=True)
class Feedback:
    """Feedback on a guess; `atoms` lists the facts that the feedback states about the target."""

    round: int
    name: str
    atoms: tuple[Atom, ...]
    right: bool
    left: int


def to_atoms(conditions: Sequence[Condition | Mapping[str, Any]]) -> list[Atom]:
    """Convert a query's conditions to facts; raise ToolError for invalid conditions."""
    if not 1 <= len(conditions) <= MOST_CONDITIONS:
        raise ToolError(
            f"a query must have 1 to {MOST_CONDITIONS} conditions, got {len(conditions)}"
        )
    return list(chain.from_iterable(map(_atoms, conditions)))


def _atoms(condition: Condition | Mapping[str, Any]) -> list[Atom]:
    section = condition["section"]
    if condition["type"] == "value":
        values = condition.get("values") or []
        if not 1 <= len(values) <= MOST_CONDITIONS or not condition.keys() <= _VALUE_KEYS:
            raise ToolError(
                f"a condition of type value requires section, 1 to {MOST_CONDITIONS} values and "
                f"optionally exclude, got {echo(condition)}"
            )
        operator: Operator = "lacks" if condition.get("exclude") else "has"
        return [(section, operator, value) for value in values]
    if condition.keys() != {"type", "section", "comparator", "threshold"}:
        raise ToolError(
            "a condition of type numeric requires section, comparator and threshold, got "
            f"{echo(condition)}"
        )
    return [(section, condition["comparator"], condition["threshold"])]


def to_conditions(atoms: Iterable[Atom]) -> list[dict[str, Any]]:
    """Convert facts to query conditions, grouped by section."""
    grouped: dict[str, dict[str, dict[str, Any]]] = {}
    for section, operator, value in atoms:
        group = grouped.setdefault(section, {})
        if operator in (">", "<", "=="):
            group[operator] = {
                "type": "numeric",
                "section": section,
                "comparator": operator,
                "threshold": value,
            }
            continue
        condition = group.setdefault(operator, {"type": "value", "section": section, "values": []})
        if operator == "lacks":
            condition["exclude"] = True
        condition["values"].append(value)
    return [condition for group in grouped.values() for condition in group.values()]


def search(
    table: ItemTable, conditions: Sequence[Condition | Mapping[str, Any]], style: str
) -> str:
    """Return a query's result as JSON: one list if `style` is `concise`, else one per section.

    Raise ToolError if a condition is malformed or names an unknown section or value.
    """
    if style == "concise":
        return dumps({"intersection": table.listed(table.meet(to_atoms(conditions)))})
    # Validate all conditions first, because the code below reads their sections.
    to_atoms(conditions)
    sections: dict[str, list[Condition | Mapping[str, Any]]] = {}
    for condition in conditions:
        sections.setdefault(condition["section"], []).append(condition)
    parts = []
    for name, group in sections.items():
        candidates = table.listed(table.meet(to_atoms(group)))
        shown = [dict(condition) for condition in group]
        for condition in shown:
            del condition["section"]
        parts.append({"section": name, "conditions": shown, "candidates": candidates})
    return dumps({"per_section": parts})


def read_lists(
    conditions: Sequence[Mapping[str, Any]], result: str
) -> list[tuple[list[Atom], list[str]]]:
    """Parse a query's result; return each list with the facts that all items in the list share.

    Raise ValueError for any other text, such as a truncated result.
    """
    try:
        data = json.loads(result)
        if "intersection" in data:
            return [(to_atoms(conditions), list(data["intersection"]))]
        lists = []
        for part in data["per_section"]:
            conditions = [{**each, "section": part["section"]} for each in part["conditions"]]
            lists.append((to_atoms(conditions), part["candidates"]))
        return lists
    except (json.JSONDecodeError, KeyError, TypeError, ToolError) as error:
        raise ValueError(f"this is not a result of {TOOL}: {result[:100]!r}") from error


def write_feedback(table: ItemTable, number: int, guess: int, target: int, left: int) -> str:
    """Write a guess's profile with a verdict on each value (figures 13 and 14)."""
    result = "correct" if guess == target else "wrong"
    return (
        f"Round {number}: Guess {table.labels[guess]}\nSections:\n{table.feedback(guess, target)}\n"
        f"Result: {result}\nRemaining rounds: {left}"
    )


def read_feedback(text: str) -> list[Feedback]:
    """Parse all feedback in a text."""
    heard = []
    for match in _FEEDBACK.finditer(text):
        name = _NUMBER.sub("", match["label"])
        atoms = tuple(read_verdicts(match["sections"]))
        right = match["result"] == "correct"
        heard.append(Feedback(int(match["round"]), name, atoms, right, int(match["left"])))
    return heard


def read_verdicts(sections: str) -> list[Atom]:
    """Parse facts about the target from the part of the feedback that lists the sections."""
    atoms: list[Atom] = []
    for name, marks in _LINE.findall(sections):
        for mark in marks.split("; "):
            value, _, verdict = mark.removesuffix(")").rpartition(" (")
            numeric = bool(_INTEGER.fullmatch(value))
            operator = OPERATORS.get(verdict, OPERATORS["wrong"])[numeric]
            atoms.append((name, operator, int(value) if numeric else value))
    return atoms


def dumps(data: object) -> str:
    """Write JSON on one line without escaping non-ASCII characters."""
    return json.dumps(data, ensure_ascii=False)


def explain_game(style: str, tool: str = TOOL) -> str:
    """Return the game rules for PuzzleWorld and LongContextQA."""
    return f"{TEXTS['game']['rules']} {TEXTS['game'][style]}".replace(TOOL, tool)
