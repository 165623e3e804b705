"""The commands on the papers' pages run at the smallest size; each test run samples one in four."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentgym.cli import app
from tests.project.test_docs import COMMANDS

POLICY = """
from agentgym.oracles import OraclePolicy

def make_policy(env_id):
    return OraclePolicy(env_id)
"""
# Options that replace the sizes in every command of a preset.
SMALLEST = {
    "": "--horizons 4",
    "lumina": "--horizons 4 --world ListWorld",
    "lore-standard": "--horizons 2 --world DocumentWorld",
    "lore-hard": "--horizons 2 --world DocumentWorld",
    "loca": "--horizons 8k --world CourseAssistant",
}
# Commands that need neither another command's output file, nor a client, user input or embeddings.
ALONE = re.compile(r"agentgym (ablate|rollout|list|export|longbench write)\b(?!.*wordllama).*")
ON_PAGES = sorted(
    {
        command
        for page, command, _ in COMMANDS
        if "papers/" in page and ALONE.fullmatch(command) and len(command.split()) > 2
    }
)


def shrink(command: str) -> list[str]:
    words = shlex.split(
        re.sub(r"--policy (\w+=)?\S+", r"--policy \1my.module:make_policy", command)
    )[1:]
    kind, smallest = words[0], list[str]()
    if kind == "ablate":
        preset = words[words.index("--preset") + 1] if "--preset" in words else ""
        smallest = f"{SMALLEST[preset]} --episodes 1 --workers 1".split()
    elif kind == "rollout":
        smallest = ["--episodes", "1"]
    elif kind == "longbench":
        smallest = "--settings kf-c --lengths 32k --samples 1".split()
    for name in smallest[::2]:
        if name in words:
            place = words.index(name)
            del words[place : place + 2]
    return [*words, *smallest]


@pytest.mark.rotation(command=ON_PAGES)
def test_a_command_of_a_paper_s_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "module.py").write_text(POLICY, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, shrink(command))
    if shown.exit_code == 2 and "pip install" in shown.output:
        pytest.skip(shown.output.strip())
    assert shown.exit_code == 0, f"{shrink(command)}: {shown.output}"


def test_most_commands_of_the_pages_are_run() -> None:
    assert len(ON_PAGES) > 12
