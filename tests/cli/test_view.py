"""The command `view` as a user runs it."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from typer.testing import CliRunner

from agentgym.cli import app
from tests.helpers import PATIENCE
from tests.training.viewer.episodes import write_run


def test_a_run_is_written_as_one_file(tmp_path: Path) -> None:
    out = tmp_path / "pages" / "run.html"
    done = CliRunner().invoke(
        app, ["view", str(write_run(tmp_path)), "--optimal", "--out", str(out)]
    )
    assert done.exit_code == 0, done.stderr
    assert "(5 episodes, " in done.stdout
    assert out.read_text().startswith("<!doctype html>")


def test_a_run_that_is_missing_or_empty_is_an_error(tmp_path: Path) -> None:
    for run, problem in ((tmp_path / "no", "there is no run at"), (tmp_path, "no trajectories")):
        done = CliRunner().invoke(app, ["view", str(run), "--out", str(tmp_path / "x.html")])
        assert done.exit_code == 2
        assert problem in done.stderr


def test_the_page_is_served_until_ctrl_c(tmp_path: Path) -> None:
    # A background process ignores the signal.
    line = ["env", "--default-signal=INT", sys.executable, "-m", "agentgym", "view"]
    line += [str(write_run(tmp_path)), "--no-browser"]
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=None
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split(" at ")[1].split(" ")[0]
        with urllib.request.urlopen(url, timeout=PATIENCE) as page:
            assert b"agentgym" in page.read()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "Traceback" not in errors
