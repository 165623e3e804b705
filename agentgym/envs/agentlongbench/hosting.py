"""A host agent answers questions about the hidden item, and a referee checks the answers.

The host judges each value of a guess, and answers other questions with yes or no.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentgym.envs.agentlongbench.belief import Belief
from agentgym.envs.agentlongbench.engine import Condition, dumps, to_atoms
from agentgym.envs.agentlongbench.items import (
    VERDICTS,
    Atom,
    ItemTable,
    Operator,
    compare,
    write_profile,
)
from agentgym.text.tools import tool

if TYPE_CHECKING:
    from agentgym.envs.agentlongbench.puzzle_world import PuzzleWorld

ASK = "ask"
HOSTED = ("guess", ASK)

_LINE = re.compile(r"^ *- ([^:\n]+): ([^\n]+)$", re.MULTILINE)
_MARK = re.compile(r"(.*) \(([^()]*)\)")
_INTEGER = re.compile(r"-?[0-9]+")
_GUESSED = "Verdicts on the guess "
_OF_THE_GUESS = "Sections of the guess:\n"
_OF_THE_ITEM = "Sections of the hidden item:\n"
_QUESTION = "Does the hidden item meet this condition? "
_REVERSED: Mapping[Operator, Operator] = {"has": "lacks", "lacks": "has"}


class QuestionTool:
    """Tool for asking the host, offered only in games with a host."""

    def __init__(self, puzzle: PuzzleWorld) -> None:
        self._puzzle = puzzle

    @tool
    def ask(self, condition: Condition) -> str:
        """Ask the host whether the hidden item meets a condition. The answer is yes or no.

        Args:
            condition: As in a query, for example {"type": "value", "section": S, "values": [V]}.
        """
        meets = self._puzzle.table.meet(to_atoms([condition]))[self._puzzle.target]
        answer = "yes" if meets else "no"
        learn(self._puzzle.belief, condition, answer)
        return answer


def learn(belief: Belief, condition: Mapping[str, Any], answer: str) -> None:
    """Add the host's answer to the player's knowledge."""
    atoms = to_atoms([condition])
    if answer == "yes":
        belief.known.update(atoms)
    # A "no" about several values or about an exact number cannot be expressed as one fact.
    elif len(atoms) == 1 and (reverse := _reverse(atoms[0])):
        belief.known.update([reverse])


def _reverse(atom: Atom) -> Atom | None:
    section, operator, value = atom
    if operator in _REVERSED:
        return section, _REVERSED[operator], value
    if operator == "==" or not isinstance(value, int):
        return None
    # Bounds are strict.
    if operator == ">":
        return section, "<", value + 1
    return section, ">", value - 1


def write_question(table: ItemTable, target: int, name: str, arguments: Mapping[str, Any]) -> str:
    """Convert a call to a question for the host; return "" if the arguments are malformed.

    Raise ToolError if a name, section or value does not exist.
    """
    hidden = f"{_OF_THE_ITEM}{_profile(table, target)}"
    if name == ASK:
        try:
            table.meet(to_atoms([arguments["condition"]]))
        except (AttributeError, KeyError, TypeError, ValueError):
            return ""
        return f"{_QUESTION}{dumps(arguments['condition'])}\n{hidden}"
    if not isinstance(arguments.get("name"), str):
        return ""
    guess = table.find(arguments["name"])
    return (
        f"{_GUESSED}{table.labels[guess]}, "
        f"please.\n{_OF_THE_GUESS}{_profile(table, guess)}\n{hidden}"
    )


def object_to(answer: str, result: str) -> str:
    """Return the referee's objection, or an empty string if the host's answer is right."""
    if result in ("yes", "no"):
        reply = answer.strip().strip("\"'.!").lower()
        if reply not in ("yes", "no"):
            return "the answer to a question is yes or no"
        return "" if reply == result else "the answer to the question is wrong"
    right = _marks(result.partition("Sections:\n")[2].partition("\nResult: ")[0])
    reply_marks = _marks(answer)
    for section, marks in right.items():
        if section not in reply_marks:
            return f"there is no line on section {section}"
        if reply_marks[section] != marks:
            return f"the line on section {section} is wrong or not of the form that the rules show"
    if reply_marks.keys() - right.keys():
        return "there are lines on sections that the guess has not"
    return ""


def reply_to(question: str) -> str:
    """Return the right answer; the question includes the hidden item's profile."""
    head, _, hidden = question.partition(_OF_THE_ITEM)
    target = _values(hidden)
    if head.startswith(_QUESTION):
        atoms = to_atoms([json.loads(head[len(_QUESTION) :])])
        return "yes" if all(_is_true(atom, target) for atom in atoms) else "no"
    if not head.startswith(_GUESSED) or not target:
        raise ValueError(f"this is not a question to the host of a puzzle: {question[:100]!r}")
    marks = {}
    for section, values in _values(head.partition(_OF_THE_GUESS)[2]).items():
        known = target.get(section, ())
        marks[section] = [f"{value} ({_verdict(value, known)})" for value in values]
    return write_profile(marks)


def _verdict(value: str, hidden: Sequence[str]) -> str:
    if _INTEGER.fullmatch(value) and hidden:
        return VERDICTS[compare(int(value), int(hidden[0]))]
    return VERDICTS["has" if value in hidden else "lacks"]


def _is_true(atom: Atom, target: Mapping[str, Sequence[str]]) -> bool:
    section, operator, value = atom
    hidden = target.get(section, ())
    if isinstance(value, int):
        return bool(hidden) and compare(value, int(hidden[0])) == operator
    return (value in hidden) == (operator == "has")


def _profile(table: ItemTable, place: int) -> str:
    lines = {}
    for section, column in zip(table.sections, table.columns, strict=True):
        lines[section.name] = map(str, column[place])
    return write_profile(lines)


def _values(profile: str) -> dict[str, list[str]]:
    return {name: values.split("; ") for name, values in _LINE.findall(profile)}


def _marks(text: str) -> dict[str, dict[str, str]]:
    verdicts: dict[str, dict[str, str]] = {}
    for name, marks in _LINE.findall(text):
        verdicts[name] = {}
        matches = [_MARK.fullmatch(mark.strip()) for mark in marks.split(";")]
        if all(matches):
            verdicts[name] = {match[1]: match[2] for match in matches if match}
    return verdicts
