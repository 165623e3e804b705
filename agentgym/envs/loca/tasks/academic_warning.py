"""Find students whose latest score is far below their earlier mean (LOCA-bench, table 7)."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from agentgym.envs.loca.checks import CsvTable, exact, file_state, number, write_csv
from agentgym.envs.loca.draws import people, text_of
from agentgym.envs.loca.fragments import as_records, settle_file
from agentgym.envs.loca.plan import Plan, PlanStep, read, write
from agentgym.envs.loca.published.files import as_finite, as_name, read_table, read_tables
from agentgym.envs.loca.published.rules import academic_warning_failures
from agentgym.envs.loca.published.states import PublishedConfig, load_workspace
from agentgym.envs.loca.records import Fields
from agentgym.envs.loca.results import query_rows
from agentgym.envs.loca.service_checks import bigquery_failures, bigquery_state, log_state
from agentgym.envs.loca.task import OfficeTask
from agentgym.text.messages import ToolCall

DATASET = "academic_warning"
LATEST = "latest_quiz_scores.csv"
RESULT = "bad_student.csv"
LOG = "exam_log"
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
        exams = self.config.exams or min(15, 1 + -(-size // 42))
        names = people(self.rng, size + 8)
        ids = [f"S{int(k):04}" for k in 1 + self.rng.permutation(size + 8)]
        class_count = max(3, min(26, size // 50))
        classes = [f"Class {chr(65 + self.whole(class_count))}" for _ in ids]
        students = list(zip(ids, names, classes, strict=True))
        # Four students left before the quiz; four joined after the exams.
        stayed = students[:size]
        left = students[size : size + 4]
        new = students[size + 4 :]
        scores = {}
        for student, outcome in zip(stayed, self._outcomes(size), strict=True):
            scores[student[0]] = self._scores(outcome, exams)
        for k in range(exams):
            rows = []
            for student in stayed:
                score = scores[student[0]][0][k]
                if score is not None:  # a missed exam has no row
                    rows.append((*student, score / 10))
            rows += self._random_rows(left, 40, 100)
            self.rng.shuffle(rows)
            table = f"scores_{2401 + 100 * (k // 12) + k % 12}"
            self.cloud.bigquery.load(DATASET, table, TYPES, rows)
        teachers = list(zip(sorted(set(classes)), names, strict=False))
        types = {"class_id": "STRING", "teacher": "STRING"}
        self.cloud.bigquery.load(DATASET, "class_teachers", types, teachers)
        latest = [(*student, scores[student[0]][1] / 10) for student in stayed]
        latest += self._random_rows(new, 20, 60)
        self.rng.shuffle(latest)
        self.files.write(LATEST, write_csv(tuple(TYPES), as_records(TYPES, latest)))
        for k, student in enumerate(left):
            text = f"Student {student[1]} ({student[0]}) fell by more than 45 % last term."
            self.cloud.logging.log(
                LOG, text, "CRITICAL", self.start - timedelta(days=20, minutes=7 * k)
            )
        drops = {student[:2]: _drop(*scores[student[0]]) for student in stayed}
        self._set_truth(drops)

    def _random_rows(
        self, students: Sequence[tuple[str, str, str]], low: int, high: int
    ) -> list[tuple[str, str, str, float]]:
        return [(*s, round(float(self.rng.uniform(low, high)), 1)) for s in students]

    def _load(self, state: Path) -> None:
        load_workspace(state, self.files, [LATEST], RESULT)
        past: dict[str, list[int]] = {}
        students = {}
        for table, rows in read_tables(state, DATASET, TYPES).items():
            self.cloud.bigquery.load(DATASET, table, TYPES, rows)
            for student, name, _, score in rows:
                past.setdefault(student, []).append(round(10 * score))
                students[student] = name
        quiz = {"student_id": as_name, "name": as_name, "score": as_finite}
        drops: dict[tuple[str, str], Fraction] = {}
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
        self._set_truth(drops, published=expected, students=students)

    def _set_truth(self, drops: Mapping[tuple[str, str], Fraction], **more: Any) -> None:
        bad, critical = [], {}
        for (student, name), drop in drops.items():
            if drop > WARNING:
                bad.append((student, name, float(100 * drop)))
            if drop > CRITICAL:
                critical[student] = name
        self.truth = {
            "bad": as_records(COLUMNS, bad),
            "critical": critical,
            "entries": log_state(self.cloud),
            "tables": bigquery_state(self.cloud, DATASET),
            "files": file_state(self.files),
            **more,
        }

    def _outcomes(self, size: int) -> list[str]:
        critical = _DROP_RATE * _CRITICAL_RATE
        limit = _LIMIT_RATE / 2
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
        past: list[int | None] = []
        for score in abilities:
            past.append(None if self.happens(_ABSENCE_RATE) else round(10 * float(score)))
        if not any(past):
            past[0] = round(10 * ability)
        low, high = {"fine": (-0.15, 0.25), "warning": (0.25, 0.45), "critical": (0.45, 0.7)}[kind]
        taken = [score for score in past if score is not None]
        mean = float(Fraction(sum(taken), len(taken)))
        while True:
            latest = min(1000, round(mean * (1 - float(self.rng.uniform(low, high)))))
            drop = _drop(past, latest)
            is_fine = kind == "fine" and drop < 0.25 - MARGIN
            if is_fine or low + MARGIN < drop < high - MARGIN:
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
        parts = [f"SELECT student_id, score FROM {DATASET}.{table}" for table in tables]
        union = " UNION ALL ".join(parts)
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
        bad, entries = [], []
        for student, (name, latest) in sorted(quiz.items()):
            if student not in past:
                continue
            total, exams = past[student]
            drop = 1 - Fraction(latest) / Fraction(total, 10 * exams)
            if drop > WARNING:
                bad.append((student, name, f"{float(100 * drop):.1f}"))
            if drop > CRITICAL:
                entries.append(_log_step(student, name))
        table = yield from settle_file(TABLE, as_records(COLUMNS, bad))
        yield [*table, *entries]

    def describe(self) -> Iterable[ToolCall]:
        yield ToolCall("read_text_file", {"path": LATEST})
        yield ToolCall("bigquery_run_query", {"query": TABLES})
        for table in self.cloud.bigquery.tables(DATASET):
            query = f"SELECT * FROM {DATASET}.{table}"
            yield ToolCall("bigquery_run_query", {"query": query, "max_results": 10_000})

    def task_failures(self) -> Iterator[str]:
        yield from TABLE.failures(self.files, self.truth["bad"])
        yield from self._entry_failures()
        yield from bigquery_failures(self.cloud, self.truth["tables"])

    def published_failures(self) -> Iterator[str]:
        truth = self.truth
        return academic_warning_failures(
            self.files, self.cloud, truth["published"], truth["students"]
        )

    def _entry_failures(self) -> Iterator[str]:
        entries = log_state(self.cloud)
        before = self.truth["entries"]
        if entries[: len(before)] != before:
            yield "an earlier log entry was removed"
            return
        missing = dict(self.truth["critical"])
        for name, severity, text in entries[len(before) :]:
            student = next((s for s in missing if _is_entry(name, text, missing[s], s)), None)
            if student is not None and severity == "CRITICAL":
                del missing[student]
            else:
                yield f"the entry {text[:100]!r} with severity {severity} in {name} is wrong or a duplicate"
        for student, name in missing.items():
            yield f"there is no CRITICAL entry in {LOG} for {name} ({student})"


def _log_step(student: str, name: str) -> PlanStep:
    return write(
        f"Log {name} ({student}).",
        LOG,
        "logging_write_log",
        same=("severity",),
        accepts=partial(_reports, name=name, student=student),
        log_name=LOG,
        severity="CRITICAL",
        message=f"{name} ({student}) fell by more than 45 %.",
    )


def _reports(arguments: Fields, name: str, student: str) -> bool:
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
