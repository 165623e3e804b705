from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym.training.rollout.storage import replacing


def write_blank(_: Any, path: Path) -> list[Path]:
    paths = [path.with_suffix(ending) for ending in (".png", ".svg", ".pdf")]
    for each in paths:
        with replacing(each):
            pass
    return paths


@pytest.fixture(autouse=True)
def blank_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    # Drawing three figures in three formats takes most of a report's time. `test_plots.py`, one
    # report in `test_ablation.py` and the tests of the papers draw theirs.
    if drawing := sys.modules.get("agentgym.training.evaluation.drawing"):
        monkeypatch.setattr(drawing, "save", write_blank)
