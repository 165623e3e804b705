"""Parsing and scoring of answers (AgentLongBench, section 3.1).

`score_published` reproduces the published evaluator; it scores answer files and published rows.
LongContextQA scores generated questions with `read` and `score`, which also accept code fences,
accents and numbered lists, and never mistake digits in a name for a list number.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from agentgym.envs.agentlongbench.engine import TEXTS
from agentgym.envs.agentlongbench.items import normalize_name

Answer: TypeAlias = int | bool | str | list[str]

_FORMS: Mapping[str, str] = {"find_duplicates_tool": "bool", "find_target_offsets_tool": "pair"}
_METRICS = {"list": "f1", "pair": "ordered pair"}
_TAG = re.compile(r"<answer>(.*?)</answer>", re.IGNORECASE | re.DOTALL)
_TO_LAST_END = re.compile(r".*</answer>", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"-?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)")
_NUMBERING = re.compile(r"^\s*(?:[0-9]+[.)]\s+|[-*•]\s+)")
_FENCE = re.compile(r"```[a-z]*\n?|```")
_PREFIX = re.compile(
    r"^(?:the )?(?:final )?(?:answer|item|hidden item|target)(?: is:?|:)\s*", re.IGNORECASE
)
# The lookbehind prevents quadratic time on long runs of whitespace.
_BREAK = re.compile(r"(?<!\s)\s+and\s+|[,;|\n]|(?<!\s)\s+&\s+", re.IGNORECASE)
_NO = re.compile(r"\b(?:no|false|not|none|neither|doesn't)\b", re.IGNORECASE)
_YES = re.compile(r"\b(?:yes|true|contains|appears|does|both)\b", re.IGNORECASE)
# Patterns of the published evaluator, and the characters that it removes from names.
_PUBLISHED_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_PUBLISHED_NO = re.compile(r"\b(?:no|false|not|doesn't|does not|none|neither)\b")
_PUBLISHED_YES = re.compile(r"\b(?:yes|true|contains?|appears?|does|both)\b")
_PUBLISHED_DROPPED = " -'\"."
_LONGEST = 1_000_000  # maximum answer length in characters, to limit the matching time
_DIGITS = 18  # maximum digits of an answer; Python cannot parse thousands of digits


def form(task: str, style: str) -> str:
    """Return a task's answer type: `int`, `bool`, `pair`, `list` or `name`."""
    if task == "intersection":
        return "name" if style == "concise" else "list"
    return _FORMS.get(task, "int")


def describe_form(task: str, style: str) -> str:
    """Describe the expected answer format in words."""
    return TEXTS["forms"][form(task, style)]


def metric(task: str, style: str) -> str:
    """Return `accuracy`, `ordered pair` (with half credit) or `f1`."""
    return _METRICS.get(form(task, style), "accuracy")


def last_tag(reply: str) -> str | None:
    """Return the content of a reply's last `<answer>`, if any."""
    # Text after the last closing tag is removed first, so that matching takes linear time.
    closed = _TO_LAST_END.match(reply)
    if closed and (contents := _TAG.findall(closed[0])):
        return str(contents[-1]).strip()
    return None


def read(kind: str, text: str) -> Answer | None:
    """Parse an answer; return None if it does not have the expected type."""
    text = _FENCE.sub("", text[:_LONGEST]).strip()
    if kind == "int":
        numbers = _NUMBER.findall(re.sub(r"([0-9])\.[0-9]+", r"\1", text))
        if not numbers or len(numbers[-1]) > _DIGITS:
            return None
        return int(numbers[-1].replace(",", ""))
    if kind == "bool":
        if _NO.search(text):  # check "no" first, because a denial often repeats the question
            return False
        return True if _YES.search(text) else None
    names = _names(text)
    if kind == "name":
        return names[0] if len(names) == 1 else None
    return names if kind == "list" or 1 <= len(names) <= 2 else None


def score(kind: str, answer: Answer, reply: Answer | None) -> float:
    """Return the score of a parsed answer, in [0, 1]."""
    if reply is None:
        return 0.0
    if isinstance(answer, (bool, int)):
        return float(reply == answer)
    if isinstance(answer, str):
        return float(isinstance(reply, str) and normalize_name(reply) == normalize_name(answer))
    given = list(map(normalize_name, as_list(reply)))
    right = list(map(normalize_name, answer))
    return _score_pair(given, right) if kind == "pair" else _f1(set(given), set(right))


def _f1(given: Set[str], right: Set[str]) -> float:
    return 2 * len(given & right) / max(1, len(given) + len(right))


def _score_pair(given: Sequence[str], right: Sequence[str]) -> float:
    if given == right:
        return 1.0
    return 0.5 if given == right[:1] else 0.0


def score_published(kind: str, setting: str, answer: Answer, text: str) -> float | None:
    """Score an answer like the published evaluator; return None if parsing fails.

    Callers count unparsable answers as wrong, unlike the published evaluator.
    """
    if kind == "int":
        return _score_number(answer, text)
    if kind == "bool":
        said = _read_bool(text)
        return None if said is None else float(said == answer)
    dropped = _PUBLISHED_DROPPED
    if setting.startswith("kf"):
        dropped += "_"
    fold = partial(_fold, dropped=str.maketrans("", "", dropped))
    if kind == "name":
        return float(fold(text) == fold(str(answer))) if text.strip() else None
    given, right = _split_published(text, kind), as_list(answer)
    if not given:
        return None
    if kind == "pair":
        return _score_pair(list(map(fold, given)), list(map(fold, right)))
    return _f1(set(given), set(right))


def _fold(name: str, dropped: Mapping[int, int | None]) -> str:
    return name.strip().lower().translate(dropped)


def _score_number(answer: Answer, text: str) -> float | None:
    numbers = _PUBLISHED_NUMBER.findall(text)
    if not numbers:
        return None
    try:
        return float(int(float(numbers[-1].replace(",", ""))) == answer)
    except OverflowError:  # the number is too large for a float
        return 0.0


def _read_bool(text: str) -> bool | None:
    text = text.lower()
    if _PUBLISHED_NO.search(text):
        return False
    if _PUBLISHED_YES.search(text):
        return True
    if number := re.search(r"-?\d[\d,]*", text):
        return float(number[0].replace(",", "")) > 0
    return None


def _split_published(text: str, kind: str) -> list[str]:
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            data = ast.literal_eval(text)
            names = [str(name).strip() for name in data if str(name).strip()]
            if kind == "list" or len(names) >= 2:
                return names
    parts = re.split(r"(?i:\band\b)|[\n;|,]", text)
    if kind == "pair":  # remove list numbers
        parts = [re.sub(r"^\d+\.?\s*", "", part) for part in parts]
    return [part.strip() for part in parts if part.strip()]


def as_list(reply: Answer) -> Sequence[str]:
    """Return the answer as a list of names."""
    return reply if isinstance(reply, list) else [str(reply)]


def _names(text: str) -> list[str]:
    text = _PREFIX.sub("", text)
    if text.startswith("[") and text.endswith("]"):
        for load in (json.loads, ast.literal_eval):
            try:
                data = load(text)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(data, list) and all(isinstance(name, str) for name in data):
                return list(filter(normalize_name, data))
        text = text[1:-1]
    parts = [_NUMBERING.sub("", part).strip(" \t\"'`*()[]") for part in _BREAK.split(text)]
    return list(filter(normalize_name, parts))
