from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym.oracles import NoisyPolicy
from agentgym.training.evaluation import load_results, summarize
from agentgym.training.rollout import PolicyConfig, collect
from tests.helpers import run_python

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
MAX_LINES = 60  # about one screen, excluding blank lines and the docstring
each_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)


def main_of(name: str, *packages: str) -> Callable[[list[str]], Any]:
    for package in packages:
        pytest.importorskip(package, reason=f"examples/{name}.py needs the package {package}")
    return importlib.import_module(f"examples.{name}").main


def run(name: str, *arguments: str) -> str:
    shown = run_python(f"examples/{name}.py", *arguments, cwd=ROOT)
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


# Results of each script.


@pytest.mark.rotation
def test_oracle_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = main_of("oracle_study", "matplotlib")
    results = main(["--horizons", "4", "--episodes", "4", "--out", str(tmp_path)])
    assert len(results) == 4 * 4
    success = {arm: rate.value for (arm,), rate in summarize(results, ("arm",), "success").items()}
    assert success["P"] == success["SP"] == 1.0 > success[""], "it plans badly, and a plan helps"
    assert success["S"] == success[""]
    assert "| P | 4 | 100.0 [" in capsys.readouterr().out
    assert (tmp_path / "interventions.png").stat().st_size > 10_000


@pytest.mark.rotation
def test_context_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = main_of("context_study", "matplotlib")
    results = main(["--episodes", "2", "--out", str(tmp_path)])
    success = summarize(results, ("context",), "success")
    by_name = {name.partition(":")[0]: rate.value for (name,), rate in success.items()}
    assert by_name["compaction"] == 1.0 > max(by_name["none"], by_name["clear_results"])
    assert "| compaction:trigger=75% | 100.0 [" in capsys.readouterr().out
    assert (tmp_path / "contexts.png").is_file()


def test_own_world() -> None:
    # Run as a program, so that the world is not registered for other tests.
    *_, labels, reward = run("own_world", "--episodes", "100").splitlines()
    assert labels.startswith("optimal: [True")
    assert "False" not in labels
    assert reward == "mean reward: 1.0"


def test_the_optimal_guesses_of_own_world_are_exact() -> None:
    # A guess is optimal if and only if the game can be won after the worse answer.
    module = importlib.import_module("examples.own_world")
    world = module.GuessWorld(module.GuessConfig(), 0)

    def wins(size: int, turns: int) -> bool:
        if turns <= 0 or size <= 0:
            return size <= 0
        return any(wins(k, turns - 1) and wins(size - k - 1, turns - 1) for k in range(size))

    for high in range(1, 13):
        for turns in range(1, 5):
            world.low, world.high = 1, high
            world.max_turns, world.turn = turns, 0
            expected = [
                k
                for k in range(1, high + 1)
                if wins(k - 1, turns - 1) and wins(high - k, turns - 1)
            ]
            assert [call.arguments["number"] for call in world.optimal_calls()] == expected


@pytest.mark.rotation
def test_custom_office_task() -> None:
    # Run as a program, so that the task is not registered for other tests.
    pytest.importorskip("sqlglot", reason="examples/custom_office_task.py needs the extra office")
    *steps, score, failures = run("custom_office_task", "--length", "12000").splitlines()
    assert score == "score: 1.0"
    assert all(step.startswith("['productive']") for step in steps)
    assert "total.txt does not contain" in failures
    line = "-m agentgym check examples.custom_office_task:SumInvoices --only".split()
    run_python(*line, "hints use", cwd=ROOT, check=True)


def test_pettingzoo_team() -> None:
    reward, replies = main_of("pettingzoo_team", "pettingzoo")([])
    assert reward == 1.0
    assert replies["actor_0"] > 1
    assert replies["closer_0"] >= 1


@pytest.mark.rotation
def test_mcp_client(tmp_path: Path) -> None:
    main_of("mcp_client", "mcp", "typer")
    shown = run("mcp_client", "--horizon", "3", "--out", str(tmp_path))
    assert "Initial list:" in shown
    assert "done {} -> The task is finished." in shown
    (result,) = load_results(tmp_path)
    assert (result.success, result.calls, result.policy) == (1.0, 3, "external:mine")


@pytest.mark.rotation
def test_sb3_gridworld() -> None:
    main = main_of("sb3_gridworld", "torch", "stable_baselines3", "sb3_contrib")
    trained, chance = main(["--steps", "3072", "--episodes", "60"])
    assert chance < 0.25
    assert trained > chance + 0.2


@pytest.mark.rotation
def test_sb3_team() -> None:
    main = main_of("sb3_team", "torch", "stable_baselines3", "sb3_contrib", "supersuit")
    trained, chance = main(["--steps", "4096", "--episodes", "40"])
    assert chance < 0.2
    assert trained > chance + 0.4


@pytest.mark.rotation
def test_ray_rollouts() -> None:
    main = main_of("ray_rollouts", "ray")
    played = {each.seed: each.to_json() for each in main(["--episodes", "6"])}
    env = agentgym.spec("TreeWorld", oracles="S")
    here = collect(NoisyPolicy("TreeWorld", p=0.1), env, range(6))
    assert played == {each.seed: each.to_json() for each in here}


@pytest.mark.rotation
@pytest.mark.filterwarnings("ignore:You are using '.*', which is an experimental:UserWarning")
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
def test_grpo_trl(tmp_path: Path) -> None:
    main = main_of("grpo_trl", "torch", "trl", "datasets")
    trainer = main(["--steps", "2", "--episodes", "2", "--out", str(tmp_path)])
    rows = [entry for entry in trainer.state.log_history if "rewards/env_reward/mean" in entry]
    assert len(rows) == trainer.state.global_step == 2
    assert all(row["completions/mean_length"] > 0 for row in rows)
    assert [row["rows_left_out"] for row in rows] == [0.0, 0.0]
    PolicyConfig(str(tmp_path)).make("ListWorld")  # the folder contains a model to evaluate
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    launch = config_args.load_config_from_file(str(ROOT / "examples" / "accelerate.yaml"))
    assert launch.distributed_type == "MULTI_GPU"


# Properties of all scripts.


@each_script
def test_a_script_is_short_and_says_what_it_needs_and_prints(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    documentation = ast.get_docstring(ast.parse(text)) or ""
    code = text.partition('"""\n\nimport ')[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= MAX_LINES
    assert re.search(r"^Prints: ", documentation, re.MULTILINE)
    match = re.search(
        r"^Needs: pip install (?:'agentgym-suite\[(.*)\]'|agentgym-suite)", documentation, re.M
    )
    assert match, "the docstring names what to install"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {*(match[1] or "").split(",")} - {""} <= project["optional-dependencies"].keys()


@each_script
def test_a_script_uses_the_public_surface_alone(script: Path) -> None:
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        assert not (isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr)), node.attr
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert not [name for name in names if name.startswith("agentgym.")]
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("agentgym"):
            public = importlib.import_module(node.module or "").__all__
            assert {alias.name for alias in node.names} <= {*public}, node.module


@each_script
def test_a_script_is_run_by_a_test(script: Path) -> None:
    tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    assert any(re.search(rf"def test_{script.stem}\b", text) for text in tests)


@each_script
def test_the_list_of_scripts_is_whole(script: Path) -> None:
    listing = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert listing.count(f"[{script.name}]({script.name})") == 1
