from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from tests.conftest import missing_packages
from tests.helpers import run_python

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted(
    path.stem
    for path in (Path(__file__).parent / "features").glob("*.py")
    if path.stem not in ("__init__", "__main__", "small_model")
)
# Extras for development tools, and extras that need a separate environment or a GPU.
ELSEWHERE = {"bench", "dev", "docs", "inspect", "openenv", "renderers", "test"}
ELSEWHERE |= {"verifiers", "verl", "vllm"}


def test_every_extra_has_a_program() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"core", *project["optional-dependencies"]} - ELSEWHERE == set(PROGRAMS)


def test_the_table_of_conflicts_is_what_the_resolver_found() -> None:
    found = json.loads((ROOT / ".ci" / "conflicts.json").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    combined = {"test", "docs", "bench", "dev"}
    declared = {
        name: needs
        for name, needs in project["optional-dependencies"].items()
        if name not in combined
    }
    assert found["extras"] == declared, "an extra has changed; run make conflicts"
    page = (ROOT / "docs" / "stacks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` and `(\w+)` \|", page, re.MULTILINE)
    assert sorted(map(sorted, rows)) == sorted(map(sorted, found["pairs"]))


@pytest.mark.rotation(extra=PROGRAMS)
def test_an_extra_needs_no_other(extra: str, tmp_path: Path) -> None:
    if missing := missing_packages():
        pytest.skip(f"not installed: {', '.join(missing)}")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    shown = run_python(
        "-m", "tests.project.features", extra, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}
    )
    if "SandboxUnavailable: " in shown.stderr:
        pytest.skip(shown.stderr.splitlines()[-1])
    assert shown.returncode == 0, shown.stdout[-2_000:] + shown.stderr[-4_000:]
