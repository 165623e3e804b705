"""LOCA-bench's own configurations and state folders: loaded, played, scored by both rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym.envs.loca.published import read_configurations
from tests.envs.loca.office import TASKS, call, carry_out, in_csv, no_file
from tests.envs.loca.published_states import (
    write_ab_testing,
    write_academic_warning,
    write_configurations,
)

COUNTS = {
    "Toys": [[100, 70, 90, 66], [50, 40, 10, 9]],
    "Toys_2": [[7, 3, 0, 0]],
    "Tea": [[9, 6, 8, 6]],
}
# A wins by its totals, and loses by the mean of its rates.
LOST = {"Toys": [[900, 700, 100, 70]], "Tea": [[10, 1, 900, 650]]}
STUDENTS = {
    "S001": ("Ada Moore", [80.0, 70.0], 56.0),  # 25.3 %
    "S002": ("Bo Reyes", [90.0, 81.2], 40.0),  # 53 %
    "S003": ("Cy Hall", [60.5, 62.5], 61.0),
    "S004": ("Di Ward", [80.0, 80.0], 60.0),  # exactly 25 %
}


def open_state(task: str, data: Path, seed: int = 0) -> Any:
    env = agentgym.tool_env(agentgym.make(task, data=str(data)))
    env.reset(seed=seed)
    return env.world


@pytest.fixture
def states(tmp_path: Path) -> Mapping[str, Path]:
    write_ab_testing(tmp_path / "ab" / "state0", COUNTS)
    write_ab_testing(tmp_path / "ab" / "state1", LOST)
    write_academic_warning(tmp_path / "academic", STUDENTS)
    return {"ABTesting": tmp_path / "ab", "AcademicWarning": tmp_path / "academic"}


@pytest.mark.parametrize(
    ("task", "seed"), [("ABTesting", 0), ("ABTesting", 3), ("AcademicWarning", 0)]
)
def test_the_plan_solves_a_published_state_by_both_rules(
    states: Mapping[str, Path], task: str, seed: int
) -> None:
    world = open_state(task, states[task], seed)
    before = world.report()
    assert (before["published_score"], before["claimed"]) == (0.0, False)
    report = carry_out(world).report()
    assert report["faults"] == report["published_faults"] == []
    assert world.score() == report["published_score"] == 1.0


def test_a_folder_of_states_is_drawn_from(states: Mapping[str, Path]) -> None:
    folder = states["ABTesting"]
    winners = {open_state("ABTesting", folder, seed).truth["winner"] for seed in range(4)}
    assert winners == {"A", "B"}
    rows = open_state("ABTesting", folder / "state0").truth["rows"]
    assert {row["scenario"]: round(row["B_conversion %"], 3) for row in rows} == {
        "Toys": 75.0, "Toys_2": 0.0, "Tea": 75.0, "overall (total_store_views/total_clicks)": 75.0,
    }  # fmt: skip


def log(severity: str, message: Any) -> Callable[[Any], Any]:
    return call("logging_write_log", log_name="exam_log", severity=severity, message=message)


def edit(
    change: Callable[[list[str]], list[str]], path: str = "record.csv"
) -> Callable[[Any], Any]:
    """Change the rows of a CSV file below the header."""
    return in_csv(path, lambda rows: [rows[0], *map(change, rows[1:])])


def rate(text: str) -> Callable[[Any], Any]:
    """Change a conversion of the scenario Toys, which is 73.333 percent."""
    return edit(lambda row: [row[0], text, row[2]] if row[0] == "Toys" else row)


# Each change to a solved state, with the verdicts of our check and of the published rule.
CHANGES: Mapping[str, tuple[str, Callable[[Any], Any], float, float]] = {
    "a rate is 0.04 points off": ("ABTesting", rate("73.37"), 0.0, 1.0),
    "a rate is 0.06 points off": ("ABTesting", rate("73.40%"), 0.0, 0.0),
    "a rate is a share": ("ABTesting", rate("0.7333"), 0.0, 0.0),
    "no rate": ("ABTesting", rate("high"), 0.0, 0.0),
    "names with ab_": ("ABTesting", edit(lambda row: [f"ab_{row[0]}", *row[1:]]), 0.0, 1.0),
    "another bucket": (
        "ABTesting",
        call("storage_create_bucket", bucket_name="promo-assets"),
        0.0,
        1.0,
    ),
    "a log entry although B wins": (
        "ABTesting",
        call("logging_write_log", log_name="abtesting_logging", message="done"),
        0.0,
        0.0,
    ),
    "no record": ("ABTesting", no_file("record.csv"), 0.0, 0.0),
    "wrong drops": (
        "AcademicWarning",
        edit(lambda row: [*row[:2], row[2] and "1"], "bad_student.csv"),
        0.0,
        1.0,
    ),
    "another student": (
        "AcademicWarning",
        edit(lambda row: [row[0].replace("S001", "S004"), *row[1:]], "bad_student.csv"),
        0.0,
        0.0,
    ),
    "a remark in the log": ("AcademicWarning", log("INFO", "S003 does well"), 0.0, 1.0),
    "a second entry": ("AcademicWarning", log("CRITICAL", "S002 Bo Reyes again"), 0.0, 1.0),
    "an entry on another student": ("AcademicWarning", log("CRITICAL", {"id": "S001"}), 0.0, 0.0),
    "a level in the payload": (
        "AcademicWarning",
        log("INFO", {"warning_level": "critical", "message": "Cy Hall"}),
        0.0,
        0.0,
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_both_rules_judge_a_changed_state(states: Mapping[str, Path], name: str) -> None:
    task, change, ours, published = CHANGES[name]
    world = carry_out(open_state(task, states[task] / ("state0" if task == "ABTesting" else "")))
    change(world)
    assert (world.score(), world.report()["published_score"]) == (ours, published), name


QUIZ = "agent_workspace/latest_quiz_scores.csv"
DATABASE, ANSWER = (
    "local_db/google_cloud/bigquery_data.db",
    "groundtruth_workspace/expected_alerts.csv",
)
SPOILT = {
    "no database": (DATABASE, None, "bigquery_data.db must have tables"),
    "another file": (DATABASE, b"\0binary" * 99, "bigquery_data.db must be an SQLite database: file is not a database"),
    "an empty database": (DATABASE, b"", "must have tables local-project_academic_warning_"),
    "no answer": (ANSWER, None, "expected_alerts.csv must be a CSV file"),
    "a binary answer": (ANSWER, b"\xff\xfe\0", "expected_alerts.csv must be a CSV file: 'utf-8'"),
    "an empty answer": (ANSWER, "", r"line 1 must have the columns \['student_id', 'drop_ratio'\], got \[\]"),
    "a short line": (ANSWER, "student_id,drop_ratio\nS001\n", "line 2: float.. argument must be"),
    "no number": (ANSWER, "student_id,drop_ratio\r\nS001,much\r\n", "line 2: could not convert string to float: 'much'"),
    "no quiz": (QUIZ, None, "agent_workspace must be a folder with the files"),
    "a stranger": (QUIZ, "student_id,name,score\nS9,X,5\n", "scores.csv names S9, who is in no exam"),
    "an agent's entries": ("local_db/google_cloud/log_entries.json", '{"a": {}}', "must be empty: an agent"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILT)
def test_a_malformed_state_is_refused(states: Mapping[str, Path], name: str) -> None:
    path, text, words = SPOILT[name]
    file = states["AcademicWarning"] / path
    if text is None:
        file.unlink()
    else:
        file.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ValueError, match=words):
        open_state("AcademicWarning", states["AcademicWarning"])


def test_a_table_of_another_form_is_refused(tmp_path: Path, states: Mapping[str, Path]) -> None:
    with pytest.raises(ValueError, match=r"must have tables local-project_ab_testing_"):
        open_state("ABTesting", states["AcademicWarning"])
    write_ab_testing(tmp_path / "text", {"Toys": [[9, 8.5, 1, 1]]})  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"ab_Toys: row 1: A_store_views must be INT64, got 8\.5"):
        open_state("ABTesting", tmp_path / "text")
    with pytest.raises(ValueError, match="data must be a state folder"):
        agentgym.make("ABTesting", data=str(tmp_path / "none"))


PUBLISHED: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "ABTesting": ({"num_scenarios": 10, "num_days": 6}, {"size": 1440, "scenarios": 10}),
    "CanvasListTest": (
        {"num_courses": 4, "exemption_prob": 0.1, "exemption_meet_prob": 0.5},
        {"size": 4, "assignment_rate": 0.7, "submission_rate": 0.1, "exemption_rate": 0.05},
    ),
    "FilterLowSellingProducts": (
        {"num_low_selling": 12, "num_normal_selling": 24, "num_subscribers": 12},
        {"size": 36, "low_selling": 12, "subscribers": 12},
    ),
    "MachineOperating": (
        {"hours": 6, "interval_minutes": 30, "total_machines": 3, "total_sensors": "9"},
        {"size": 18, "hours": 6, "interval_minutes": 30},
    ),
    "NhlB2bAnalysis": (
        {"num_games": 120, "num_teams": 5, "start_date": "2024-10-08"},
        {"size": 120, "teams": 5},
    ),
}


def test_the_published_configurations_become_worlds(tmp_path: Path) -> None:
    path = tmp_path / "final_8k_set_config.json"
    given: dict[str, Mapping[str, Any]] = {task: {} for task in TASKS}
    given |= {task: params for task, (params, _) in PUBLISHED.items()}
    seeds = {"verbose": False, "seed": 42}
    write_configurations(path, *((task, {**params, **seeds}) for task, params in given.items()))
    runs = read_configurations(path)
    assert [run.world for run in runs] == [f"agentgym/{task}-v0" for task in given]
    for run, task in zip(runs, given, strict=True):
        agentgym.make(run.world, **run.options)  # checks names and bounds
        expected = PUBLISHED.get(task, ({}, {}))[1]
        assert (run.seed, {**run.options, **expected}) == (42, run.options)


@pytest.mark.parametrize(
    ("task", "params", "words"),
    [
        ("Chess", {}, r"configurations\.1\.env_class must end with one of ABTesting, .* got 'gem"),
        (
            "ABTesting",
            {"num_scenario": 3},
            r"configurations\.1\.env_params has unknown names: num_scenario",
        ),
        ("AcademicWarning", {"difficulty": "hard"}, r"env_params\.difficulty must be 'medium'"),
        (
            "MachineOperating",
            {"total_sensors": "rpm,current"},
            r"env_params\.total_sensors must be a number",
        ),
        ("ABTesting", {"seed": "42"}, r"env_params\.seed must be an integer, got '42'"),
        (
            "ABTesting",
            {"num_days": [6]},
            r"configurations\.1\.env_params\.num_days\.bool: Input should be",
        ),
    ],
)
def test_a_malformed_configuration_is_refused(
    tmp_path: Path, task: str, params: Mapping[str, Any], words: str
) -> None:
    path = tmp_path / "config.json"
    write_configurations(path, ("ABTesting", {"seed": 1}), (task, {"seed": 1, **params}))
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}: .*{words}"):
        read_configurations(path)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"configurations": 3}', '\ufeff{"configurations": []}', "\0"]
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(f"{path}: ")):
        read_configurations(path)
    with pytest.raises(ValueError, match="must be a JSON file"):
        read_configurations(tmp_path)
