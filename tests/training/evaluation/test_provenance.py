from __future__ import annotations

import functools
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentgym import Chat, Reply
from agentgym.oracles import NoisyPolicy, OraclePolicy
from agentgym.play.policy import Policy
from agentgym.training.evaluation import load_folders, log_of, run_ablation
from agentgym.training.evaluation.provenance import difference, module_digests
from agentgym.training.evaluation.study_folder import SETTINGS
from agentgym.training.rollout import PolicyConfig
from tests.helpers import run_python
from tests.training.evaluation import studies

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
    # The run treats the object and the policy named `oracle` as two policies; either can resume it.
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


FILES = {
    "mine_policy.py": "import mine_helper\ndef make(env_id):\n    return mine_helper.make(env_id)\n",
    "mine_helper.py": "def make(env_id):\n    from mine_folder.sub import deep\n"
    "    return deep.make(env_id)\n",
    "mine_folder/sub/__init__.py": "from . import deep\n",
    "mine_folder/sub/deep.py": "from agentgym.oracles import OraclePolicy as make\n"
    "import json, numpy\n",
    "mine_world.py": "from agentgym.envs.lumina.list_world import ListWorld\nimport mine_rules\n"
    "class MineWorld(ListWorld):\n    pass\n",
    "mine_rules.py": "LIMIT = 3\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def python(folder: Path, *words: str) -> tuple[int, str]:
    shown = run_python(*words, cwd=folder)
    return shown.returncode, shown.stderr


def test_all_modules_that_a_policy_imports_are_recorded(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(project))
    found = module_digests("mine_policy")
    names = {"mine_policy", "mine_helper", "mine_folder.sub", "mine_folder.sub.deep"}
    assert found.keys() == names
    assert not names & sys.modules.keys(), "nothing is imported to learn this"
    deep = "mine_folder/sub/deep.py"
    (project / deep).write_text(FILES[deep] + "#\n")
    said = difference({"modules": found}, {"modules": module_digests("mine_policy")})
    assert said.startswith("its module mine_folder.sub.deep was ")


@pytest.mark.rotation
@pytest.mark.parametrize("file", FILES)
def test_a_run_does_not_go_on_with_other_code(project: Path, file: str) -> None:
    line = (
        "-m agentgym ablate --policy mine_policy:make --world mine_world:MineWorld --oracles none"
    )
    line += " --horizons 3 --workers 1 --out run --episodes"
    code, error = python(project, *line.split(), "2")
    assert code == 0, error
    (project / file).write_text(FILES[file] + "# another\n")
    code, error = python(project, *line.split(), "3")
    assert (code, len(error.strip().splitlines())) == (2, 1), error
    assert "choose another folder" in error


SCRIPT = """
from pathlib import Path
from agentgym.oracles import OraclePolicy
from agentgym.training.evaluation import Ablation, run_ablation
def play(chats):
    return OraclePolicy("ListWorld")(chats)
seeds = 2
run_ablation(Ablation(("ListWorld",), ("",), (3,), seeds), Path("run"), 1, player=play)
"""


@pytest.mark.rotation
def test_a_script_may_grow_its_study_but_not_change_its_policy(tmp_path: Path) -> None:
    said = []
    for old, new in (
        ("", ""),
        ("seeds = 2", "seeds = 3"),
        ("    return", "    # other\n    return"),
    ):
        (tmp_path / "script.py").write_text(SCRIPT.replace(old, new))
        said.append(python(tmp_path, "script.py")[1])
    assert said[:2] == ["", ""]
    assert "'__main__.play' by a different policy: its source was " in said[2]


def other_code(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    for facts in data["policies"].values():
        facts["code"] = "0123456789abcdef"
    path.write_text(json.dumps(data), encoding="utf-8")


def test_other_sources_of_the_package_are_refused_and_kept_apart(tmp_path: Path) -> None:
    run, two = tmp_path / "run", tmp_path / "two"
    run_ablation(small("noisy:p=0.2"), run, 1)
    other_code(run / SETTINGS)
    for policy in ("noisy:p=0.2", "oracle"):
        with pytest.raises(
            ValueError, match=r"was played with different code: its code was .*; use the original"
        ):
            run_ablation(small(policy, seeds=4), run, 1)
    run_ablation(small("noisy:p=0.2"), two, 1)
    columns = {row.policy for row in load_folders({run: "", two: ""})}
    assert columns == {f"noisy:p=0.2 ({run})", f"noisy:p=0.2 ({two})"}


SPELLINGS = [("P", "P1"), ("SP", "PS"), ("P0.5", "P0.50"), ("P0S_", "S_P0"), ("", "none")]


@pytest.mark.parametrize("arms", SPELLINGS)
def test_spellings_of_an_arm_are_one_arm(tmp_path: Path, arms: tuple[str, str]) -> None:
    settings = [small(arms=given) for given in (arms, arms[::-1], arms[:1], arms[1:])]
    assert len({each.arms for each in settings}) == 1
    assert len(settings[0].cells()) == 3
    run_ablation(settings[2], tmp_path, 1)
    assert len(run_ablation(settings[3], tmp_path, 1)) == 3
