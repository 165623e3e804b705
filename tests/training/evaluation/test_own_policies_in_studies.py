from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentgym.cli import app
from agentgym.training.evaluation import log_of, run_ablation
from agentgym.training.rollout import CollectionError
from agentgym.training.rollout.user_policy import UserPolicy
from tests.helpers import run_python
from tests.training.evaluation import failing_policies
from tests.training.evaluation.failing_policies import SEEDS, TOGETHER
from tests.training.evaluation.studies import small
from tests.training.rollout.own_policies import GOOD

OWN = ("remember", "remember_async", "share_memory", "SHARED", "await_replies", "policy")
MODULE = failing_policies.__name__


study = partial(small, arms=("",), seeds=6)


def facts(results: Any) -> list[Any]:
    return [(row.arm, row.seed, row.success, row.steps) for row in results]


def test_the_command_plays_64_requests_at_once_in_one_process(tmp_path: Path) -> None:
    line = f"ablate --policy {MODULE}:Meeting --world ListWorld --oracles none,S --horizons 3"
    more = ["--episodes", str(TOGETHER // 2), "--workers", "1", "--out", str(tmp_path)]
    shown = CliRunner().invoke(app, [*line.split(), *more])
    assert shown.exit_code == 0, shown.output
    assert f"ListWorld: {TOGETHER} episodes" in shown.stdout


@pytest.mark.parametrize(
    ("name", "workers"), [*((name, 1) for name in OWN), ("SHARED", 2), ("remember_async", 2)]
)
def test_own_policies_of_a_module_play_like_the_oracle(
    tmp_path: Path, name: str, workers: int
) -> None:
    expected = run_ablation(study(arms=("", "S")), tmp_path / "oracle", 1)
    own = run_ablation(study(f"{MODULE}:{name}", arms=("", "S")), tmp_path / "own", workers)
    assert facts(own) == facts(expected)


@pytest.mark.parametrize("form", GOOD)
def test_every_form_of_policy_plays_a_study_in_memory(tmp_path: Path, form: str) -> None:
    expected = run_ablation(study(), tmp_path / "oracle", 1)
    assert facts(run_ablation(study(), tmp_path / "own", 1, player=GOOD[form]())) == facts(expected)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exception_costs_one_cell_and_three_in_a_row_stop_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    ablation = study(f"{MODULE}:raise_on_some")
    losses: dict[Any, str] = {}
    monkeypatch.setenv(SEEDS, "1 4")
    results = run_ablation(ablation, tmp_path / "a", workers, on_loss=losses.__setitem__)
    assert [row.seed for row in results] == [0, 2, 3, 5]
    assert {cell.seed for cell in losses} == {1, 4}
    assert all("raised KeyError: 'no such\\nkey'" in cause for cause in losses.values())
    monkeypatch.setenv(SEEDS, "2 3 4")
    with pytest.raises(CollectionError) as stopped:
        run_ablation(ablation, tmp_path / "b", workers)
    first, *rest = str(stopped.value).splitlines()
    assert first.startswith("3 consecutive episodes failed because of the policy; the last failure")
    assert rest[0] == "Traceback (most recent call last):"
    assert sum(bool(t.failure) for t in log_of(tmp_path / "b")) == 3
    before = {t.seed for t in log_of(tmp_path / "b") if not t.failure}
    assert before == {0, 1} or workers == 2
    monkeypatch.setenv(SEEDS, "")
    told: list[int] = []
    assert len(run_ablation(ablation, tmp_path / "b", 1, told.append)) == 6
    assert told[0] == len(before), "the study continues where it stopped"


def test_the_command_shows_the_cause_and_the_traceback_of_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEEDS, "0 1 2 3")
    line = "--world ListWorld --oracles none --horizons 3 --episodes 5 --workers 1 --out"
    for name, text in {
        "raise_on_some": 'raise KeyError("no such',
        "forget_to_return": "returned None for a list of chats; return a str",
    }.items():
        command = ["ablate", "--policy", f"{MODULE}:{name}", *line.split(), str(tmp_path / name)]
        shown = CliRunner().invoke(app, command)
        assert shown.exit_code == 1
        assert shown.stderr.startswith("error: 3 consecutive episodes failed because of the policy")
        assert text in shown.stderr
        assert "agentgym/training" not in shown.stderr
        assert len(shown.stderr.splitlines()) < 10
    command = ["ablate", "--policy", f"{MODULE}:forget_the_policy", *line.split(), str(tmp_path)]
    shown = CliRunner().invoke(app, command)
    assert (shown.exit_code, len(shown.stderr.splitlines())) == (2, 1)
    assert "policy must be a function from chats to replies" in shown.stderr


STUDY = """
from pathlib import Path
from agentgym.training.evaluation import Ablation, run_ablation
run_ablation(Ablation(worlds=("ListWorld",), arms=("",), horizons=(3,)), Path({out!r}), workers=2)
"""
COLLECT = """
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import collect
list(collect(OraclePolicy("ListWorld"), "ListWorld", range(4), 2, engine="processes"))
"""


@pytest.mark.parametrize(("script", "lines"), [(STUDY, 1), (COLLECT, 40)])
def test_a_script_without_a_guard_learns_the_remedy(
    tmp_path: Path, script: str, lines: int
) -> None:
    path = tmp_path / "script.py"
    path.write_text(script.format(out=str(tmp_path / "run")))
    ended = run_python(str(path))
    assert ended.returncode == 1
    said = ended.stderr.splitlines()
    assert len(said) <= lines, ended.stderr
    assert "the script must start them below `if __name__ == '__main__':`" in said[-1]


class CostlyUsage:
    """Policy whose token usage must not be read."""

    @property
    def usage(self) -> Any:
        raise RuntimeError("the usage was read")

    def __call__(self, chats: Any) -> list[str]:
        return ["hm" for _ in chats]


def test_the_usage_of_a_shared_policy_is_not_read() -> None:
    ablation = study()
    trajectory = ablation.play(ablation.cells()[0], player=UserPolicy(CostlyUsage()), shared=True)
    assert trajectory.steps
    assert "tokens" not in trajectory.labels
