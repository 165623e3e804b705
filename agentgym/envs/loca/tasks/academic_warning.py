"""Find students whose latest score is far below their earlier mean (LOCA-bench, table 7)."""

from __future__ import annotations

import csv
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from agentgym.envs.loca.checks import CsvTable, exact, file_state, number, write_csv
from agentgym.envs.loca.draws import people, text_of
from agentgym.envs.loca.fragments import settle_file
from agentgym.envs.loca.plan import Plan, read, write
from agentgym.envs.loca.published.files import as_finite, as_name, read_table, read_tables
from agentgym.envs.loca.published.rules import academic_warning_failures
from agentgym.envs.loca.published.states import PublishedConfig, load_workspace
from agentgym.envs.loca.results import query_rows
from agentgym.envs.loca.service_checks import bigquery_failures, bigquery_state, log_state
from agentgym.envs.loca.task import OfficeTask
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.text.messages import ToolCall

DATASET, LATEST, RESULT, LOG = (
    "academic_warning",
    "latest_quiz_scores.csv",
    "bad_student.csv",
    "exam_log",
)
COLUMNS = ("student_id", "name", "drop_percent")
TYPES = {"student_id": "STRING", "name": "STRING", "class_id": "STRING", "score": "FLOAT64"}
TABLES = f"SELECT table_name FROM {DATASET}.INFORMATION_SCHEMA.TABLES ORDER BY table_name"
TABLE = CsvTable(
    RESULT,
    COLUMNS,
    # The agent may round the drop to one decimal.
    {"name": exact, "drop_percent": number(0.0501, "%")},
    key=("student_id",),
)
WARNING, CRITICAL = Fraction(25, 100), Fraction(45, 100)  # limits stated in the task prompt
# Minimum distance of random drops from both limits, so that rounding never changes a decision.
MARGIN = 0.004
# Shares of large drops, of critical drops among the large drops, and of drops exactly at a limit.
_DROP_RATE, _CRITICAL_RATE, _LIMIT_RATE = 0.2, 0.3, 0.04
_ABSENCE_RATE = 0.05  # share of missed exams

_EXAM = re.compile(r"scores_\d{4}")


@dataclass(frozen=True, kw_only=True)
class AcademicWarningConfig(PublishedConfig):
    """The size is the number of students.

    Attributes:
        exams: The number of earlier exams. Default: 1 plus one per 42 students (rounded up), at most 15.
    """

    exams: Annotated[int, Field(ge=1, le=60)] | None = None


class AcademicWarning(OfficeTask[AcademicWarningConfig]):
    """Compare quiz scores with earlier exams in BigQuery, list large drops, and log critical drops."""

    Config = AcademicWarningConfig
    servers = ("filesystem", "python_execute", "google_cloud", "claim_done")
    outputs = (RESULT, LOG)
    mutable_tables = ("google_cloud.log_entries",)
    tokens_per_unit = 529.0
    text = text_of("prompts", "AcademicWarning")

    def draw(self, size: int) -> None:
        # With one exam per 42 students, all preset lengths can be reached, although an additional
        # exam lengthens the description by up to a quarter.
        exams = min(15, 1 + -(-size // 42)) if self.config.exams is None else self.config.exams
        names = people(self.rng, size + 8)
        ids = [f"S{int(k):04}" for k in 1 + self.rng.permutation(size + 8)]
        classes = [f"Class {chr(65 + self.whole(max(3, min(26, size // 50))))}" for _ in ids]
        students = list(zip(ids, names, classes, strict=True))
        # Four students left before the quiz; four joined after the exams.
        stayed, left, new = students[:size], students[size : size + 4], students[size + 4 :]
        cloud = self.office.get(GoogleCloud)
        scores = {
            student[0]: self._scores(outcome, exams)
            for student, outcome in zip(stayed, self._outcomes(size), strict=True)
        }
        for k in range(exams):
            rows = [(*s, score / 10) for s in stayed if (score := scores[s[0]][0][k]) is not None]
            rows += [(*s, round(float(self.rng.uniform(40, 100)), 1)) for s in left]
            self.rng.shuffle(rows)
            table = f"scores_{2401 + 100 * (k // 12) + k % 12}"
            cloud.bigquery.load(DATASET, table, TYPES, rows)
        cloud.bigquery.load(
            DATASET,
            "class_teachers",
            {"class_id": "STRING", "teacher": "STRING"},
            [(c, names[k]) for k, c in enumerate(sorted(set(classes)))],
        )
        latest = [(*s, scores[s[0]][1] / 10) for s in stayed] + [
            (*s, round(float(self.rng.uniform(20, 60)), 1)) for s in new
        ]
        self.rng.shuffle(latest)
        self.files.write(
            LATEST, write_csv(tuple(TYPES), [dict(zip(TYPES, row, strict=True)) for row in latest])
        )
        for k, student in enumerate(left):
            text = f"Student {student[1]} ({student[0]}) fell by more than 45 % last term."
            cloud.logging.log(LOG, text, "CRITICAL", self.start - timedelta(days=20, minutes=7 * k))
        self._set_truth(cloud, {s[:2]: _drop(*scores[s[0]]) for s in stayed})

    def _load(self, state: Path) -> None:
        cloud = self.office.get(GoogleCloud)
        load_workspace(state, self.files, [LATEST], RESULT)
        past: dict[str, list[int]] = {}
        students = {}
        for table, rows in read_tables(state, DATASET, TYPES).items():
            cloud.bigquery.load(DATASET, table, TYPES, rows)
            for student, name, _, score in rows:
                past.setdefault(student, []).append(round(10 * score))
                students[student] = name
        quiz = {"student_id": as_name, "name": as_name, "score": as_finite}
        drops: dict[tuple[str, ...], Fraction] = {}
        path = state / "agent_workspace" / LATEST
        for place, row in enumerate(read_table(path, quiz, ["student_id"]), 2):
            student = row["student_id"]
            if not sum(past.get(student, ())):
                raise ValueError(
                    f"{path}: row {place}: student_id must have exam points, got {student!r}"
                )
            drops[student, row["name"]] = _drop(past[student], round(10 * row["score"]))
        answer = state / "groundtruth_workspace" / "expected_alerts.csv"
        expected = read_table(answer, {"student_id": as_name, "drop_ratio": as_finite})
        self._set_truth(cloud, drops, published=expected, students=students)

    def _set_truth(
        self, cloud: GoogleCloud, drops: Mapping[tuple[str, ...], Fraction], **more: Any
    ) -> None:
        bad = {student: drop for student, drop in drops.items() if drop > WARNING}
        self.truth = {
            "bad": [
                {"student_id": s[0], "name": s[1], "drop_percent": float(100 * drop)}
                for s, drop in bad.items()
            ],
            "critical": {s[0]: s[1] for s, drop in bad.items() if drop > CRITICAL},
            "entries": log_state(cloud),
            "tables": bigquery_state(cloud, DATASET),
            "files": file_state(self.files),
            **more,
        }

    def _outcomes(self, size: int) -> list[str]:
        critical, limit = _DROP_RATE * _CRITICAL_RATE, _LIMIT_RATE / 2
        shares = np.array([_DROP_RATE * (1 - _CRITICAL_RATE), critical, limit, limit])
        shares = np.append(shares, 1 - shares.sum())
        names = ["warning", "critical", "25", "45", "fine"]
        kinds: list[str] = self.rng.choice(names, size, p=shares / shares.sum()).tolist()
        sure = ("critical", "25", "45", "warning")
        for place, kind in zip(self.rng.permutation(size).tolist(), sure, strict=False):
            kinds[place] = kind
        return kinds

    def _scores(self, kind: str, exams: int) -> tuple[list[int | None], int]:
        if kind in ("25", "45"):
            # With a mean of 80, the limits are the integers 60 and 44, so rounding cannot matter.
            return [800] * exams, 600 if kind == "25" else 440
        ability = float(np.clip(self.rng.normal(75, 12), 45, 98))
        abilities = np.clip(self.rng.normal(ability, 6, exams), 20, 100)
        past: list[int | None] = [
            None if self.happens(_ABSENCE_RATE) else round(10 * float(score)) for score in abilities
        ]
        if not any(past):
            past[0] = round(10 * ability)
        low, high = {"fine": (-0.15, 0.25), "warning": (0.25, 0.45), "critical": (0.45, 0.7)}[kind]
        while True:
            mean = Fraction(
                sum(score for score in past if score is not None),
                sum(score is not None for score in past),
            )
            latest = min(1000, round(float(mean) * (1 - float(self.rng.uniform(low, high)))))
            if low + MARGIN < _drop(past, latest) < high - MARGIN or (
                kind == "fine" and _drop(past, latest) < 0.25 - MARGIN
            ):
                return past, latest

    def plan(self) -> Plan:
        quiz = yield read(
            "Read the latest quiz.",
            lambda text: {
                row["student_id"]: (row["name"], row["score"])
                for row in csv.DictReader(text.splitlines())
            },
            "read_text_file",
            path=LATEST,
        )
        tables = yield read(
            "List the tables.",
            lambda text: sorted(set(_EXAM.findall(text))),
            "bigquery_run_query",
            query=TABLES,
        )
        union = " UNION ALL ".join(
            f"SELECT student_id, score FROM {DATASET}.{table}" for table in tables
        )
        sums = "SUM(CAST(ROUND(score * 10) AS INT64)) AS total, COUNT(*) AS exams"
        past = yield read(
            "Sum the exams of each student.",
            lambda text: {
                row["student_id"]: (row["total"], row["exams"]) for row in query_rows(text)
            },
            "bigquery_run_query",
            query=f"SELECT student_id, {sums} FROM ({union}) GROUP BY student_id",
            max_results=10_000,
        )
        drops = {
            student: 1 - Fraction(latest) / Fraction(past[student][0], 10 * past[student][1])
            for student, (_, latest) in quiz.items()
            if student in past
        }
        bad = {student: drop for student, drop in sorted(drops.items()) if drop > WARNING}
        rows = [
            {"student_id": s, "name": quiz[s][0], "drop_percent": f"{float(100 * drop):.1f}"}
            for s, drop in bad.items()
        ]
        table = yield from settle_file(TABLE, rows)
        yield [
            *table,
            *(write(f"Log {quiz[s][0]} ({s}).", LOG, "logging_write_log", same=("severity",),
                    accepts=functools.partial(_reports, name=quiz[s][0], student=s), log_name=LOG,
                    severity="CRITICAL", message=f"{quiz[s][0]} ({s}) fell by more than 45 %.")
              for s, drop in bad.items() if drop > CRITICAL),
        ]  # fmt: skip

    def describe(self) -> Iterable[ToolCall]:
        yield ToolCall("read_text_file", {"path": LATEST})
        yield ToolCall("bigquery_run_query", {"query": TABLES})
        for table in self.office.get(GoogleCloud).bigquery.tables(DATASET):
            yield ToolCall(
                "bigquery_run_query",
                {"query": f"SELECT * FROM {DATASET}.{table}", "max_results": 10_000},
            )

    def task_failures(self) -> Iterator[str]:
        cloud = self.office.get(GoogleCloud)
        yield from TABLE.failures(self.files, self.truth["bad"])
        yield from self._entry_failures(cloud)
        yield from bigquery_failures(cloud, self.truth["tables"])

    def published_failures(self) -> Iterator[str]:
        cloud, truth = self.office.get(GoogleCloud), self.truth
        return academic_warning_failures(self.files, cloud, truth["published"], truth["students"])

    def _entry_failures(self, cloud: GoogleCloud) -> Iterator[str]:
        entries = log_state(cloud)
        if entries[: len(self.truth["entries"])] != self.truth["entries"]:
            yield "an earlier log entry was removed"
            return
        missing = dict(self.truth["critical"])
        for name, severity, text in entries[len(self.truth["entries"]) :]:
            student = next((s for s in missing if _is_entry(name, text, missing[s], s)), None)
            if student is not None and severity == "CRITICAL":
                del missing[student]
            else:
                yield f"the entry {text[:100]!r} with severity {severity} in {name} is wrong or a duplicate"
        for student, name in missing.items():
            yield f"there is no CRITICAL entry in {LOG} for {name} ({student})"


def _reports(arguments: Mapping[str, Any], name: str, student: str) -> bool:
    text = json.dumps(arguments["message"], ensure_ascii=False)
    return _is_entry(arguments["log_name"].rsplit("/", 1)[-1], text, name, student)


def _is_entry(log: str, text: str, name: str, student: str) -> bool:
    # LOCA-bench's ids have three digits; agentgym's ids have at least four.
    ids = set(re.findall(rf"(?<!\w)S\d{{{len(student) - 1},}}(?!\w)", text))
    has_name = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)
    return log == LOG and ids == {student} and has_name is not None


def _drop(past: Sequence[int | None], latest: int) -> Fraction:
    scores = [score for score in past if score is not None]
    return 1 - Fraction(latest * len(scores), sum(scores))
