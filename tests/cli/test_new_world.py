from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentgym.cli import app
from agentgym.cli.new_world import _class_name
from tests.helpers import run_python

ROOT = Path(__file__).parents[2]


def execute(folder: Path, *words: str) -> str:
    path = os.pathsep.join((str(folder / "site"), *filter(None, sys.path), str(ROOT)))
    shown = run_python("-m", *words, env={**os.environ, "PYTHONPATH": path}, cwd=folder)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    return shown.stdout


@pytest.mark.rotation
def test_a_new_world_installs_passes_its_tests_and_is_played(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    pytest.importorskip("pip")
    made = tmp_path / "made"
    shown = CliRunner().invoke(app, ["new-world", "guess-bench", "--out", str(made)])
    assert shown.exit_code == 0, shown.output
    assert "guess_bench/GuessWorld-v0" in shown.output
    options = "--quiet --no-deps --no-build-isolation --no-index --target site".split()
    execute(tmp_path, "pip", "install", *options, str(made))
    tests = str(made / "tests")
    assert "2 passed" in execute(tmp_path, "pytest", "-q", "-p", "no:cacheprovider", tests)
    played = execute(tmp_path, "agentgym", "rollout", "GuessWorld", "--episodes", "3")
    assert "solved 3 of 3" in played
    asked = "--world guess_bench/GuessWorld --oracles none,SP --horizons 3 --episodes 2 --workers 1"
    execute(tmp_path, "agentgym", "ablate", *asked.split(), "--policy", "oracle", "--out", "run")
    lines = (tmp_path / "run" / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["success"] for line in lines] == [1.0] * 4


def test_what_cannot_be_a_package_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    for words, error in [
        (("Guess",), "'Guess' is not a valid package name"),
        (("import",), "'import' is not a valid"),
        (("json",), "'json' is not a valid"),
        (("agentgym",), "'agentgym' is not a valid"),
        (("test",), "'test' is not a valid"),
        (("numpy",), "'numpy' is already installed"),
        (("../up",), "'../up' is not a valid"),
        (("fine", "--out", str(tmp_path)), "already exists"),
        (("fine", "--out", str(tmp_path / "mine.txt")), "already exists"),
    ]:
        shown = CliRunner().invoke(app, ["new-world", *words])
        assert (shown.exit_code, error in shown.output) == (2, True), shown.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("package", "world"),
    [
        ("guess", "GuessWorld"),
        ("guess_bench", "GuessWorld"),
        ("my_world", "MyWorld"),
        ("bench", "BenchWorld"),
        ("card_games", "CardGamesWorld"),
    ],
)
def test_the_class_is_called_after_the_package(package: str, world: str) -> None:
    assert _class_name(package) == world
