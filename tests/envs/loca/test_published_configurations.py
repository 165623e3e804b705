from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym.envs.loca.published import read_configurations
from tests.envs.loca.office import TASKS

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


def write_configurations(path: Path, *each: tuple[str, Mapping[str, Any]]) -> None:
    configurations = []
    for task, params in each:
        env_class = f"gem.envs.x_s2l.x_s2l.{task}S2LEnv"
        configurations.append({"env_class": env_class, "env_params": params, "mcp_servers": {}})
    path.write_text(json.dumps({"configurations": configurations}), encoding="utf-8")


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
        (
            "Chess",
            {},
            r"configurations\.1\.env_class must end with a task name .* got 'gem.* ABTesting, ",
        ),
        (
            "ABTesting",
            {"num_scenario": 3},
            r"configurations\.1\.env_params contains unknown names: num_scenario",
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


def test_the_page_lists_every_parameter_without_an_option() -> None:
    text = Path("docs/loca_states.md").read_text(encoding="utf-8").partition("## States")[0]
    rows = re.findall(r"^\| ([\w, ]+) \| (.*?) \|", text, re.MULTILINE)
    path = Path("agentgym/envs/loca/published/tasks.toml")
    for task, table in tomllib.loads(path.read_text(encoding="utf-8")).items():
        listed = [names for tasks, names in rows if task in tasks] or [rows[-1][1]]  # the others
        patterns = re.findall(r"`(.*?)`", listed[0])
        for name in (*table["without"], *table.get("fixed", ()), *table.get("most", ())):
            assert any(fnmatchcase(name, pattern) for pattern in patterns), f"{task}: {name}"
