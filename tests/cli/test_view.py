from __future__ import annotations

import os
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
    runs = [tmp_path / name for name in ("one", "two")]
    for run in runs:
        run.mkdir()
        write_run(run)
    line = ["view", *map(str, runs), "--optimal", "--out", str(out)]
    done = CliRunner().invoke(app, [*line, "--price", "0.15,0.6"])
    assert done.exit_code == 0, done.stderr
    assert "(10 episodes, " in done.stdout
    assert out.read_text().startswith("<!doctype html>")


def test_a_run_that_is_missing_or_empty_is_an_error(tmp_path: Path) -> None:
    for run, problem in ((tmp_path / "no", "there is no run at"), (tmp_path, "no trajectories")):
        done = CliRunner().invoke(app, ["view", str(run), "--out", str(tmp_path / "x.html")])
        assert done.exit_code == 2
        assert problem in done.stderr
    done = CliRunner().invoke(app, ["view", str(write_run(tmp_path)), "--price", "cheap"])
    assert (done.exit_code, "--price must be PROMPT,REPLY" in done.stderr) == (2, True)


def test_the_page_is_served_until_ctrl_c(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    # A background process would otherwise ignore SIGINT.
    line = ["env", "--default-signal=INT", sys.executable, "-m", "agentgym", "view"]
    line += [str(write_run(tmp_path)), "--no-browser"]
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split(" at ")[1].split(" ")[0]
        with urllib.request.urlopen(url, timeout=PATIENCE) as page:
            assert b"agentgym" in page.read()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "Traceback" not in errors
