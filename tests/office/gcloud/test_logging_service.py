"""Cloud Logging: writing, filters and routing, with hand-computed facts."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from agentgym.envs.loca.results import listed_items
from agentgym.office import START
from agentgym.office.gcloud.log_filter import read_filter
from agentgym.text.tools import ToolError
from tests.helpers import calls_of
from tests.office.direct import DirectCloud

LOGS = "projects/local-project/logs"
HEADING = r"^\[(\S+)\] [A-Z]+ - \S+:$"
LATER = [START + timedelta(hours=k) for k in range(6)]


@pytest.fixture
def cloud() -> DirectCloud:
    """Six past entries, one per hour, identified by the hour."""
    made = DirectCloud()
    past = [when - timedelta(days=1) for when in LATER]
    made.logging.log_all(
        "app", [(past[0], "DEBUG", "Start of S001"), (past[1], "ERROR", 'disk "full"')]
    )
    made.logging.log_all(
        "db/slow",
        [(past[2], "WARNING", {"query": "SELECT 1", "ms": 250, "tags": ["a", "B"], "ok": True})],
    )
    made.logging.log_all(
        "app", [(past[3], "CRITICAL", {"student": {"id": "S001", "name": "Ann"}, "drop": 0.5})]
    )
    made.logging.log_all(
        "audit",
        [
            (past[4], "DEFAULT", "error 42"),
            (past[5], "EMERGENCY", {"k8s.io/app": "x", "none": None, "ms": "30"}),
        ],
    )
    return made


def found(cloud: DirectCloud, log_filter: str) -> list[int]:
    text = cloud.logging_read_logs(log_filter)
    return sorted(int(moment[11:13]) - 9 for moment in re.findall(HEADING, text, re.MULTILINE))


def messages(cloud: DirectCloud, *arguments: Any, **others: Any) -> list[str]:
    text = cloud.logging_read_logs(*arguments, **others)
    count = re.match(r"Log entries \((\d+)\):\n\n", text)
    parts = re.split(rf"{HEADING}\n", text, flags=re.MULTILINE)[2::2]
    assert (int(count[1]) if count else 0) == len(parts)
    assert bool(parts) or text == "No log entries match."
    return [part.split("\n\n")[0].removeprefix("  ") for part in parts]


@pytest.mark.parametrize(
    ("log_filter", "numbers"),
    [
        ("", [0, 1, 2, 3, 4, 5]),
        ("  -- nothing\n", [0, 1, 2, 3, 4, 5]),
        ('LOG_ID("app")', [0, 1, 3]),
        ('log_id("db/slow")', [2]),
        (f'logName="{LOGS}/app"', [0, 1, 3]),
        (f'logName="{LOGS}/db%2Fslow"', [2]),
        ("logName=app", [0, 1, 3]),
        ('logName:"-PROJECT"', [0, 1, 2, 3, 4, 5]),
        ("logName:audit", [4, 5]),
        ("severity>=ERROR", [1, 3, 5]),
        ("severity>error", [3, 5]),
        ("severity=500", [1]),
        ("severity<=DEBUG", [0, 4]),
        ("severity!=DEFAULT", [0, 1, 2, 3, 5]),
        ("severity=(ERROR OR CRITICAL)", [1, 3]),
        ('timestamp>="2025-01-14T11:00:00Z" timestamp<"2025-01-14T15:00:00+01:00"', [2, 3, 4]),
        ('timestamp<"2025-01-15"', [0, 1, 2, 3, 4, 5]),
        ("textPayload:s001", [0]),
        ('textPayload="START OF s001"', [0]),
        ('textPayload="Start"', []),
        (r'textPayload:"\"full\""', [1]),
        ("textPayload:(disk full)", [1]),
        ("textPayload:(disk OR start)", [0, 1]),
        ("textPayload:*", [0, 1, 4]),
        ("jsonPayload:*", [2, 3, 5]),
        ("jsonPayload.ms>30", [2]),
        ('jsonPayload.ms="30"', [5]),
        ("jsonPayload.ms=250.0", [2]),
        ("jsonPayload.drop=0.5", [3]),
        ("jsonPayload.tags=b", [2]),
        ("jsonPayload.ok=true", [2]),
        ("jsonPayload.none=null", [5]),
        ("jsonPayload.student.name=ann", [3]),
        ('jsonPayload."student"."id":"00"', [3]),
        ('jsonPayload."k8s.io/app"=x', [5]),
        ("jsonPayload:ann", [3]),
        ("jsonPayload.student=ann", []),
        ("jsonPayload.gone!=1", []),
        ("NOT jsonPayload.gone=1", [0, 1, 2, 3, 4, 5]),
        ("jsonPayload.student.name!=ann", []),
        ("S001", [0, 3]),
        ('-"s001" -ERROR', [2, 5]),
        ("NOT NOT S001", [0, 3]),
        ('textPayload=~"^[a-z]+ [0-9]+$"', [4]),
        ('textPayload!~"^[a-z]+ [0-9]+$"', [0, 1]),
        ("textPayload=~s001", []),
        ('jsonPayload.student.id=~"S0+1"', [3]),
        ('resource.type="global"', [0, 1, 2, 3, 4, 5]),
        ("LOG_ID(app) OR LOG_ID(audit) AND severity=DEFAULT OR severity=DEBUG", [0, 4]),
        ("(LOG_ID(app) AND severity=DEBUG) OR LOG_ID(audit)", [0, 4, 5]),
        ("LOG_ID(app)\nseverity>=ERROR -- both\n", [1, 3]),
        ("error (42 OR 43)", [4]),
        ("-(LOG_ID(app) OR LOG_ID(audit))", [2]),
    ],
)
def test_filters(cloud: DirectCloud, log_filter: str, numbers: list[int]) -> None:
    assert found(cloud, log_filter) == numbers


@pytest.mark.parametrize(
    ("log_filter", "problem"),
    [
        ("foo=1", 'no field "foo"; its fields are logName'),
        ("severity>=LOUD", '"LOUD" is not a severity; use one of DEFAULT'),
        ("timestamp>yesterday", '"yesterday" is not a time'),
        ("timestamp>2025-01-15T09:00:00Z", "a value is missing before .* in double quotes"),
        ("a AND", "a value is missing at the end"),
        ("AND a", "a value is missing before"),
        ("severity=", "a value is missing at the end"),
        ("(a", "a parenthesis is not closed"),
        ("a)", r'unexpected "\)"'),
        ('"a', "cannot read"),
        ('SEARCH("a")', 'the function "SEARCH" is not supported'),
        ("LOG_ID(a, b)", "LOG_ID has one argument"),
        ('textPayload=~"("', "is not a valid RE2 expression"),
        ("(" * 50 + "a" + ")" * 50, "nested at most 20 deep"),
        ("a " * 101, "at most 100 comparisons"),
        ("a" * 20_001, "at most 20000 characters"),
        ("NOT " * 4000, "a value is missing"),
    ],
)
def test_invalid_filters(cloud: DirectCloud, log_filter: str, problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        cloud.logging_read_logs(log_filter)


def test_random_filters_match_python() -> None:
    rng = np.random.default_rng(4)
    letters = "abcd"
    entries = [
        {"textPayload": "".join(letters[k] for k in range(4) if mask >> k & 1)}
        for mask in range(16)
    ]

    def draw(depth: int) -> tuple[str, str]:
        act = rng.integers(4) if depth else 0
        if act == 0:
            letter = letters[rng.integers(4)]
            return f"textPayload:{letter}", f"('{letter}' in text)"
        if act == 1:
            mine, its = draw(depth - 1)
            return f"{('NOT ', '-')[rng.integers(2)]}({mine})", f"(not {its})"
        parts = [draw(depth - 1) for _ in range(3)]
        if act == 2:
            return " OR ".join(f"({mine})" for mine, _ in parts), "(" + " or ".join(
                its for _, its in parts
            ) + ")"
        groups = [draw(0) for _ in range(6)]
        mine = [" OR ".join(each[0] for each in groups[k : k + 2]) for k in (0, 2, 4)]
        its = ["(" + " or ".join(each[1] for each in groups[k : k + 2]) + ")" for k in (0, 2, 4)]
        return (" AND ", " ", "\n")[rng.integers(3)].join(mine), "(" + " and ".join(its) + ")"

    for _ in range(300):
        mine, its = draw(3)
        assert read_filter(mine)(entries) == [
            eval(its, {"text": entry["textPayload"]}) for entry in entries
        ], mine


def test_regular_expressions_take_linear_time(cloud: DirectCloud) -> None:
    cloud.logging.log("app", "a" * 50_000)
    assert found(cloud, 'textPayload=~"(a+a+)+b"') == [], (
        "one that goes back would not come to an end"
    )


def test_entries_are_written_and_read_back() -> None:
    cloud = DirectCloud()
    assert (
        cloud.logging_write_log("exam_log", "Ann (S001) fell", "critical")
        == "Wrote an entry to log exam_log with severity CRITICAL"
    )
    [made] = cloud.logging.log_entries("exam_log")
    assert made == {
        "logName": f"{LOGS}/exam_log", "insertId": made["insertId"], "timestamp": "2025-01-15T09:00:01Z",
        "receiveTimestamp": "2025-01-15T09:00:01Z", "severity": "CRITICAL", "textPayload": "Ann (S001) fell",
        "resource": {"type": "global", "labels": {"project_id": "local-project"}},
    }  # fmt: skip
    payload = {"status": "AB_Test_Concluded", "winner": "A", "action": "No_Change"}
    cloud.logging_write_log(f"{LOGS}/abtesting_logging", payload)
    [other] = cloud.logging.log_entries("abtesting_logging")
    assert (other["severity"], other["jsonPayload"]) == ("INFO", payload)
    assert cloud.logging.log_entries("x") == []
    assert cloud.logging_read_logs() == (
        "Log entries (2):\n\n[2025-01-15T09:00:02Z] INFO - abtesting_logging:\n"
        '  {"status": "AB_Test_Concluded", "winner": "A", "action": "No_Change"}\n\n'
        "[2025-01-15T09:00:01Z] CRITICAL - exam_log:\n  Ann (S001) fell"
    )
    logs = cloud.logging_list_logs()
    assert listed_items(logs) == ["abtesting_logging", "exam_log"]
    assert cloud.logging_delete_log("exam_log") == "Deleted log exam_log"
    assert listed_items(cloud.logging_list_logs()) == ["abtesting_logging"]
    nested: Any = 1
    for _ in range(60):
        nested = {"a": nested}
    for arguments in (
        ("", "x"),
        ("a b", "x"),
        ("x" * 513, "x"),
        ("projects/other/logs/x", "x"),
        ("a", "x", "LOUD"),
    ):
        with pytest.raises(ToolError, match="invalid argument"):
            cloud.logging_write_log(*arguments)
    for payload in ("é" * 131_073, nested):
        with pytest.raises(ToolError, match="limit exceeded: an entry has at most 262144 bytes"):
            cloud.logging_write_log("a", payload)
    with pytest.raises(ToolError, match="not found: the log"):
        cloud.logging_delete_log("exam_log")


def test_paging() -> None:
    cloud = DirectCloud()
    cloud.logging.log_all(
        "app",
        [
            (START - timedelta(seconds=k // 3), "INFO", f"{k} {'odd' * (k % 2)}")
            for k in range(1300)
        ],
    )
    for log_filter, count in (("", 1300), ("odd", 650)):
        seen: list[str] = []
        token, pages = "", 0
        while pages == 0 or token:
            seen += messages(cloud, log_filter, 130, page_token=token)
            page = cloud.logging_read_logs(log_filter, 130, page_token=token)
            more = re.search(r"\n\n\.\.\. \(page_token: (\S+)\)\Z", page)
            token, pages = more[1] if more else "", pages + 1
        assert (len(set(seen)), len(seen), pages) == (count, count, count // 130)
    for arguments in (("", 0), ("", 1001), ("", 5, "", "x")):
        with pytest.raises(ToolError, match="invalid argument"):
            cloud.logging_read_logs(*arguments)


def test_long_messages_are_cut_in_lists() -> None:
    cloud = DirectCloud()
    for text in ("a" * 200, "b" * 201, "one\ntwo"):
        cloud.logging_write_log("app", text)
    answer = cloud.logging_read_logs()
    assert f"\n  {'a' * 200}" in answer
    assert answer.endswith("a" * 200)
    assert f"\n  {'b' * 200}...\n" in answer
    assert "\n  one\n  two\n" in answer
    assert cloud.logging_read_logs("bbb").endswith(f":\n  {'b' * 201}")


def test_audit_logs_have_their_own_bucket() -> None:
    cloud = DirectCloud()
    cloud.logging_write_log("cloudaudit.googleapis.com/activity", "x")
    assert messages(cloud) == messages(cloud, log_bucket="_Required") == ["x"]
    assert messages(cloud, log_bucket="_Default") == []
    with pytest.raises(ToolError, match=r"not found: the log .* has no entries in _Default"):
        cloud.logging_delete_log("cloudaudit.googleapis.com/activity")
    for name in ("global/_Required", "projects/local-project/locations/global/buckets/_Required"):
        assert messages(cloud, log_bucket=name) == ["x"]
    with pytest.raises(ToolError, match="not found: there is no log bucket"):
        cloud.logging_read_logs(log_bucket="mine")
    cloud.logging.log("app", "old", when=START - timedelta(days=31))
    cloud.logging.log("cloudaudit.googleapis.com/activity", "old", when=START - timedelta(days=31))
    assert messages(cloud) == ["x", "old"], "the buckets differ in retention"


def test_filling_scales_linearly() -> None:
    def fill(cloud: DirectCloud, count: int) -> None:
        cloud.logging.log_all("app", [(START, "INFO", {"n": k}) for k in range(count)])
        cloud.storage.add_bucket("box")
        for k in range(count):
            cloud.storage.put_object("box", f"{k}.txt", f"{k}")
        assert (len(cloud.logging.log_entries("app")), len(cloud.storage.objects("box"))) == (
            count,
            count,
        )

    small, large = DirectCloud(), DirectCloud()
    calls = [
        calls_of(fill, small, 300, database=small.store),
        calls_of(fill, large, 1200, database=large.store),
    ]
    assert calls[1] < 4 * 1.25 * calls[0], calls
