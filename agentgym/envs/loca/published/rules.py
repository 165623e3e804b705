"""The success rules of LOCA-bench's own checkers, for the tasks whose states can be loaded.

They follow the published rules with their tolerances and gaps, except that storage objects do not
stand in for log entries. Each yields a sentence per failure.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentgym.envs.loca.service_checks import log_state
from agentgym.office.files.workspace import Workspace
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.text.tools import ToolError

Records = Sequence[Mapping[str, Any]]

# Percentage points.
_RATE = 0.05


def ab_testing_failures(
    files: Workspace, cloud: GoogleCloud, expected: Records, verdict: Mapping[str, Any]
) -> Iterator[str]:
    """Compare each conversion within 0.05 points; the agent's own overall row decides the rest.

    `verdict` has the bucket, the log, the payload and the overall label.
    """
    wanted = _rates(expected)
    try:
        rates = _rates(_records(files.read_text("record.csv")))
    except (ToolError, ValueError) as error:
        yield f"record.csv: {error}"
        return
    if rates.keys() != wanted.keys():
        yield f"record.csv has other scenarios: {sorted(rates.keys() ^ wanted.keys())[:5]}"
        return
    for name, pair in wanted.items():
        if any(abs(a - b) > _RATE for a, b in zip(rates[name], pair, strict=True)):
            yield f"record.csv: {name} is {rates[name]}, expected {pair}"
    bucket, log = verdict["bucket"] in cloud.storage.buckets(), verdict["log"]
    payloads = [json.loads(text) for name, _, text in log_state(cloud) if log in name]
    first, second = rates[verdict["overall"]]
    if second > first and (not bucket or payloads):
        yield "B wins: there must be the bucket and no log entry"
    if second <= first:
        logged = [_parse(each.get("textPayload", each.get("jsonPayload"))) for each in payloads]
        if bucket or verdict["payload"] not in logged:
            yield "A wins: there must be the log entry and no bucket"


def academic_warning_failures(
    files: Workspace, cloud: GoogleCloud, expected: Records, students: Mapping[str, str]
) -> Iterator[str]:
    """Compare the ids in bad_student.csv; each critical message names its student and nobody else."""
    drops = {row["student_id"]: row["drop_ratio"] for row in expected}
    try:
        rows = _records(files.read_text("bad_student.csv"))
        listed = {(row["student_id"] or "").strip() for row in rows} - {""}
    except (ToolError, KeyError, csv.Error) as error:
        yield f"bad_student.csv: {error}"
        return
    if listed != drops.keys():  # the answer has only drops above 25 percent
        yield "bad_student.csv lists other students"
    messages = list(_critical_messages(cloud))
    needed = [student for student, drop in drops.items() if drop > 0.45]
    if not messages:
        yield "there is no critical log entry"
    unused = list(messages)
    for student in needed:
        found = [text for text in unused if student in text and students[student] in text]
        if found:
            unused.remove(found[0])
        else:
            yield f"no critical entry names {students[student]} ({student})"
    for student in students.keys() - set(needed):
        if any(student in text or students[student] in text for text in messages):
            yield f"a critical entry contains {student} or {students[student]}"


def _records(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def _rates(rows: Records) -> dict[str, list[float]]:
    columns = ("scenario", "A_conversion %", "B_conversion %")
    rates = {}
    for row in rows:
        name, *cells = ((row.get(column) or "").strip() for column in columns)
        if name and all(cells):
            rates[name.removeprefix("ab_")] = [float(cell.replace("%", "")) for cell in cells]
    return rates


def _parse(content: Any) -> Any:
    """Return the value of JSON or of a Python literal; any other text stays text."""
    if not isinstance(content, str):
        return content
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(content)
    with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        return ast.literal_eval(content)
    return content


def _critical_messages(cloud: GoogleCloud) -> Iterator[str]:
    for name, severity, text in log_state(cloud):
        if "exam_log" not in name:
            continue
        entry = json.loads(text)
        payload, plain = entry.get("jsonPayload"), entry.get("textPayload")
        if payload and isinstance(payload, dict):
            if "CRITICAL" in (severity, str(payload.get("warning_level", "")).upper()):
                yield str(payload.get("message") or json.dumps(payload))
        elif plain and (severity == "CRITICAL" or "CRITICAL" in plain.upper()):
            yield plain
