"""State folders of LOCA-bench in the published form, written without the package's code."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

SQL_TYPES = {str: "TEXT", int: "INTEGER", float: "REAL"}


def write_csv(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def write_database(
    state: Path, dataset: str, columns: Sequence[str], tables: Mapping[str, Sequence[Sequence[Any]]]
) -> None:
    """Write tables as the published Google Cloud server stores them, in WAL mode."""
    folder = state / "local_db" / "google_cloud"
    folder.mkdir(parents=True)
    database = sqlite3.connect(folder / "bigquery_data.db")
    database.execute("PRAGMA journal_mode=WAL")
    for name, rows in tables.items():
        kinds = ", ".join(
            f'"{column}" {SQL_TYPES[type(value)]}'
            for column, value in zip(columns, rows[0], strict=True)
        )
        database.execute(f'CREATE TABLE "local-project_{dataset}_{name}" ({kinds})')
        marks = ", ".join("?" * len(columns))
        database.executemany(f'INSERT INTO "local-project_{dataset}_{name}" VALUES ({marks})', rows)
    database.commit()
    database.close()
    (folder / "log_entries.json").write_text("{}", encoding="utf-8")


def write_ab_testing(state: Path, counts: Mapping[str, Sequence[Sequence[int]]]) -> None:
    """Write a state with the hourly counts (A's clicks and views, B's) of each scenario."""
    columns = ("time_window", "A_clicks", "A_store_views", "B_clicks", "B_store_views")
    tables = {}
    expected: list[Sequence[Any]] = [("scenario", "A_conversion %", "B_conversion %")]
    overall = "overall (total_store_views/total_clicks)"
    for name, hours in [
        *counts.items(),
        (overall, [row for rows in counts.values() for row in rows]),
    ]:
        sums = [sum(row[k] for row in hours) for k in range(4)]
        rates = [100 * views / clicks if clicks else 0.0 for clicks, views in (sums[:2], sums[2:])]
        expected.append((name, *(f"{rate:.3f}%" for rate in rates)))
        if name in counts:
            windows = [f"7/29 {hour:02}:00-{hour:02}:59" for hour in range(len(hours))]
            tables[f"ab_{name}"] = [
                (window, *row) for window, row in zip(windows, hours, strict=True)
            ]
    write_database(state, "ab_testing", columns, tables)
    write_csv(
        state / "agent_workspace" / "record.csv",
        [expected[0], ("scenario_name", "", ""), (overall, "", "")],
    )
    write_csv(state / "groundtruth_workspace" / "expected_ratio.csv", expected)


def write_academic_warning(
    state: Path, students: Mapping[str, tuple[str, Sequence[float], float]]
) -> None:
    """Write a state with name, exam scores and latest score of each student."""
    columns = ("student_id", "name", "class_id", "score")
    exams = len(next(iter(students.values()))[1])
    tables = {
        f"scores_{2501 + k}": [
            (key, name, "A", past[k]) for key, (name, past, _) in students.items()
        ]
        for k in range(exams)
    }
    write_database(state, "academic_warning", columns, tables)
    latest = [(key, name, "A", score) for key, (name, _, score) in students.items()]
    write_csv(state / "agent_workspace" / "latest_quiz_scores.csv", [columns, *latest])
    alerts: list[Sequence[Any]] = []
    for key, (name, past, score) in students.items():
        mean = sum(past) / exams
        if (drop := (mean - score) / mean) > 0.25:
            alerts.append((key, name, score, mean, drop))
    heads = ("student_id", "name", "score", "hist_avg", "drop_ratio")
    write_csv(state / "groundtruth_workspace" / "expected_alerts.csv", [heads, *alerts])


def write_configurations(path: Path, *each: tuple[str, Mapping[str, Any]]) -> None:
    configurations = [
        {"env_class": f"gem.envs.x_s2l.x_s2l.{task}S2LEnv", "env_params": params, "mcp_servers": {}}
        for task, params in each
    ]
    path.write_text(json.dumps({"configurations": configurations}), encoding="utf-8")
