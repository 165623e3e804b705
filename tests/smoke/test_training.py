"""Every collection engine and every command, once, in this process."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

import agentgym
from agentgym.cli import app
from agentgym.oracles import NoisyPolicy
from agentgym.training.rollout.collector import ENGINES
from agentgym.training.rollout.rollouts import collect


class Awaiting(NoisyPolicy):
    async def areply(self, chat: agentgym.Chat) -> agentgym.Reply:
        return self([chat])[0]


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "ray"])
def test_an_engine_records_what_lockstep_records(engine: str) -> None:
    spec = agentgym.spec("ListWorld", items=4, oracles="S", labels=True)
    lines = [
        sorted(
            t.to_json() for t in collect(Awaiting("ListWorld", 0.2), spec, range(3), 2, engine=name)
        )
        for name in ("lockstep", engine)
    ]
    assert lines[0] == lines[1]


def command(*arguments: str, typed: str = "") -> str:
    shown = CliRunner().invoke(app, list(arguments), input=typed)
    assert shown.exit_code == 0, shown.output
    return shown.output


def test_list() -> None:
    shown = command("list", "--all")
    assert all(entry.id in shown for entry in (*agentgym.worlds(presets=True), *agentgym.teams()))


def test_play() -> None:
    assert "solved in 1 turns" in command(
        "play", "ListWorld", "--set", "items=3", "--set", "removals=0", typed="done()\n"
    )


def test_rollout_and_gsm(tmp_path: Path) -> None:
    log = tmp_path / "t.jsonl"
    assert "solved 2 of 2" in command(
        "rollout", "SearchWorld", "--set", "tasks=20", "--episodes", "2", "--out", str(log)
    )
    command("gsm", f"oracle={log}", "--out", str(tmp_path))
    assert "| oracle |" in (tmp_path / "summary.md").read_text()


def test_ablate_and_score(tmp_path: Path) -> None:
    grid = [
        "--world",
        "ListWorld",
        "--oracles",
        "none,S",
        "--horizons",
        "4",
        "--episodes",
        "2",
        "--workers",
        "1",
    ]
    command("ablate", *grid, "--policy", "noisy", "--out", str(tmp_path / "a"))
    before = (tmp_path / "a" / "results.jsonl").read_bytes()
    command("score", str(tmp_path / "a"))
    assert (tmp_path / "a" / "results.jsonl").read_bytes() == before
    assert len(before.splitlines()) == 4


def test_export(tmp_path: Path) -> None:
    assert "wrote" in command(
        "export", "CodeWorld", "--set", "operations=2", str(tmp_path / "code")
    )


def test_longbench(tmp_path: Path) -> None:
    options = [
        "--lengths",
        "16384",
        "--settings",
        "kf-v",
        "--samples",
        "1",
        "--tokens",
        "heuristic",
    ]
    assert "wrote 8 rows" in command("longbench", "write", str(tmp_path / "d"), *options)
    log = tmp_path / "t.jsonl"
    command("rollout", "LongContextQA", "--episodes", "1", "--out", str(log))
    command("longbench", "report", str(log), "--out", str(tmp_path / "r"))
    assert (tmp_path / "r" / "heatmap.png").exists()


def test_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = pytest.importorskip("agentgym.training.integrations.mcp")
    served: list[object] = []
    monkeypatch.setattr(serving, "serve_stdio", served.append)
    command("serve", "ListWorld", "--stdio", "--set", "items=6")
    assert len(served) == 1


def test_train_makes_a_model_that_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learning = pytest.importorskip("agentgym.training.rl.from_scratch")
    small = partial(learning.LearnConfig, groups=1, evaluations=1, width=16, layers=1, heads=2)
    monkeypatch.setattr(learning, "LearnConfig", small)
    sizes = [
        "--horizons",
        "1",
        "--oracles",
        "none",
        "--cloning",
        "4",
        "--rl",
        "1",
        "--set",
        "items=2",
    ]
    sizes += ["--episodes", "4"]
    command("train", *sizes, "--out", str(tmp_path / "m"))
    assert json.loads((tmp_path / "m" / "train.json").read_text())
    assert "torch" in sys.modules
