"""Cloud Logging: filters, limits and paging. Other tests are in `recorded/google_cloud.txt`."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym.office import START
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.office.gcloud.log_filter import read_filter
from agentgym.text.tools import ToolError
from tests.helpers import calls_of
from tests.office.test_laws import call, refused, run

# One line per filter, with the numbers of the matching entries, or the error. `¶` is a line break.
FILTERS = (Path(__file__).parent / "log_filters.tsv").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def cloud() -> GoogleCloud:
    """Return a server with six past entries, one per hour, identified by the hour."""
    made = GoogleCloud()
    entries: list[tuple[str, str, Any]] = [
        ("app", "DEBUG", "Start of S001"),
        ("app", "ERROR", 'disk "full"'),
        ("db/slow", "WARNING", {"query": "SELECT 1", "ms": 250, "tags": ["a", "B"], "ok": True}),
        ("app", "CRITICAL", {"student": {"id": "S001", "name": "Ann"}, "drop": 0.5}),
        ("audit", "DEFAULT", "error 42"),
        ("audit", "EMERGENCY", {"k8s.io/app": "x", "none": None, "ms": "30"}),
    ]
    for hour, (log, severity, payload) in enumerate(entries):
        when = START - timedelta(days=1) + timedelta(hours=hour)
        made.logging.log(log, payload, severity, when)
    return made


def found(cloud: GoogleCloud, log_filter: str) -> list[int]:
    text = call(cloud, "logging_read_logs", log_filter=log_filter)
    return sorted(
        int(hour) - 9 for hour in re.findall(r"^\[\S+T(\d\d)\S+\] [A-Z]", text, re.MULTILINE)
    )


@pytest.mark.parametrize("line", FILTERS)
def test_filters(cloud: GoogleCloud, line: str) -> None:
    log_filter, recorded = line.replace("¶", "\n").split("\t")
    if recorded.startswith("["):
        assert found(cloud, log_filter) == json.loads(recorded)
    else:
        assert recorded in run(cloud, "logging_read_logs", {"log_filter": log_filter})


@pytest.mark.parametrize(
    ("log_filter", "problem"),
    [
        ("(" * 50 + "a" + ")" * 50, "nested at most 20 deep"),
        ("a " * 101, "at most 100 comparisons"),
        ("a" * 20_001, "at most 20000 characters"),
        ("NOT " * 4000, "a value is missing"),
    ],
)
def test_filters_have_limits(cloud: GoogleCloud, log_filter: str, problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        call(cloud, "logging_read_logs", log_filter=log_filter)


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
            return f"NOT ({mine})", f"(not {its})"
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
        test = read_filter(mine)
        for entry in entries:
            assert test(entry) == eval(its, {"text": entry["textPayload"]}), mine


def test_a_long_listing_tells_what_it_leaves_out() -> None:
    cloud = GoogleCloud()
    times = [START - timedelta(seconds=k // 3) for k in range(30)]
    for k, when in enumerate(times):
        cloud.logging.log("app", f"{k} x", "INFO", when)
    page = call(cloud, "logging_read_logs", max_entries=4)
    assert re.findall(r"^  (\d+) ", page, re.MULTILINE) == ["2", "1", "0", "5"]
    assert page.endswith("\n\n... (26 more)")
    for wrong in ({"max_entries": 0}, {"max_entries": 1001}):
        refused(cloud, "logging_read_logs", "invalid argument", **wrong)
    refused(cloud, "logging_read_logs", "not supported: page_token", page_token="x")


def test_entries_have_a_limit() -> None:
    text = "limit exceeded: an entry may have at most 262144 bytes"
    cloud = GoogleCloud()
    refused(cloud, "logging_write_log", text, log_name="a", message="é" * 131_073)
    nested: Any = "deep"
    for _ in range(60):  # the arguments of a call can nest at most 64 levels deep
        nested = {"a": nested}
    call(cloud, "logging_write_log", log_name="a", message=nested)
    assert "(1)" in call(cloud, "logging_read_logs", log_filter="deep")


def test_filling_scales_linearly() -> None:
    def fill(cloud: GoogleCloud, count: int) -> None:
        cloud.storage.add_bucket("box")
        for k in range(count):
            cloud.logging.log("app", {"n": k})
            cloud.storage.put_object("box", f"{k}.txt", f"{k}")
        assert (len(cloud.logging.log_entries("app")), len(cloud.storage.objects("box"))) == (
            count,
            count,
        )

    small, large = GoogleCloud(), GoogleCloud()
    calls = [
        calls_of(fill, small, 300, database=small.store),
        calls_of(fill, large, 1200, database=large.store),
    ]
    assert calls[1] < 4 * 1.25 * calls[0], calls
