from __future__ import annotations

from pathlib import Path

from tests.cli.test_main import command
from tests.testing import leaky_worlds  # noqa: F401 - it registers the toy worlds


def test_audit_shows_a_table_and_writes_it(tmp_path: Path) -> None:
    out = tmp_path / "audit.md"
    options = (*"--episodes 60 --demonstrations 10 --set items=8 --set removals=4".split(),)
    shown = command("audit", "ListWorld", *options, "--out", str(out))
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "(ceiling 10.0, estimated score by chance 0.0)" in " ".join(shown.stdout.split())
    page = out.read_text(encoding="utf-8")
    assert "| at once done() | shortcut | 0.0 [0.0, 10.0] | 60 | holds |" in page
    assert "| oracle | baseline | 100.0 [90.0, 100.0] | 60 |  |" in page


def test_audit_of_a_leaky_world_exits_with_1() -> None:
    shown = command("audit", "AnyEnd", "--episodes", "20", "--demonstrations", "8")
    assert shown.returncode == 1
    assert "verdict: leak (at once answer(name=''))" in shown.stdout
