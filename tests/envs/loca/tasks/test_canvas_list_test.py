from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from agentgym.envs.loca.tasks.canvas_list_test import (
    ASSIGNMENT,
    ASSIGNMENT_FILE,
    LOGIN,
    ME,
    QUIZ,
    QUIZ_FILE,
)
from agentgym.office.canvas.server import Canvas
from agentgym.text.tools import ToolError
from tests.envs.loca.office import Change, Rows, final_state_tests, fresh, in_csv, one_cell

TASK = "CanvasListTest"
OPTIONS = {"length": 24_000, "seed": 4}


def rewrite(change: Callable[[Rows], Rows], name: str = QUIZ_FILE, **form: Any) -> Change:
    return in_csv(name, change, **form)


def set_cell(row: int, column: str, change: Callable[[str], str], name: str = QUIZ_FILE) -> Change:
    place = (QUIZ if name == QUIZ_FILE else ASSIGNMENT).index(column)
    return rewrite(one_cell(row, place, change), name)


def swap_a_tie(rows: Rows) -> Rows:
    place = next(k for k in range(1, len(rows) - 1) if rows[k][-1] == rows[k + 1][-1])
    return [*rows[:place], rows[place + 1], rows[place], *rows[place + 2 :]]


NEAR_MISSES: dict[str, tuple[Change, str]] = {
    "a tie in the wrong order": (rewrite(swap_a_tie), "not in the required order"),
    "points off by one": (
        set_cell(1, "points_possible", lambda cell: str(int(float(cell)) + 1)),
        "points_possible",
    ),
    "a stale deadline": (
        set_cell(1, "deadline", lambda cell: cell.replace("2025", "2024")),
        "deadline",
    ),
    "another name of the course": (
        set_cell(1, "course_name", lambda cell: f"{cell} I"),
        "course_name",
    ),
    "another description": (
        set_cell(1, "description", lambda cell: cell[:-1], ASSIGNMENT_FILE),
        "description",
    ),
}
EQUIVALENTS: dict[str, Change] = {
    "numbers with a point": set_cell(1, "points_possible", lambda cell: f"{float(cell):.1f}"),
}


test_near_misses_fail, test_equivalents_pass = final_state_tests(
    TASK, NEAR_MISSES, EQUIVALENTS, **OPTIONS
)


VOLUNTARY = re.compile(
    r"one is voluntary|may skip this |this is up to you|Nobody has to|nothing more|lose nothing|Not part of"
    r"|no obligation|Extra practice only|not required of|Feel free to leave|you do not have to|optional, as|that you may leave"
    r"|can do without it|need not be done|leave it if|is no longer required|decide whether|free to skip|enthusiasts"
    r"|clear conscience"
)
STAYS = re.compile(
    r"back on the list|wrong to cancel|insists on|was dropped: it|counts again|take back|is dropped was wrong|Contrary to what"
    r"|rumour|not cancel|question hour|it stays|hint for|to print|Nothing has changed|but not this year|still needed"
    r"|look unnecessary"
)
# Handwritten pattern, independent of the package's parsers.
FOR_ALL = re.compile(
    r"exempts nobody|All of you|exempt anybody|abolished|for you as well|no exceptions|take back the rule"
)


def need_in(text: str, code: str) -> float:
    if FOR_ALL.search(text):
        return math.inf
    numbers = re.findall(r"\b[89][05]\b", text.replace(code, ""))
    return int(numbers[0 if re.search("and not with|the former", text) else -1])


@pytest.mark.parametrize("seed", range(3))
def test_the_truth_by_the_tables(seed: int) -> None:
    world = fresh(TASK, 64_000, seed)
    store = world.office.get(Canvas).store
    memory = json.loads(world.office.context.files.read_text("memory/memory.json"))["observations"]
    scores = dict(re.findall(r"of (\S+): (\d+) points", " ".join(memory)))
    items = [
        {"kind": kind, "title": row[name], **row}
        for kind, name in (("quizzes", "title"), ("assignments", "name"))
        for row in store.find(kind)
    ]
    exempt, decided, word = set(), 0, {}
    for course in store.find("courses"):
        code, needs = course["course_code"], []
        for post in store.find("topics", "posted_at", course_id=course["id"]):
            for sentence in re.split(r"(?<=[.!?])\s+", post["message"]):
                about = [row["title"] for row in items if row["title"] in sentence]
                word |= dict.fromkeys(about, sentence)
                if code in sentence and not about:
                    needs.append(need_in(sentence, code))
        if needs:
            score = int(scores[code])
            exempt |= {course["id"]} if score >= needs[-1] else set()
            decided += score in (needs[-1], needs[-1] - 1)
    assert decided, "scores at the threshold and just below it occur"
    handed_in = {row["assignment_id"] for row in store.find("submissions", user_id=1)}
    dropped = {title for title, text in word.items() if not STAYS.search(text)}
    assert dropped
    assert word.keys() - dropped
    open_items = [
        row
        for row in items
        if row["due_at"] > "2025-01-15T09:00:00Z"
        and row["course_id"] not in exempt
        and row["title"] not in dropped
        and not (row["kind"] == "assignments" and row["id"] in handed_in)
    ]
    left = [row for row in open_items if not VOLUNTARY.search(row["description"])]
    assert any(VOLUNTARY.search(row["description"]) for row in items)
    for kind, title in (("quizzes", "quiz_title"), ("assignments", "assignment_title")):
        titles = {row["title"] for row in left if row["kind"] == kind}
        assert titles == {row[title] for row in world.truth[kind]}


def test_the_student_is_logged_in_and_others_are_not_seen() -> None:
    world = fresh(TASK)
    assert json.loads(world.office.call("canvas_get_current_user", {}))["login_id"] == LOGIN
    assert ME in world.office.call("canvas_get_current_user", {})
    with pytest.raises(ToolError, match="permission denied"):
        world.office.call("canvas_create_quiz", {"course_id": 1, "title": "x"})
