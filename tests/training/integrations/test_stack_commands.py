"""Check that each command in the first table of docs/stacks.md runs with the real library."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym import Chat, render, tool_env
from agentgym.oracles import OraclePolicy
from tests.helpers import PATIENCE
from tests.training.integrations.openenv_server import serving_command
from tests.training.rollout.endpoint_kinds import KINDS, environment  # noqa: F401 - a fixture
from tests.training.rollout.endpoint_server import Answer, serving

# Other libraries leave streams and event loops to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore")
ROOT = Path(agentgym.__file__).parents[1]
PAGE = (ROOT / "docs" / "stacks.md").read_text(encoding="utf-8").partition("## What works")[0]
COMMANDS = dict(
    re.findall(r"^\| ([A-Z]\S.*?|plain Python|verifiers, prime-rl|verl) \| `(.+?)`", PAGE, re.M)
)
# Stacks whose commands run in other test files.
ELSEWHERE = {
    "TRL": ("test_trl.py", "environment_factory=environment_factory("),
    "verl": ("test_verl.py", "verl.WorldAgentLoop"),
    "SkyRL": ("test_skyrl.py", 'register("world", env_id'),
}


def evaluate(command: str, **names: Any) -> Any:
    return eval(command, {"agentgym": agentgym, **names})


def run(stack: str, more: str, folder: Path, **variables: str) -> str:
    program, *words = shlex.split(f"{COMMANDS[stack]} {more}")
    path = Path(sys.executable).parent / program
    done = subprocess.run(
        [str(path), *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    return done.stdout


def oracle_of(kind: Any) -> Callable[[dict[str, Any], int], Answer]:
    state: dict[str, Any] = {}

    def script(request: dict[str, Any], number: int) -> Answer:
        if not kind.turns(request):
            state["env"] = agentgym.make("ListWorld")
            state["seed"] = state.get("seed", -1) + 1
            state["env"].reset(seed=state["seed"])
        reply = render(tool_env(state["env"]).world.optimal_calls()[0])
        state["env"].step(reply)
        return kind.said(reply)

    return script


def test_every_command_is_tested() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    for stack in COMMANDS:
        if stack in ELSEWHERE:
            file, call = ELSEWHERE[stack]
            assert call in Path(__file__).with_name(file).read_text(encoding="utf-8")
        else:
            assert f'"{stack}"' in here, stack
    assert len(COMMANDS) == PAGE.count("\n| ") - 1


def test_gymnasium() -> None:
    gymnasium: Any = importlib.import_module("gymnasium")
    env = evaluate(COMMANDS["Gymnasium"], gymnasium=gymnasium)
    chat, _ = env.reset(seed=0)
    assert isinstance(chat, Chat)


def test_plain_python() -> None:
    rollout = importlib.import_module("agentgym.training.rollout").rollout
    played = evaluate(COMMANDS["plain Python"], rollout=rollout, policy=OraclePolicy("ListWorld"))
    assert played.reward == 1.0


def test_stable_baselines() -> None:
    contrib: Any = pytest.importorskip("sb3_contrib")
    wrappers: Any = importlib.import_module("agentgym.wrappers")
    model = evaluate(
        COMMANDS["Stable-Baselines3"],
        MaskablePPO=contrib.MaskablePPO,
        FeatureObservations=wrappers.FeatureObservations,
        DiscreteActions=wrappers.DiscreteActions,
    )
    assert model.get_env().num_envs == 1


def test_pettingzoo() -> None:
    pytest.importorskip("pettingzoo")
    env = evaluate(COMMANDS["PettingZoo"])
    observations, _ = env.reset(seed=0)
    assert set(observations) == set(env.agents)


def test_verifiers(tmp_path: Path) -> None:
    pytest.importorskip("verifiers")
    kind = KINDS["chat"]
    with serving(oracle_of(kind), kind.path) as server:
        more = f"-m m --client.base-url {server.url} --client.api-key-var OPENAI_API_KEY"
        more += " --env.taskset.stop 1 --push False --rich None --output-dir out"
        run("verifiers, prime-rl", more, tmp_path, VF_CONFIG_DIR=str(tmp_path))
    (traces,) = tmp_path.rglob("traces.jsonl")
    assert '"world_score":{"score":1.0' in traces.read_text(encoding="utf-8").replace(" ", "")


def test_inspect(tmp_path: Path) -> None:
    pytest.importorskip("inspect_ai")
    read_eval_log: Any = importlib.import_module("inspect_ai.log").read_eval_log
    kind = KINDS["chat"]
    with serving(oracle_of(kind), kind.path) as server:
        # The last `--model` option takes precedence; its provider calls the test's server.
        more = "--model openai-api/local/m -T seeds=1 --display none --log-dir logs"
        run("Inspect", more, tmp_path, LOCAL_BASE_URL=server.url, LOCAL_API_KEY="x")
    (log,) = (tmp_path / "logs").glob("*.eval")
    read = read_eval_log(str(log))
    assert (read.status, read.results.scores[0].metrics["mean"].value) == ("success", 1.0)


def test_openenv() -> None:
    pytest.importorskip("openenv", "0.10")
    remote: Any = importlib.import_module("agentgym.training.integrations.openenv").RemoteEnv

    with serving_command(COMMANDS["OpenEnv"]) as url:
        env = remote(url)
        chat, _ = env.reset(seed=3)
        env.close()
    local, _ = agentgym.make("ListWorld").reset(seed=3)
    assert chat.messages[-1].text == local.messages[-1].text


def test_mcp() -> None:
    mcp: Any = pytest.importorskip("mcp")
    if not version("mcp").startswith("2.3"):
        pytest.skip("this environment has an older mcp")

    async def tools(url: str) -> list[str]:
        async with mcp.Client(f"{url}/episodes/0/mcp") as client:
            return [tool.name for tool in (await client.list_tools()).tools]

    local = agentgym.make("ListWorld")
    with serving_command(COMMANDS["MCP"]) as url:
        assert asyncio.run(tools(url)) == [tool.name for tool in tool_env(local).tools]
