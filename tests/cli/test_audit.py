"""The command `audit`, and the overlap reported by `score`."""

from __future__ import annotations

from pathlib import Path

import pytest

import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import collect
from tests.cli.test_main import command
from tests.testing import leaky_worlds  # noqa: F401 - it registers the toy worlds


def test_audit_shows_a_table_and_writes_it(tmp_path: Path) -> None:
    out = tmp_path / "audit.md"
    options = (*"--episodes 60 --demonstrations 10 --set items=8 --set removals=4".split(),)
    shown = command("audit", "ListWorld", *options, "--out", str(out))
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "ListWorld: ceiling 10.0, chance 0.0 (estimated)" in shown.stdout
    page = out.read_text(encoding="utf-8")
    assert "| at once done() | shortcut | 0.0 [0.0, 10.0] | 60 | holds |" in page
    assert "| oracle | baseline | 100.0 [90.0, 100.0] | 60 |  |" in page


def test_audit_of_a_leaky_world_exits_with_1() -> None:
    shown = command("audit", "AnyEnd", "--episodes", "20", "--demonstrations", "8")
    assert shown.returncode == 1
    assert "verdict: leak (at once answer(name=''))" in shown.stdout


@pytest.mark.rotation
def test_score_reports_the_overlap_with_training(tmp_path: Path) -> None:
    out, log = tmp_path / "ablation", tmp_path / "train.jsonl"
    size = ("--horizons", "2", "--episodes", "4", "--workers", "1", "--oracles", "none")
    assert command("ablate", "--world", "ListWorld", *size, "--out", str(out)).returncode == 0
    # A two-turn ablation has four items and removes one.
    training = agentgym.spec("ListWorld", items=4, removals=1)
    assert len(list(collect(OraclePolicy("ListWorld"), training, range(3, 9), log=log))) == 6
    shown = command("score", str(out), "--train", str(log))
    assert shown.returncode == 0, shown.stderr
    row = next(line for line in shown.stdout.split("\n") if "ListWorld" in line and "25.0" in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == ["ListWorld", "4", "1", "25.0"]
    shown = command("score", str(out), "--train", str(tmp_path / "none.jsonl"))
    assert shown.returncode == 2
    assert "does not exist" in shown.stderr
