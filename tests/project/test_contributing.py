"""CONTRIBUTING says what is so: its office task is short, whole, as long as asked and solved by
its plan; its strategy works.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import PATIENCE

ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(
    r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL
)
(EXAMPLE,) = [text for text in EXAMPLES if "OfficeTask" in text]
(STRATEGY,) = [text for text in EXAMPLES if "EditMessages" in text]
USE = """
import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import rollout

for preset, length in (("", 8_000), ("-64k", 64_000)):
    env = agentgym.make(f"SumInvoices{preset}", oracles="SP", labels=True, hint_scope="ephemeral")
    env.reset(seed=1)
    assert abs(env.unwrapped.world.tokens / length - 1) < 0.1
    env.step("I am done.")
    assert env.unwrapped.world.score() == 0.0 and list(env.unwrapped.world.task_failures())
trajectory = rollout(agentgym.make("SumInvoices", oracles="SP", labels=True), OraclePolicy("SumInvoices"), 3)
assert trajectory.reward == 1.0 and all(list(step.info["labels"]) == ["productive"] for step in trajectory.steps)
print("solved")
"""


@pytest.mark.rotation
def test_the_office_task_is_whole() -> None:
    command = [sys.executable, "-W", "error", "-c", EXAMPLE + USE]
    shown = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=ROOT
    )
    assert (shown.stdout, shown.returncode) == ("solved\n", 0), shown.stderr


def test_the_context_strategy_keeps_the_last_messages() -> None:
    names: dict[str, Any] = {}
    exec(STRATEGY, names)
    env = names["env"]
    env.reset(seed=0)
    assert [len(env.step("no call")[0].messages) for _ in range(7)] == [4, 6, 8, 10, 12, 12, 12]
