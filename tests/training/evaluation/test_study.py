from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentgym import Chat, Reply
from agentgym.cli import app
from agentgym.oracles import OraclePolicy
from agentgym.play.policy import Policy
from agentgym.training.evaluation import Ablation, load_results, log_of, run_ablation
from agentgym.training.evaluation.study_folder import SETTINGS, TRAJECTORIES, load_study
from agentgym.training.rollout import PolicyConfig, Trajectory
from agentgym.training.rollout.lines import read_chunks
from agentgym.training.viewer import RunIndex
from tests.helpers import calls_of
from tests.training.evaluation import studies

MODULE = "tests.training.evaluation.test_study"
# provenance of the policy `Served`
SERVED = {"model": "big"}


class Served:
    """Policy that plays optimally and names its model, like an endpoint policy."""

    def __init__(self, env_id: str) -> None:
        self.policy, self.provenance = OraclePolicy(env_id), dict(SERVED)

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        return self.policy(chats)


def served(env_id: str) -> Policy:
    return Served(env_id)


def small(name: str = "noisy:p=0.2", label: str = "", **changes: Any) -> Ablation:
    return studies.small(**{"seeds": 2, "policy": PolicyConfig(name, label=label), **changes})


def played(ablation: Ablation, out: Path, **options: Any) -> int:
    told: list[int] = []
    run_ablation(ablation, out, 1, told.append, **options)
    return sum(told[1:])


GROWTH = [
    ({"seeds": 4}, 4),
    ({"arms": ("", "S", "P")}, 2),
    ({"arms": ("P",)}, 2),
    ({"horizons": (3, 4)}, 4),
    ({"worlds": ("ListWorld", "GridWorld")}, 4),
    ({"worlds": ("GridWorld",), "options": {"": {"budget_slack": 3}}}, 4),
    ({"contexts": ("clear_results",)}, 4),
    ({"samples": 3}, 8),
    ({"policy": PolicyConfig("oracle")}, 4),
]


@pytest.mark.parametrize(("changes", "more"), GROWTH)
def test_a_run_adds_what_is_missing_and_plays_nothing_again(
    tmp_path: Path, changes: dict[str, Any], more: int
) -> None:
    assert played(small(), tmp_path) == 4
    before = load_results(tmp_path)
    assert played(small(**changes), tmp_path) == more
    after = load_results(tmp_path)
    assert len(after) == 4 + more
    assert [row for row in after if row in before] == before
    assert played(small(), tmp_path) == played(small(**changes), tmp_path) == 0


def test_the_order_in_which_a_study_grew_changes_no_result(tmp_path: Path) -> None:
    for name, order in (("one", GROWTH[:3]), ("other", GROWTH[2::-1])):
        for changes, _ in order:
            run_ablation(small(**changes), tmp_path / name, 1)
    one, other = (load_results(tmp_path / name) for name in ("one", "other"))
    assert one == other


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shots": 1}, "its shots is 0 and not 1"),
        ({"options": {"": {"budget_slack": 3}}}, "its options of ListWorld is {} and not"),
        ({"contexts": ("none", "clear_results")}, "its window is null and not "),
        ({"policy": PolicyConfig("noisy:p=0.2", seed=3)}, "its policy noisy:p=0.2 is "),
        ({"policy": PolicyConfig("oracle", label="noisy:p=0.2")}, "its policy noisy:p=0.2 is "),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    run_ablation(small(), tmp_path, 1)
    before = (tmp_path / SETTINGS).read_bytes()
    with pytest.raises(
        ValueError, match=r"contains a run with other settings: .*agentgym compare"
    ) as e:
        run_ablation(small(**changes), tmp_path, 1)
    assert message in str(e.value)
    assert (tmp_path / SETTINGS).read_bytes() == before


def test_another_model_under_one_name_is_refused_and_under_another_a_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{MODULE}:served"
    run_ablation(small(name), tmp_path, 1)
    monkeypatch.setitem(SERVED, "model", "small")
    with pytest.raises(ValueError, match=r'its model was "big" and is "small"; .*\(NAME=tests'):
        run_ablation(small(name, seeds=3), tmp_path, 1)
    run_ablation(small(name, "little"), tmp_path, 1)
    facts = {t.labels["policy"]: t.labels["provenance"] for t in log_of(tmp_path)}
    assert {column: fact["model"] for column, fact in facts.items()} == {
        name: "big",
        "little": "small",
    }
    needed = {"agentgym", "code", "worlds", "policy", "seed", "modules"}
    assert all(needed <= fact.keys() for fact in facts.values())
    assert all(len(t.labels["prompt"]) == 32 for t in log_of(tmp_path))
    study = load_study(tmp_path)
    assert study is not None
    assert study.policies == facts


def test_samples_of_an_instance_differ_and_are_the_same_in_each_order(tmp_path: Path) -> None:
    ablation = small("noisy:p=0.5", arms=("",), horizons=(6,), seeds=3, samples=4)
    rows = run_ablation(ablation, tmp_path / "one", 1)
    assert [(row.seed, row.sample) for row in rows] == [(s, k) for s in range(3) for k in range(4)]
    assert len({row.instance for row in rows}) == 3
    assert len({(row.optimal, row.steps) for row in rows if row.seed == 0}) > 1
    for samples in (1, 2, 4):
        grown = small("noisy:p=0.5", arms=("",), horizons=(6,), seeds=3, samples=samples)
        run_ablation(grown, tmp_path / "two", 1)
    assert load_results(tmp_path / "two") == rows


def test_equal_samples_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="at temperature 0 would be identical"):
        small(str(tmp_path), samples=2)


def test_doctor_and_viewer_read_compressed_logs_and_repair_them(tmp_path: Path) -> None:
    rows = run_ablation(small(), tmp_path / "run", 1)
    log = tmp_path / "run" / TRAJECTORIES
    whole, chunks = log.read_bytes(), list(read_chunks(log))
    middle = (chunks[1].start + chunks[1].end) // 2
    bad = whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1 :]
    log.write_bytes(bad[:-20])
    index = RunIndex(tmp_path / "run")
    while index.refresh():
        pass
    assert [row.outcome == "damaged" for row in index.rows] == [False, True, False]
    assert Trajectory.from_json(index.line(2).decode()).seed == rows[1].seed
    doctor = ["doctor", str(tmp_path / "run")]
    shown = CliRunner().invoke(app, doctor)
    assert shown.exit_code == 1
    assert f"{log}, line 2: it is not a trajectory" in shown.output
    assert f"{log}, line 4: the last line is incomplete" in shown.output
    assert CliRunner().invoke(app, [*doctor, "--repair"]).exit_code == 0
    side = log.with_name(log.name + ".damaged").read_bytes()
    assert side.startswith(bad[chunks[1].start : chunks[1].end])
    assert len(load_results(tmp_path / "run").missing) == 2
    assert run_ablation(small(), tmp_path / "run", 1) == rows
    assert CliRunner().invoke(app, doctor).exit_code == 0


def test_reading_settings_repeats_no_preparation(tmp_path: Path) -> None:
    ablation = Ablation(
        worlds=("ListWorld",), arms=("",), horizons=(3,), seeds=1, policy=PolicyConfig("oracle")
    )
    run_ablation(ablation, tmp_path, workers=1)
    load_study(tmp_path)
    assert calls_of(lambda: load_study(tmp_path)) < 2_000
