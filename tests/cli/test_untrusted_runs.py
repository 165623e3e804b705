from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.file_proxy import FileProxy
from rich.text import Text
from typer.testing import CliRunner

from agentgym.assemble import wrapper_stack
from agentgym.assemble.recorded_specs import make_recorded
from agentgym.cli import app, main
from agentgym.cli.terminal import PlainConsole, PlainStream, printable
from agentgym.text import imports
from agentgym.training.evaluation import TRAJECTORIES
from agentgym.training.rollout.lines import encode_lines, read_chunks
from tests.helpers import run_python
from tests.training.viewer.episodes import played

ROOT = Path(__file__).resolve().parents[2]
# For a console script, the first entry of sys.path is the script's folder, unlike for `python -m`.
SCRIPT = """
import json, sys
from agentgym.cli import main
if __name__ == "__main__":
    for line in json.loads(sys.argv[1]):
        sys.argv[1:] = line
        try:
            main()
        except (Exception, SystemExit) as error:
            print(f"{line}: {error!r}", file=sys.stderr)
"""
EVIL = "evilworld"


def trap(folder: Path) -> None:
    """Fill a folder with modules that shadow all existing ones and leave a mark when imported."""
    names = {*sys.stdlib_module_names, *packages_distributions(), EVIL, "sitecustomize"}
    names |= {"usercustomize", "ray", "vllm", "agentgym", "tests"}
    mark = f"open({str(folder / 'EXECUTED')!r}, 'a').write(__name__ + '\\n')\n"
    for name in names:
        if "/" not in name:
            (folder / f"{name}.py").write_text(mark)


class Bomb:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.system, (f"echo pickle >> {self.folder / 'EXECUTED'}",)


def script_in(folder: Path) -> Path:
    script = folder / "bin" / "agentgym"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    return script


def evil_log(path: Path, study: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Copy the log of an honest study, with `change` applied to each line."""
    lines = []
    for line in honest_lines(study):
        data = json.loads(line)
        change(data)
        for step in data["steps"]:
            step["info"]["detail"].pop("instance", None)
        lines.append(json.dumps(data).encode() + b"\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_lines(path, lines))


def honest_lines(study: Path) -> list[bytes]:
    return [line for chunk in read_chunks(study / TRAJECTORIES) for line in chunk.lines]


def _world(line: dict[str, Any]) -> None:
    line["spec"]["kwargs"]["world"] = f"{EVIL}:W"


def _entry(call: str) -> Callable[[dict[str, Any]], None]:
    def change(line: dict[str, Any]) -> None:
        line["spec"]["entry_point"] = call
        line["spec"]["kwargs"] = {"command": "echo call >> EXECUTED"}

    return change


def _wrapper(call: str) -> Callable[[dict[str, Any]], None]:
    def change(line: dict[str, Any]) -> None:
        layer = {"name": "x", "entry_point": call, "kwargs": {"command": "echo call >> EXECUTED"}}
        line["spec"]["additional_wrappers"] = [layer]

    return change


def _labels(line: dict[str, Any]) -> None:
    line["labels"] |= {"world": f"{EVIL}:W", "context": f"{EVIL}:W", "policy": f"{EVIL}:make"}
    line["labels"] |= {"arm": f"{EVIL}:W", "axis": f"{EVIL}:W"}


def _counter(call: str) -> Callable[[dict[str, Any]], None]:
    def change(line: dict[str, Any]) -> None:
        for layer in line["spec"]["additional_wrappers"]:
            layer["kwargs"]["budget"] = {"counter": call}
        line["spec"]["kwargs"]["counter"] = call

    return change


def _search(call: str) -> Callable[[dict[str, Any]], None]:
    def change(line: dict[str, Any]) -> None:
        world = "agentgym.envs.gsm_agent.search_world:SearchWorld"
        line["spec"]["id"] = "agentgym/SearchWorld-v0"
        line["spec"]["kwargs"] = {"world": world, "search_by": call}
        line["spec"]["additional_wrappers"] = []

    return change


CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "world": _world,
    "labels": _labels,
    "search": _search(f"{EVIL}:make"),
    "counter": _counter(f"{EVIL}:make"),
    "entry point": _entry("os:system"),
    "wrapper": _wrapper(f"{EVIL}:make"),
}
READERS = [
    ["score", "."],
    ["compare", ".", "--out", "compared"],
    ["doctor", "."],
    ["submit", ".", "--out", "submission.json"],
    ["submit", "study", "--out", "submission.json"],
    ["review", "submission.json", "."],
    ["view", ".", "--out", "page.html"],
    ["view", "run.jsonl", "--optimal", "--out", "page.html"],
    ["rollout", "ListWorld", "--out", "run.jsonl"],
    "ablate --out . --world ListWorld --horizons 2 --oracles S --episodes 2 --workers 2".split(),
    ["list"],
    ["doctor", ".", "--repair"],
    ["score", "."],
]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study")
    options = "--world ListWorld --horizons 2 --oracles S --episodes 2 --workers 1"
    done = CliRunner().invoke(app, ["ablate", *options.split(), "--out", str(out)])
    assert done.exit_code == 0, done.stderr
    return out


def run(folder: Path, script: Path, *lines: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = run_python(str(script), json.dumps(lines), cwd=folder, env=environment, check=True)
    assert not (folder / "EXECUTED").exists(), (folder / "EXECUTED").read_text()
    return done


@pytest.mark.rotation(change=list(CHANGES))
def test_no_command_executes_what_a_folder_contains(
    change: str, study: Path, tmp_path: Path
) -> None:
    folder, script = tmp_path / "run", script_in(tmp_path)
    evil_log(folder / "run.jsonl", study, CHANGES[change])
    evil_log(folder / TRAJECTORIES, study, CHANGES[change])
    (folder / "study").mkdir()
    for name in ("ablation.json", TRAJECTORIES):
        (folder / "study" / name).write_bytes((study / name).read_bytes())
    settings = (study / "ablation.json").read_text()
    (folder / "ablation.json").write_text(settings.replace("ListWorld", f"{EVIL}:W"))
    for name in ("checkpoint.pt", "cache.pkl", "model.bin"):
        (folder / name).write_bytes(pickle.dumps(Bomb(folder)))
    (folder / "train.json").write_text("{}")
    outside = tmp_path / "outside"
    outside.write_text("mine")
    for name in ("summary.md", "results.csv", "page.html", "arms.png"):
        (folder / name).symlink_to(outside)
    trap(folder)
    run(folder, script, *READERS)
    assert outside.read_text() == "mine"


@pytest.mark.parametrize(
    ("links", "line"),
    [
        ([".lock"], "score"),
        ([name + end for name in ("summary.md", "results.jsonl", "arms.png") for end in ("", ".new")], "score"),
        ([f"{TRAJECTORIES}.damaged"], "doctor --repair"),
        (["page.html", "page.html.new"], "view --out page.html"),
    ],
)  # fmt: skip
def test_no_command_writes_through_a_link(
    links: list[str], line: str, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, run_folder = tmp_path / "outside", tmp_path / "run"
    outside.write_text("mine")
    run_folder.mkdir()
    (run_folder / "ablation.json").write_bytes((study / "ablation.json").read_bytes())
    log = run_folder / TRAJECTORIES
    log.write_bytes(encode_lines(log, [*honest_lines(study), b"rm -rf ~\n"]))
    for name in links:
        (run_folder / name).symlink_to(outside)
    monkeypatch.chdir(run_folder)
    done = CliRunner().invoke(app, [*line.split(), "."])
    assert done.exit_code in (0, 1, 2), done.exception
    assert outside.read_text() == "mine"


CALLS = ["os:system", "agentgym.sandboxes.namespaces:Popen", "gymnasium.wrappers:RecordVideo"]


@pytest.mark.parametrize("place", [_counter, _entry, _search, _wrapper])
@pytest.mark.parametrize("call", CALLS)
def test_a_spec_calls_worlds_and_wrappers_only(
    place: Callable[[str], Any], call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "_trusted", set())
    line = json.loads(played(oracles="S").to_json())
    assert make_recorded(json.dumps(line["spec"])).reset(seed=0)
    place(call)(line)
    with pytest.raises((ValueError, ImportError)):
        make_recorded(json.dumps(line["spec"])).reset(seed=0)


def test_every_command_that_takes_a_run_is_among_the_readers() -> None:
    commands = typer.main.get_command(app)
    readers = {line[0] for line in READERS}
    for name, command in vars(commands)["commands"].items():
        taken = {parameter.name for parameter in getattr(command, "params", ())}
        if taken & {"folder", "folders", "run", "train"} and name not in (
            "export",
            "package",
        ):  # these two write folders
            assert name in readers, name


def test_a_module_named_on_the_command_line_is_imported(tmp_path: Path) -> None:
    """Modules in the working folder can be imported, but installed modules take precedence."""
    script = script_in(tmp_path)
    trap(tmp_path)
    text = "from agentgym.envs.lumina.list_world import ListWorld\nclass W(ListWorld): pass\n"
    (tmp_path / f"{EVIL}.py").write_text(text)
    done = run(tmp_path, script, ["rollout", f"{EVIL}:W"])
    assert "solved 1 of 1" in done.stdout, done.stderr


STRATEGY = """
import gymnasium
from agentgym.assemble.wrapper_order import Stage
from agentgym.assemble.wrapper_stack import register_strategy

class Plain(gymnasium.ObservationWrapper):
    stage = Stage.TOOLS
    def observation(self, chat):
        return chat

register_strategy("plain", Plain)
"""


def test_scoring_a_run_with_own_context_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(STRATEGY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(imports, "_trusted", None)
    strategies = wrapper_stack._strategies
    study = "--world ListWorld --horizons 1 --episodes 1 --oracles none --workers 1 --out run"
    shown = []
    for line in (f"ablate {study} --context mine:plain", "score run", "--import mine score run"):
        monkeypatch.setattr(wrapper_stack, "_strategies", strategies.copy())
        monkeypatch.setattr(sys, "argv", ["agentgym", *line.split()])
        with pytest.raises(SystemExit) as end:
            main()
        shown.append((end.value.code, capsys.readouterr()))
        sys.modules.pop("mine", None)  # the next command starts without it
    assert [code for code, _ in shown] == [0, 2, 0]
    assert shown[1][1].err.splitlines()[0] == (
        "error: the run uses the module 'mine', which runs only if the command line names it; if you "
        "trust it, write agentgym --import mine before the command"
    )
    assert "mine:plain" in shown[2][1].out


CONTROLS = [chr(k) for k in (*range(9), *range(11, 32), *range(127, 160))]
BIDI = list(
    "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff\U000e0041"
)
# `rich` converts its markup to escape sequences on a terminal, and fails on an unknown closing tag.
MARKUP = "[link=http://x]y[/link][/nothing]:smile:"
HIDDEN = "".join([*CONTROLS, *BIDI, "\x1b]0;title\x07\x1b[2J\x1b[31m", "\ud800", MARKUP])


def test_only_visible_characters_are_printable() -> None:
    shown = printable(HIDDEN)
    assert not set(shown) & {*CONTROLS, *BIDI, "\ud800"}
    assert "\\x1b]0;title\\x07" in shown
    assert printable("né 👩\u200d🚀 \u05d0\n\tx") == "né 👩\u200d🚀 \u05d0\n\tx"


def test_a_progress_bar_keeps_its_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The console escapes control characters in text, but keeps colours, while a progress bar
    replaces stdout.
    """
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stdout", PlainStream(terminal))
    console = PlainConsole()
    monkeypatch.setattr(sys, "stdout", FileProxy(console, sys.stdout))
    assert console.file is terminal
    console.print(f"a{HIDDEN}", Text("b", "red"))
    assert not set(terminal.getvalue()) & {*CONTROLS, *BIDI}


POLICY = f"""
from agentgym import Reply, PolicyError
HIDDEN = {HIDDEN!r}
def says(env_id):
    return lambda chats: [Reply(HIDDEN + "<think>" + HIDDEN + "</think>" + HIDDEN) for _ in chats]
def fails(env_id):
    def policy(chats): raise PolicyError(HIDDEN)
    return policy
"""


@pytest.mark.parametrize(
    "line",
    [
        "rollout ListWorld --policy pols:says --show --out run.jsonl",
        "rollout ListWorld --policy pols:fails",
        "score .",
        "compare . --out compared",
        "doctor .",
        "submit .",
        "play ListWorld",
        "ablate --world ListWorld --horizons 2 --oracles none --episodes 1 --workers 1 --policy pols:fails --out lost",
        "longbench report .",
    ],
)
def test_no_command_prints_control_characters(
    line: str, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pols.py").write_text(POLICY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    hidden = json.dumps(HIDDEN)[1:-1].encode()
    changed = [
        line.replace(b"control:planning", hidden + b"control:planning")
        for line in honest_lines(study)
    ]
    damaged = HIDDEN.encode("utf-8", "replace").replace(b"\n", b"") + b"\n"
    log = tmp_path / TRAJECTORIES
    log.write_bytes(encode_lines(log, [*changed, *([damaged] if line == "doctor ." else ())]))
    settings = (study / "ablation.json").read_bytes()
    settings = settings.replace(b"control:planning", hidden + b"control:planning")
    (tmp_path / "ablation.json").write_bytes(settings)
    typed = f"{printable(HIDDEN)}\x1b[31m\nquit\n"
    done = CliRunner().invoke(app, line.split(), input=typed)
    assert done.output
    assert not set(done.output) & {*CONTROLS, *BIDI}, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
