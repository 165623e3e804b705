"""Provenance identifies the policy and reveals mixed folders and contradictory records."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentgym import Chat, Reply
from agentgym.cli import app
from agentgym.oracles import NoisyPolicy, OraclePolicy
from agentgym.play.policy import Policy
from agentgym.training.evaluation import (
    load_folders,
    load_results,
    log_of,
    prepare_ablation,
    run_ablation,
)
from agentgym.training.evaluation.provenance import difference, module_digests
from agentgym.training.evaluation.study_folder import SETTINGS, load_study
from agentgym.training.rollout import PolicyConfig
from tests.training.evaluation import studies

LOG = "trajectories.jsonl"


small = functools.partial(studies.small, horizons=(4,), seeds=3)


def play(chats: Sequence[Chat]) -> list[Reply]:
    return OraclePolicy("ListWorld")(chats)


def play_badly(chats: Sequence[Chat], chance: float = 0.9) -> list[Reply]:
    return NoisyPolicy("ListWorld", chance)(chats)


class Player:
    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        return play(chats)


def nested() -> Policy:
    def inner(chats: Sequence[Chat]) -> list[Reply]:
        return play(chats)

    return inner


HERE = __name__
PLAYERS: list[tuple[Any, str]] = [
    (play, "play"),
    (Player(), "Player"),
    (Player().__call__, "Player.__call__"),
    (functools.partial(play_badly, chance=0.5), "play_badly"),
    (nested(), "nested.<locals>.inner"),
    (lambda chats: OraclePolicy("ListWorld")(chats), "<lambda>"),  # noqa: PLW0108 - the lambda is the case
    (OraclePolicy("ListWorld"), "agentgym.oracles.policies.OraclePolicy"),
]


@pytest.mark.parametrize(("player", "name"), PLAYERS)
def test_an_object_is_recorded_under_its_own_name(tmp_path: Path, player: Any, name: str) -> None:
    full = name if name.startswith("agentgym.") else f"{HERE}.{name}"
    rows = run_ablation(small(arms=("",)), tmp_path, 1, player=player)
    assert {row.policy for row in rows} == {full}
    for trajectory in log_of(tmp_path):
        facts = trajectory.labels["provenance"]
        assert facts["policy"] == f"object:{full}"
        assert facts["source"]
        assert (HERE in facts["modules"]) == (not name.startswith("agentgym."))
    assert "oracle" not in (tmp_path / SETTINGS).read_text().split('"')
    # The policy with that name has another column, and the same object continues.
    both = run_ablation(small(arms=("",)), tmp_path, 1)
    assert {row.policy for row in both} == {full, "oracle"}
    again = run_ablation(small(arms=("",), seeds=4), tmp_path, 1, player=player)
    assert len(again) == 3 + 4


def test_another_object_under_one_label_is_refused(tmp_path: Path) -> None:
    ablation = replace(small(), policy=PolicyConfig("oracle", label="mine"))
    assert {row.policy for row in run_ablation(ablation, tmp_path, 1, player=play)} == {"mine"}
    for other in (play_badly, Player(), None):
        with pytest.raises(ValueError, match=r"'mine'|its policy mine is"):
            run_ablation(ablation, tmp_path, 1, player=other)


def test_code_without_a_file_has_a_digest_of_its_code(tmp_path: Path) -> None:
    sources = []
    for chance in (0.1, 0.2):
        space: dict[str, Any] = {"NoisyPolicy": NoisyPolicy}
        exec(f"def f(chats):\n    return NoisyPolicy('ListWorld', {chance})(chats)", space)
        space["f"].__module__ = "nowhere"
        run_ablation(small(), tmp_path / str(chance), 1, player=space["f"])
        study = load_study(tmp_path / str(chance))
        assert study is not None
        sources.append(study.policies["nowhere.f"]["source"])
    assert len(set(sources)) == 2


FILES = {
    "mine_policy.py": "import mine_helper\nfrom agentgym.oracles import OraclePolicy\n"
    "def make(env_id):\n    return mine_helper.play(env_id)\n",
    "mine_helper.py": "def play(env_id):\n    from mine_package import sub\n    return sub.play(env_id)\n",
    "mine_package/__init__.py": "",
    "mine_package/sub.py": "from . import deep\nfrom .deep import play\n",
    "mine_package/deep.py": "from agentgym.oracles import OraclePolicy as play\nimport json, numpy\n",
    "mine_world.py": "from agentgym.envs.lumina.list_world import ListWorld\nimport mine_rules\n"
    "class MineWorld(ListWorld):\n    pass\n",
    "mine_rules.py": "LIMIT = 3\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def ablate(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    line = "ablate --policy mine_policy:make --oracles none --horizons 3 --workers 1 --out run"
    return subprocess.run(
        [sys.executable, "-m", "agentgym", *line.split(), *options],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_all_modules_that_a_policy_imports_are_recorded(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(project))
    found = module_digests("mine_policy")
    names = {"mine_policy", "mine_helper", "mine_package", "mine_package.sub", "mine_package.deep"}
    assert found.keys() == names
    assert not names & sys.modules.keys(), "nothing is imported to learn this"
    (project / "mine_package/deep.py").write_text(FILES["mine_package/deep.py"] + "#\n")
    changed = module_digests("mine_policy")
    assert {name for name in names if changed[name] != found[name]} == {"mine_package.deep"}
    said = difference({"modules": found}, {"modules": changed})
    assert said.startswith("its module mine_package.deep was ")


@pytest.mark.rotation
@pytest.mark.parametrize(
    "file", ["mine_policy.py", "mine_helper.py", "mine_package/deep.py", "mine_world.py", "mine_rules.py"]
)  # fmt: skip
def test_a_run_does_not_go_on_with_other_code(project: Path, file: str) -> None:
    world = ("--world", "mine_world:MineWorld", "--episodes")
    shown = ablate(project, *world, "2")
    assert shown.returncode == 0, shown.stderr
    (project / file).write_text(FILES[file] + "# another\n")
    shown = ablate(project, *world, "3")
    assert shown.returncode == 2
    assert len(shown.stderr.strip().splitlines()) == 1
    assert "choose another folder" in shown.stderr


SCRIPT = """
import sys
from pathlib import Path
from agentgym.oracles import OraclePolicy
from agentgym.training.evaluation import Ablation, run_ablation
from mine_helper import play as helper
def play(chats):
    return OraclePolicy("ListWorld")(chats)
seeds = 2
run_ablation(Ablation(("ListWorld",), ("",), (3,), seeds), Path("run"), 1, player=play)
"""


@pytest.mark.rotation
def test_a_script_may_grow_its_study_but_not_change_its_policy(project: Path) -> None:
    said = []
    for old, new in (
        ("", ""),
        ("seeds = 2", "seeds = 3"),
        ("    return", "    # other\n    return"),
    ):
        (project / "script.py").write_text(SCRIPT.replace(old, new))
        line = [sys.executable, "script.py"]
        shown = subprocess.run(line, cwd=project, capture_output=True, text=True, check=False)
        said.append(shown.stderr)
    assert said[:2] == ["", ""]
    assert "'__main__.play' from another player: its source was " in said[2]
    study = load_study(project / "run")
    assert study is not None
    assert "mine_helper" in study.policies["__main__.play"]["modules"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    out = tmp_path / "run"
    out.mkdir()
    (out / LOG).touch()
    run_ablation(small("noisy:p=0.2"), out, 1)
    return out


def edit(path: Path, change: Callable[[Any], None], lines: Sequence[int] = ()) -> None:
    texts = (
        path.read_text(encoding="utf-8").splitlines()
        if path.suffix == ".jsonl"
        else [path.read_text(encoding="utf-8")]
    )
    for number, text in enumerate(texts):
        if not lines or number in lines:
            data = json.loads(text)
            change(data)
            texts[number] = json.dumps(data)
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")


def other_code(data: Any) -> None:
    for facts in data["policies"].values():
        facts["code"] = "0123456789abcdef"


def test_other_sources_of_the_package_are_refused_and_reported(run: Path, tmp_path: Path) -> None:
    two = tmp_path / "two"
    run_ablation(small(), two, 1)
    edit(run / SETTINGS, other_code)
    for policy in ("noisy:p=0.2", "oracle"):
        with pytest.raises(
            ValueError, match=r"was played by other code: its code was .*; go on wi"
        ):
            run_ablation(small(policy, seeds=4), run, 1)
    doubts = load_folders({run: "", two: ""}).doubts
    assert any("were played by other code: its code was " in doubt for doubt in doubts)
    shown = CliRunner().invoke(app, ["score", str(run)])
    assert "6 episodes of noisy:p=0.2 were played by another" in " ".join(shown.output.split())


def flip(data: Any) -> None:
    info = data["steps"][-1]["info"]
    info["success"] = not info["success"]


def flip_all(data: Any) -> None:
    flip(data)
    won = float(data["steps"][-1]["info"]["success"])
    data["steps"][-1]["info"]["detail"]["score"] = data["steps"][-1]["reward"] = won


def swap_arm(data: Any) -> None:
    data["labels"]["arm"] = "" if data["labels"]["arm"] else "S"


def shift_seed(data: Any) -> None:
    data["seed"] = (data["seed"] + 1) % 3


def double_rewards(data: Any) -> None:
    for step in data["steps"]:
        step["reward"] = 1.0 - step["reward"]


def swap_reply(data: Any) -> None:
    data["steps"][0]["reply"]["text"] = "```python\nadd(1)\n```"


CHANGES: dict[str, Callable[[Any], None]] = {
    "flipped success": flip,
    "flipped success, score and reward": flip_all,
    "swapped arm": swap_arm,
    "shifted seed": shift_seed,
    "other rewards": double_rewards,
    "other version": lambda data: data["labels"]["provenance"].update(agentgym="7.1"),
    "other code": lambda data: data["labels"]["provenance"].update(code="0" * 16),
    "other label": lambda data: data["steps"][0]["info"].update(optimal=None),
    "other reply": swap_reply,
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("lines", [(), (4,)])
def test_doctor_finds_what_contradicts_an_episode(
    run: Path, name: str, lines: Sequence[int]
) -> None:
    assert CliRunner().invoke(app, ["doctor", str(run)]).exit_code == 0
    expected = load_results(run)
    edit(run / LOG, CHANGES[name], lines)
    shown = CliRunner().invoke(app, ["doctor", str(run)])
    assert shown.exit_code == 1, shown.output
    assert len(lines) <= shown.output.count(f"{LOG}, line ") <= (2 if lines else 6)
    assert CliRunner().invoke(app, ["doctor", str(run), "--repair"]).exit_code == 0
    assert run_ablation(small("noisy:p=0.2"), run, 1) == expected


def test_doctor_runs_no_code_that_a_log_names(run: Path, tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')\n")

    def name_code(data: Any) -> None:
        data["spec"]["entry_point"] = data["spec"]["kwargs"]["world"] = "evil:World"

    edit(run / LOG, name_code)
    edit(run / SETTINGS, lambda data: data["runs"][0].update(worlds=["evil:World"]))
    edit(run / LOG, lambda data: data["labels"].update(world="evil:World"))
    shown = subprocess.run(
        [sys.executable, "-m", "agentgym", "doctor", str(run)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "imported" not in shown.stderr + shown.stdout


def test_contradicting_duplicates_are_counted(run: Path, tmp_path: Path) -> None:
    two = tmp_path / "two"
    two.mkdir()
    for name in (SETTINGS, LOG):
        (two / name).write_bytes((run / name).read_bytes())
    edit(two / LOG, flip_all, (0, 3))
    with pytest.warns(
        UserWarning, match="6 cells occur in .*, and 2 of them with different results"
    ):
        assert load_folders({run: "", two: ""}) == load_results(run)
    (run / LOG).write_bytes((run / LOG).read_bytes() + (two / LOG).read_bytes())
    with pytest.warns(UserWarning, match="6 trajectories in .* are doubles"):
        assert any("2 of 6 duplicates" in doubt for doubt in load_results(run).doubts)


SPELLINGS = [
    ("P", "P1"),
    ("SP", "PS"),
    ("P0.5", "P0.50"),
    ("P0S_", "S_P0"),
    ("P1.0S", "SP"),
    ("", "none"),
]


@pytest.mark.parametrize("arms", SPELLINGS)
def test_spellings_of_an_arm_are_one_arm(tmp_path: Path, arms: tuple[str, str]) -> None:
    settings = [small(arms=given) for given in (arms, arms[::-1], arms[:1], arms[1:])]
    assert len({each.arms for each in settings}) == 1
    assert len(settings[0].cells()) == 3
    run_ablation(settings[2], tmp_path, 1)
    assert len(run_ablation(settings[3], tmp_path, 1)) == 3


CONTEXTS = [
    ("clear_results:trigger=60k", "clear_results:trigger=60000"),
    ("clear_results:trigger=60k:keep=2", "clear_results:keep=2:trigger=60k"),
    ("clear_results+memory", "memory+clear_results"),
]


@pytest.mark.parametrize("contexts", CONTEXTS)
def test_spellings_of_a_context_are_one_context(tmp_path: Path, contexts: tuple[str, str]) -> None:
    both = small(contexts=contexts)
    assert both.contexts == contexts[:1]
    run_ablation(both, tmp_path, 1)
    other = small(contexts=contexts[1:])
    prepare_ablation(other, tmp_path)  # as the command does
    assert len(run_ablation(other, tmp_path, 1)) == 6
