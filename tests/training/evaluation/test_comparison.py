from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from agentgym.cli import app
from agentgym.training.evaluation import (
    Ablation,
    Result,
    ablation_tables,
    comparison_tables,
    differences,
    find_levels,
    load_folders,
    log_of,
    pass_at,
    run_ablation,
    summarize,
)
from agentgym.training.evaluation.comparison import pass_table
from agentgym.training.rollout import PolicyConfig


def row(
    policy: str, seed: int, success: float, *, instance: str = "i", arm: str = "", sample: int = 0
) -> Result:
    counts = (4, seed, success, 4, 3, 4, 3)
    return Result("ListWorld", arm, *counts, policy=policy, instance=instance, sample=sample)  # type: ignore[arg-type]


def test_policies_are_compared_over_the_instances_that_both_have_played() -> None:
    rows = [row("a", seed, float(seed % 2)) for seed in range(20)]
    rows += [row("b", seed, 1.0) for seed in range(10, 30)]
    (change,) = differences(rows, (), "success", "a", "policy").values()
    assert change.value == 0.5
    (title, _, lines) = comparison_tables(rows)[1]
    assert title.startswith("Success rate against a")
    assert lines[0][:3] == ["b", "ListWorld", "none"]
    assert lines[0][5] == "10 instances"


def test_other_instances_of_equal_seeds_are_compared_unpaired() -> None:
    outcomes = [float(seed % 2) for seed in range(30)]
    one = [row("a", seed, solved) for seed, solved in enumerate(outcomes)]
    paired = [row("b", seed, solved) for seed, solved in enumerate(outcomes)]
    apart = [replace(each, instance="j") for each in paired]
    same, other = (
        differences([*one, *rows], (), "success", "a", "policy")["b",] for rows in (paired, apart)
    )
    assert same.value == other.value == 0
    # For two independent rates of 1/2 from 30 instances, the half-width is 1.96 * sqrt(2 / 4 / 30).
    assert other.high == pytest.approx(1.96 * np.sqrt(2 / 4 / 30), rel=0.1)
    assert same.high < other.high / 2
    assert "30 and 30 instances, unpaired" in comparison_tables([*one, *apart])[1][2][0]


def test_prompts_that_differ_are_said() -> None:
    rows = [replace(row(p, s, 1.0), prompt=p if s else "") for p in "ab" for s in range(20)]
    assert comparison_tables(rows)[1][2][0][5] == "20 instances; 19 with other prompts"


def test_pass_at_k_by_hand() -> None:
    rows = [row("a", seed, float(k < seed), sample=k) for seed in range(3) for k in range(4)]
    # With c = 0, 1 and 2 of 4 samples solved, 1 - C(4 - c, 2) / C(4, 2) is 0, 3/6 and 5/6.
    assert [each.success for each in pass_at(rows, 2)] == pytest.approx([0, 1 / 2, 5 / 6])
    assert [each.success for each in pass_at(rows, 1)] == pytest.approx([0, 1 / 4, 1 / 2])
    assert pass_at(rows, 5) == []
    means = [summarize(some, (), "success")[()].value for some in (rows, pass_at(rows, 1))]
    assert means[0] == pytest.approx(means[1])
    titles = [title for title, _, _ in ablation_tables(rows)]
    assert titles[0] == "pass@k of 4 samples an instance, % with 95% intervals by instance"
    assert not any("pass@k" in title for title, _, _ in ablation_tables(pass_at(rows, 1)))


def test_a_sample_missing_of_each_instance_leaves_pass_at_k_without_data() -> None:
    rows = [row("a", seed, 1.0, sample=k) for seed in range(3) for k in range(2)]
    lost = [replace(each, missing="lost") if each.sample else each for each in rows]
    (line,) = pass_table(lost)[0][2]
    assert line[3].startswith("100.0 [")
    assert line[4:6] == ["", "3 lost"]


def test_levels_may_differ_by_world() -> None:
    rows = [
        replace(row("a", seed, float(seed < solved)), horizon=horizon, world=world)
        for world in ("ListWorld", "GridWorld")
        for horizon, solved in ((4, 9), (8, 7), (16, 3))
        for seed in range(10)
    ]
    levels = find_levels(rows, by_world={"GridWorld": 0.75})
    assert {key: level.horizon for key, level in levels.items()} == {
        ("a", "ListWorld"): 16,
        ("a", "GridWorld"): 8,
    }


def study(
    out: Path,
    policy: str,
    seeds: int = 2,
    label: str = "",
    arms: Sequence[str] = ("",),
    **options: Any,
) -> Path:
    config = PolicyConfig(policy, label=label)
    run_ablation(Ablation(("ListWorld",), arms, (3,), seeds, config, **options), out, 1)
    return out


def test_folders_are_put_together_and_never_mixed(tmp_path: Path) -> None:
    one, two = study(tmp_path / "one", "noisy:p=0.3"), study(tmp_path / "two", "oracle")
    third = study(tmp_path / "third", "random", label="oracle")
    more = study(tmp_path / "more", "noisy:p=0.3", 4)
    rows = load_folders({one: "", two: ""})
    assert {row.policy for row in rows} == {"noisy:p=0.3", "oracle"}
    assert {row.policy for row in load_folders({one: "x", two: "y"})} == {"x", "y"}
    shown = study(tmp_path / "shown", "oracle", shots=1)
    for another in (third, shown):  # the policy or the prompt differs
        assert {row.policy for row in load_folders({two: "", another: ""})} == {
            f"oracle ({two})",
            f"oracle ({another})",
        }
    easy = study(tmp_path / "easy", "noisy:p=0.3", options={"": {"budget_slack": 9}})
    rows = load_folders({one: "", easy: ""})
    assert len(rows) == len({row.instance for row in rows}) == 4, "no instance is shared"
    assert comparison_tables(rows)[1][2][0][5] == "2 and 2 instances, unpaired"
    sized = study(tmp_path / "sized", "random", axis="removals")
    with pytest.raises(ValueError, match="the sizes of ListWorld are horizon in one folder and re"):
        load_folders({one: "", sized: ""})
    with pytest.warns(UserWarning, match="2 cells occur in more than one folder"):
        assert len(load_folders({one: "", more: ""})) == 4
    with pytest.raises(ValueError, match="contains no trajectories"):
        load_folders({one: "", tmp_path / "empty": ""})


@pytest.mark.rotation
def test_the_command_writes_a_report_of_all_policies(tmp_path: Path) -> None:
    arms = ("", "S", "P")
    one, two = (
        study(tmp_path / name, name, 3, arms=arms) for name in ("noisy:p=0.4", "noisy:p=0.1")
    )
    out = tmp_path / "both"
    shown = CliRunner().invoke(app, ["compare", f"bad={one}", f"good={two}", f"--out={out}"])
    assert shown.exit_code == 0, shown.output
    names = {path.name for path in out.iterdir()}
    assert {"summary.md", "results.jsonl", "arms.svg", "levelled.pdf", "interventions.png"} <= names
    summary = (out / "summary.md").read_text()
    assert "### Success rate against bad" in summary
    assert "| good | ListWorld | none |" in summary
    again = CliRunner().invoke(app, ["compare", str(one), f"--out={one}"])
    assert (again.exit_code, "is one of the compared folders" in again.stderr) == (2, True)


@pytest.mark.rotation
def test_several_policies_play_in_one_run(tmp_path: Path) -> None:
    line = "ablate --world ListWorld --horizons 3 --episodes 4 --oracles none,S --workers 1"
    policies = ["--policy", "good=oracle", "--policy", "noisy:p=0.5", "--out", str(tmp_path)]
    given = [*line.split(), *policies]
    shown = CliRunner().invoke(app, given)
    assert shown.exit_code == 0, shown.output
    counts = [t.labels["policy"] for t in log_of(tmp_path)]
    assert (counts.count("good"), counts.count("noisy:p=0.5")) == (8, 8)
    for wrong, message in (
        (["--max-cost", "3", "--price", "1,2"], "requires a policy behind an endpoint"),
        (["--price", "1"], "--price must be PROMPT,REPLY"),
        (["--price", "1,1", "--price", "1,1", "--price", "1,1"], "3 times for 2 policies"),
        (["--policy", "good=random"], "good names two policies"),
    ):
        shown = CliRunner().invoke(app, [*given, *wrong])
        assert (shown.exit_code, message in shown.stderr) == (2, True), shown.stderr
