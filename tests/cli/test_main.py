from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import agentgym
from agentgym.cli import app
from agentgym.training.evaluation import TRAJECTORIES
from agentgym.training.rollout.lines import torn_at
from tests.helpers import PATIENCE, run_python


def command(
    *arguments: str, typed: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, or as a program if it imports the user's modules."""
    if cwd is None:
        shown = CliRunner().invoke(app, arguments, input=typed)
        return subprocess.CompletedProcess(arguments, shown.exit_code, shown.stdout, shown.stderr)
    return run_python("-m", "agentgym", *arguments, input=typed, cwd=cwd)


def test_list_is_short_unless_all_is_asked_for() -> None:
    short = command("list").stdout.splitlines()
    assert [line.split()[0] for line in short[:-1]] == [entry.id for entry in agentgym.worlds()]
    assert "agentgym list --all" in short[-1]
    shown = command("list", "--all")
    assert shown.returncode == 0
    assert all(
        entry.id in shown.stdout for entry in (*agentgym.worlds(presets=True), *agentgym.teams())
    )
    assert "Search a hidden tree" in shown.stdout


def test_list_shows_the_ids_with_all_words() -> None:
    shown = command("list", "GRID", "easy")
    ids = [line.split()[0] for line in shown.stdout.splitlines()]
    assert "agentgym/GridWorld-easy-v0" in ids
    assert all("Grid" in each and "easy" in each for each in ids)
    none = command("list", "gird")
    assert (none.returncode, none.stdout) == (2, "")
    assert "no id contains gird; agentgym list --all shows all" in none.stderr


def test_the_version_is_printed() -> None:
    shown = command("--version")
    assert shown.returncode == 0
    assert shown.stdout == f"agentgym {importlib.metadata.version('agentgym-suite')}\n"
    assert "rollout" in command("--help").stdout
    assert command("lst").returncode == 2


def test_a_person_can_play_all_agents_of_a_team() -> None:
    typed = 'tell("closer_0", "done?")\nwait()\nwait()\ndone()\n'
    shown = command(
        "play", "ListWorld-team", "--set", "items=3", "--set", "removals=0", typed=typed
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("[system]") == 2, "each agent's chat is shown from its beginning once"
    assert shown.stdout.index("closer_0 will be shown it.") < shown.stdout.index(
        "actor_0 tells you (5 characters):\ndone?"
    )
    assert "solved in 1 turns, score 1.0" in shown.stdout


def test_a_person_can_play_to_the_end(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    shown = command(
        *("play", "ListWorld", "--set", "items=3", "--set", "removals=0", "--out", str(out)),
        typed="what?\n\npop\npop(id=\ngrab()\npop(id=9)\ndone\n",
    )
    assert shown.returncode == 0, shown.stderr
    assert "Initial list:" in shown.stdout
    assert "error:" in shown.stdout
    assert "'what?' is neither a call nor a command; tools lists the calls" in shown.stdout
    assert "additionalProperties" not in shown.stdout, "schemas are shown on request only"
    assert 'there is no tool "grab"' in shown.stdout
    assert "solved in 4 turns, score 1.0" in shown.stdout
    (line,) = out.read_text().splitlines()
    assert json.loads(line)["labels"] == {"policy": "human"}
    assert [step["info"]["optimal"] for step in json.loads(line)["steps"]][-1] is True


def test_a_person_is_helped() -> None:
    typed = "help\ntools\nbest\nstate\nup\nchat\nchta\nhum\n"
    shown = command("play", "GridWorld", "--set", "hole_density=0", typed=typed)
    assert shown.returncode == 0, shown.stderr
    parts = shown.stdout.split("\n> ")
    assert "Type a call, such as up()," in parts[1]
    assert "up(): Step to the cell above" in parts[2]
    assert re.search(r"(up|down|left|right)\(\)", parts[3])
    assert "Remaining moves" in parts[4]
    board = parts[0][parts[0].index("     0 1 2 3 4 5") :].rstrip()
    assert board.count("A") == board.count("G") == 1
    assert board not in parts[5]
    assert "additionalProperties" in parts[6]
    assert "did you mean 'chat'?" in parts[7]
    assert "tools lists the calls" in parts[8]
    assert "abandoned" in shown.stdout


def test_a_person_is_told_what_is_wrong_at_the_end() -> None:
    agentgym.make("SetConfCrDdl")  # skips the test if the host cannot run the office worlds
    shown = command("play", "SetConfCrDdl", "--set", "size=1", typed="claim_done()\n")
    assert "not solved in 1 turns, score 0.0\n- there is no right reminder of " in shown.stdout


def test_a_person_can_leave() -> None:
    shown = command("play", "GridWorld", "--oracles", "SPH", typed="")
    assert shown.returncode == 0
    assert "<state>" in shown.stdout
    assert "abandoned" in shown.stdout


def test_rollout_plays_shows_and_writes(tmp_path: Path) -> None:
    out = tmp_path / "new" / "t.jsonl"
    shown = command(
        *"rollout TreeWorld --episodes 2 --seed 4 --oracles SP --out".split(),
        str(out),
        "--show",
    )
    assert shown.returncode == 0, shown.stderr
    assert "solved 2 of 2" in shown.stdout
    assert "[assistant]" in shown.stdout
    assert [json.loads(line)["seed"] for line in out.read_text().splitlines()] == [4, 5]


@pytest.mark.rotation
def test_rollout_says_what_broke_and_does_not_count_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BREAKING)
    shown = command(
        *"rollout ListWorld --policy mine:Breaking --engine asyncio --episodes 3".split(),
        cwd=tmp_path,
    )
    assert "seed 1: PolicyError: no server" in shown.stdout, shown.stderr
    assert "solved 2 of 2; 1 failed and are not counted" in shown.stdout


BREAKING = """
from agentgym.oracles import OraclePolicy
from agentgym.play.policy import PolicyError


class Breaking:
    def __init__(self, env_id):
        self.begun, self.play = 0, OraclePolicy(env_id)

    def __call__(self, chats):
        self.begun += len(chats[0].messages) == 2
        if self.begun == 2:
            raise PolicyError("no server")
        return self.play(chats)

    async def areply(self, chat):
        return self([chat])[0]
"""


@pytest.mark.rotation
def test_ablate_writes_a_report_and_score_makes_it_again(tmp_path: Path) -> None:
    out = tmp_path / "a"
    shown = command(
        "ablate", "--horizons", "4,8", "--episodes", "3", "--out", str(out), "--workers", "2"
    )
    assert shown.returncode == 0, shown.stderr
    assert "Effect of each intervention" in shown.stdout
    results = (out / "results.jsonl").read_bytes()
    assert len(results.splitlines()) == 3 * 6 * 2 * 3
    for name in ("results.jsonl", "summary.md", "arms.png"):
        (out / name).unlink()
    assert command("score", str(out)).returncode == 0
    assert (out / "results.jsonl").read_bytes() == results
    assert (out / "arms.png").exists()


def wait_for(condition: Callable[[], bool], failure: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(failure)
        time.sleep(0.02)


# Exit statuses of an interrupted command. The signal itself terminates Python if the interrupt
# arrives inside `exec`, for example during a dataclass definition.
INTERRUPTED = (130, -signal.SIGINT)


@pytest.mark.parametrize(
    ("line", "delay"),
    [
        ("ablate --episodes 200 --workers 2", 0.7),  # interrupts the imports
        ("ablate --episodes 200 --workers 2", None),  # interrupts after the first episode
        ("rollout TreeWorld --episodes 5000 --engine processes --num-envs 2", 1.2),
    ],
)
def test_an_interrupt_is_one_line_at_any_moment(
    tmp_path: Path, line: str, delay: float | None
) -> None:
    out = tmp_path / ("t.jsonl" if line.startswith("rollout") else "a")
    log = out / TRAJECTORIES
    # Before Python starts, an interrupt ends the process without output.
    started = tmp_path / "started"
    (tmp_path / "sitecustomize.py").write_text(f"open({str(started)!r}, 'w').close()\n")
    # Background jobs of a script ignore interrupts, and their children would too.
    root = str(Path(agentgym.__file__).parents[1])
    python = ["env", "--default-signal=INT", sys.executable, "-m", "agentgym"]
    process = subprocess.Popen(
        [*python, *line.split(), "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), root])},
    )
    wait_for(started.exists, "Python has not started")
    if delay is not None:
        time.sleep(delay)  # the interrupt may arrive at any stage of the command
    else:
        wait_for(lambda: log.exists() and log.stat().st_size > 0, "the command wrote no episode")
    os.killpg(process.pid, signal.SIGINT)  # also interrupts the workers, as a terminal would
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode in INTERRUPTED, errors
    if "_get_module_details" in errors:
        pytest.skip("this host is too slow: Python had not yet found the command")
    hint = "; rerun the command to resume"
    if delay is None:
        assert errors == f"interrupted{hint}\n"
        assert torn_at(log) == log.stat().st_size
    assert errors.replace(hint, "") == "interrupted\n"


def test_a_log_of_another_run_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    line = ("rollout", "ListWorld", "--policy", "noisy:p=0.2", "--out", str(out))
    assert command(*line).returncode == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    others = {
        "world": ("rollout", "TreeWorld", *line[2:]),
        "policy": (*line[:3], "noisy:p=0.3", *line[4:]),
        "seed": (*line, "--seed", "3"),
        "options": (*line, "--set", "items=5"),
        "wrappers": (*line, "--oracles", "S"),
        "model": (*line, "--temperature", "0.5"),
    }
    for name, other in others.items():
        shown = command(*other)
        assert shown.returncode == 2, name
        assert f"other settings: its {name} " in shown.stderr
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert command(*line, "--episodes", "2").returncode == 0
    assert len(out.read_text().splitlines()) == 2
    (tmp_path / "t.jsonl.settings.json").unlink()
    shown = command(*line, "--set", "items=5")
    assert (
        "contains an episode of another run (agentgym/ListWorld-v0, seed 0, labels" in shown.stderr
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_what_is_no_number_no_file_and_no_run_is_refused(tmp_path: Path) -> None:
    pipe, log, empty = tmp_path / "pipe", tmp_path / "t.jsonl", tmp_path / "empty"
    os.mkfifo(pipe)
    empty.mkdir()
    rolled = CliRunner().invoke(app, ["rollout", "ListWorld", "--out", str(log)])
    assert rolled.exit_code == 0, rolled.output
    for line, problem in {
        "rollout ListWorld --seed -1": "greater than or equal to 0",
        "export CodeWorld x --seed -1": "greater than or equal to 0",
        f"rollout ListWorld --out {pipe}": "is a device or a pipe",
        "ablate --out /dev/zero": "File exists",
        f"view {pipe}": "is a device or a pipe",
        f"doctor {empty}": "contains no run",
        f"play ListWorld --out {log}": "contains an episode of another run",
    }.items():
        shown = CliRunner().invoke(app, line.split(), input="")
        assert shown.exit_code == 2, line
        assert problem in " ".join(shown.output.split()), shown.output


ERRORS = (Path(__file__).parent / "errors.tsv").read_text(encoding="utf-8").splitlines()[1:]


@pytest.mark.parametrize("line", ERRORS)
def test_bad_input_is_one_clear_line_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    arguments, message = line.split("\t")
    if arguments.startswith("serve "):
        pytest.importorskip("mcp")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("a file where a folder should be")
    before = sorted(tmp_path.rglob("*"))
    shown = command(*shlex.split(arguments))
    assert shown.returncode == 2
    assert len(shown.stderr.strip().splitlines()) == 1
    assert shown.stderr.startswith("error: ")
    assert message in shown.stderr
    assert sorted(tmp_path.rglob("*")) == before
