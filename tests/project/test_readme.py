"""README says what is so: its code runs, its table is the registry, its commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import agentgym
from tests.helpers import PATIENCE

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_examples_run(number: int) -> None:
    shown = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXAMPLES[number]],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=ROOT,
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.strip()


def test_the_table_of_worlds_is_the_registry() -> None:
    rows = re.findall(r"^\| `(agentgym/[^`]+)` \| (.*) \|$", README, re.MULTILINE)
    assert rows == [
        (entry.id, entry.summary) for entry in sorted(agentgym.worlds(), key=lambda entry: entry.id)
    ]


def test_the_two_commands_are_targets_of_the_makefile_and_ci_runs_one() -> None:
    commands = re.search(r"```bash\n(make \w+) .*\n(make \w+) .*\n```", README)
    assert commands is not None
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in commands.groups():
        assert f"\n{line.split()[1]}:" in makefile
    assert commands[2] in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
