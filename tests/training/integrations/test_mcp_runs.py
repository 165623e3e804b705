from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import agentgym
from agentgym import ToolCall
from agentgym.cli import app
from agentgym.oracles.policies import best_call
from agentgym.play.policy import PolicyError
from agentgym.training.evaluation import load_results, log_of, run_ablation
from agentgym.training.rollout import PolicyConfig, RunLockedError, replay

anyio: Any = pytest.importorskip("anyio")
mcp: Any = pytest.importorskip("mcp")
serving: Any = pytest.importorskip("agentgym.training.integrations.mcp")
runs: Any = pytest.importorskip("agentgym.training.integrations.mcp_runs")

ROOT = Path(agentgym.__file__).parents[1]
TASK = "CourseAssistant"
ONE_TURN_EACH = {"budget_factor": 1.0, "budget_slack": 0}


def settings(world: str = TASK, sizes: tuple[int, ...] = (8_000,), seeds: int = 1) -> Any:
    return runs.external_ablation(world, sizes, seeds, "sdk", {})


def optimal_call(episode: Any) -> ToolCall:
    return best_call(episode._episode.env.unwrapped.world)


def play(episode: Any, calls: int = 1_000) -> None:
    async def run() -> None:
        async with mcp.Client(serving.build_server(episode)) as client:
            for _ in range(calls):
                call = optimal_call(episode)
                answer = await client.call_tool(call.name, dict(call.arguments))
                assert not answer.is_error, answer
                if episode._episode.over:
                    return

    anyio.run(run)


@pytest.mark.rotation
def test_an_office_task_is_scored_and_saved_like_that_of_a_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    with runs.open_run(settings(), out, 9) as (episode,):
        assert f"{TASK}, arm none, context none, horizon 8000, seed 0" == episode.name
        play(episode)
        episode.close()
    assert "score 1" in capsys.readouterr().err
    (result,) = load_results(out)
    assert (result.world, result.axis, result.horizon, result.seed) == (TASK, "length", 8_000, 0)
    assert (result.policy, result.success, result.optimal) == ("external:sdk", 1.0, result.steps)
    assert result.report is not None
    assert not result.report["faults"]
    (trajectory,) = log_of(out)
    again = replay(trajectory)
    assert [step.info for step in again.steps] == [step.info for step in trajectory.steps]
    shown = CliRunner().invoke(app, ["score", str(out)])
    assert shown.exit_code == 0, shown.output
    assert "accuracy by task and description length" in (out / "summary.md").read_text()
    assert CliRunner().invoke(app, ["doctor", str(out)]).exit_code == 0
    with (
        pytest.raises(ValueError, match="contains all 1 episodes of this run"),
        runs.open_run(settings(), out, 9),
    ):
        pass


def test_an_episode_that_is_left_counts_and_one_without_a_call_does_not(tmp_path: Path) -> None:
    ablation = settings("ListWorld", (4, 8), 2)
    with runs.open_run(ablation, tmp_path, 9) as episodes:
        assert len(episodes) == 4
        play(episodes[0], calls=2)
        play(episodes[1])
        with pytest.raises(RunLockedError), runs.open_run(ablation, tmp_path, 9):
            pass
        for episode in episodes:
            episode.close()
    results = load_results(tmp_path)
    assert [(r.horizon, r.seed, r.success) for r in results] == [(4, 0, 0.0), (8, 0, 1.0)]
    left = next(iter(t for t in log_of(tmp_path) if t.labels["horizon"] == 4))
    assert (left.truncated, left.terminated, left.failure) == (True, False, "")
    assert left.steps[-1].info["detail"]["ended"] == "left"
    assert [len(step.reply.text) > 0 for step in left.steps] == [True, True, False]
    with runs.open_run(ablation, tmp_path, 1) as (episode,):
        assert "horizon 4, seed 1" in episode.name
        episode.close()


def test_bad_calls_are_steps_and_the_end_is_the_end(tmp_path: Path) -> None:
    with runs.open_run(settings("ListWorld", (4,)), tmp_path, 1) as (episode,):
        for name, arguments in (
            ("fly", {}),
            ("pop", {"id": "x"}),
            ("</tool_call>", {"</tool_call>": "</think>"}),
            ("", {}),
            ("pop", {"id": float("nan")}),
        ):
            with pytest.raises(agentgym.ToolError) as caught:
                episode.call(name, arguments)
            assert not str(caught.value).startswith("error:")
        play(episode)
        with pytest.raises(agentgym.ToolError, match="the episode has ended"):
            episode.call("pop", {"id": 0})
        episode.close()
    (trajectory,) = log_of(tmp_path)
    errors = [step.info["detail"]["errors"] for step in trajectory.steps]
    assert errors == [1] * 4 + [0] * (len(errors) - 4)  # the call with NaN is not recorded


def test_a_limit_on_turns_holds_for_calls(tmp_path: Path) -> None:
    ablation = runs.external_ablation("ListWorld", (4,), 1, "", ONE_TURN_EACH)
    with runs.open_run(ablation, tmp_path, 1) as (episode,):
        with pytest.raises(agentgym.ToolError):
            episode.call("fly", {})
        play(episode)
        episode.close()
    (result,) = load_results(tmp_path)
    assert (result.success, result.policy) == (0.0, "external")


def test_sizes_are_those_of_the_preset_that_has_the_world() -> None:
    for name in (TASK, f"agentgym/{TASK}-v0"):
        assert settings(name).axis == "length"
    assert settings("ListWorld", (4,)).axis == "horizon"
    with pytest.raises(ValueError, match="there is no world"):
        settings("NoWorld")


def test_an_external_agent_cannot_be_asked_here(tmp_path: Path) -> None:
    policy = PolicyConfig("external:sdk").make("ListWorld")
    with pytest.raises(PolicyError, match="agentgym serve --out"):
        policy([agentgym.Chat()])
    losses: list[str] = []
    run_ablation(
        settings("ListWorld", (4,)), tmp_path, 1, on_loss=lambda cell, why: losses.append(why)
    )
    assert len(losses) == 1


@pytest.mark.rotation
def test_stdio_plays_one_episode_after_the_other(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = ["-m", "agentgym", "serve", "ListWorld", "--stdio", "--out", str(tmp_path / "run")]
    line += ["--horizons", "4", "--episodes", "2", "--agent", "sdk", "--set", "budget_slack=9"]
    parameters = mcp.StdioServerParameters(command=sys.executable, args=line, env=environment)

    async def talk() -> None:
        async with mcp.Client(parameters) as client:
            tool = (await client.list_tools()).tools[0]
            await client.call_tool(tool.name, {})

    for seeds in ([0], [0, 1]):
        anyio.run(talk)
        deadline = time.monotonic() + 30
        while len(load_results(tmp_path / "run")) < len(seeds) and time.monotonic() < deadline:
            time.sleep(0.1)  # the server writes the episode after the client disconnects
        assert [result.seed for result in load_results(tmp_path / "run")] == seeds
    done = CliRunner().invoke(app, ["serve", *line[3:]])
    assert (done.exit_code, "contains all 2 episodes" in done.output) == (2, True)
