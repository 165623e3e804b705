from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentgym.cli import app
from agentgym.play.env import ToolEnv
from agentgym.training.evaluation import (
    Ablation,
    ablation_tables,
    load_results,
    log_of,
    run_ablation,
    score,
    write_report,
)
from agentgym.training.evaluation.study_folder import TRAJECTORIES, result_cell
from agentgym.training.rollout import PolicyConfig, TrajectoryLog, replay
from agentgym.training.rollout.lines import read_chunks
from tests.helpers import PATIENCE

SMALL: dict[str, Any] = {"worlds": ("ListWorld", "GridWorld"), "horizons": (3, 6), "seeds": 3}
SLOW = ("ablate --horizons 40 --episodes 40 --world TreeWorld --oracles none,S --workers 2").split()


def small(**changes: Any) -> Ablation:
    return Ablation(**{**SMALL, "policy": PolicyConfig("control:planning=0.2"), **changes})


@pytest.mark.rotation
def test_workers_give_what_one_process_gives(tmp_path: Path) -> None:
    ablation = small(horizons=(3,), seeds=2)
    assert run_ablation(ablation, tmp_path / "one", 1) == run_ablation(
        ablation, tmp_path / "two", 2
    )


def test_envs_are_closed_after_each_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(ToolEnv, "close", lambda env: closed.append(True))
    trajectory = small().play(small().cells()[0])
    assert len(closed) == 2, "at reset and after the episode"
    assert replay(trajectory).steps == trajectory.steps
    assert len(closed) == 4


def test_a_stopped_run_goes_on(tmp_path: Path) -> None:
    whole = run_ablation(small(), tmp_path / "a", 1)
    assert sorted(map(result_cell, whole)) == sorted(small().cells())
    assert len(whole) == 2 * 6 * 2 * 3
    log = tmp_path / "a" / TRAJECTORIES
    chunks = list(read_chunks(log))
    log.write_bytes(log.read_bytes()[: chunks[20].start + 100])
    told: list[int] = []
    assert run_ablation(small(), tmp_path / "a", 1, told.append) == whole
    assert told[0] == 20
    assert len(list(read_chunks(log))) == len(chunks)


@pytest.mark.rotation
def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "agentgym", *SLOW, "--out", str(tmp_path / "k")]
    log = tmp_path / "k" / TRAJECTORIES
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE
    while not (log.exists() and log.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    workers = children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(workers) >= 2
    while any(map(running, workers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [pid for pid in workers if running(pid)], "a killed parent takes its workers along"
    assert log.stat().st_size
    before = {(row.arm, row.seed) for row in map(score, _whole(log))}
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    rows = load_results(tmp_path / "k")
    assert len(rows) == len({(row.arm, row.seed) for row in rows}) == 80
    assert before < {(row.arm, row.seed) for row in rows}


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except FileNotFoundError:
        return False


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()]


def _whole(log: Path) -> TrajectoryLog:
    copy = log.with_name("copy.jsonl.zst")
    copy.write_bytes(log.read_bytes())
    return TrajectoryLog(copy)


def test_arms_play_the_same_instances(tmp_path: Path) -> None:
    run_ablation(small(horizons=(6,), seeds=2, shots=1), tmp_path / "a", 1)
    instances: dict[tuple[str, int], set[str]] = {}
    for trajectory in log_of(tmp_path / "a"):
        moment = trajectory.steps[0].chat.moment()
        instances.setdefault((trajectory.labels["world"], trajectory.seed), set()).add(moment)
    assert len(instances) == 4
    assert all(len(moments) == 1 for moments in instances.values())
    assert len(set.union(*instances.values())) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"worlds": ("NoWorld",)},
            "there is no world 'NoWorld'; .*worlds: .*GridWorld, ListWorld, TreeWorld",
        ),
        ({"arms": ("H",)}, "H needs S"),
        ({"arms": ("X",)}, "oracles may contain each of"),
        ({"arms": ("S", "S")}, "distinct"),
        ({"worlds": ()}, "worlds must list"),
        ({"horizons": (0,)}, "horizon must be an integer in"),
        ({"horizons": (10**9,)}, "horizon must be an integer in"),
        ({"seeds": 0}, "seeds must be an integer in"),
        ({"options": {"TreeWorld": {"nodes": 3}}}, "'TreeWorld', which is not among the worlds"),
        (
            {"options": {"ListWorld": {"itmes": 3}}},
            "ListWorld has no option 'itmes'; did you mean 'items'",
        ),
        ({"options": {"": {"budget_factor": 0.5}}}, r"budget_factor must be a number in \[1.0"),
        ({"hint_scope": "none"}, "hint_scope must be one of"),
        (
            {"horizons": (4, 8), "options": {"ListWorld": {"removals": 3}}},
            "removals=3 contradicts the size 8 of ListWorld, which sets removals=7; leave removals",
        ),
        ({"oracle_options": {"X": {}}}, "oracle_options contains 'X'"),
    ],
)
def test_bad_settings_are_refused_before_anything_runs(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        small(**changes)


@pytest.mark.rotation
def test_the_report_tells_what_the_results_hold(tmp_path: Path) -> None:
    rows = run_ablation(small(), tmp_path / "a", 1)
    written = write_report(rows, tmp_path / "a")
    assert {path.name for path in written} == {
        "results.jsonl",
        "summary.md",
        *(
            f"{name}.{ending}"
            for name in ("horizons", "arms", "interventions")
            for ending in ("png", "svg", "pdf")
        ),
    }
    assert all(path.stat().st_size for path in written)
    title, header, lines = ablation_tables(rows)[1]
    assert title.startswith("ListWorld: 36 episodes")
    assert [line[0] for line in lines] == ["none", "S", "P", "SP", "SH", "SPH"]
    none = dict(zip(header, lines[0], strict=True))
    plain = [row.success for row in rows if (row.world, row.arm) == ("ListWorld", "")]
    assert none["arm"] == "none"
    assert none["success rate"].startswith(f"{100 * sum(plain) / len(plain):.1f} [")
    lines_written = (tmp_path / "a" / "results.jsonl").read_text().splitlines()
    assert [json.loads(line)["seed"] for line in lines_written] == [row.seed for row in rows]


def test_one_arm_alone_has_no_comparison(tmp_path: Path) -> None:
    rows = run_ablation(small(arms=("SP",), seeds=1), tmp_path / "a", 1)
    assert [header for _, header, _ in ablation_tables(rows)] == [
        [
            *("arm", "episodes", "success rate", "step accuracy", "step accuracy while alive"),
            *("missing", "over window", "unreadable"),
        ]
    ] * 2


def test_sizes_are_those_of_the_axis_that_the_command_names(tmp_path: Path) -> None:
    options = (
        "--world ListWorld --set items=6 --horizons 1,3 --oracles none --episodes 2 --policy oracle"
    )
    arguments = ["ablate", *options.split(), "--workers=1", f"--out={tmp_path}"]
    assert "contradicts the size" in CliRunner().invoke(app, arguments).stderr
    shown = CliRunner().invoke(app, [*arguments, "--axis=removals"])
    assert shown.exit_code == 0, shown.output
    assert [(r.axis, r.horizon, r.steps) for r in load_results(str(tmp_path))] == [
        ("removals", removals, removals + 1) for removals in (1, 1, 3, 3)
    ]
