from __future__ import annotations

import csv
import functools
import io
from collections.abc import Callable
from statistics import fmean
from typing import Any

import pytest

from agentgym.envs.loca.tasks.academic_warning import DATASET, LATEST, LOG, RESULT
from agentgym.office.gcloud.google_cloud import GoogleCloud
from tests.envs.loca.office import Change, call, each_cell, final_state_tests, fresh, in_csv

TASK = "AcademicWarning"
rewrite = functools.partial(in_csv, RESULT)


def log(text: Any, name: str = LOG, severity: str = "CRITICAL") -> Change:
    return call("logging_write_log", log_name=name, message=text, severity=severity)


def fresh_log(write: Callable[[Any, str, str], object]) -> Change:
    def apply(world: Any) -> None:
        cloud = world.office.get(GoogleCloud)
        held = len(world.truth["entries"])
        for entry in [row["id"] for row in cloud.store.find("log_entries")][held:]:
            cloud.store.delete("log_entries", id=entry)
        for student, name in world.truth["critical"].items():
            write(world, student, name)

    return apply


def entry(world: Any, text: Any, severity: str = "CRITICAL") -> None:
    log(text, severity=severity)(world)


def all_in_one(world: Any, student: str, name: str) -> None:
    entry(
        world, " ".join(f"{name} ({student})" for student, name in world.truth["critical"].items())
    )


NEAR_MISSES: dict[str, tuple[Change, str]] = {
    "rounded to whole percent": (
        rewrite(each_cell(2, lambda drop: str(round(float(drop))))),
        "drop_percent",
    ),
    "an entry too many": (log("All is well."), "wrong or a duplicate"),
    "an entry twice": (
        fresh_log(lambda w, s, n: [entry(w, f"{n} {s}"), entry(w, f"{n} {s}")]),
        "a duplicate",
    ),
    "another severity": (
        fresh_log(lambda w, s, n: entry(w, f"{n} ({s})", severity="ERROR")),
        "no CRITICAL entry",
    ),
    "an entry without the name": (
        fresh_log(lambda w, s, n: entry(w, f"Student {s}")),
        "no CRITICAL entry",
    ),
    "an entry with a part of the name": (
        fresh_log(lambda w, s, n: entry(w, f"{n[:-1]} ({s})")),
        "no CRITICAL entry",
    ),
    "all students in one entry": (fresh_log(all_in_one), "no CRITICAL entry"),
    "no entries": (fresh_log(lambda w, s, n: None), "no CRITICAL entry"),
    "the log was emptied": (call("logging_delete_log", log_name=LOG), "was removed"),
}
EQUIVALENTS: dict[str, Change] = {
    "with the sign of percent": rewrite(each_cell(2, lambda drop: f"{drop} %")),
    "more decimals": lambda world: rewrite(
        lambda rows: [
            rows[0],
            *([b["student_id"], b["name"], repr(b["drop_percent"])] for b in world.truth["bad"]),
        ]
    )(world),
    "entries as objects": fresh_log(
        lambda w, s, n: entry(w, {"student": {"id": s, "name": n}, "level": "CRITICAL"})
    ),
    "entries in other words": fresh_log(lambda w, s, n: entry(w, f"[{s}] {n}: warn the parents!")),
}


test_near_misses_fail, test_equivalents_pass = final_state_tests(
    TASK, NEAR_MISSES, EQUIVALENTS, seed=1
)


@pytest.mark.parametrize("seed", range(3))
def test_the_truth_in_plain_floating_point(seed: int) -> None:
    world = fresh(TASK, 32_000, seed)
    cloud = world.office.get(GoogleCloud)
    exams = [table for table in cloud.bigquery.tables(DATASET) if table.startswith("scores_")]
    past: dict[str, list[float]] = {}
    for table in exams:
        for row in cloud.bigquery.rows(DATASET, table):
            past.setdefault(row["student_id"], []).append(row["score"])
    quiz = {
        row["student_id"]: row
        for row in csv.DictReader(io.StringIO(world.office.context.files.read_text(LATEST)))
    }
    both = [student for student in quiz if student in past]
    assert len(past) == len(quiz) == len(both) + 4
    # Two equivalent formulas, whose rounding may differ.
    ways = [
        {s: (fmean(past[s]) - float(quiz[s]["score"])) / fmean(past[s]) for s in both},
        {s: 1 - float(quiz[s]["score"]) * len(past[s]) / sum(past[s]) for s in both},
    ]
    for drops in ways:
        assert {s for s, drop in drops.items() if drop > 0.25} == {
            row["student_id"] for row in world.truth["bad"]
        }
        assert {s for s, drop in drops.items() if drop > 0.45} == set(world.truth["critical"])
    for limit in (0.25, 0.45):
        assert any(abs(drop - limit) < 1e-9 for drop in ways[0].values()), (
            "somebody is at the limit exactly"
        )
    assert any(len(scores) < len(exams) for scores in past.values())
    names = [row["name"] for row in quiz.values()]
    assert len(set(names)) == len(names)
